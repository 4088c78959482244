package embedding

import (
	"bytes"
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/internal/index"
	"github.com/gorun-spmd/gorun/tensor"
)

// An ahead is what a Prefetch has found out about its ids, so that the lookup of the same ids need not do it again. It
// has memory of its own, as the scope of a Prefetch ends before the lookup.
type ahead struct {
	dtype tensor.DType
	ids   []byte
	lo, n int         // of tensor.Unique
	uniq  tensor.Uniq // without its tensors, which are these:

	index, start []int64
	slot, order  []int32
	begins       []int // of keys

	rows, slots []int64 // what the owner was asked for, and where it will be; -1: it has no slot
}

// aheads are the batches that are remembered, the newest first: those of this step and the next one. They are nil of a table
// that no Prefetch is for.
type aheads [2]ahead

// turn begins to remember another Prefetch, in place of the oldest.
func (list *aheads) turn() {
	slices.Reverse(list[:])
	a := &list[0]
	a.ids, a.rows, a.slots = a.ids[:0], a.rows[:0], a.slots[:0]
}

// distinct returns find(ids, lo, n), the distinct ones of ids that op looks up. What a Prefetch finds, the lookup of the same ids gets
// from here.
func (list *aheads) distinct(ids *tensor.Tensor, lo, n int, op string, find func(ids *tensor.Tensor, lo, n int) distinct) distinct {
	if list == nil {
		return find(ids, lo, n)
	}
	note, its := op == prefetchOp, bytesOf(ids)
	for i := range list {
		if a := &list[i]; !note && a.dtype == ids.DType() && a.lo == lo && a.n == n && len(its) > 0 && bytes.Equal(a.ids, its) {
			return a.distinct(ids.Device())
		}
	}
	u := find(ids, lo, n)
	if note {
		a := &list[0]
		a.dtype, a.ids, a.lo, a.n, a.uniq, a.begins = ids.DType(), append(a.ids[:0], its...), lo, n, u.Uniq, u.begins
		a.index, a.start = append(a.index[:0], tensor.Read[int64](u.Index)...), append(a.start[:0], tensor.Read[int64](u.Start)...)
		a.slot, a.order = append(a.slot[:0], tensor.Read[int32](u.Slot)...), append(a.order[:0], tensor.Read[int32](u.Order)...)
		a.uniq.Index, a.uniq.Start, a.uniq.Slot, a.uniq.Order = nil, nil, nil, nil
	}
	runtime.KeepAlive(ids)
	return u
}

// distinct returns what was found, in the scope of the caller.
func (a *ahead) distinct(dev tensor.Device) distinct {
	u := a.uniq
	u.Index, u.Start, u.Slot, u.Order = numbersOn(dev, a.index), numbersOn(dev, a.start), numbersOn(dev, a.slot), numbersOn(dev, a.order)
	return distinct{Uniq: u, begins: a.begins}
}

// distinct returns the distinct ones of ids that op looks up in the table. s may be nil.
func (s *stored) distinct(ids *tensor.Tensor, lo, n int, op string) tensor.Uniq {
	var list *aheads
	if s != nil {
		list = &s.ahead
	}
	unique := func(ids *tensor.Tensor, lo, n int) distinct { return distinct{Uniq: tensor.Unique(ids, lo, n)} }
	return list.distinct(ids, lo, n, op, unique).Uniq
}

// numbersOn returns numbers as a tensor.
func numbersOn[T int32 | int64](dev tensor.Device, numbers []T) *tensor.Tensor {
	l := index.New[T](dev, len(numbers))
	copy(l.Elems, numbers)
	return l.Tensor(dev, len(numbers))
}

// prefetch begins to bring rows into memory, those of the Prefetch that turn began.
func (s *stored) prefetch(rows []int64) {
	if s.rows == nil {
		return
	}
	a := &s.ahead[0]
	a.rows = append(a.rows[:0], rows...)
	a.slots = slices.Grow(a.slots[:0], len(rows))[:len(rows)]
	s.rows.Prefetch(a.rows, a.slots)
}

// guess sets slots to where rows may be, which are looked up: where a Prefetch of the same has put them; -1 without one.
func (s *stored) guess(rows, slots []int64) {
	for i := range s.ahead {
		if a := &s.ahead[i]; slices.Equal(a.rows, rows) {
			copy(slots, a.slots)
			return
		}
	}
	for i := range slots {
		slots[i] = -1
	}
}

// guessAgain sets slots to where rows may be that are to be changed, and are ascending: where the last lookup has found them. Of
// others, slots is -1. all is true if there are none.
func (s *stored) guessAgain(rows, slots []int64) (all bool) {
	for i := range slots {
		slots[i] = -1
	}
	left, k := len(rows), 0
	for i, row := range s.found {
		if i > 0 && row < s.found[i-1] {
			k = 0 // those that another rank asked for are ascending again
		}
		for k < len(rows) && rows[k] < row {
			k++
		}
		if k < len(rows) && rows[k] == row && slots[k] < 0 {
			slots[k] = s.at[i]
			left--
		}
	}
	return left == 0
}
