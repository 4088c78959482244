// Package pairwise is an order of sums that parts of a sum keep: a sum of n terms is that of its
// first half plus that of its second, each made alike, for as long as n is even and a half
// has enough terms. What is left is a leaf; its terms are added in any order that is fixed.
//
// So whoever has all terms of a half of a half … of a sum has a node of its tree, and
// ranks or micro-batches that have one each make the sum by adding nodes in pairs.
package pairwise

// Least is how many terms a leaf of a product of matrices has at least: of shorter ones the
// additions of leaves would cost more than the terms.
const Least = 128

// Leaf returns how many terms a leaf of a sum of n terms has that may not be shorter than least,
// n itself if n is odd or below 2·least. n over it is a power of two.
func Leaf(n, least int) int {
	for n > 0 && n%2 == 0 && n/2 >= least {
		n /= 2
	}
	return n
}

// Divides reports whether each of some equal parts of n terms is a node of their sum.
func Divides(n, parts, least int) bool {
	return parts == 1 || parts > 0 && parts&(parts-1) == 0 && n > 0 && n%parts == 0 && n/parts >= least
}

// Sum returns the sum of x, whose leaves are as short as can be.
func Sum(x []float64) float64 {
	if n := len(x); n > 1 && n%2 == 0 {
		return Sum(x[:n/2]) + Sum(x[n/2:])
	}
	var s float64
	for _, v := range x {
		s += v
	}
	return s
}

// A Fold adds nodes, which come one after another, in pairs, and pairs in pairs. The zero
// Fold is empty.
type Fold[T any] struct {
	nodes []T // those that wait for their pair, the largest first
	count int
}

// Push adds the next node by add, which may change its arguments.
func (f *Fold[T]) Push(v T, add func(a, b T) T) {
	f.nodes = append(f.nodes, v)
	for i := f.count; i&1 == 1; i >>= 1 {
		f.join(add)
	}
	f.count++
}

// Sum returns the sum of all nodes. A node without a pair is its own. There must be a node.
func (f *Fold[T]) Sum(add func(a, b T) T) T {
	for len(f.nodes) > 1 {
		f.join(add)
	}
	return f.nodes[0]
}

// join makes one of the last two nodes.
func (f *Fold[T]) join(add func(a, b T) T) {
	n := len(f.nodes)
	f.nodes[n-2] = add(f.nodes[n-2], f.nodes[n-1])
	f.nodes = f.nodes[:n-1]
}
