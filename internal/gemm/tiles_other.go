//go:build !amd64

package gemm

import "github.com/gorun-spmd/gorun/internal/dtype"

// tilesAMX is none of these machines'.
func tilesAMX(int, int, int, strip, []float32, matrix[float32], float32, float32, []float32) {
	panic("gemm: AMX is not of this machine")
}

// tileHalfB is none of these machines'.
func tileHalfB(int, int, int, []float32, int, int, []dtype.BF16, int, []float32, int, float32, float32) {
	panic("gemm: AVX-512 is not of this machine")
}

// tileHalfC and tilePairsHalfC are none of these machines'.
func tileHalfC(int, int, int, []float32, int, int, []float32, int, []dtype.BF16, int, float32) {
	panic("gemm: AVX-512 is not of this machine")
}

func tilePairsHalfC(int, int, int, []float32, int, int, []float32, int, []dtype.BF16, int, float32) {
	panic("gemm: AVX-512 BF16 is not of this machine")
}
