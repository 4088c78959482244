//go:build !amd64

package gemm

// tilesAMX is none of these machines'.
func tilesAMX(int, int, int, []float32, []float32, []float32, int, float32, float32, []float32) {
	panic("gemm: AMX is not of this machine")
}
