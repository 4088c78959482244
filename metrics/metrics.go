// Package metrics says how good a model is: the area under the curve, accuracy,
// losses, perplexity, and means that are summed over all ranks at once.
//
//	out, err := metrics.Open("run.csv") // on rank 0; or run.jsonl, or a folder for TensorBoard
//	...
//	var means metrics.Means
//	for range batches {
//		means.Add("loss", loss, tokens) // on each rank its own
//	}
//	values, err := means.Reduce(ctx, world) // one collective for all means
//	...
//	err = out.Write(step, values...) // on rank 0
//
// What a function of this package takes are numbers on the host; only Means communicates.
package metrics

import (
	"cmp"
	"compress/gzip"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/gorun-spmd/gorun/internal/fault"
)

// AUC returns the area under the receiver operating characteristic: the probability that
// a positive example has a higher score than a negative one, ties counting half. ok is
// false if there are no positive or no negative examples, or if a score is NaN.
//
//	scores [N]   labels [N], 1 or 0
func AUC(scores, labels []float32) (auc float64, ok bool) {
	wantPairs("AUC", len(scores), len(labels))
	return WeightedAUC(scores, labels, nil)
}

// WeightedAUC is AUC of examples that count weights times each. ok is false too if all positive or all negative ones weigh 0.
//
//	scores [N]   labels [N], 1 or 0   weights [N], none negative, or nil: all 1
func WeightedAUC(scores, labels, weights []float32) (auc float64, ok bool) {
	order, ok := byScore("WeightedAUC", scores, labels, weights)
	var pairs, clicks, others float64
	for up, all := range ties(order, scores, labels, weights) {
		down := all - up
		pairs += up*others + up*down/2
		clicks, others = clicks+up, others+down
	}
	if !ok || clicks == 0 || others == 0 {
		return 0, false
	}
	return pairs / (clicks * others), true
}

// AveragePrecision returns the area under the steps of precision over recall: the mean, over positive examples, of which part
// of those with at least their score is positive. It is AUPRC. ok is false if there are no positive examples, or if a score is NaN.
//
//	scores [N]   labels [N], 1 or 0
func AveragePrecision(scores, labels []float32) (ap float64, ok bool) {
	wantPairs("AveragePrecision", len(scores), len(labels))
	return WeightedAveragePrecision(scores, labels, nil)
}

// WeightedAveragePrecision is AveragePrecision of examples that count weights times each. ok is false too if all positive ones
// weigh 0.
//
//	scores [N]   labels [N], 1 or 0   weights [N], none negative, or nil: all 1
func WeightedAveragePrecision(scores, labels, weights []float32) (ap float64, ok bool) {
	order, ok := byScore("WeightedAveragePrecision", scores, labels, weights)
	slices.Reverse(order)
	var area, clicks, seen float64
	for up, all := range ties(order, scores, labels, weights) {
		clicks, seen = clicks+up, seen+all
		if up > 0 {
			area += up * clicks / seen
		}
	}
	if !ok || clicks == 0 {
		return 0, false
	}
	return area / clicks, true
}

// ties yields for each score, in the given order of examples, the weight of the positive examples that have it, and that of all.
func ties(order []int, scores, labels, weights []float32) iter.Seq2[float64, float64] {
	return func(yield func(up, all float64) bool) {
		for lo := 0; lo < len(order); {
			hi, up, all := lo, 0.0, 0.0
			for ; hi < len(order) && scores[order[hi]] == scores[order[lo]]; hi++ {
				w := 1.0
				if weights != nil {
					w = float64(weights[order[hi]])
				}
				up, all = up+w*float64(labels[order[hi]]), all+w
			}
			if !yield(up, all) {
				return
			}
			lo = hi
		}
	}
}

// byScore returns the positions of the scores, the lowest first; none, and ok is false, if one is NaN. It throws if there is not
// one label, or one of the weights, for each.
func byScore(name string, scores, labels, weights []float32) (order []int, ok bool) {
	wantPairs(name, len(scores), len(labels))
	if weights != nil && len(weights) != len(scores) {
		fault.Throw(fmt.Errorf("metrics: %s: %d predictions and %d weights; give as many of each", name, len(scores), len(weights)))
	}
	order = make([]int, len(scores))
	for i, s := range scores {
		if s != s {
			return nil, false
		}
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(scores[a], scores[b]) })
	return order, true
}

// wantPairs throws if there is not one label for each prediction.
func wantPairs(name string, predictions, labels int) {
	if predictions != labels {
		fault.Throw(fmt.Errorf("metrics: %s: %d predictions and %d labels; give as many of each", name, predictions, labels))
	}
}

// LogLoss returns the mean binary cross-entropy of logits.
//
//	logits [N]   labels [N], 1 or 0
func LogLoss(logits, labels []float32) float64 {
	wantPairs("LogLoss", len(logits), len(labels))
	sum := 0.0
	for i, x := range logits {
		x := float64(x)
		sum += max(x, 0) - x*float64(labels[i]) + math.Log1p(math.Exp(-math.Abs(x)))
	}
	return sum / float64(len(logits))
}

// BitsPerByte converts a sum of −ln p over the tokens of a text of textBytes bytes
// to bits per byte.
func BitsPerByte(nats float64, textBytes int) float64 {
	return nats / math.Ln2 / float64(textBytes)
}

// Nats is the inverse of BitsPerByte. Divided by the number of tokens it is a
// loss that can be drawn beside a model's.
func Nats(bitsPerByte float64, textBytes int) float64 {
	return bitsPerByte * math.Ln2 * float64(textBytes)
}

// GzipBitsPerByte returns the bits per byte of text after gzip -9. text must not be empty.
func GzipBitsPerByte(text []byte) (float64, error) {
	var size counter
	z, err := gzip.NewWriterLevel(&size, gzip.BestCompression)
	if err != nil {
		return 0, fmt.Errorf("metrics: GzipBitsPerByte: %w", err)
	}
	if _, err := z.Write(text); err != nil {
		return 0, fmt.Errorf("metrics: GzipBitsPerByte: %w", err)
	}
	if err := z.Close(); err != nil {
		return 0, fmt.Errorf("metrics: GzipBitsPerByte: %w", err)
	}
	return 8 * float64(size) / float64(len(text)), nil
}

// A counter is an io.Writer that only counts.
type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// Perplexity returns exp(nats/tokens), where nats is the sum of −ln p over that many tokens. A
// model that chooses uniformly among n tokens has perplexity n.
func Perplexity(nats float64, tokens int) float64 { return math.Exp(nats / float64(tokens)) }

// Accuracy counts the predictions that equal their targets, and the targets that do not equal
// ignore. The sums of both numbers over ranks give the accuracy of all: see Means.
//
//	predictions [N]   targets [N]
func Accuracy(predictions, targets []int64, ignore int64) (correct, counted int) {
	wantPairs("Accuracy", len(predictions), len(targets))
	for i, t := range targets {
		if t == ignore {
			continue
		}
		if counted++; predictions[i] == t {
			correct++
		}
	}
	return correct, counted
}
