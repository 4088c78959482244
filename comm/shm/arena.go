package shm

import (
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/control"
)

const page = 4096

// holeBytes is the size from which freed memory goes back to the kernel.
const holeBytes = 1 << 20

// Arena hands out the shared memory of one rank, page by page. It implements
// mem.Allocator, and may be used from any goroutine.
type Arena struct {
	seg  *control.Segment
	rank int
	base unsafe.Pointer
	size int

	mu   sync.Mutex
	free []extent // by offset, none touching the next
	used int
}

// extent is the bytes from lo to hi of the arena.
type extent struct{ lo, hi int }

func newArena(seg *control.Segment, rank int) *Arena {
	base, size := seg.Arena(rank)
	return &Arena{seg: seg, rank: rank, base: base, size: size, free: []extent{{0, size}}}
}

// hugeBytes is the size of a huge page.
const hugeBytes = 2 << 20

// Alloc returns bytes of page-aligned shared memory from the first gap where they fit. Memory
// of a huge page or more begins at a huge page's boundary if the gap has room for that. Its
// contents are unspecified.
func (a *Arena) Alloc(bytes int) (unsafe.Pointer, error) {
	need := pages(bytes)
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, e := range a.free {
		if e.hi-e.lo < need {
			continue
		}
		if err := a.seg.Reserve(need); err != nil {
			return nil, fmt.Errorf("shm: Alloc: %d bytes on rank %d, which has %d: %w", bytes, a.rank, a.used, err)
		}
		at := e.lo
		if first := (e.lo + hugeBytes - 1) &^ (hugeBytes - 1); need >= hugeBytes && first+need <= e.hi {
			at = first
		}
		left := slices.DeleteFunc([]extent{{e.lo, at}, {at + need, e.hi}}, func(e extent) bool { return e.lo == e.hi })
		a.free = slices.Replace(a.free, i, i+1, left...)
		a.used += need
		return unsafe.Add(a.base, at), nil
	}
	return nil, fmt.Errorf("shm: Alloc: %d bytes on rank %d: its arena of %d bytes has %d in use and no gap of that size; "+
		"use more ranks or smaller tensors, or raise the limit on address space (ulimit -v) if there is one",
		bytes, a.rank, a.size, a.used)
}

// Free frees memory that Alloc returned for the same number of bytes.
func (a *Arena) Free(p unsafe.Pointer, bytes int) {
	need := pages(bytes)
	lo, ok := a.offset(p, need)
	if !ok || lo%page != 0 {
		panic(fmt.Sprintf("shm: Free: %d bytes at %p, which Alloc did not return", bytes, p))
	}
	if need >= holeBytes {
		// Advice: the pages go back to the kernel. Nobody reads them any more,
		// because a call returns only when all have read its buffers.
		giveBack(p, need)
	}
	a.seg.Unreserve(need)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used -= need
	i, _ := slices.BinarySearchFunc(a.free, lo, func(e extent, lo int) int { return e.lo - lo })
	e := extent{lo, lo + need}
	if i > 0 && a.free[i-1].hi > e.lo || i < len(a.free) && a.free[i].lo < e.hi {
		panic(fmt.Sprintf("shm: Free: %d bytes at %p are free already", bytes, p))
	}
	j := i
	if i > 0 && a.free[i-1].hi == e.lo {
		i--
		e.lo = a.free[i].lo
	}
	if j < len(a.free) && a.free[j].lo == e.hi {
		e.hi = a.free[j].hi
		j++
	}
	a.free = slices.Replace(a.free, i, j, e)
}

// offset returns where in the arena the bytes at p lie; ok is false if any of
// them lies outside.
func (a *Arena) offset(p unsafe.Pointer, bytes int) (at int, ok bool) {
	at = int(uintptr(p) - uintptr(a.base))
	return at, uintptr(p) >= uintptr(a.base) && at <= a.size && bytes <= a.size-at
}

// pages rounds bytes up to whole pages.
func pages(bytes int) int { return (max(bytes, 1) + page - 1) &^ (page - 1) }
