package cpu

import (
	"math"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/philox"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Random fills dst with those of r: the numbers of global elements First + Σ i·B, at Σ i·A.
func (c *own) Random(r kernel.RandomNumbers, dst unsafe.Pointer, l kernel.Loop) {
	if l.Numel() == 0 {
		return
	}
	n, outer := 1, l.N
	if l.A[l.N-1] == 1 && l.B[l.N-1] == 1 { // runs
		n, outer = l.Size[l.N-1], l.N-1
	}
	if n < RandomPiece { // short runs share a piece
		var piece randomPiece
		eachPair(&l, outer, func(to, from int) {
			piece.run(&r, unsafe.Add(dst, to*r.DType.Size()), r.First+uint64(from), n)
		})
		return
	}
	eachPair(&l, outer, func(to, from int) {
		parallel(n, 8, 4, func(lo, hi int) {
			new(randomPiece).run(&r, unsafe.Add(dst, (to+lo)*r.DType.Size()), r.First+uint64(from+lo), hi-lo)
		})
	})
}

// RandomPiece is how many random words are made at a time.
const RandomPiece = 256

// A randomPiece has room for them.
type randomPiece struct {
	words  [RandomPiece]uint32
	values [RandomPiece]float64
}

// run makes n consecutive elements.
func (p *randomPiece) run(r *kernel.RandomNumbers, dst unsafe.Pointer, first uint64, n int) {
	for n > 0 {
		m := min(n, RandomPiece)
		words, values := p.words[:m], p.values[:m]
		r.Key.Words(words, first)
		switch {
		case r.DType == dtype.Float32:
			randomFloats(r, unsafe.Slice((*float32)(dst), m), words)
		case r.DType == dtype.Bool && r.Op == kernel.OpBernoulli:
			flags, below := unsafe.Slice((*uint8)(dst), m), wordsBelow(r.A)
			for i, w := range words {
				flags[i] = uint8((uint64(w) - below) >> 63)
			}
		default:
			randomValues(r.Op, values, words, r.A, r.B, r.Least, r.Most)
			castFrom(r.DType, dst, values)
		}
		dst = unsafe.Add(dst, m*r.DType.Size())
		first, n = first+uint64(m), n-m
	}
}

// randomFloats is randomValues and a cast to float32.
func randomFloats(r *kernel.RandomNumbers, dst []float32, words []uint32) {
	switch r.Op {
	case kernel.OpUniform:
		for i, w := range words {
			v := math.FMA(r.B-r.A, philox.Uniform(w), r.A)
			if v < r.Least {
				v = r.Least
			}
			if v > r.Most {
				v = r.Most
			}
			dst[i] = float32(v)
		}
	case kernel.OpNormal:
		philox.Normals(dst, words, r.A, r.B)
	case kernel.OpBernoulli:
		below := wordsBelow(r.A)
		for i, w := range words {
			dst[i] = math.Float32frombits(-uint32((uint64(w)-below)>>63) & 0x3f800000)
		}
	default:
		kernel.Missing("the CPU", r.Op)
	}
}

// wordsBelow returns the number that random words are below with probability p.
func wordsBelow(p float64) uint64 {
	if limit := p * (1 << 32); limit > 0 {
		return uint64(math.Ceil(min(limit, 1<<32)))
	}
	return 0
}

// randomValues maps random words to numbers. It is the same arithmetic everywhere:
// one rounding for each fused multiply-add.
func randomValues(op kernel.RandomOp, dst []float64, words []uint32, a, b, least, most float64) {
	switch op {
	case kernel.OpUniform:
		for i, w := range words {
			dst[i] = min(max(math.FMA(b-a, philox.Uniform(w), a), least), most)
		}
	case kernel.OpNormal:
		for i, w := range words {
			dst[i] = math.FMA(b, philox.Normal(w), a)
		}
	case kernel.OpBernoulli:
		for i, w := range words {
			dst[i] = 0
			if float64(w) < a*(1<<32) {
				dst[i] = 1
			}
		}
	default:
		kernel.Missing("the CPU", op)
	}
}
