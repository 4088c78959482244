//go:build !amd64

package gemm

// few leaves products of few rows to blocked.
func few[T Float](*kernel, int, int, int, T, matrix[T], matrix[T], T, []T, int) bool { return false }
