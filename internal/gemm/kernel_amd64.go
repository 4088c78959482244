package gemm

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/simd"
)

// hasPairs says that processors of this architecture may have VDPBF16PS.
const hasPairs = true

// tile does C = alpha·A·B + beta·C, and adds more to alpha·A·B, for one tile of C: rows ≤ kn.rows by
// cols ≤ kn.cols, both at least 1. A has its own strides, the columns of B and C
// are adjacent. With k 0, A and B may be empty. Where kn.depth() is 2, k counts pairs
// and an element of a and b is one.
func tile[T Float](kn *kernel, rows, cols, k int, a []T, rsa, csa int, b []T, rsb int, c []T, ldc int, alpha, beta T,
	more *parts[T]) {
	if kn.level == simd.Scalar {
		tileGo(kn, rows, cols, k, a, rsa, csa, b, rsb, c, ldc, alpha, beta, more)
		return
	}
	pa, pb, pc := unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b)), unsafe.Pointer(unsafe.SliceData(c))
	pf, pn := unsafe.Pointer(unsafe.SliceData(more.first)), unsafe.Pointer(unsafe.SliceData(more.next))
	if unsafe.Sizeof(alpha) == 4 {
		if kn.depth() == 2 {
			tileBF16AVX512(rows, cols, k, (*uint32)(pa), rsa*4, csa*4, (*uint32)(pb), rsb*4, (*float32)(pc), ldc*4, float32(alpha),
				float32(beta), (*float32)(pf), (*float32)(pn), more.ld*4, more.step*4, more.n, more.half, nil)
			return
		}
		pa, pb, pc, pf, pn := (*float32)(pa), (*float32)(pb), (*float32)(pc), (*float32)(pf), (*float32)(pn)
		alpha, beta := float32(alpha), float32(beta)
		flush := 0
		if kn.likePairs {
			flush = 1
		}
		if kn.level >= simd.AVX512 {
			tileF32AVX512(rows, cols, k, pa, rsa*4, csa*4, pb, rsb*4, pc, ldc*4, alpha, beta, pf, pn, more.ld*4, more.step*4, more.n, more.half,
				nil, flush)
		} else {
			tileF32AVX2(rows, cols, k, pa, rsa*4, csa*4, pb, rsb*4, pc, ldc*4, alpha, beta, pf, pn, more.ld*4, more.step*4, more.n, more.half,
				flush)
		}
		return
	}
	{
		pa, pb, pc, pf, pn := (*float64)(pa), (*float64)(pb), (*float64)(pc), (*float64)(pf), (*float64)(pn)
		alpha, beta := float64(alpha), float64(beta)
		if kn.level >= simd.AVX512 {
			tileF64AVX512(rows, cols, k, pa, rsa*8, csa*8, pb, rsb*8, pc, ldc*8, alpha, beta, pf, pn, more.ld*8, more.step*8, more.n, more.half)
		} else {
			tileF64AVX2(rows, cols, k, pa, rsa*8, csa*8, pb, rsb*8, pc, ldc*8, alpha, beta, pf, pn, more.ld*8, more.step*8, more.n, more.half)
		}
	}
}
