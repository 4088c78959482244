package gemm

import "unsafe"

// tilesAMX is the tilesFunc of AMX.
func tilesAMX(rows, cols, k int, a, b, c []float32, ldc int, alpha, beta float32, room []float32) {
	tilesBF16AMX(rows, cols, k, (*uint32)(unsafe.Pointer(&a[0])), (*uint32)(unsafe.Pointer(&b[0])), &c[0], ldc*4, alpha, beta, &room[0])
}
