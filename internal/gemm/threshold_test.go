package gemm

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// thresholds are sizes just below, at and just above those at which a kernel goes
// another way: m, n, k and how far apart the rows of A are, 0: side by side.
func thresholds(kn *kernel, size int) [][4]int {
	r, c := kn.rows, kn.cols
	list := [][4]int{
		// A is read where it lies if few columns are made of it, or if it is small.
		{200, 2 * c, 170}, {200, 2*c + 1, 170}, {128, 2*c + 1, smallOperand / 128}, {128, 2*c + 1, smallOperand/128 + 1},
		{40, 2*c + 1, 20, 4096 / size}, {40, 2 * c, 20, 4096 / size}, {40, 2*c + 1, 20, 4096/size + 1},
		// B is, if few rows are, or if it is small; else few rows pack it in small steps.
		{2 * r, 300, 110}, {2*r + 1, 300, 110}, {2*r + 1, 256, smallOperand / 256}, {2*r + 1, 256, smallOperand/256 + 1},
		{2 * r, 4 * c, 600}, {2 * r, 4*c + 1, 600}, {2*r + 1, 4*c + 1, 600}, {1, 4*c + 1, 900}, {1, blockN + 1, 40}, {blockN + 1, 1, 40},
		// Blocks of both, and all of A packed once or not.
		{blockM - 1, 70, 100}, {blockM, 70, 100}, {blockM + 1, 70, 100}, {50, blockN - 1, 40}, {50, blockN, 40}, {50, blockN + 1, 40},
		{50, 40, blockK - 1}, {50, 40, blockK}, {50, 40, blockK + 1}, {r + 1, c + 1, 3*blockK + 1}, {2*blockM + 1, 2*blockN + 1, 3},
		{blockM, blockN + 1, blockK}, {blockM + 1, blockN + 1, blockK}, {2 * blockM, blockN + 1, blockK / 2},
		{2*blockM + 1, blockN + 1, blockK / 2},
		// A long loop of a tile asks for C meanwhile.
		{r, c, 47}, {r - 1, c - 1, 48}, {r + 1, c/2 + 1, 49}, {r, c / 2, 48},
	}
	if kn.tiles != nil {
		list = append(list, [][4]int{
			// Tiles read rows of A where they lie, except for those below the last strip, ends of rows and rows a page apart.
			{2*r + 5, c, 64}, {2*r + 5, c, 65}, {r, c, 64, page / 2},
			{tilesM, 40, 32}, {tilesM + 1, 40, 32}, {tilesM + r, 40, 31}, {r + 1, tilesN + 1, 32}, {r + 1, tilesN + 1, 33},
			{r + 1, c + 1, tilesK}, {r + 1, c + 1, tilesK + 1}, {r + 1, c + 1, tilesK + 2*tilePairs},
		}...)
	}
	return list
}

// TestProductsOfIntegers multiplies small integers, whose sums are exact in any order,
// in every size of thresholds. It compares the products of A·B and of C with a vector,
// in which a wrong element would show.
func TestProductsOfIntegers(t *testing.T) {
	for name, halves := range halvesKernels() {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(10, uint64(halves.level)))
			integers[float32](t, r, halves, name == tilesInGo)
			if halves.level <= simd.AVX512 {
				integers[float64](t, r, halves, false)
			}
		})
	}
}

// integers multiplies T by the kernel of the level of halves, if it has one of its own, and bfloat16 by halves, which may be emulated.
func integers[T Float](t *testing.T, r *rand.Rand, halves *kernel, emulated bool) {
	level := halves.level
	kn := kernelFor(level, int(unsafe.Sizeof(T(0))))
	if level > simd.AVX512 {
		kn = halves
	}
	slow := 1 << 24
	if testing.Short() {
		slow = 1 << 20
	}
	for i, s := range thresholds(kn, int(unsafe.Sizeof(T(0)))) {
		m, n, k := s[0], s[1], s[2]
		if (level == simd.Scalar || emulated) && m*n*k > slow {
			continue
		}
		trans := i + int(level)
		p := product[T]{transA: trans&1 != 0, transB: trans&2 != 0, m: m, n: n, k: k, alpha: 1, beta: T(i % 3)}
		p.a, p.lda = small[T](r, p.transA, m, k, s[3])
		p.b, p.ldb = small[T](r, p.transB, k, n, 0)
		p.c, p.ldc = small[T](r, false, m, n, 0)
		a, b := operand(p.transA, p.a, p.lda), operand(p.transB, p.b, p.ldb)
		threads := 1 + r.IntN(3)
		if level <= simd.AVX512 {
			p.multiplies(t, r, func(p product[T]) {
				split(kn, threads, m, n, k, p.alpha, a, b, p.beta, operand(false, p.c, p.ldc))
			})
		}
		if w, ok := any(p).(product[float32]); ok {
			w.multiplies(t, r, func(p product[float32]) {
				ha, hb := half(p.transA, narrow(p.a), p.lda), half(p.transB, narrow(p.b), p.ldb)
				split(halves, threads, m, n, k, p.alpha, ha, hb, p.beta, operand(false, p.c, p.ldc))
			})
		}
	}
}

// small returns a matrix of integers from -3 to 4, and how far apart its rows are: ld,
// or side by side for 0.
func small[T Float](r *rand.Rand, trans bool, rows, cols, ld int) ([]T, int) {
	if trans {
		rows, cols = cols, rows
	}
	ld = max(ld, cols)
	s := make([]T, (rows-1)*ld+cols)
	for i := range s {
		s[i] = T(r.Uint64()>>61) - 3
	}
	return s, ld
}

// multiplies compares a product with what it should be.
func (p product[T]) multiplies(t *testing.T, r *rand.Rand, multiply func(product[T])) {
	t.Helper()
	c := p.run(multiply)
	v, bv := make([]float64, p.n), make([]float64, p.k)
	for j := range v {
		v[j] = float64(r.IntN(2001) - 1000)
	}
	a, b := operand(p.transA, p.a, p.lda), operand(p.transB, p.b, p.ldb)
	for q := range bv {
		for j, w := range v {
			bv[q] += float64(b.data[q*b.row+j*b.col]) * w
		}
	}
	for i := range p.m {
		var got, want float64
		for q, w := range bv {
			want += float64(a.data[i*a.row+q*a.col]) * w
		}
		for j, w := range v {
			want += float64(p.beta) * float64(p.c[i*p.ldc+j]) * w
			got += float64(c[i*p.n+j]) * w
		}
		if got != want {
			t.Fatalf("%v: row %d: %v, want %v", p, i, got, want)
		}
	}
}

func narrow(s []float32) []dtype.BF16 {
	h := make([]dtype.BF16, len(s))
	simd.ToBF16(h, s)
	return h
}

// TestHalvesInBlocks has a C of bfloat16 at and just above what is added up at a time,
// of few and of many columns.
func TestHalvesInBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 11))
	const rows = sumElems / sumCols
	for _, s := range [][2]int{{rows, sumCols}, {rows + 1, sumCols + 1}, {sumElems/8 + 1, 8}} {
		m, n, k := s[0], s[1], 2
		x, lda := small[float32](r, false, m, k, 0)
		y, ldb := small[float32](r, true, k, n, 0)
		kn, c, wide := halvesKernel(), make([]dtype.BF16, m*n), make([]float32, m*n)
		gemm(kn, m, n, k, 1, half(false, narrow(x), lda), half(true, narrow(y), ldb), 0, half(false, c, n))
		gemm(kernelFor(simd.Best(), 4), m, n, k, 1, operand(false, x, lda), operand(true, y, ldb), 0, operand(false, wide, n))
		if want := narrow(wide); !slices.Equal(c, want) {
			t.Errorf("%d by %d: not the product of float32, rounded", m, n)
		}
	}
}
