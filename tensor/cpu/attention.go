package cpu

import (
	"math"
	"runtime"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/gemm"
	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Attention computes Y and LSE; see the function of that name.
func (c *own) Attention(a kernel.Attention) {
	if a.DType == dtype.Float32 {
		attendAll(c, a.AttentionSize, headsOf[float32](a), softmaxRow32)
	} else {
		attendAll(c, a.AttentionSize, headsOf[float64](a), softmaxRow64)
	}
}

// AttentionGrad computes DQ, DK and DV; see the function of that name.
func (c *own) AttentionGrad(a kernel.AttentionGrad) {
	grads := kernel.Attention{AttentionSize: a.AttentionSize, Y: a.DY, Q: a.DQ, K: a.DK, V: a.DV}
	if a.DType == dtype.Float32 {
		attendGradAll(c, a.AttentionSize, headsOf[float32](a.Attention), headsOf[float32](grads), simd.Ordinary().ScaledExp)
	} else {
		attendGradAll(c, a.AttentionSize, headsOf[float64](a.Attention), headsOf[float64](grads), scaledExp[float64])
	}
}

// heads are the arrays of all heads, or their gradients.
type heads[T float] struct{ y, lse, q, k, v []T }

func headsOf[T float](a kernel.Attention) heads[T] {
	return heads[T]{
		sliceOf[T](a.Y, a.Heads*a.T*a.E), optional[T](a.LSE, a.Heads*a.T),
		sliceOf[T](a.Q, a.Heads*a.T*a.D), sliceOf[T](a.K, a.Heads*a.Room*a.D), sliceOf[T](a.V, a.Heads*a.Room*a.E),
	}
}

// head returns the arrays of head i.
func (h heads[T]) head(a kernel.AttentionSize, i int) heads[T] {
	one := heads[T]{
		h.y[i*a.T*a.E : (i+1)*a.T*a.E], nil,
		h.q[i*a.T*a.D : (i+1)*a.T*a.D], h.k[i*a.Room*a.D : (i*a.Room+a.S)*a.D], h.v[i*a.Room*a.E : (i*a.Room+a.S)*a.E],
	}
	if h.lse != nil {
		one.lse = h.lse[i*a.T : (i+1)*a.T]
	}
	return one
}

// softmaxRow32 turns x into its softmax and returns ln Σexp. If all of x is -Inf, it makes
// zeros and returns +Inf, so that the gradient computes the weights as zeros too.
func softmaxRow32(x []float32) float32 {
	top, sum := simd.SoftmaxStats(x)
	if sum == 0 {
		clear(x)
		return float32(math.Inf(1))
	}
	simd.Ordinary().ScaledExp(x, x, top, 1/sum)
	return top + float32(math.Log(float64(sum)))
}

func softmaxRow64(x []float64) float64 {
	top, sum := rowStats(x)
	if sum == 0 {
		clear(x)
		return math.Inf(1)
	}
	scaledExp(x, x, top, 1/sum)
	return top + math.Log(sum)
}

// keysBefore returns how many keys the queries before end attend to.
func keysBefore(a *kernel.AttentionSize, end int) int {
	if a.Causal {
		return min(end, a.S)
	}
	return a.S
}

// eachHead calls f for each head, with scratch memory of n elements.
func eachHead[T float](c *own, a kernel.AttentionSize, n int, f func(head int, scratch []T)) {
	var zero T
	size := int(unsafe.Sizeof(zero))
	workers := max(min(runtime.GOMAXPROCS(0), a.Heads), 1)
	buf := c.scratch(workers * n * size)
	defer buf.Free()
	free := make(chan int, workers)
	for w := range workers {
		free <- w
	}
	parallel(a.Heads, a.T*a.S*(a.D+a.E), 1, func(lo, hi int) {
		w := <-free
		scratch := unsafe.Slice(at[T](buf.Block.Ptr(), w*n), n)
		for i := lo; i < hi; i++ {
			f(i, scratch)
		}
		free <- w
	})
}

// A product is gemm.Gemm or gemm.Fused.
type product[T float] func(transA, transB bool, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int)

// productOf returns how c multiplies: in pairwise mode with the bits of every machine.
func productOf[T float](c *own) product[T] {
	if c.pairwise {
		return gemm.Fused[T]
	}
	return gemm.Gemm[T]
}

// attendAll computes y and lse of all heads.
func attendAll[T float](c *own, a kernel.AttentionSize, h heads[T], softmax func(x []T) T) {
	eachHead(c, a, kernel.AttentionTile*a.S, func(i int, scratch []T) {
		attend(a, h.head(a, i), scratch, softmax, productOf[T](c))
	})
}

// attend computes one head; p is room for a tile of the weights.
func attend[T float](a kernel.AttentionSize, h heads[T], p []T, softmax func(x []T) T, multiply product[T]) {
	for from := 0; from < a.T; from += kernel.AttentionTile {
		end := min(from+kernel.AttentionTile, a.T)
		rows, keys := end-from, keysBefore(&a, end)
		w := p[:rows*keys]
		multiply(false, true, rows, keys, a.D, T(a.Scale), h.q[from*a.D:], a.D, h.k, a.D, 0, w, keys)
		for r := range rows {
			row := w[r*keys : (r+1)*keys]
			seen := keysBefore(&a, from+r+1)
			h.lse[from+r] = softmax(row[:seen])
			clear(row[seen:])
		}
		multiply(false, false, rows, a.E, keys, 1, w, keys, h.v, a.E, 0, h.y[from*a.E:], a.E)
	}
}

// attendGradAll computes the gradients g of all heads.
func attendGradAll[T float](c *own, a kernel.AttentionSize, h, g heads[T], exp func(dst, x []T, shift, scale T)) {
	eachHead(c, a, 2*kernel.AttentionTile*a.S, func(i int, scratch []T) {
		attendGrad(a, h.head(a, i), g.head(a, i), scratch, exp, productOf[T](c))
	})
}

// attendGrad computes one head; g.y is the gradient of y, and scratch is room for
// two tiles.
func attendGrad[T float](a kernel.AttentionSize, h, g heads[T], scratch []T, exp func(dst, x []T, shift, scale T),
	multiply product[T]) {
	clear(g.k)
	clear(g.v)
	for from := 0; from < a.T; from += kernel.AttentionTile {
		end := min(from+kernel.AttentionTile, a.T)
		rows, keys := end-from, keysBefore(&a, end)
		p, dp := scratch[:rows*keys], scratch[rows*keys:2*rows*keys]
		dy := g.y[from*a.E : end*a.E]
		multiply(false, true, rows, keys, a.D, T(a.Scale), h.q[from*a.D:], a.D, h.k, a.D, 0, p, keys)
		multiply(false, true, rows, keys, a.E, 1, dy, a.E, h.v, a.E, 0, dp, keys)
		for r := range rows {
			seen := keysBefore(&a, from+r+1)
			row, drow := p[r*keys:(r+1)*keys], dp[r*keys:(r+1)*keys]
			exp(row[:seen], row[:seen], h.lse[from+r], 1)
			clear(row[seen:])
			clear(drow[seen:])
		}
		multiply(true, false, keys, a.E, rows, 1, p, keys, dy, a.E, 1, g.v, a.E)
		for r := range rows { // dS = P·(dP - Σ dy·y)
			at := from + r
			sum := dot(dy[r*a.E:(r+1)*a.E], h.y[at*a.E:(at+1)*a.E])
			row, drow := p[r*keys:(r+1)*keys], dp[r*keys:(r+1)*keys]
			simd.AddScalar(drow, drow, -sum)
			simd.Mul(drow, drow, row)
		}
		multiply(false, false, rows, a.D, keys, T(a.Scale), dp, keys, h.k, a.D, 0, g.q[from*a.D:], a.D)
		multiply(true, false, keys, a.D, rows, T(a.Scale), dp, keys, h.q[from*a.D:], a.D, 1, g.k, a.D)
	}
}

func dot[T float](a, b []T) (sum T) {
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}
