package gemm

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/internal/simd"
)

// run multiplies a copy of C and returns it without the guards between its rows.
func (p product[T]) run(multiply func(product[T])) []T {
	p.c = slices.Clone(p.c)
	multiply(p)
	var c []T
	for i := range p.m {
		c = append(c, p.c[i*p.ldc:][:p.n]...)
	}
	return c
}

func TestThreadsDoNotChangeTheResult(t *testing.T) {
	for _, level := range levels() {
		r := rand.New(rand.NewPCG(3, uint64(level)))
		for _, s := range [][3]int{{100, 37, 300}, {3, 200, 70}, {1, 1, 9}, {29, 29, 29}, {15, 1, 40}} {
			for trans := range 4 {
				p := random(r, trans&1 == 1, trans&2 == 2, s[0], s[1], s[2], float32(1), float32(trans))
				want := p.run(at[float32](level))
				for _, threads := range []int{1, 2, 3, 8} {
					got := p.run(func(p product[float32]) {
						split(kernelFor(level, 4), threads, p.m, p.n, p.k, p.alpha, operand(p.transA, p.a, p.lda), operand(p.transB, p.b, p.ldb), p.beta,
							operand(false, p.c, p.ldc))
					})
					if !slices.Equal(got, want) {
						t.Errorf("%v, %v: %d threads give other bits than one", level, p, threads)
					}
				}
			}
		}
	}
}

// Every instruction set, on amd64 and on arm64, adds with fused multiply-adds in the same
// order. The bits, hashed, were recorded with AVX2.
func TestInstructionSetsGiveTheSameBits(t *testing.T) {
	if simd.Best() == simd.Scalar {
		t.Skip("no instruction set")
	}
	r := rand.New(rand.NewPCG(4, 4))
	for trans, want := range [4][2]uint64{
		{0xb996bb2cda51c46a, 0x8a629a7326e3c4ce}, {0xce6d645435030c89, 0xad67f16ec35db08d}, {0x8b6885671c83f598, 0x235d5324fe831e1b},
		{0xf7b53c8db8cc377d, 0x179234cb2cfced38}} {
		p := random(r, trans&1 == 1, trans&2 == 2, 45, 70, 2*blockK+9, float32(1.5), float32(trans))
		q := random(r, trans&1 == 1, trans&2 == 2, 45, 71, blockK+9, 1.5, float64(trans))
		for _, s := range [][]float64{q.a, q.b, q.c} { // the last bits of random numbers depend on math.Log, which machines round otherwise
			for i, v := range s {
				s[i] = float64(float32(v))
			}
		}
		for _, level := range levels()[1:] {
			if got := ([2]uint64{bitsOf(p.run(at[float32](level))), bitsOf(q.run(at[float64](level)))}); got != want {
				t.Errorf("%v, trans %d: the bits are %#x, recorded are %#x", level, trans, got, want)
			}
		}
	}
}

// bitsOf hashes the bits of numbers.
func bitsOf[T Float](s []T) uint64 {
	h := fnv.New64a()
	for _, v := range s {
		fmt.Fprintf(h, "%016x", math.Float64bits(float64(v)))
	}
	return h.Sum64()
}

// A row of the result depends on its row of A alone, not on how many others
// there are: the product of a part is the part of the product.
func TestPartsOfAProduct(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, s := range []struct {
		m, n, k int
		parts   [][4]int
	}{
		{61, 90, 300, [][4]int{{0, 0, 1, 90}, {7, 3, 30, 17}, {60, 0, 1, 1}, {0, 89, 61, 1}, {14, 32, 28, 33}}},
		// Several blocks of both operands, A being packed whole, or not.
		{blockM + 61, blockN + 90, 200, [][4]int{{0, blockN, blockM + 61, 90}, {blockM - 1, blockN - 1, 2, 2}, {0, 0, 1, blockN + 90}}},
		{blockM + 61, blockN + 90, 300, [][4]int{{0, blockN, blockM + 61, 90}, {blockM - 1, blockN - 1, 2, 2}, {0, 0, 1, blockN + 90}}},
	} {
		for trans := range 4 {
			if testing.Short() && s.m > blockM && trans%3 > 0 { // large: as it lies, and both transposed
				continue
			}
			p := random(r, trans&1 == 1, trans&2 == 2, s.m, s.n, s.k, float32(1), 0)
			whole := p.run(at[float32](simd.Best()))
			a, b := operand(p.transA, p.a, p.lda), operand(p.transB, p.b, p.ldb)
			for _, part := range s.parts {
				i0, j0, m, n := part[0], part[1], part[2], part[3]
				c := make([]float32, m*n)
				gemm(kernelFor(simd.Best(), 4), m, n, p.k, 1, a.from(i0, 0), b.from(0, j0), 0, operand(false, c, n))
				for x := range c {
					if i, j := i0+x/n, j0+x%n; c[x] != whole[i*p.n+j] {
						t.Fatalf("%v: part %v: element (%d, %d) is %v alone and %v in the whole", p, part, i, j, c[x], whole[i*p.n+j])
					}
				}
			}
		}
	}
}

func TestExportedGemmUsesThreads(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	if got := threadsFor(512, 512, 512); got != 3 {
		t.Errorf("%d threads for a large product at GOMAXPROCS 3", got)
	}
	if got := threadsFor(64, 64, 64); got != 1 {
		t.Errorf("%d threads for a small product", got)
	}
	r := rand.New(rand.NewPCG(6, 6))
	p := random(r, false, true, 400, 310, 290, float32(1), 0)
	got := p.run(func(p product[float32]) {
		Gemm(p.transA, p.transB, p.m, p.n, p.k, p.alpha, p.a, p.lda, p.b, p.ldb, p.beta, p.c, p.ldc)
	})
	if !slices.Equal(got, p.run(at[float32](simd.Best()))) {
		t.Error("Gemm on 3 threads differs from one thread")
	}
}

func TestBatch(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	r := rand.New(rand.NewPCG(7, 7))
	for _, s := range []struct{ count, m, n, k, strideA, strideB int }{
		{0, 3, 4, 5, 15, 20}, {1, 3, 4, 5, 15, 20}, {7, 3, 4, 5, 15, 20}, {5, 3, 4, 0, 0, 0}, {6, 9, 17, 33, 9 * 33, 0},
		{40, 100, 100, 100, 10000, 10000},
	} {
		a, b := make([]float32, s.count*s.m*s.k), make([]float32, max(s.count, 1)*s.n*s.k)
		for i := range a {
			a[i] = float32(r.NormFloat64())
		}
		for i := range b {
			b[i] = float32(r.NormFloat64())
		}
		got, want := make([]float32, s.count*s.m*s.n), make([]float32, s.count*s.m*s.n)
		Batch(s.count, false, true, s.m, s.n, s.k, 1, a, s.k, s.strideA, b, s.k, s.strideB, 0, got, s.n, s.m*s.n)
		for i := range s.count {
			Gemm(false, true, s.m, s.n, s.k, 1, a[i*s.strideA:], s.k, b[i*s.strideB:], s.k, 0, want[i*s.m*s.n:], s.n)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v: Batch differs from Gemm on each", s)
		}
	}
}

func TestGemmDoesNotAllocate(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection empties the pool
	a, b, c := make([]float32, 64*300), make([]float32, 64*300), make([]float32, 64*64)
	if n := testing.AllocsPerRun(50, func() {
		Gemm(false, true, 8, 8, 8, 1, a, 8, b, 8, 0, c, 8)
		Gemm(true, true, 64, 64, 300, 1, a, 64, b, 300, 0, c, 64)
		Batch(4, false, false, 8, 8, 8, 1, a, 8, 64, b, 8, 64, 0, c, 8, 64)
	}); n > 0.5 { // under the race detector a pool loses some of what it is given
		t.Errorf("%v allocations", n)
	}
}

func TestGemmRefusesShortSlices(t *testing.T) {
	s := make([]float32, 5)
	for name, f := range map[string]func(){
		"A":        func() { Gemm(false, false, 2, 3, 1, 1, s[:1], 1, s, 3, 0, make([]float32, 6), 3) },
		"B":        func() { Gemm(false, false, 2, 3, 1, 1, s, 1, s[:2], 3, 0, make([]float32, 6), 3) },
		"C":        func() { Gemm(false, false, 2, 3, 1, 1, s, 1, s, 3, 0, s, 3) },
		"ld":       func() { Gemm(false, false, 1, 3, 1, 1, s, 1, s, 2, 0, s, 3) },
		"negative": func() { Gemm(false, false, -1, 3, 1, 1, s, 1, s, 3, 0, s, 3) },
		"batch":    func() { Batch(2, false, false, 1, 1, 3, 1, s, 3, 3, s, 1, 0, 0, s, 1, 1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func FuzzGemm(f *testing.F) {
	f.Add(uint64(1), uint8(8), uint8(8), uint16(8), uint8(0))
	f.Add(uint64(2), uint8(1), uint8(33), uint16(257), uint8(3))
	f.Add(uint64(3), uint8(15), uint8(0), uint16(0), uint8(6))
	f.Fuzz(func(t *testing.T, seed uint64, m, n uint8, k uint16, flags uint8) {
		r := rand.New(rand.NewPCG(seed, 0))
		p := random(r, flags&1 == 1, flags&2 == 2, int(m), int(n), int(k%1024), float32(flags&4)-1, float32(flags>>3&1))
		for _, level := range levels() {
			p.check(t, at[float32](level))
		}
	})
}
