package gemm

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/pairwise"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// A pairwise product is the sum, in pairs, of the products of its leaves, at every level, for
// every shape, and added to what is there.
func TestPairwiseProducts(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 1))
	for _, s := range [][3]int{{1, 40, 512}, {3, 50, 128}, {45, 70, 256}, {45, 1, 512}, {17, 33, 1024}, {20, 70, 4 * 131},
		{blockM + 5, 40, 640}, {9, 9, 129}, {20, 30, 2 * 301},
		{3, nodeN + 40, 1024}, {20, 70, 4 * 393}, {2, 40, 2 * 2501}} {
		for trans := range 4 {
			p := random(r, trans&1 == 1, trans&2 == 2, s[0], s[1], s[2], float32(1), float32(trans/2))
			want := p.run(leaves)
			for _, level := range levels() {
				got := p.run(func(p product[float32]) {
					gemm(kernelFor(level, 4).pairs, p.m, p.n, p.k, p.alpha, operand(p.transA, p.a, p.lda), operand(p.transB, p.b, p.ldb), p.beta,
						operand(false, p.c, p.ldc))
				})
				if !slices.Equal(got, want) {
					t.Errorf("%v, %v: not the sum of its leaves", level, p)
				}
			}
			if s[2] > 512 {
				continue
			}
			p.check(t, func(p product[float32]) {
				gemm(kernelFor(simd.Scalar, 4).pairs, p.m, p.n, p.k, p.alpha, operand(p.transA, p.a, p.lda), operand(p.transB, p.b, p.ldb), p.beta,
					operand(false, p.c, p.ldc))
			})
		}
	}
}

// leaves multiplies leaf by leaf and adds the products in pairs, then C.
func leaves(p product[float32]) {
	a, b := operand(p.transA, p.a, p.lda), operand(p.transB, p.b, p.ldb)
	leaf := pairwise.Leaf(p.k, pairwise.Least)
	add := func(x, y []float32) []float32 {
		simd.AddTo(x, y)
		return x
	}
	var sum pairwise.Fold[[]float32]
	for k := 0; k < p.k; k += leaf {
		c := make([]float32, p.m*p.n)
		gemm(kernelFor(simd.Best(), 4).pairs.leaves, p.m, p.n, leaf, p.alpha, a.from(0, k), b.from(k, 0), 0, operand(false, c, p.n))
		sum.Push(c, add)
	}
	scale(p.m, p.n, p.beta, p.c, p.ldc)
	for i, whole := 0, sum.Sum(add); i < p.m; i++ {
		simd.AddTo(p.c[i*p.ldc:][:p.n], whole[i*p.n:][:p.n])
	}
}

// Of bfloat16 a pairwise product is that of the float32 values, whatever the CPU has.
func TestPairwiseProductsOfBFloat16(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 1))
	const m, n, k = 20, 50, 1024
	a, b := make([]dtype.BF16, m*k), make([]dtype.BF16, k*n)
	wideA, wideB := make([]float32, m*k), make([]float32, k*n)
	for i := range a {
		a[i] = dtype.ToBF16(float32(r.NormFloat64()))
		wideA[i] = a[i].Float32()
	}
	for i := range b {
		b[i] = dtype.ToBF16(float32(r.NormFloat64()))
		wideB[i] = b[i].Float32()
	}
	got, want := make([]float32, m*n), make([]float32, m*n)
	BatchBF16Pairwise(1, false, false, m, n, k, 1, a, k, 0, b, n, 0, 0, got, n, 0)
	BatchPairwise(1, false, false, m, n, k, 1, wideA, k, 0, wideB, n, 0, 0, want, n, 0)
	if !slices.Equal(got, want) {
		t.Error("other bits than those of the float32 values")
	}
}

// TestFusedProductsHaveTheSameBits compares levels with each other, plain Go among them, for products and pairwise ones of any shape.
func TestFusedProductsHaveTheSameBits(t *testing.T) {
	fusedProducts[float32](t)
	fusedProducts[float64](t)
}

func fusedProducts[T Float](t *testing.T) {
	r := rand.New(rand.NewPCG(10, 1))
	cases := 120
	if testing.Short() {
		cases = 20
	}
	for range cases {
		m, n, k := 1+r.IntN(40), 1+r.IntN(70), 1+r.IntN(600)
		if r.IntN(2) == 0 {
			k = (1 + r.IntN(3)) * 256
		}
		p := random(r, r.IntN(2) == 1, r.IntN(2) == 1, m, n, k, T(r.NormFloat64()), T(r.IntN(3))*T(r.NormFloat64()))
		for _, pairwise := range []bool{false, true} {
			run := func(level simd.Level) []T {
				return p.run(func(p product[T]) {
					kn := kernelFor(level, int(unsafe.Sizeof(p.alpha))).pairs
					if !pairwise {
						kn = kn.leaves
					}
					whole(kn, p.transA, p.transB, p.m, p.n, p.k, p.alpha, p.a, p.lda, p.b, p.ldb, p.beta, p.c, p.ldc)
				})
			}
			want := run(simd.Scalar)
			for _, level := range levels()[1:] {
				if got := run(level); !slices.Equal(got, want) {
					t.Fatalf("%v, pairwise %v: %v has other bits than plain Go", p, pairwise, level)
				}
			}
		}
	}
}
