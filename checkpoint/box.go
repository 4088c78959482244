package checkpoint

import (
	"iter"
	"sort"

	"github.com/gorun-spmd/gorun/internal/ints"
)

// A box is a block of a tensor: the elements whose index in each dimension d is
// in [offset[d], offset[d]+size[d]). Kept by itself it is dense and row-major.
type box struct{ offset, size []int }

func (b box) numel() int { return ints.Product(b.size) }

// overlaps reports whether the boxes share an element.
func (b box) overlaps(c box) bool {
	for d := range b.size {
		if max(b.offset[d], c.offset[d]) >= min(b.offset[d]+b.size[d], c.offset[d]+c.size[d]) {
			return false
		}
	}
	return true
}

// A run is a piece of memory that two boxes share: n elements, from element x of
// the one and element y of the other.
type run struct{ x, y, n int }

// A meeting is all that two boxes share, in runs that ascend in both.
type meeting struct {
	x, y  box
	lo, n []int // the box that they share
	split int   // dimensions from split on are one run
	each  int   // elements of a run
	runs  int   // how many
}

func meet(x, y box) meeting {
	if !x.overlaps(y) {
		return meeting{}
	}
	dims := len(x.size)
	m := meeting{x: x, y: y, lo: make([]int, dims), n: make([]int, dims), split: dims, each: 1, runs: 1}
	for d := range dims {
		m.lo[d] = max(x.offset[d], y.offset[d])
		m.n[d] = min(x.offset[d]+x.size[d], y.offset[d]+y.size[d]) - m.lo[d]
	}
	// A run goes on over dimensions that are whole in both boxes, and over part of
	// the one before these.
	for m.split > 0 {
		m.split--
		m.each *= m.n[m.split]
		if m.n[m.split] != x.size[m.split] || m.n[m.split] != y.size[m.split] {
			break
		}
	}
	for d := range m.split {
		m.runs *= m.n[d]
	}
	return m
}

// run returns run k.
func (m *meeting) run(k int) run {
	r := run{n: m.each}
	strideX, strideY := 1, 1
	for d := len(m.n) - 1; d >= 0; d-- {
		i := m.lo[d]
		if d < m.split {
			i += k % m.n[d]
			k /= m.n[d]
		}
		r.x += strideX * (i - m.x.offset[d])
		r.y += strideY * (i - m.y.offset[d])
		strideX *= m.x.size[d]
		strideY *= m.y.size[d]
	}
	return r
}

// from returns the first run that ends after element at of x.
func (m *meeting) from(at int) int {
	return sort.Search(m.runs, func(k int) bool { return m.run(k).x+m.each > at })
}

// touches reports whether a run has any of the elements [lo, hi) of x.
func (m *meeting) touches(lo, hi int) bool {
	k := m.from(lo)
	return k < m.runs && m.run(k).x < hi
}

// runs lists the runs that x and y share, in ascending order in both. It equals,
// except for the length of the runs,
//
//	for every index i in x and y {
//		yield(run{position of i in x, position of i in y, 1})
//	}
func runs(x, y box) iter.Seq[run] {
	m := meet(x, y)
	return func(yield func(run) bool) {
		for k := range m.runs {
			if !yield(m.run(k)) {
				return
			}
		}
	}
}
