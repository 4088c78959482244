package tensor

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/philox"
)

// Random fills dst with the random numbers of global elements first + Σ i·B, at
// Σ i·A.
func (c *CPU) Random(op RandomOp, dt DType, dst unsafe.Pointer, key Key, first uint64, l Loop, a, b float64) {
	if l.Numel() == 0 {
		return
	}
	n, outer := 1, l.N
	if l.A[l.N-1] == 1 && l.B[l.N-1] == 1 { // runs
		n, outer = l.Size[l.N-1], l.N-1
	}
	l.pairs(outer, func(to, from int) {
		parallel(n, 8, 4, func(lo, hi int) {
			randomRun(op, dt, unsafe.Add(dst, (to+lo)*dt.Size()), key, first+uint64(from+lo), hi-lo, a, b)
		})
	})
}

// randomRun makes n consecutive elements.
func randomRun(op RandomOp, dt DType, dst unsafe.Pointer, key Key, first uint64, n int, a, b float64) {
	var words [256]uint32
	for n > 0 {
		w := words[:min(n, len(words))]
		key.Words(w, first)
		for i, word := range w {
			storeFloat(dt, unsafe.Add(dst, i*dt.Size()), random(op, word, a, b))
		}
		dst = unsafe.Add(dst, len(w)*dt.Size())
		first, n = first+uint64(len(w)), n-len(w)
	}
}

// random maps a random word. It is the same arithmetic everywhere: one rounding
// for each fused multiply-add.
func random(op RandomOp, word uint32, a, b float64) float64 {
	switch op {
	case OpUniform:
		return math.FMA(b-a, philox.Uniform(word), a)
	case OpNormal:
		return math.FMA(b, philox.Normal(word), a)
	}
	if float64(word) < a*(1<<32) {
		return 1
	}
	return 0
}

// storeFloat stores v as an element.
func storeFloat(dt DType, p unsafe.Pointer, v float64) {
	switch dt {
	case Float32:
		*(*float32)(p) = float32(v)
	case Float64:
		*(*float64)(p) = v
	case Float16:
		*(*F16)(p) = dtype.ToF16(float32(v))
	case BFloat16:
		*(*BF16)(p) = dtype.ToBF16(float32(v))
	case Int16:
		*(*int16)(p) = int16(v)
	case Int32:
		*(*int32)(p) = int32(v)
	case Int64:
		*(*int64)(p) = int64(v)
	default: // one byte: int8, uint8, bool
		*(*int8)(p) = int8(v)
	}
}
