// Package loss holds losses over sharded class dimensions.
//
//	logits := x.Linear(head)                                      // [B, T, V] S(0),S(2)
//	l := loss.CrossEntropy(logits.Reshape(B*T, V), targets, loss.Options{}) // []  R
//
// The classes stay where they are. Each rank reads its own logits once and
// comes to a few numbers for each position: the largest logit, the sum of
// exponentials, the logit of the target. These, and nothing of the size of the
// logits, are combined over the ranks that share a position's classes, in one
// collective. The gradient needs none: it is written once, in the layout of the
// logits.
//
// What the losses compute is what torch.nn.functional computes under the same
// name for the whole tensor; a layout never changes a result.
//
// MSE, L1, Huber, KL, BinaryCrossEntropy, MarginRanking and TripletMargin compare
// elements or rows, and InfoNCE finds each query's key among those of all ranks.
//
// All take float32, float64 and bfloat16. A loss of bfloat16 is computed in float32,
// is float32 itself, and gives bfloat16 gradients; see there.
//
// Argmax, TopK and Sample find and draw classes where they lie, too: a few
// candidates a position are sent, never the logits.
package loss
