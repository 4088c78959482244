package pairwise

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var cases = flag.Int("pairwise.cases", 20000, "random sums")

// sum is the definition: a leaf is added from the left.
func sum(x []float32, least int) float32 {
	if n := len(x); n%2 == 0 && n/2 >= least {
		return sum(x[:n/2], least) + sum(x[n/2:], least)
	}
	var s float32
	for _, v := range x {
		s += v
	}
	return s
}

// The leaves of a sum, and the sums of parts that divide it, fold to its bits.
func TestPartsFoldToTheSum(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	add := func(a, b float32) float32 { return a + b }
	divided := 0
	for range *cases {
		n, least, parts := r.IntN(3)<<r.IntN(8)+r.IntN(100), 1+r.IntN(20), 1+r.IntN(16)
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		want := sum(x, least)
		if n == 0 {
			continue
		}
		var leaves Fold[float32]
		for leaf, i := Leaf(n, least), 0; i < n; i += leaf {
			leaves.Push(sum(x[i:i+leaf], leaf), add)
		}
		if got := leaves.Sum(add); got != want {
			t.Fatalf("%d terms, leaves of at least %d: %v, want %v", n, least, got, want)
		}
		if !Divides(n, parts, least) {
			continue
		}
		if divided++; n%parts != 0 {
			t.Fatalf("%d parts of %d terms", parts, n)
		}
		var nodes Fold[float32]
		for i := 0; i < n; i += n / parts {
			nodes.Push(sum(x[i:i+n/parts], least), add)
		}
		if got := nodes.Sum(add); got != want {
			t.Fatalf("%d terms, leaves of at least %d, %d parts: %v, want %v", n, least, parts, got, want)
		}
	}
	if divided < *cases/20 {
		t.Errorf("%d of %d sums were divided", divided, *cases)
	}
}
