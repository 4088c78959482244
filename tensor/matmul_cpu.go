package tensor

import "unsafe"

// A Gemm is a product of contiguous matrices: C [M, N] = A [M, K]·B [K, N], added
// to C with Accumulate. With TransA the memory of A is [K, M], with TransB that of
// B is [N, K].
type Gemm struct {
	TransA, TransB bool
	Accumulate     bool
	M, N, K        int
}

// MatMul computes g for each index of l; the distances A and B of l count whole
// matrices of a and b, and those of c follow each other.
func (c *CPU) MatMul(dt DType, g Gemm, dst, a, b unsafe.Pointer, l Loop) {
	n := l.Size[l.N-1]
	l.rows(func(i, ia, ib, _ int) {
		for k := range n {
			ai, bi, ci := (ia+k*l.A[l.N-1])*g.M*g.K, (ib+k*l.B[l.N-1])*g.K*g.N, (i+k)*g.M*g.N
			if dt == Float32 {
				gemm32(g, unsafe.Slice(at[float32](dst, ci), g.M*g.N), unsafe.Slice(at[float32](a, ai), g.M*g.K), unsafe.Slice(at[float32](b, bi), g.K*g.N))
			} else {
				gemmNaive(g, unsafe.Slice(at[float64](dst, ci), g.M*g.N), unsafe.Slice(at[float64](a, ai), g.M*g.K), unsafe.Slice(at[float64](b, bi), g.K*g.N))
			}
		}
	})
}

// gemm32 is the float32 case.
func gemm32(g Gemm, c, a, b []float32) { gemmNaive(g, c, a, b) }

// gemmNaive is the definition, with the loops in an order that reads rows.
func gemmNaive[T float](g Gemm, c, a, b []T) {
	if !g.Accumulate {
		clear(c)
	}
	for i := range g.M {
		row := c[i*g.N : (i+1)*g.N]
		for k := range g.K {
			var s T
			if g.TransA {
				s = a[k*g.M+i]
			} else {
				s = a[i*g.K+k]
			}
			if g.TransB {
				for j := range row {
					row[j] += s * b[j*g.K+k]
				}
			} else {
				for j, v := range b[k*g.N : (k+1)*g.N] {
					row[j] += s * v
				}
			}
		}
	}
}
