package tensor

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/philox"
)

// Random fills dst with the random numbers of global elements first + Σ i·B, at
// Σ i·A, those of OpUniform brought between least and most.
func (c *CPU) Random(op RandomOp, dt DType, dst unsafe.Pointer, key Key, first uint64, l Loop, a, b, least, most float64) {
	if l.Numel() == 0 {
		return
	}
	n, outer := 1, l.N
	if l.A[l.N-1] == 1 && l.B[l.N-1] == 1 { // runs
		n, outer = l.Size[l.N-1], l.N-1
	}
	l.pairs(outer, func(to, from int) {
		parallel(n, 8, 4, func(lo, hi int) {
			randomRun(op, dt, unsafe.Add(dst, (to+lo)*dt.Size()), key, first+uint64(from+lo), hi-lo, a, b, least, most)
		})
	})
}

// randomPiece is how many random words are made at a time, on the stack.
const randomPiece = 256

// randomRun makes n consecutive elements.
func randomRun(op RandomOp, dt DType, dst unsafe.Pointer, key Key, first uint64, n int, a, b, least, most float64) {
	var words [randomPiece]uint32
	var values [randomPiece]float64
	for n > 0 {
		m := min(n, randomPiece)
		key.Words(words[:m], first)
		randomValues(op, values[:m], words[:m], a, b, least, most)
		castFrom(dt, dst, values[:m])
		dst = unsafe.Add(dst, m*dt.Size())
		first, n = first+uint64(m), n-m
	}
}

// randomValues maps random words to numbers. It is the same arithmetic everywhere:
// one rounding for each fused multiply-add.
func randomValues(op RandomOp, dst []float64, words []uint32, a, b, least, most float64) {
	switch op {
	case OpUniform:
		for i, w := range words {
			dst[i] = min(max(math.FMA(b-a, philox.Uniform(w), a), least), most)
		}
	case OpNormal:
		for i, w := range words {
			dst[i] = math.FMA(b, philox.Normal(w), a)
		}
	case OpBernoulli:
		for i, w := range words {
			dst[i] = 0
			if float64(w) < a*(1<<32) {
				dst[i] = 1
			}
		}
	}
}
