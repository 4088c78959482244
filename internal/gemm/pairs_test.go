package gemm

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gorun-spmd/gorun/internal/dtype"
)

// dotPair returns what VDPBF16PS makes of one float32: acc + a1·b1, rounded to the nearest,
// ties to even, and + a0·b0, rounded so again. Numbers below 2⁻¹²⁶ are zeros, as operands
// and as results.
func dotPair(acc float32, a0, a1, b0, b1 dtype.BF16) float32 {
	return addProduct(addProduct(acc, a1, b1), a0, b0)
}

func addProduct(acc float32, a, b dtype.BF16) float32 {
	product := float64(flushed(a.Float32())) * float64(flushed(b.Float32())) // exact
	sum := float64(flushed(acc)) + product
	// What was lost in float64, so that it is rounded once: to odd first, then to float32.
	back := sum - product
	lost := (float64(flushed(acc)) - back) + (product - (sum - back))
	if bits := math.Float64bits(sum); lost != 0 && bits&1 == 0 && !math.IsNaN(lost) && !math.IsInf(sum, 0) {
		if (lost > 0) == (sum > 0) {
			bits++
		} else {
			bits--
		}
		sum = math.Float64frombits(bits)
	}
	if math.Abs(sum) < 0x1p-126-0x1p-151 { // what is not below is rounded to 2⁻¹²⁶
		sum = math.Copysign(0, sum)
	}
	return float32(sum)
}

func flushed(x float32) float32 {
	if math.Abs(float64(x)) < 0x1p-126 {
		return float32(math.Copysign(0, float64(x)))
	}
	return x
}

// dotTile returns what TDPBF16PS makes of one float32: acc and the sum of the products of up to 16 pairs, those of first
// elements added apart from those of second ones.
func dotTile(acc float32, a, b []dtype.BF16) float32 {
	var even, odd float32
	for p := 0; p < len(a); p += 2 {
		even, odd = addProduct(even, a[p], b[p]), addProduct(odd, a[p+1], b[p+1])
	}
	return flushed(flushed(acc) + flushed(even+odd))
}

// tilesGo is a tilesFunc with the instruction in Go.
func tilesGo(rows, cols, k int, a strip, b []float32, c matrix[float32], alpha, beta float32, room []float32) {
	clear(room[:tileSide*tileSide])
	hb := halvesOf(b)
	var column [2 * tilePairs]dtype.BF16
	for i := range rows {
		for j := range cols {
			at, acc, beta := i*c.row+j, float32(0), beta
			if alpha == 1 && beta == 1 {
				acc, beta = c.data[at], 0
			}
			for p := 0; p < k; p += tilePairs {
				for q := range tilePairs {
					copy(column[2*q:], hb[2*(j/tileSide*tileSide*k+(p+q)*tileSide+j%tileSide):][:2])
				}
				acc = dotTile(acc, a.data[i*a.row+p/tilePairs*a.block:][:2*tilePairs], column[:])
			}
			if acc *= alpha; beta != 0 {
				acc = float32(math.FMA(float64(beta), float64(c.data[at]), float64(acc)))
			}
			if c.half != nil {
				c.half[at] = dtype.ToBF16(acc)
			} else {
				c.data[at] = acc
			}
		}
	}
}

// emulated returns a product of bfloat16 as a kernel of depth 2 makes it.
func (p halves) emulated(kn *kernel) []float32 {
	c := append([]float32(nil), p.c...)
	a, b := half(p.transA, p.ha, p.lda), half(p.transB, p.hb, p.ldb)
	at := func(x matrix[float32], i, j, k int) dtype.BF16 {
		if k >= p.k {
			return 0
		}
		return x.half[i*x.row+j*x.col]
	}
	for i := range p.m {
		for j := range p.n {
			y := &c[i*p.ldc+j]
			if p.k == 0 || p.alpha == 0 {
				if *y *= p.beta; p.beta == 0 {
					*y = 0
				}
				continue
			}
			beta := p.beta
			for from := 0; from < p.k; from += kn.stepK() {
				to := min(from+kn.stepK(), p.k)
				var acc float32
				if kn.tiles != nil && p.alpha == 1 && beta == 1 {
					acc, beta = *y, 0
				}
				for q := from; q < to && kn.tiles == nil; q += 2 {
					acc = dotPair(acc, at(a, i, q, q), at(a, i, q+1, q+1), at(b, q, j, q), at(b, q+1, j, q+1))
				}
				for q := from; q < to && kn.tiles != nil; q += 2 * tilePairs {
					var row, column [2 * tilePairs]dtype.BF16
					for e := range row {
						row[e], column[e] = at(a, i, q+e, q+e), at(b, q+e, j, q+e)
					}
					acc = dotTile(acc, row[:], column[:])
				}
				if acc *= p.alpha; beta != 0 {
					acc = float32(math.FMA(float64(beta), float64(*y), float64(acc)))
				}
				*y, beta = acc, 1
			}
		}
	}
	return c
}

func TestDotPairFlushesAndRoundsTwice(t *testing.T) {
	h := dtype.ToBF16
	for _, c := range []struct{ acc, a0, a1, b0, b1, want float32 }{
		{1, 2, 3, 5, 7, 32},
		{0, 1, 0x1p-24, 1, 1, 1},                           // the second product first: 2⁻²⁴, then 1 + 2⁻²⁴ rounds to 1
		{1, -1, 0x1p-24, 1, 1, 0},                          // 1 + 2⁻²⁴ rounds to 1 before 1 is taken away
		{1, 0x1p-24, -1, 1, 1, 0x1p-24},                    // here 1 is taken away first
		{0x1p-127, 1, 0, 0x1p-126, 0, 0x1p-126},            // a denormal sum so far is 0
		{0, 0x1p-127, 0, 4, 0, 0},                          // and so is a denormal factor
		{0, 0x1p-100, 0, 0x1p-27, 0, 0},                    // and a denormal result
		{1, 0x1p-12, 0, 0x1p-12, 0, 1},                     // a tie, to even
		{1 + 0x1p-23, 0x1p-12, 0, 0x1p-12, 0, 1 + 0x1p-22}, // a tie, to even
	} {
		if got := dotPair(c.acc, h(c.a0), h(c.a1), h(c.b0), h(c.b1)); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestDotTileAddsApart(t *testing.T) {
	var a, b [2 * tilePairs]dtype.BF16
	set := func(x []dtype.BF16, v ...float32) []dtype.BF16 {
		clear(x)
		for i, f := range v {
			x[i] = dtype.ToBF16(f)
		}
		return x
	}
	ones := set(b[:], 1, 1, 1, 1, 1, 1)
	for _, c := range []struct {
		acc  float32
		a    []float32
		want float32
	}{
		{10, []float32{1, 2, 3, 4, 5, 6}, 31},
		{1, []float32{0x1p-24, 0x1p-24}, 1 + 0x1p-23},            // VDPBF16PS adds each alone, and both are lost
		{0, []float32{1, 0x1p-26, 0x1p-26, -1}, 0},               // 1 and -1 are of different sums
		{0, []float32{1, 0x1p-24, -1, 0, 0, 0x1p-25}, 0x1.8p-24}, // here of the same
		{0x1p-127, []float32{0x1p-126}, 0x1p-126},                // denormals are 0
		{0, []float32{0x1p-127, 0x1p-127}, 0},
		{-0x1p-126, []float32{0x1.8p-126}, 0},
	} {
		if got := dotTile(c.acc, set(a[:], c.a...), ones); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestPairsAreNearTheSums compares products of bfloat16 with the sums in float64. Of k
// products with absolute sum s each is added once, in float32, so the bound is that of
// product.check; what is flushed is far below it.
func TestPairsAreNearTheSums(t *testing.T) {
	for name, kn := range halvesKernels() {
		t.Run(name, func(t *testing.T) { testPairsAreNearTheSums(t, kn) })
	}
}

func testPairsAreNearTheSums(t *testing.T, kn *kernel) {
	r := rand.New(rand.NewPCG(13, 13))
	for _, s := range [][3]int{{1, 40, 1}, {3, 33, 7}, {15, 1, 300}, {29, 65, 2*blockK + 1}, {2, 200, 4*blockK + 3}, {blockM + 1, 50, 31}} {
		for trans := range 4 {
			p := randomHalves(r, trans&1 == 1, trans&2 == 2, s[0], s[1], s[2], 1, float32(trans%2))
			p.product.check(t, func(q product[float32]) {
				gemm(kn, q.m, q.n, q.k, q.alpha, half(p.transA, p.ha, p.lda), half(p.transB, p.hb, p.ldb), q.beta,
					operand(false, q.c, q.ldc))
			})
		}
	}
}

// TestPairsOfSpecialNumbers multiplies denormals, numbers whose products are, infinities and
// NaN, and compares with the emulation.
func TestPairsOfSpecialNumbers(t *testing.T) {
	for name, kn := range halvesKernels() {
		if kn.depth() == 2 {
			t.Run(name, func(t *testing.T) { testPairsOfSpecialNumbers(t, kn) })
		}
	}
}

func testPairsOfSpecialNumbers(t *testing.T, kn *kernel) {
	r := rand.New(rand.NewPCG(14, 14))
	special := []float32{0, float32(math.Copysign(0, -1)), 0x1p-133, -0x1p-127, 0x1p-126, 0x1p-64, -0x1p-63, 0x1p-12, 1, -1, 1.5, 0x1p127,
		-0x1p64, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}
	for range 200 {
		p := randomHalves(r, r.IntN(2) == 0, r.IntN(2) == 0, 9, 17, 1+r.IntN(6), 1, 0)
		for _, half := range [][]dtype.BF16{p.ha, p.hb} {
			for i := range half {
				half[i] = dtype.ToBF16(special[r.IntN(len(special)-r.IntN(2)*3)])
			}
		}
		p.check(t, kn)
	}
}

// A part of a product of bfloat16 has the bits that it has in the whole.
func TestPartsOfAProductOfHalves(t *testing.T) {
	for name, kn := range halvesKernels() {
		t.Run(name, func(t *testing.T) { testPartsOfAProductOfHalves(t, kn) })
	}
}

func testPartsOfAProductOfHalves(t *testing.T, kn *kernel) {
	r := rand.New(rand.NewPCG(15, 15))
	for trans := range 4 {
		p := randomHalves(r, trans&1 == 1, trans&2 == 2, 61, 90, 2*blockK+77, 1, 0)
		a, b := half(p.transA, p.ha, p.lda), half(p.transB, p.hb, p.ldb)
		whole := make([]float32, p.m*p.n)
		gemm(kn, p.m, p.n, p.k, 1, a, b, 0, operand(false, whole, p.n))
		for _, part := range [][4]int{{0, 0, 1, 90}, {7, 3, 30, 17}, {60, 0, 1, 1}, {0, 89, 61, 1}, {14, 32, 28, 33}} {
			i0, j0, m, n := part[0], part[1], part[2], part[3]
			c := make([]float32, m*n)
			gemm(kn, m, n, p.k, 1, a.from(i0, 0), b.from(0, j0), 0, operand(false, c, n))
			for x := range c {
				if i, j := i0+x/n, j0+x%n; c[x] != whole[i*p.n+j] {
					t.Fatalf("%v: part %v: element (%d, %d) is %v alone and %v in the whole", p, part, i, j, c[x], whole[i*p.n+j])
				}
			}
		}
	}
}
