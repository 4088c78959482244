package comm

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/fold"
)

// Fold computes c's reduction, for backends. For each of n elements
//
//	x := srcs[0][i] op srcs[1][i] op …   from left to right
//	every dsts[k][i] = x                 divided by len(srcs) for Avg
//
// With a Func, n counts elements of the Func's type. dsts[0] may be srcs[0]; if there are two
// srcs and no Func it may be srcs[1] too. Each other dst may be any src. No other buffers may
// overlap.
func (c *Call) Fold(dsts, srcs []unsafe.Pointer, n int) {
	if c.Op == Custom {
		fold.Func(c.Func.combine, c.Func.size, dsts, srcs, n)
		return
	}
	fold.Elements(c.Op, c.DType(), dsts, srcs, n)
}

// Unit returns the size in bytes of the elements that Fold counts.
func (c *Call) Unit() int {
	if c.Op == Custom && c.Func != nil {
		return c.Func.size
	}
	return c.DType().Size()
}
