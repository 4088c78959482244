package gemm

import (
	"math"
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

// A pairwise product of bfloat16 has the same bits at every level: those of its leaves, of which each is added up as VDPBF16PS does
// where the architecture has that and the leaf is even, and like float32 elsewhere. Numbers are also denormal or infinite.
func TestPairwiseProductsOfBFloat16(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 1))
	shapes := [][3]int{{1, 40, 512}, {3, 50, 128}, {20, 50, 256}, {9, 1, 1024}, {30, 70, 2 * 134}, {5, 40, 4 * 394}, {6, 33, 2}, {17, 20, 70},
		{9, 9, 129}, {20, 30, 2 * 301}}
	for _, s := range shapes {
		for trans := range 8 {
			if testing.Short() && trans%3 != 0 {
				continue
			}
			p := randomHalves(r, trans&1 == 1, trans&2 == 2, s[0], s[1], s[2], float32(1), float32(trans/2%2))
			if trans >= 4 {
				p.scatter(r)
			}
			a, b := half(p.transA, p.ha, p.lda), half(p.transB, p.hb, p.ldb)
			want := p.leaves()
			check := func(name string, do func(c []float32)) {
				got := slices.Clone(p.c)
				do(got)
				for i := range p.m {
					for j := range p.n {
						if x, y := got[i*p.ldc+j], want[i*p.ldc+j]; math.Float32bits(x) != math.Float32bits(y) && (x == x || y == y) {
							t.Fatalf("%s, %v: element (%d, %d) is %v, of its leaves %v", name, p, i, j, x, y)
						}
					}
				}
			}
			check("best", func(c []float32) {
				BatchBF16Pairwise(1, p.transA, p.transB, p.m, p.n, p.k, p.alpha, p.ha, p.lda, 0, p.hb, p.ldb, 0, p.beta, c, p.ldc, 0)
			})
			if pairwise.Leaf(p.k, pairwise.Least)%2 == 1 {
				continue
			}
			for _, level := range simd.Levels() {
				check(level.String(), func(c []float32) {
					gemm(pairwiseHalvesFor(level), p.m, p.n, p.k, p.alpha, a, b, p.beta, operand(false, c, p.ldc))
				})
			}
		}
	}
}

// scatter scales some factors so that products are denormal, or their sums, and makes few of them special.
func (p halves) scatter(r *rand.Rand) {
	special := []float32{0, float32(math.Copysign(0, -1)), 0x1p-133, -0x1p-127, float32(math.Inf(1)), float32(math.NaN())}
	for _, x := range []struct {
		half []dtype.BF16
		wide []float32
	}{{p.ha, p.a}, {p.hb, p.b}} {
		for i := range x.half {
			scale := float32(math.Exp2(-63 - float64(r.IntN(12))))
			x.half[i] = dtype.ToBF16(x.wide[i] * scale)
			if r.IntN(200) == 0 {
				x.half[i] = dtype.ToBF16(special[r.IntN(len(special))])
			}
			x.wide[i] = x.half[i].Float32()
		}
	}
}

// leaves multiplies leaf by leaf, in plain Go, and adds the products in pairs, then C.
func (p halves) leaves() []float32 {
	c := slices.Clone(p.c)
	leaf := pairwise.Leaf(p.k, pairwise.Least)
	a, b := operand(p.transA, p.a, p.lda), operand(p.transB, p.b, p.ldb)
	ha, hb := half(p.transA, p.ha, p.lda), half(p.transB, p.hb, p.ldb)
	at := func(x matrix[float32], i, j int) dtype.BF16 { return x.half[i*x.row+j*x.col] }
	for i := range p.m {
		for j := range p.n {
			var sum pairwise.Fold[float32]
			for k := 0; k < p.k; k += leaf {
				var node float32
				for q := k; q < k+leaf; q += blockK {
					var acc float32
					for e := q; e < min(q+blockK, k+leaf); e++ {
						switch {
						case !hasPairs || leaf%2 == 1:
							acc = fma(a.data[i*a.row+e*a.col], b.data[e*b.row+j*b.col], acc)
						case e%2 == 0:
							acc = dotPair(acc, at(ha, i, e), at(ha, i, e+1), at(hb, e, j), at(hb, e+1, j))
						}
					}
					if acc *= p.alpha; q == k {
						node = acc // which may be a negative zero
					} else {
						node += acc
					}
				}
				sum.Push(node, func(a, b float32) float32 { return a + b })
			}
			y := &c[i*p.ldc+j]
			if whole := sum.Sum(func(a, b float32) float32 { return a + b }); p.beta == 0 {
				*y = whole
			} else {
				*y = fma(p.beta, *y, whole)
			}
		}
	}
	return c
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
