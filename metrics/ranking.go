package metrics

import (
	"cmp"
	"math"
	"slices"
)

// NormalizedEntropy returns a mean log loss by that of predicting the mean of the labels for every
// example: 1 for a model that knows no more, less for a better one (He et al., "Practical
// Lessons from Predicting Clicks on Ads at Facebook", 2014). It is NaN where all labels are the
// same. Both arguments may be weighted means over all ranks, see Means; the mean prediction by
// the mean label is the calibration.
func NormalizedEntropy(logLoss, meanLabel float64) float64 {
	entropy := -meanLabel*math.Log(meanLabel) - (1-meanLabel)*math.Log1p(-meanLabel)
	return logLoss / entropy
}

// NDCG returns the normalized discounted cumulative gain of the first k of one list of candidates,
// ordered by their scores; k 0 stands for all.
//
//	scores [N]   gains [N], none negative   →   Σ gain/log₂(1 + place) by the greatest such sum
//
// Gains are the labels, or 2^label-1. Candidates of one score share the mean discount of their
// places (McSherry and Najork, "Computing Information Retrieval Performance Measures Efficiently in
// the Presence of Tied Scores", 2008). ok is false if no gain is positive, or a number is NaN. Means
// averages lists over ranks.
func NDCG(scores, gains []float32, k int) (ndcg float64, ok bool) {
	wantPairs("NDCG", len(scores), len(gains))
	discount := func(place int) float64 { return 1 / math.Log2(float64(2+place)) }
	got, valid := topSum(scores, gains, k, discount)
	best, _ := topSum(gains, gains, k, discount)
	return got / best, valid && best > 0
}

// RecallAt returns which part of the positive examples of one list of candidates is among the k of the
// highest scores. Where the k-th score is that of several, each of these counts in part. ok is false if
// there are no positive ones, or a number is NaN.
//
//	scores [N]   labels [N], 1 or 0
func RecallAt(k int, scores, labels []float32) (recall float64, ok bool) {
	wantPairs("RecallAt", len(scores), len(labels))
	if k <= 0 {
		return 0, false
	}
	one := func(int) float64 { return 1 }
	got, valid := topSum(scores, labels, k, one)
	all, _ := topSum(scores, labels, 0, one)
	return got / all, valid && all > 0
}

// topSum adds up the values of the first k by score, each times the weight of its place, which equal scores share. ok is false
// if a number is NaN.
func topSum(scores, values []float32, k int, weight func(place int) float64) (sum float64, ok bool) {
	if k == 0 {
		k = len(scores)
	}
	order := make([]int, len(scores))
	for i := range order {
		if order[i] = i; scores[i] != scores[i] || values[i] != values[i] {
			return 0, false
		}
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	for lo := 0; lo < min(k, len(order)); {
		hi, its, weights := lo, 0.0, 0.0
		for ; hi < len(order) && scores[order[hi]] == scores[order[lo]]; hi++ {
			its += float64(values[order[hi]])
			if hi < k {
				weights += weight(hi)
			}
		}
		sum += its * weights / float64(hi-lo)
		lo = hi
	}
	return sum, true
}
