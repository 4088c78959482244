package commtest

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
)

// place says where the buffers of a test live.
type place int

const (
	onHeap   place = iota // Go's own memory on all ranks
	inMemory              // comm.Memory on all ranks
	mixed                 // the one on even ranks, the other on odd ones
	places
)

func (p place) String() string { return [...]string{"heap", "memory", "mixed"}[p] }

// arena hands out the buffers of one case on one rank and frees them together.
type arena struct {
	c     *comm.Comm
	where place
	taken []block
}

type block struct {
	p     unsafe.Pointer
	bytes int
}

// take returns n elements, cleared, where a says.
func take[T comm.Elem](a *arena, n int) ([]T, error) {
	if n == 0 || a.where == onHeap || a.where == mixed && a.c.Rank()%2 == 1 {
		return make([]T, n), nil
	}
	var zero T
	bytes := n * int(unsafe.Sizeof(zero))
	p, err := a.c.Memory().Alloc(bytes)
	if err != nil {
		return nil, err
	}
	a.taken = append(a.taken, block{p, bytes})
	s := unsafe.Slice((*T)(p), n)
	clear(s)
	return s, nil
}

// takeTwo is take twice.
func takeTwo[T comm.Elem](a *arena, n int) (x, y []T, err error) {
	if x, err = take[T](a, n); err == nil {
		y, err = take[T](a, n)
	}
	return x, y, err
}

func (a *arena) free() {
	for _, b := range a.taken {
		a.c.Memory().Free(b.p, b.bytes)
	}
	a.taken = nil
}
