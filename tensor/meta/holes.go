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

// isFloat reports whether p is in a tensor of floats.
func (d *Device) isFloat(p unsafe.Pointer) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	x, ok := d.pieceAt(p)
	return ok && x.dtype.Float()
}

// setHole notes whether bytes of a tensor have no numbers from now on.
func (d *Device) setHole(p unsafe.Pointer, bytes int, hole bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	x, ok := d.pieceAt(p)
	if !ok || bytes == 0 || !hole && d.holes[x.at] == nil {
		return
	}
	at := int(uintptr(p) - uintptr(x.at))
	its := span{at, at + bytes}
	left := d.holes[x.at].without(its)
	if hole {
		i, _ := slices.BinarySearchFunc(left, its, func(a, b span) int { return a.from - b.from })
		left = slices.Insert(left, i, its)
	}
	d.holes[x.at] = left
}
