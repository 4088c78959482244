//go:build !amd64 && !arm64

package gemm

// hasPairs says that processors of this architecture may have VDPBF16PS.
const hasPairs = false

// tile does C = alpha·A·B + beta·C, and adds more to alpha·A·B, for one tile of C: rows ≤ kn.rows by
// cols ≤ kn.cols, both at least 1. A has its own strides, the columns of B and C
// are adjacent. With k 0, A and B may be empty.
func tile[T Float](kn *kernel, rows, cols, k int, a []T, rsa, csa int, b []T, rsb int, c []T, ldc int, alpha, beta T,
	more *parts[T]) {
	tileGo(kn, rows, cols, k, a, rsa, csa, b, rsb, c, ldc, alpha, beta, more)
}
