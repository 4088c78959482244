// Package gemm multiplies matrices of float32 or float64, and of bfloat16 with sums in float32.
//
// Its one operation is BLAS's gemm on row-major slices,
//
//	C = alpha·op(A)·op(B) + beta·C
//
// and the same for a batch. It knows nothing of tensors, ranks or devices.
//
//go:generate go -C ../simd/asm run .
package gemm
