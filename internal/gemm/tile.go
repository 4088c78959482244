package gemm

import (
	"math"
	"sync"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// A kernel is the choice of code for one product: the instruction set, and the
// tile of C that its registers hold.
type kernel struct {
	level      simd.Level // from AVX512BF16 on A and B are packed as pairs of bfloat16
	rows, cols int
	fused      bool      // plain Go fuses multiply-adds too, for the same bits on every machine
	likePairs  bool      // of float32, with the sums of AVX512BF16: k+1 is added before k, and numbers below 2⁻¹²⁶ are zeros
	tiles      tilesFunc // if not nil, does a panel of B at once
	halfB      halfBFunc // if not nil, is a tile of a B of bfloat16 that is not packed
	halfC      halfCFunc // if not nil, is a tile of a C of bfloat16
	pairs      *kernel   // the same with pairwise sums, see package pairwise
	leaves     *kernel   // if not nil, sums over k are pairwise, and this is the kernel of their leaves
}

// A halfBFunc is the function tile for A of float32 and B of bfloat16, with nothing to add to the sums.
type halfBFunc func(rows, cols, k int, a []float32, rsa, csa int, b []dtype.BF16, rsb int, c []float32, ldc int, alpha, beta float32)

// A halfCFunc is the function tile for a C of bfloat16 that is only written, with nothing to add to the sums.
type halfCFunc func(rows, cols, k int, a []float32, rsa, csa int, b []float32, rsb int, c []dtype.BF16, ldc int, alpha float32)

// The most rows and the columns of a tile of few rows, as in the generator.
const (
	fewRows = 4
	fewCols = 16
)

// tilePairs is how many pairs of k a tile register of AMX has: as many steps are taken at once.
const tilePairs = 16

// best32 and best64 are the kernels of this machine for elements of 4 and of 8 bytes.
var best32, best64 = kernelFor(simd.Best(), 4), kernelFor(simd.Best(), 8)

// bestFor returns the kernel of this machine for an element type.
func bestFor[T Float]() *kernel {
	if unsafe.Sizeof(T(0)) == 4 {
		return best32
	}
	return best64
}

// kernelFor returns the kernel of a level for elements of size bytes.
func kernelFor(level simd.Level, size int) *kernel {
	kn := tileOf(level, size)
	leaves := kn
	leaves.fused = true
	pairs := leaves
	kn.pairs, pairs.leaves = &pairs, &leaves
	return &kn
}

// tileOf returns the kernel of a level with its tile alone.
func tileOf(level simd.Level, size int) kernel {
	switch level {
	case simd.AVX512, simd.AVX512BF16, simd.AMX:
		kn := kernel{level: simd.AVX512, rows: 14, cols: 128 / size}
		if size == 4 {
			kn.halfC = tileHalfC
		}
		if size == 4 && level == simd.AVX512 {
			kn.halfB = tileHalfB
		}
		return kn
	case simd.NEON:
		return kernel{level: level, rows: 12, cols: 32 / size}
	case simd.AVX2:
		return kernel{level: level, rows: 6, cols: 64 / size}
	default:
		return kernel{level: level, rows: 4, cols: 4}
	}
}

// halvesKernel returns the kernel of this machine for elements of bfloat16.
var halvesKernel = sync.OnceValue(func() *kernel { return halvesKernelFor(simd.BestBF16()) })

// pairwiseHalves is that for pairwise sums whose leaves are even.
var pairwiseHalves = sync.OnceValue(func() *kernel { return pairwiseHalvesFor(simd.BestBF16()) })

// halvesKernelFor returns the kernel of a level for elements of bfloat16.
func halvesKernelFor(level simd.Level) *kernel {
	kn := kernelFor(level, 4)
	switch level {
	case simd.AVX512BF16:
		kn.level, kn.halfC = level, tilePairsHalfC
	case simd.AMX:
		kn = &kernel{level: level, rows: tileSide, cols: tileSide, tiles: tilesAMX}
	}
	return kn
}

// pairwiseHalvesFor returns the kernel of a level for pairwise sums of bfloat16 whose leaves are even. The bits are those of all
// levels of an architecture: on one that has VDPBF16PS each sum is made as that makes it.
func pairwiseHalvesFor(level simd.Level) *kernel {
	kn := kernelFor(level, 4).pairs
	switch {
	case !hasPairs:
	case level == simd.AVX512BF16:
		kn.level, kn.leaves.level = level, level
	default:
		kn.halfB, kn.leaves.halfB = nil, nil
		kn.likePairs, kn.leaves.likePairs = true, true
	}
	return kn
}

// stepK is the most elements of k whose sum is made at once.
func (kn *kernel) stepK() int {
	switch {
	case kn.fused: // the same on every machine
		return blockK
	case kn.tiles != nil:
		return tilesK
	default:
		return blockK * kn.depth()
	}
}

// depth is the elements of k in a step of a tile.
func (kn *kernel) depth() int {
	if kn.level >= simd.AVX512BF16 {
		return 2
	}
	return 1
}

// steps returns how many steps of a tile k elements take.
func (kn *kernel) steps(k int) int {
	if kn.depth() == 1 {
		return k
	}
	if kn.tiles == nil {
		return (k + 1) / 2
	}
	return (k + 2*tilePairs - 1) / (2 * tilePairs) * tilePairs
}

// Parts are n tiles of sums over other elements of k, which a tile adds to its own: first, the one at
// next, and more, each step elements after the one before. If half is not 0, the tile's own sum
// begins after half elements, and the sum of those before is put into first.
type parts[T Float] struct {
	first, next       []T
	ld, step, n, half int
}

// tileGo does C = alpha·A·B + beta·C for a tile of at most 4 by 4 elements, the
// strides in elements, and adds more to alpha·A·B. It is the plain Go form of the assembly, with the same bits if it is fused,
// which takes several times as long.
func tileGo[T Float](kn *kernel, rows, cols, k int, a []T, rsa, csa int, b []T, rsb int, c []T, ldc int, alpha, beta T, more *parts[T]) {
	if half := more.half; half > 0 {
		tileGo(kn, rows, cols, half, a, rsa, csa, b, rsb, more.first, more.ld, alpha, 0, new(parts[T]))
		a, b, k = a[half*csa:], b[half*rsb:], k-half
	}
	var acc [4][4]T
	switch {
	case kn.fused:
		switch acc := any(&acc).(type) {
		case *[4][4]float32:
			step := simd.FMA4
			if kn.likePairs {
				step = simd.FMA4Flush
			}
			fused32(acc, step, rows, cols, k, any(a).([]float32), rsa, csa, any(b).([]float32), rsb)
		case *[4][4]float64:
			fused64(acc, rows, cols, k, any(a).([]float64), rsa, csa, any(b).([]float64), rsb)
		}
	case rows == 4 && cols == 4:
		for p := range k {
			b := b[p*rsb:][:4]
			b0, b1, b2, b3 := b[0], b[1], b[2], b[3]
			for r := range 4 {
				v, s := a[r*rsa+p*csa], &acc[r]
				s[0] += v * b0
				s[1] += v * b1
				s[2] += v * b2
				s[3] += v * b3
			}
		}
	default:
		for p := range k {
			for r := range rows {
				v := a[r*rsa+p*csa]
				for j, w := range b[p*rsb:][:cols] {
					acc[r][j] += v * w
				}
			}
		}
	}
	for r := range rows {
		row := c[r*ldc:][:cols]
		for j := range row {
			sum := T(alpha * acc[r][j])
			for i := range more.n {
				if i == 0 {
					sum += more.first[r*more.ld+j]
				} else {
					sum += more.next[(i-1)*more.step+r*more.ld+j]
				}
			}
			switch {
			case beta == 0:
				row[j] = sum
			case kn.fused:
				row[j] = fma(beta, row[j], sum)
			default:
				row[j] = sum + beta*row[j]
			}
		}
	}
}

// fused32 adds A·B to a tile, four elements of a row by step.
func fused32(acc *[4][4]float32, step func(c *[4]float32, a float32, b *[4]float32), rows, cols, k int, a []float32, rsa, csa int,
	b []float32, rsb int) {
	for p := range k {
		var row [4]float32 // zeros beyond cols: what they are added to is not used
		copy(row[:], b[p*rsb:][:cols])
		for r := range rows {
			step(&acc[r], a[r*rsa+p*csa], &row)
		}
	}
}

// fused64 is fused32 of float64.
func fused64(acc *[4][4]float64, rows, cols, k int, a []float64, rsa, csa int, b []float64, rsb int) {
	for p := range k {
		for r := range rows {
			v := a[r*rsa+p*csa]
			for j, w := range b[p*rsb:][:cols] {
				acc[r][j] = math.FMA(v, w, acc[r][j])
			}
		}
	}
}

// fma is a·b + c, rounded once.
func fma[T Float](a, b, c T) T {
	if unsafe.Sizeof(a) == 4 {
		return T(simd.FMA(float32(a), float32(b), float32(c)))
	}
	return T(math.FMA(float64(a), float64(b), float64(c)))
}
