package gemm

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
)

// tilesAMX is the tilesFunc of AMX.
func tilesAMX(rows, cols, k int, a strip, b []float32, c matrix[float32], alpha, beta float32, room []float32) {
	onto := alpha == 1 && beta == 1
	if onto {
		beta = 0 // C is in the sums
	}
	at, ldc, narrow := unsafe.SliceData(c.data), 4*c.row, unsafe.SliceData(c.half)
	if narrow != nil {
		ldc = 2 * c.row
	}
	tilesBF16AMX(rows, cols, k, (*uint32)(unsafe.Pointer(&a.data[0])), a.row*2, a.block*2, (*uint32)(unsafe.Pointer(&b[0])),
		at, ldc, alpha, beta, onto, (*uint16)(narrow), &room[0])
}

// tileHalfB is the halfBFunc of AVX-512.
func tileHalfB(rows, cols, k int, a []float32, rsa, csa int, b []dtype.BF16, rsb int, c []float32, ldc int, alpha, beta float32) {
	tileF32BF16AVX512(rows, cols, k, &a[0], rsa*4, csa*4, (*uint16)(&b[0]), rsb*2, &c[0], ldc*4, alpha, beta, nil, nil, 0, 0, 0, 0, nil)
}

// tileHalfC is the halfCFunc of AVX-512.
func tileHalfC(rows, cols, k int, a []float32, rsa, csa int, b []float32, rsb int, c []dtype.BF16, ldc int, alpha float32) {
	tileF32AVX512(rows, cols, k, &a[0], rsa*4, csa*4, &b[0], rsb*4, nil, ldc*2, alpha, 0, nil, nil, 0, 0, 0, 0, (*uint16)(&c[0]), 0)
}

// tilePairsHalfC is that of AVX-512 BF16, for pairs.
func tilePairsHalfC(rows, cols, k int, a []float32, rsa, csa int, b []float32, rsb int, c []dtype.BF16, ldc int, alpha float32) {
	tileBF16AVX512(rows, cols, k, (*uint32)(unsafe.Pointer(&a[0])), rsa*4, csa*4, (*uint32)(unsafe.Pointer(&b[0])), rsb*4,
		nil, ldc*2, alpha, 0, nil, nil, 0, 0, 0, 0, (*uint16)(&c[0]))
}
