package backend

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
	if c.Op == fold.Custom {
		fold.Func(c.Func.combine, c.Func.size, dsts, srcs, n)
		return
	}
	fold.Elements(c.Op, c.DType(), dsts, srcs, n)
}

// Prefixes computes the results of all ranks of a Scan or an Exscan, for backends. The zero Prefixes is ready. It keeps its
// memory between calls, which must come one after another.
type Prefixes struct{ inner fold.Prefixes }

// Fold sets dsts[k], for each of n elements, to the Fold of the first c.Folds(k, len(srcs)) srcs; if these are none, it may
// be nil. dsts[k] may be srcs[k]. No other buffers may overlap.
func (p *Prefixes) Fold(c *Call, dsts, srcs []unsafe.Pointer, n int) {
	custom := c.Op == fold.Custom
	p.inner.Fold(c, fold.Scan{Unit: c.Unit(), Below: c.Kind.Shape().Below, Custom: custom,
		Anew: !custom && (c.Op == fold.Avg || c.DType().Narrow())}, dsts, srcs, n)
}

// Unit returns the size in bytes of the elements that Fold counts.
func (c *Call) Unit() int {
	if c.Op == fold.Custom && c.Func != nil {
		return c.Func.size
	}
	return c.DType().Size()
}
