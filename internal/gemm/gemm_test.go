package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/simd"
)

// A product is one call of Gemm with its matrices.
type product[T Float] struct {
	transA, transB bool
	m, n, k        int
	alpha, beta    T
	a, b, c        []T
	lda, ldb, ldc  int
}

func (p product[T]) String() string {
	return fmt.Sprintf("%T m %d n %d k %d transA %v transB %v alpha %v beta %v ld %d %d %d",
		p.alpha, p.m, p.n, p.k, p.transA, p.transB, p.alpha, p.beta, p.lda, p.ldb, p.ldc)
}

// random makes a product with random contents; what lies between the rows is
// NaN, and so is C when beta is 0.
func random[T Float](r *rand.Rand, transA, transB bool, m, n, k int, alpha, beta T) product[T] {
	p := product[T]{transA: transA, transB: transB, m: m, n: n, k: k, alpha: alpha, beta: beta}
	fill := func(trans bool, rows, cols int, nan bool) ([]T, int) {
		if trans {
			rows, cols = cols, rows
		}
		ld := cols + r.IntN(3)*r.IntN(20)
		s := make([]T, max(0, (rows-1)*ld+cols))
		for i := range s {
			if s[i] = T(r.NormFloat64()); nan || i%max(ld, 1) >= cols {
				s[i] = T(math.NaN())
			}
		}
		return s, ld
	}
	p.a, p.lda = fill(transA, m, k, false)
	p.b, p.ldb = fill(transB, k, n, false)
	p.c, p.ldc = fill(false, m, n, beta == 0)
	return p
}

// check runs multiply on a copy of C and compares each element with the sum in
// float64. A sum of k products of terms with absolute sum s, added in any order,
// is off by at most (k+3)·ε·s; the guard between the rows of C must be untouched.
func (p product[T]) check(t *testing.T, multiply func(p product[T])) {
	t.Helper()
	old := p.c
	p.c = append([]T(nil), old...)
	multiply(p)
	eps := 0x1p-24
	if unsafe.Sizeof(p.alpha) == 8 {
		eps = 0x1p-53
	}
	a, b := operand(p.transA, p.a, p.lda), operand(p.transB, p.b, p.ldb)
	for x := range p.c {
		i, j := x/p.ldc, x%p.ldc
		if j >= p.n {
			if p.c[x] == p.c[x] {
				t.Fatalf("%v: wrote %v beyond row %d", p, p.c[x], i)
			}
			continue
		}
		var sum, abs float64
		for q := range p.k {
			v := float64(a.data[i*a.row+q*a.col]) * float64(b.data[q*b.row+j*b.col])
			sum, abs = sum+v, abs+math.Abs(v)
		}
		sum, abs = float64(p.alpha)*sum, math.Abs(float64(p.alpha))*abs
		if p.beta != 0 {
			v := float64(p.beta) * float64(old[x])
			sum, abs = sum+v, abs+math.Abs(v)
		}
		if got := float64(p.c[x]); !(math.Abs(got-sum) <= float64(p.k+3)*eps*abs) {
			t.Fatalf("%v: element (%d, %d) is %v, want %v ± %v", p, i, j, got, sum, float64(p.k+3)*eps*abs)
		}
	}
}

// levels are the instruction sets of this machine that differ for float32 and float64.
func levels() []simd.Level {
	return slices.DeleteFunc(simd.Levels(), func(l simd.Level) bool { return l > simd.AVX512 })
}

// at multiplies with the kernel of one level.
func at[T Float](level simd.Level) func(product[T]) {
	return func(p product[T]) {
		check(p.transA, p.transB, p.m, p.n, p.k, len(p.a), p.lda, len(p.b), p.ldb, len(p.c), p.ldc)
		gemm(kernelFor(level, int(unsafe.Sizeof(p.alpha))), p.m, p.n, p.k, p.alpha,
			operand(p.transA, p.a, p.lda), operand(p.transB, p.b, p.ldb), p.beta, operand(false, p.c, p.ldc))
	}
}

func TestGemmEqualsTheSums(t *testing.T) {
	for _, level := range levels() {
		t.Run(level.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(level)))
			sizes := []int{0, 1, 2, 3, 4, 5, 7, 8, 13, 14, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65}
			pick := func() int { return sizes[r.IntN(len(sizes))] }
			for range 700 {
				m, n, k := pick(), pick(), pick()
				scalars := []float64{0, 1, -1, 2.5}
				alpha, beta := scalars[r.IntN(4)], scalars[r.IntN(4)]
				if r.IntN(2) == 0 {
					alpha, beta = 1, float64(r.IntN(2))
				}
				ta, tb := r.IntN(2) == 0, r.IntN(2) == 0
				random(r, ta, tb, m, n, k, float32(alpha), float32(beta)).check(t, at[float32](level))
				random(r, ta, tb, m, n, k, alpha, beta).check(t, at[float64](level))
			}
		})
	}
}

func TestGemmOverSeveralBlocks(t *testing.T) {
	for _, level := range levels() {
		t.Run(level.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(2, uint64(level)))
			for _, s := range [][3]int{{blockM + 3, 40, 20}, {20, blockN + 37, 5}, {19, 35, blockK + 1}, {1, 300, 600}, {300, 1, 600},
				{37, 70, 2*blockK + 3}} {
				for trans := range 4 {
					random(r, trans&1 == 1, trans&2 == 2, s[0], s[1], s[2], float32(1), float32(trans)).check(t, at[float32](level))
				}
			}
		})
	}
}
