package simd

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/internal/dtype"
)

// TestPairs compares zipped rows, turned pairs, widened rows, widened turned rows and rounded rows with their loops, all of
// dst, what lies between its rows too.
func TestPairs(t *testing.T) {
	number := func(i int) dtype.BF16 { return dtype.BF16(i * 40503) }
	sizes := []int{0, 1, 2, 3, 7, 8, 14, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130, 257}
	for _, l := range modes() {
		r := rand.New(rand.NewPCG(5, uint64(l.code())))
		for range 400 {
			rows, n := sizes[r.IntN(len(sizes))], sizes[r.IntN(len(sizes))]
			srcStep := n + r.IntN(3)*r.IntN(20)
			src := filled(r.IntN(40), max(0, (rows-1)*srcStep+n), number)
			at := func(i, j int) dtype.BF16 {
				if i >= rows || j >= n {
					return 0
				}
				return src[i*srcStep+j]
			}
			step := 2*n + r.IntN(3)*r.IntN(20)
			dst := filled(r.IntN(40), (rows+1)/2*step+1, number)
			want := slices.Clone(dst)
			for p := range (rows + 1) / 2 {
				for j := range n {
					want[p*step+2*j], want[p*step+2*j+1] = at(2*p, j), at(2*p+1, j)
				}
			}
			if l.zipRows(dst, step, src, srcStep, rows, n); !slices.Equal(dst, want) {
				t.Fatalf("%v: %d rows of %d, %d and %d apart: zipped wrong", l, rows, n, srcStep, step)
			}
			step = 2*rows + r.IntN(3)*r.IntN(20)
			dst = filled(r.IntN(40), (n+1)/2*step+1, number)
			want = slices.Clone(dst)
			for p := range (n + 1) / 2 {
				for i := range rows {
					want[p*step+2*i], want[p*step+2*i+1] = at(i, 2*p), at(i, 2*p+1)
				}
			}
			if l.transposePairs(dst, step, src, srcStep, rows, n); !slices.Equal(dst, want) {
				t.Fatalf("%v: %d rows of %d, %d and %d apart: turned wrong", l, rows, n, srcStep, step)
			}
			step = n + r.IntN(3)*r.IntN(20)
			float := func(i int) float32 { return float32(i) }
			wide := filled(r.IntN(40), max(0, (rows-1)*step+n)+1, float)
			wantWide := slices.Clone(wide)
			for i := range rows {
				for j := range n {
					wantWide[i*step+j] = math.Float32frombits(uint32(at(i, j)) << 16)
				}
			}
			if l.fromRowsBF16(wide, step, src, srcStep, rows, n); !slices.EqualFunc(wide, wantWide, sameBits) {
				t.Fatalf("%v: %d rows of %d, %d and %d apart: widened wrong", l, rows, n, srcStep, step)
			}
			step = rows + r.IntN(3)*r.IntN(20)
			wide = filled(r.IntN(40), max(0, (n-1)*step+rows)+1, float)
			wantWide = slices.Clone(wide)
			for i := range rows {
				for j := range n {
					wantWide[j*step+i] = math.Float32frombits(uint32(at(i, j)) << 16)
				}
			}
			if l.transposeBF16(wide, step, src, srcStep, rows, n); !slices.EqualFunc(wide, wantWide, sameBits) {
				t.Fatalf("%v: %d rows of %d, %d and %d apart: turned and widened wrong", l, rows, n, srcStep, step)
			}
			step = n + r.IntN(3)*r.IntN(20)
			wide = filled(r.IntN(40), max(0, (rows-1)*srcStep+n), func(int) float32 { return rounding(r) })
			dst = filled(r.IntN(40), max(0, (rows-1)*step+n)+1, number)
			want = slices.Clone(dst)
			for i := range rows {
				for j := range n {
					want[i*step+j] = dtype.ToBF16(wide[i*srcStep+j])
				}
			}
			if l.toRowsBF16(dst, step, wide, srcStep, rows, n); !slices.Equal(dst, want) {
				t.Fatalf("%v: %d rows of %d, %d and %d apart: rounded wrong", l, rows, n, srcStep, step)
			}
		}
	}
}

// rounding returns a number of any bits, or one whose lower half is about where the rounding turns, or a NaN or infinity.
func rounding(r *rand.Rand) float32 {
	b := r.Uint32()
	switch r.IntN(3) {
	case 0:
		b = b&^0xffff | uint32(0x7fff+r.IntN(4))
	case 1:
		b |= 0x7f800000
	}
	return math.Float32frombits(b)
}

// TestLongRowsAreWidened has rows longer than one call of assembly takes.
func TestLongRowsAreWidened(t *testing.T) {
	number := func(i int) dtype.BF16 { return dtype.BF16(i * 40503) }
	const rows, n = 3, chunk + 33
	src, wide, turned := filled(5, rows*(n+7), number), make([]float32, rows*n), make([]float32, rows*n)
	for _, l := range modes() {
		clear(wide)
		clear(turned)
		l.fromRowsBF16(wide, n, src, n+7, rows, n)
		l.transposeBF16(turned, rows, src, n+7, rows, n)
		for i := range rows {
			for j := range n {
				if v := src[i*(n+7)+j].Float32(); !sameBits(wide[i*n+j], v) || !sameBits(turned[j*rows+i], v) {
					t.Fatalf("%v: element (%d, %d) is %v, turned %v, want %v", l, i, j, wide[i*n+j], turned[j*rows+i], v)
				}
			}
		}
	}
}
