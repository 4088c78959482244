package cpu

import (
	"math/bits"

	"github.com/gorun-spmd/gorun/internal/pairwise"
	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// sumPairwise computes dst[o, i] = Σ x[o, r, i], each a pairwise sum whose leaves are as short
// as can be. A leaf of a row is added by row.
func sumPairwise[T float](dst, x []T, a kernel.Axis, row func(x []T) T) {
	if len(dst) == 0 {
		return
	}
	if a.N == 0 {
		clear(dst)
		return
	}
	parallel(a.Outer, a.N*a.Inner, 1, func(lo, hi int) {
		var sum columns[T]
		for o := lo; o < hi; o++ {
			x := x[o*a.N*a.Inner:][:a.N*a.Inner]
			if a.Inner == 1 {
				dst[o] = pairs(x, row)
				continue
			}
			for i := 0; i < a.Inner; i += ColumnTile {
				end := min(i+ColumnTile, a.Inner)
				sum.add(dst[o*a.Inner+i:o*a.Inner+end], x[i:], a.N, a.Inner, 0)
			}
		}
	})
}

// pairs returns the pairwise sum of x; leaf adds a leaf.
func pairs[T float](x []T, leaf func(x []T) T) T {
	switch n := len(x); {
	case n == 8:
		return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]))
	case n == 1:
		return x[0]
	case n%2 == 0:
		return pairs(x[:n/2], leaf) + pairs(x[n/2:], leaf)
	default:
		return leaf(x)
	}
}

// Columns add rows pairwise. They keep room for right halves, one for each level.
type columns[T float] struct{ rooms [][]T }

// add sets dst to the sum of some rows of x, which start step apart.
func (c *columns[T]) add(dst, x []T, rows, step, level int) {
	n := len(dst)
	switch {
	case rows == 2:
		simd.Add(dst, x[:n], x[step:][:n])
	case rows%2 == 0:
		if level == len(c.rooms) {
			c.rooms = append(c.rooms, make([]T, ColumnTile))
		}
		c.add(dst, x, rows/2, step, level+1)
		c.add(c.rooms[level][:n], x[rows/2*step:], rows/2, step, level+1)
		simd.AddTo(dst, c.rooms[level][:n])
	default:
		copy(dst, x[:n])
		for r := 1; r < rows; r++ {
			simd.AddTo(dst, x[r*step:][:n])
		}
	}
}

// sumRowsPairwise calls f for leaves of rows, from lo to hi, with the vectors into which it adds,
// and adds their pairwise sums to dw and db, of which one may be nil.
func sumRowsPairwise[T float](rows int, dw, db []T, f func(lo, hi int, dw, db []T)) {
	var free [][2][]T
	add := func(a, b [2][]T) [2][]T {
		simd.AddTo(a[0], b[0])
		simd.AddTo(a[1], b[1])
		free = append(free, b)
		return a
	}
	var total pairwise.Fold[[2][]T]
	leaf := pairwise.Leaf(rows, 1)
	for lo := 0; lo < rows; lo += leaf {
		if len(free) == 0 {
			room := [2][]T{}
			for i, d := range [2][]T{dw, db} {
				if d != nil {
					room[i] = make([]T, len(d))
				}
			}
			free = append(free, room)
		}
		sum := free[len(free)-1]
		free = free[:len(free)-1]
		clear(sum[0])
		clear(sum[1])
		f(lo, lo+leaf, sum[0], sum[1])
		total.Push(sum, add)
	}
	if rows > 0 {
		sum := total.Sum(add)
		simd.AddTo(dw, sum[0])
		simd.AddTo(db, sum[1])
	}
}

// sumSegmentsPairwise is SumSegments with sums that are pairwise over all rows of values, of which
// a segment has some: a node is the sum of those of its rows that are in the segment.
func sumSegmentsPairwise[T float](dst, values []T, s kernel.Segments, dim int) {
	start, order := sliceOf[int64](s.Start, s.N+1), sliceOf[int32](s.Order, s.Rows)
	leaf := pairwise.Leaf(s.Of, 1)
	var open openNodes[T]
	for k := range s.N {
		rows := order[start[k]:start[k+1]]
		to := dst[k*dim : (k+1)*dim]
		if len(rows) == 0 {
			clear(to)
		}
		for i := 0; i < len(rows); {
			number := int(rows[i]) / leaf
			sum := open.push(number, dim)
			copy(sum, values[int(rows[i])*dim:])
			for i++; i < len(rows) && int(rows[i])/leaf == number; i++ {
				simd.AddTo(sum, values[int(rows[i])*dim:][:dim])
			}
		}
		open.sum(to)
	}
}

// openNodes are nodes of one sum, each to be added to the one before it, and room for more.
type openNodes[T float] struct {
	nodes []openNode[T]
	n     int
}

// An openNode is the sum of some leaves up to the one of this number.
type openNode[T float] struct {
	leaf int
	sum  []T
}

// push returns where the sum of a leaf goes that comes after all others.
func (o *openNodes[T]) push(leaf, dim int) []T {
	level := func(a, b int) int { return bits.Len(uint(a ^ b)) } // of the node in which two leaves meet
	for o.n > 1 && level(o.nodes[o.n-2].leaf, o.nodes[o.n-1].leaf) < level(o.nodes[o.n-1].leaf, leaf) {
		o.join()
	}
	if o.n == len(o.nodes) {
		o.nodes = append(o.nodes, openNode[T]{sum: make([]T, dim)})
	}
	o.n++
	o.nodes[o.n-1].leaf = leaf
	return o.nodes[o.n-1].sum
}

// join adds the last node to the one before it.
func (o *openNodes[T]) join() {
	simd.AddTo(o.nodes[o.n-2].sum, o.nodes[o.n-1].sum)
	o.nodes[o.n-2].leaf = o.nodes[o.n-1].leaf
	o.n--
}

// sum sets dst to the sum of all nodes, if there are any, and leaves none.
func (o *openNodes[T]) sum(dst []T) {
	if o.n == 0 {
		return
	}
	for o.n > 1 {
		o.join()
	}
	copy(dst, o.nodes[0].sum)
	o.n = 0
}
