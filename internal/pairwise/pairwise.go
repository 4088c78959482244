// Package pairwise is an order of sums that parts of a sum keep: a sum of n terms is that of its
// first half plus that of its second, each made alike, for as long as n is even and a half
// has enough terms. What is left is a leaf; its terms are added in any order that is fixed.
//
// So whoever has all terms of a half of a half … of a sum has a node of its tree, and
// ranks or micro-batches that have one each make the sum by adding nodes in pairs. Any run of leaves is a few
// nodes.
package pairwise

import "math/bits"

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

// Cut returns how many of some leaves, a power of two, each of some parts gets so that it has one node of
// the sum, or two where parts is no power of two; nil if there are fewer leaves than parts.
func Cut(leaves, parts int) []int {
	units := 1
	for units < parts {
		units *= 2
	}
	if units > parts {
		units *= 2
	}
	if units = min(units, leaves); units < parts {
		return nil
	}
	cut := make([]int, parts)
	for i := range cut { // the larger parts first: three units at most are two nodes, and four are one where they begin at a fourth
		cut[i] = units / parts * (leaves / units)
		if i < units%parts {
			cut[i] += leaves / units
		}
	}
	return cut
}

// Nodes returns how many leaves each of the nodes has that make up the leaves from lo to hi, as few as can
// be.
func Nodes(lo, hi int) (sizes []int) {
	for lo < hi {
		n := 1 << (bits.Len(uint(hi-lo)) - 1)
		if lo > 0 {
			n = min(n, lo&-lo)
		}
		sizes, lo = append(sizes, n), lo+n
	}
	return sizes
}

// A Fold adds nodes, which come one after another, in pairs, and pairs in pairs. The zero
// Fold is empty.
type Fold[T any] struct {
	nodes  []T   // those that wait for their pair, the largest first
	leaves []int // that each has
}

// Push adds the next node, a leaf, by add, which may change its arguments.
func (f *Fold[T]) Push(v T, add func(a, b T) T) { f.PushNode(v, 1, add) }

// PushNode is Push of a node, whose number of leaves is a power of two.
func (f *Fold[T]) PushNode(v T, leaves int, add func(a, b T) T) {
	f.nodes, f.leaves = append(f.nodes, v), append(f.leaves, leaves)
	for n := len(f.nodes); n > 1 && f.leaves[n-2] == f.leaves[n-1]; n-- {
		f.join(add)
	}
}

// Sum returns the sum of all nodes, and empties the Fold. A node without a pair is its own. There must be a node.
func (f *Fold[T]) Sum(add func(a, b T) T) T {
	for len(f.nodes) > 1 {
		f.join(add)
	}
	sum := f.nodes[0]
	clear(f.nodes)
	f.nodes, f.leaves = f.nodes[:0], f.leaves[:0]
	return sum
}

// join makes one of the last two nodes.
func (f *Fold[T]) join(add func(a, b T) T) {
	n := len(f.nodes)
	f.nodes[n-2] = add(f.nodes[n-2], f.nodes[n-1])
	f.leaves[n-2] += f.leaves[n-1]
	f.nodes, f.leaves = f.nodes[:n-1], f.leaves[:n-1]
}
