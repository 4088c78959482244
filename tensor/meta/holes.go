package meta

import (
	"math"
	"slices"
	"unsafe"
)

// A span is the bytes from one offset to another.
type span struct{ from, to int }

// spans are ascending and apart.
type spans []span

// run returns whether the byte at an offset is in one of the spans, and for how many bytes that holds.
func (s spans) run(at int) (n int, inside bool) {
	for _, x := range s {
		switch {
		case at < x.from:
			return x.from - at, false
		case at < x.to:
			return x.to - at, true
		}
	}
	return math.MaxInt, false
}

// without returns s without the bytes of x.
func (s spans) without(x span) (left spans) {
	for _, y := range s {
		if y.from < min(y.to, x.from) {
			left = append(left, span{y.from, min(y.to, x.from)})
		}
		if max(y.from, x.to) < y.to {
			left = append(left, span{max(y.from, x.to), y.to})
		}
	}
	return left
}

// setHole notes whether bytes of a tensor have no numbers from now on. ok is false if they never have
// any, as those of floats.
func (d *Device) setHole(p unsafe.Pointer, bytes int, hole bool) (ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	x, known := d.pieceAt(p)
	switch {
	case known && x.dtype.Float():
		return false
	case !known || bytes == 0 || !hole && d.holes[x.at] == nil:
		return true
	}
	at := int(uintptr(p) - uintptr(x.at))
	its := span{at, at + bytes}
	left := d.holes[x.at].without(its)
	if hole {
		i, _ := slices.BinarySearchFunc(left, its, func(a, b span) int { return a.from - b.from })
		left = slices.Insert(left, i, its)
	}
	d.holes[x.at] = left
	return true
}
