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
		if parts&(parts-1) != 0 || n/Leaf(n, least) < parts {
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

// Any parts that are cut at leaves have one or two nodes each, which fold to the bits of the sum, and of four
// leaves a part and more no part has half more than its share.
func TestCutPartsFoldToTheSum(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	add := func(a, b float32) float32 { return a + b }
	for levels := range 8 {
		leaves := 1 << levels
		x := make([]float32, leaves*3)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		want := sum(x, 3)
		for parts := 1; parts <= 40; parts++ {
			cut := Cut(leaves, parts)
			if (cut == nil) != (parts > leaves) {
				t.Fatalf("%d leaves, %d parts: %v", leaves, parts, cut)
			}
			var fold Fold[float32]
			at := 0
			for _, n := range cut {
				nodes := Nodes(at, at+n)
				if most := min(2, 1+parts&(parts-1)); len(nodes) == 0 || len(nodes) > most {
					t.Fatalf("%d leaves, %d parts: %v: from %d on are the nodes %v", leaves, parts, cut, at, nodes)
				}
				if leaves >= 4*parts && 2*n*parts >= 3*leaves {
					t.Fatalf("%d leaves, %d parts: %v", leaves, parts, cut)
				}
				for _, size := range nodes {
					fold.PushNode(sum(x[at*3:(at+size)*3], 3), size, add)
					at += size
				}
			}
			if cut != nil && (at != leaves || fold.Sum(add) != want) {
				t.Fatalf("%d leaves, %d parts: %v: %v of %d leaves, want %v", leaves, parts, cut, fold.Sum(add), at, want)
			}
		}
		for range 200 { // any cuts
			var fold Fold[float32]
			for at := 0; at < leaves; {
				end := at + 1 + r.IntN(leaves-at)
				for _, size := range Nodes(at, end) {
					fold.PushNode(sum(x[at*3:(at+size)*3], 3), size, add)
					at += size
				}
			}
			if got := fold.Sum(add); got != want {
				t.Fatalf("%d leaves: %v, want %v", leaves, got, want)
			}
		}
	}
}
