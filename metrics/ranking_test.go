package metrics

import (
	"math"
	"math/rand/v2"
	"testing"
)

// permutations calls f with each order of 0 to n-1.
func permutations(n int, f func(order []int)) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	var permute func(at int)
	permute = func(at int) {
		if at == n {
			f(order)
			return
		}
		for i := at; i < n; i++ {
			order[at], order[i] = order[i], order[at]
			permute(at + 1)
			order[at], order[i] = order[i], order[at]
		}
	}
	permute(0)
}

// naive returns the mean of gain and of recall over all orders that the scores allow.
func naive(scores, labels []float32, k int) (gain, recall float64) {
	orders := 0.0
	permutations(len(scores), func(order []int) {
		for i := 1; i < len(order); i++ {
			if scores[order[i]] > scores[order[i-1]] {
				return
			}
		}
		orders++
		for i, j := range order[:min(k, len(order))] {
			gain += float64(labels[j]) / math.Log2(float64(i+2))
			recall += float64(labels[j])
		}
	})
	return gain / orders, recall / orders
}

func TestRanking(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		n := 1 + rng.IntN(6)
		scores, labels := make([]float32, n), make([]float32, n)
		positive := 0.0
		for i := range n {
			scores[i], labels[i] = float32(rng.IntN(4)), float32(rng.IntN(2))
			positive += float64(labels[i])
		}
		k := 1 + rng.IntN(7)
		gain, found := naive(scores, labels, k)
		best, _ := naive(labels, labels, k)
		ndcg, ok := NDCG(scores, labels, k)
		recall, alsoOK := RecallAt(k, scores, labels)
		if ok != (positive > 0) || ok != alsoOK || ok && (math.Abs(ndcg-gain/best) > 1e-12 || math.Abs(recall-found/positive) > 1e-12) {
			t.Fatalf("%v %v at %d: NDCG %v, recall %v, %v; want %v and %v", scores, labels, k, ndcg, recall, ok, gain/best, found/positive)
		}
	}
	if all, ok := NDCG([]float32{3, 2, 1}, []float32{1, 7, 3}, 0); !ok || math.Abs(all-(1+7/math.Log2(3)+1.5)/(7+3/math.Log2(3)+.5)) > 1e-12 {
		t.Errorf("NDCG of all is %v, %v", all, ok)
	}
	nan := float32(math.NaN())
	if _, ok := NDCG([]float32{nan}, []float32{1}, 1); ok {
		t.Error("a score that is NaN")
	}
	if _, ok := RecallAt(1, []float32{1}, []float32{nan}); ok {
		t.Error("a label that is NaN")
	}
	if _, ok := RecallAt(0, []float32{1}, []float32{1}); ok {
		t.Error("the first none")
	}
}

// The mean label for every example has the normalized entropy 1, and a better model less.
func TestNormalizedEntropy(t *testing.T) {
	logits, labels := []float32{0, 0, 0, 0, 0}, []float32{1, 0, 0, 1, 0}
	for i := range logits {
		logits[i] = float32(math.Log(.4 / .6))
	}
	if ne := NormalizedEntropy(LogLoss(logits, labels), .4); math.Abs(ne-1) > 1e-6 {
		t.Errorf("%v, want 1", ne)
	}
	logits[0] = 2
	if ne := NormalizedEntropy(LogLoss(logits, labels), .4); ne >= 1 {
		t.Errorf("a better model has %v", ne)
	}
	for _, same := range []float64{0, 1} {
		if ne := NormalizedEntropy(.5, same); !math.IsNaN(ne) {
			t.Errorf("labels that are all %v: %v", same, ne)
		}
	}
}
