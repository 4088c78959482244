package gemm

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/simd"
)

// hasPairs says that processors of this architecture may have VDPBF16PS.
const hasPairs = false

// tile does C = alpha·A·B + beta·C, and adds more to alpha·A·B, for one tile of C: rows ≤ kn.rows by
// cols ≤ kn.cols, both at least 1. A has its own strides, the columns of B and C
// are adjacent. With k 0, A and B may be empty.
//
// Columns that do not fill a vector are a call of their own.
func tile[T Float](kn *kernel, rows, cols, k int, a []T, rsa, csa int, b []T, rsb int, c []T, ldc int, alpha, beta T,
	more *parts[T]) {
	if kn.level == simd.Scalar {
		tileGo(kn, rows, cols, k, a, rsa, csa, b, rsb, c, ldc, alpha, beta, more)
		return
	}
	if half := more.half; half > 0 {
		tile(kn, rows, cols, half, a, rsa, csa, b, rsb, more.first, more.ld, alpha, 0, new(parts[T]))
		a, b, k = a[half*csa:], b[half*rsb:], k-half
	}
	size := int(unsafe.Sizeof(alpha))
	for whole := cols &^ (16/size - 1); cols > 0; whole = cols {
		n := whole
		if n == 0 {
			n = cols
		}
		pa, pb, pc := unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b)), unsafe.Pointer(unsafe.SliceData(c))
		pf, pn := unsafe.Pointer(unsafe.SliceData(more.first)), unsafe.Pointer(unsafe.SliceData(more.next))
		if size == 4 {
			tileF32NEON(rows, n, k, (*float32)(pa), rsa*4, csa*4, (*float32)(pb), rsb*4, (*float32)(pc), ldc*4, float32(alpha), float32(beta),
				(*float32)(pf), (*float32)(pn), more.ld*4, more.step*4, more.n)
		} else {
			tileF64NEON(rows, n, k, (*float64)(pa), rsa*8, csa*8, (*float64)(pb), rsb*8, (*float64)(pc), ldc*8, float64(alpha), float64(beta),
				(*float64)(pf), (*float64)(pn), more.ld*8, more.step*8, more.n)
		}
		if cols -= n; cols > 0 {
			b, c = b[n:], c[n:]
			if more.n > 0 {
				more.first = more.first[n:]
			}
			if more.n > 1 {
				more.next = more.next[n:]
			}
		}
	}
}
