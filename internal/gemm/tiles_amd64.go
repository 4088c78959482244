package gemm

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
)

// tilesAMX is the tilesFunc of AMX.
func tilesAMX(rows, cols, k int, a, b, c []float32, ldc int, alpha, beta float32, room []float32) {
	tilesBF16AMX(rows, cols, k, (*uint32)(unsafe.Pointer(&a[0])), (*uint32)(unsafe.Pointer(&b[0])), &c[0], ldc*4, alpha, beta, &room[0])
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
