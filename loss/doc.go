// Package loss holds losses over sharded class dimensions.
//
//	logits := x.Linear(head)                                      // [B, T, V] S(0),S(2)
//	l := loss.CrossEntropy(logits.Reshape(B*T, V), targets, loss.Options{}) // []  R
//
// The classes stay where they are. Each rank reads its own logits once and computes
// a few numbers for each position: the largest logit, the sum of exponentials, the
// logit of the target. One collective combines these, and nothing of the size of the
// logits, over the ranks that share a position's classes. The gradient needs no
// collective: it is written once, in the layout of the logits.
//
// A loss computes what torch.nn.functional computes under the same name for the whole
// tensor; a layout never changes a result.
//
// MSE, L1, Huber, KL, PoissonNLL, GaussianNLL, BinaryCrossEntropy, and the losses of
// margins, such as TripletMargin and CosineEmbedding, compare elements or rows.
// MultiMargin is CrossEntropy's counterpart of margins, MultiLabelMargin that of several
// labels, and InfoNCE finds each query's key among those of all ranks. CTC is for sequences
// whose labels are not aligned with their frames.
//
// All take float32, float64 and bfloat16. A loss of bfloat16 operands is computed in
// float32 and is float32; its gradients are bfloat16. See CrossEntropy.
//
// Argmax, TopK and Sample leave the logits where they are, too: ranks send a few
// candidates a position, never the logits.
package loss
