package gemm

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
)

// A halves is a product of bfloat16 with the same in float32.
type halves struct {
	product[float32]
	ha, hb, hc []dtype.BF16
}

// randomHalves makes one; the float32 values are those of the halves, and what lies
// between the rows is NaN.
func randomHalves(r *rand.Rand, transA, transB bool, m, n, k int, alpha, beta float32) halves {
	p := halves{product: random(r, transA, transB, m, n, k, alpha, beta)}
	for _, x := range []struct {
		wide []float32
		half *[]dtype.BF16
	}{{p.a, &p.ha}, {p.b, &p.hb}, {p.c, &p.hc}} {
		*x.half = make([]dtype.BF16, len(x.wide))
		for i, v := range x.wide {
			(*x.half)[i] = dtype.ToBF16(v)
			x.wide[i] = (*x.half)[i].Float32()
		}
	}
	return p
}

// tilesInGo is the name of the kernel of AMX with its instruction in Go.
const tilesInGo = "AMX in Go"

// halvesKernels returns the kernels of this machine for bfloat16, and that of AMX with its instruction in Go.
func halvesKernels() map[string]*kernel {
	list := map[string]*kernel{tilesInGo: halvesKernelFor(simd.AMX)}
	for name, kn := range list {
		kn.tiles = tilesGo
		list[name] = kn
	}
	for _, level := range simd.Levels() {
		list[level.String()] = halvesKernelFor(level)
	}
	return list
}

// check multiplies halves into a C of bfloat16 and one of float32, and compares the
// bits with those of the float32 product, the first rounded; where the kernel multiplies
// pairs, with those of the instruction.
func (p halves) check(t *testing.T, kn *kernel) {
	t.Helper()
	a, b := half(p.transA, p.ha, p.lda), half(p.transB, p.hb, p.ldb)
	wide, rounded := slices.Clone(p.c), slices.Clone(p.hc)
	gemm(kn, p.m, p.n, p.k, p.alpha, a, b, p.beta, operand(false, wide, p.ldc))
	gemm(kn, p.m, p.n, p.k, p.alpha, a, b, p.beta, half(false, rounded, p.ldc))
	want := slices.Clone(p.c)
	if kn.depth() == 2 {
		want = p.emulated(kn)
	} else {
		gemm(kn, p.m, p.n, p.k, p.alpha, operand(p.transA, p.a, p.lda), operand(p.transB, p.b, p.ldb), p.beta, operand(false, want, p.ldc))
	}
	for x, v := range want {
		if math.Float32bits(wide[x]) != math.Float32bits(v) && (v == v || wide[x] == wide[x]) {
			t.Fatalf("%v of bfloat16: element (%d, %d) is %v, of float32 %v", p, x/p.ldc, x%p.ldc, wide[x], v)
		}
		if x%p.ldc >= p.n {
			if rounded[x] != p.hc[x] {
				t.Fatalf("%v of bfloat16: wrote %v beyond row %d", p, rounded[x], x/p.ldc)
			}
		} else if want := dtype.ToBF16(v); rounded[x] != want && (v == v || rounded[x].Float32() == rounded[x].Float32()) {
			t.Fatalf("%v of bfloat16: element (%d, %d) is %v, want %v", p, x/p.ldc, x%p.ldc, rounded[x].Float32(), want.Float32())
		}
	}
}

func TestHalvesHaveTheBitsOfTheirFloats(t *testing.T) {
	for name, kn := range halvesKernels() {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(8, uint64(kn.level)))
			count, emulated := 500, kn.depth() == 2
			switch {
			case emulated && testing.Short() && kn.tiles != nil: // its emulation is slower
				count = 50
			case emulated && testing.Short(): // the emulation is slow
				count = 150
			}
			sizes := []int{0, 1, 2, 3, 5, 8, 13, 14, 15, 16, 17, 31, 32, 33, 48, 63, 65}
			pick := func() int { return sizes[r.IntN(len(sizes))] }
			for range count {
				alpha, beta := []float32{0, 1, 1, 2.5}[r.IntN(4)], float32(r.IntN(3))/2
				randomHalves(r, r.IntN(2) == 0, r.IntN(2) == 0, pick(), pick(), pick(), alpha, beta).check(t, kn)
			}
			for _, s := range [][3]int{{blockM + 3, 40, 20}, {20, blockN + 37, 5}, {19, 35, blockK + 1}, {1, 300, 600}, {300, 1, 600},
				{37, 70, 2*blockK + 3}, {2*blockM + 1, blockN + 1, 3}} {
				if emulated && testing.Short() && s[0]*s[1]*s[2] > 1<<20 {
					continue
				}
				for trans := range 4 {
					randomHalves(r, trans&1 == 1, trans&2 == 2, s[0], s[1], s[2], 1, float32(trans%2)).check(t, kn)
				}
			}
			if kn.tiles != nil { // in blocks of k, and in one sum
				for i, beta := range []float32{0, 1, 0.5} {
					randomHalves(r, i == 1, i == 2, 33, 17, tilesK+33, 2.5, beta).check(t, kn)
					randomHalves(r, i == 1, i == 2, 33, 17, tilesK+32, 1, beta).check(t, kn)
				}
			}
		})
	}
}

// A sum that is larger than the largest bfloat16 rounds to infinity, a NaN stays one.
func TestHalvesRoundOnce(t *testing.T) {
	one := dtype.ToBF16(1)
	for name, c := range map[string]struct {
		a    []float32
		want float32
	}{
		"many small":  {append([]float32{256}, slices.Repeat([]float32{0.25}, 8)...), 258}, // each alone would be lost
		"a tie":       {[]float32{256, 1}, 256},
		"above a tie": {[]float32{256, 1, 0x1p-10}, 258},
		"infinite":    {[]float32{3.3895314e38, 3.3895314e38}, float32(math.Inf(1))},
	} {
		a, b := make([]dtype.BF16, len(c.a)), slices.Repeat([]dtype.BF16{one}, len(c.a))
		for i, v := range c.a {
			a[i] = dtype.ToBF16(v)
		}
		got := make([]dtype.BF16, 1)
		BatchBF16(1, false, false, 1, 1, len(a), 1, a, len(a), 0, b, 1, 0, 0, got, 1, 1)
		if got[0].Float32() != c.want {
			t.Errorf("%s: %v, want %v", name, got[0].Float32(), c.want)
		}
	}
}

// A NaN whose bits are all ones would become a zero if it were rounded as a number.
func TestHalvesKeepNaN(t *testing.T) {
	const m, n, k = 29, 49, 20
	ones := slices.Repeat([]dtype.BF16{dtype.ToBF16(1)}, max(m, n)*k)
	for name, kn := range halvesKernels() {
		for _, beta := range []float32{0, 1} {
			c := make([]dtype.BF16, m*n)
			gemm(kn, m, n, k, math.Float32frombits(math.MaxUint32), half(false, ones, k), half(false, ones, n), beta, half(false, c, n))
			for x, v := range c {
				if f := v.Float32(); f == f {
					t.Fatalf("%s: with beta %v element (%d, %d) of a product with NaN is %v", name, beta, x/n, x%n, f)
				}
			}
		}
	}
}

func TestBatchOfHalves(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	r := rand.New(rand.NewPCG(9, 9))
	for _, s := range []struct{ count, m, n, k, strideA, strideB int }{
		{0, 3, 4, 5, 15, 20}, {1, 3, 4, 5, 15, 20}, {7, 3, 4, 5, 15, 20}, {5, 3, 4, 0, 0, 0}, {6, 9, 17, 33, 9 * 33, 0},
		{3, 200, 300, 600, 0, 180000}, {1, 700, 300, 200, 0, 0},
	} {
		a, b := make([]dtype.BF16, max(s.count, 1)*s.m*s.k), make([]dtype.BF16, max(s.count, 1)*s.n*s.k)
		wa, wb := make([]float32, len(a)), make([]float32, len(b))
		for i := range a {
			a[i] = dtype.ToBF16(float32(r.NormFloat64()))
			wa[i] = a[i].Float32()
		}
		for i := range b {
			b[i] = dtype.ToBF16(float32(r.NormFloat64()))
			wb[i] = b[i].Float32()
		}
		runtime.GOMAXPROCS(1)
		want, halves := make([]float32, s.count*s.m*s.n), make([]dtype.BF16, s.count*s.m*s.n)
		if kn := halvesKernel(); kn.depth() == 2 { // what one product is, check says
			for i := range s.count {
				gemm(kn, s.m, s.n, s.k, 1, half(false, a[i*s.strideA:], s.k), half(true, b[i*s.strideB:], s.k), 0,
					operand(false, want[i*s.m*s.n:], s.n))
			}
		} else {
			Batch(s.count, false, true, s.m, s.n, s.k, 1, wa, s.k, s.strideA, wb, s.k, s.strideB, 0, want, s.n, s.m*s.n)
		}
		simd.ToBF16(halves, want)
		for _, threads := range []int{1, 2, 5} {
			runtime.GOMAXPROCS(threads)
			wide, rounded := make([]float32, s.count*s.m*s.n), make([]dtype.BF16, s.count*s.m*s.n)
			BatchBF16(s.count, false, true, s.m, s.n, s.k, 1, a, s.k, s.strideA, b, s.k, s.strideB, 0, wide, s.n, s.m*s.n)
			BatchBF16(s.count, false, true, s.m, s.n, s.k, 1, a, s.k, s.strideA, b, s.k, s.strideB, 0, rounded, s.n, s.m*s.n)
			if !slices.Equal(wide, want) || !slices.Equal(rounded, halves) {
				t.Errorf("%+v on %d threads: the batch of halves differs from its products", s, threads)
			}
		}
	}
}

// A signal that comes in a product, with whatever registers the kernel uses, and other goroutines that come between
// leave the product alone.
func TestHalvesUnderSignals(t *testing.T) {
	if err := pprof.StartCPUProfile(io.Discard); err != nil { // a signal every 10 ms of processor time
		t.Fatal(err)
	}
	defer pprof.StopCPUProfile()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	const n = 130
	r := rand.New(rand.NewPCG(16, 16))
	a, b, want := make([]dtype.BF16, n*n), make([]dtype.BF16, n*n), make([]float32, n*n)
	for i := range a {
		a[i], b[i] = dtype.ToBF16(float32(r.NormFloat64())), dtype.ToBF16(float32(r.NormFloat64()))
	}
	multiply := func(c []float32) { BatchBF16(1, false, true, n, n, n, 1, a, n, 0, b, n, 0, 0, c, n, 0) }
	multiply(want)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			c := make([]float32, n*n)
			began := time.Now()
			for i := 0; i < 60 && (i < 5 || time.Since(began) < time.Second); i++ { // where they are emulated a second has as many signals
				if multiply(c); !slices.Equal(c, want) {
					t.Error("another product")
					return
				}
				runtime.Gosched()
			}
		})
	}
	for range 5 {
		runtime.GC() // which stops them all
	}
	wg.Wait()
}

func TestHalvesDoNotAllocate(t *testing.T) {
	a, b, c, wide := make([]dtype.BF16, 64*300), make([]dtype.BF16, 64*300), make([]dtype.BF16, 64*64), make([]float32, 64*64)
	// The least of many: a collection empties the pools, and under the race detector
	// they lose some of what they are given.
	least := math.Inf(1)
	for i := 0; i < 200 && least > 0; i++ {
		least = min(least, testing.AllocsPerRun(1, func() {
			BatchBF16(1, false, true, 8, 8, 8, 1, a, 8, 0, b, 8, 0, 0, c, 8, 0)
			BatchBF16(1, true, true, 64, 64, 300, 1, a, 64, 0, b, 300, 0, 1, c, 64, 0)
			BatchBF16(1, true, true, 64, 64, 300, 1, a, 64, 0, b, 300, 0, 1, wide, 64, 0)
		}))
	}
	if least > 0 {
		t.Errorf("%v allocations", least)
	}
}

func BenchmarkHalves(b *testing.B) {
	for _, s := range [][3]int{{1024, 1024, 1024}, {512, 4096, 768}, {8, 4096, 1024}, {1, 4096, 1024}, {49, 32768, 768}} {
		m, n, k := s[0], s[1], s[2]
		ha, hb, hc := make([]dtype.BF16, m*k), make([]dtype.BF16, n*k), make([]dtype.BF16, m*n)
		fa, fb, fc := make([]float32, m*k), make([]float32, n*k), make([]float32, m*n)
		for _, trans := range []bool{false, true} {
			ldb := n
			if trans {
				ldb = k
			}
			for name, f := range map[string]func(){
				"float32":  func() { Batch(1, false, trans, m, n, k, 1, fa, k, 0, fb, ldb, 0, 0, fc, n, 0) },
				"bfloat16": func() { BatchBF16(1, false, trans, m, n, k, 1, ha, k, 0, hb, ldb, 0, 0, hc, n, 0) },
				"bf16-f32": func() { BatchBF16(1, false, trans, m, n, k, 1, ha, k, 0, hb, ldb, 0, 0, fc, n, 0) },
			} {
				b.Run(fmt.Sprintf("%dx%dx%d/transB=%v/%s", m, n, k, trans, name), func(b *testing.B) {
					defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
					for b.Loop() {
						f()
					}
					b.ReportMetric(2*float64(m)*float64(n)*float64(k)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
				})
			}
		}
	}
}
