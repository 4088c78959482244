package layout

import (
	"cmp"
	"slices"
)

// Owners tells who owns each index of a dimension that is cut into spans. The
// zero Owners has none.
type Owners struct {
	spans  []owned
	first  int     // where the first span starts
	perOne float64 // 1 / its length; dividing integers takes ten times as long
}

// owned is the indices start to end, which belong to owner.
type owned struct {
	start, end int
	owner      int32
}

// Add enters that owner has length indices from start on. Spans may come in any
// order and more than once, but do not overlap.
func (o *Owners) Add(start, length, owner int) {
	if length == 0 {
		return
	}
	s := owned{start, start + length, int32(owner)}
	at, found := slices.BinarySearchFunc(o.spans, s, func(a, b owned) int { return cmp.Compare(a.start, b.start) })
	if !found {
		o.spans = slices.Insert(o.spans, at, s)
	}
	o.first, o.perOne = o.spans[0].start, 1/float64(o.spans[0].end-o.spans[0].start)
}

// Find fills in the owner of each index, -1 where it has none.
func (o *Owners) Find(owner []int32, indices []int64) {
	for i, index := range indices {
		// Right for nearly all indices, if the spans are of one length.
		if k := int(float64(int(index)-o.first) * o.perOne); uint(k) < uint(len(o.spans)) {
			if s := &o.spans[k]; s.start <= int(index) && int(index) < s.end {
				owner[i] = s.owner
				continue
			}
		}
		owner[i] = o.search(int(index))
	}
}

func (o *Owners) search(index int) int32 {
	at, found := slices.BinarySearchFunc(o.spans, index, func(s owned, index int) int {
		switch {
		case index < s.start:
			return 1
		case index < s.end:
			return 0
		}
		return -1
	})
	if !found {
		return -1
	}
	return o.spans[at].owner
}
