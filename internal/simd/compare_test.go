package simd

import (
	"math/rand/v2"
	"testing"

	"github.com/gorun-spmd/gorun/internal/dtype"
)

// TestCompareAndWhere compares numbers that are often equal, NaN and zeros of both signs among them, with Go's own comparisons.
func TestCompareAndWhere(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	values := append(special(), 1, 2)
	some := func(n int) []float32 {
		s := make([]float32, n)
		for i := range s {
			s[i] = values[r.IntN(len(values))]
		}
		return s
	}
	for _, m := range modes() {
		for _, n := range lengths() {
			a, b := some(n), some(n)
			for op, holds := range []func(a, b float32) bool{
				Equal: func(a, b float32) bool { return a == b }, NotEqual: func(a, b float32) bool { return a != b },
				Less: func(a, b float32) bool { return a < b }, LessOrEqual: func(a, b float32) bool { return a <= b },
			} {
				got := make([]bool, n+1)
				m.compare(Comparison(op), got[:n], a, b)
				chosen, intact := guarded(r, n)
				m.where(chosen, a, b, got[:n])
				for i := range n {
					want, of := holds(a[i], b[i]), b[i]
					if want {
						of = a[i]
					}
					if got[i] != want || !sameBits(chosen[i], of) {
						t.Fatalf("%v: %g and %g, comparison %d: %v, chosen is %g", m, a[i], b[i], op, got[i], chosen[i])
					}
				}
				if got[n] || !intact() {
					t.Fatalf("%v: %d elements: wrote outside", m, n)
				}
			}
		}
	}
}

// TestCompareBytes compares all pairs of bytes, and numbers of every type with 0.
func TestCompareBytes(t *testing.T) {
	var a, b []uint8
	for i := range 1 << 16 {
		a, b = append(a, uint8(i)), append(b, uint8(i>>8))
	}
	a, b = append(a, 1, 2, 3), append(b, 3, 2, 1)
	got := make([]bool, len(a))
	for op, holds := range []func(a, b uint8) bool{
		Equal: func(a, b uint8) bool { return a == b }, NotEqual: func(a, b uint8) bool { return a != b },
		Less: func(a, b uint8) bool { return a < b }, LessOrEqual: func(a, b uint8) bool { return a <= b },
	} {
		Compare(Comparison(op), got, a, b)
		for i := range a {
			if got[i] != holds(a[i], b[i]) {
				t.Fatalf("%d and %d, comparison %d: %v", a[i], b[i], op, got[i])
			}
		}
	}
	truths(t, a)
	truths(t, []int8{0, 1, -1, -128, 127})
	truths(t, []int16{0, 1, -1, -1 << 15, 1 << 14})
	truths(t, []int32{0, 1, -1, -1 << 31, 1 << 30})
	truths(t, []int64{0, 1, -1, -1 << 63, 1 << 62})
	truths(t, append(special(), make([]float32, 2*truthPiece+5)...))
	var doubles []float64
	var halves []dtype.BF16
	for _, v := range special() {
		doubles, halves = append(doubles, float64(v)), append(halves, dtype.ToBF16(v))
	}
	truths(t, append(doubles, 0x1p-1074, -0x1p-1074))
	got = got[:len(halves)]
	TruthHalf(got, halves)
	for i, v := range halves {
		if got[i] != (v.Float32() != 0) {
			t.Fatalf("bfloat16 %g: %v", v.Float32(), got[i])
		}
	}
}

func truths[T Number](t *testing.T, x []T) {
	got := make([]bool, len(x))
	Truth(got, x)
	for i, v := range x {
		if got[i] != (v != 0) {
			t.Fatalf("%T %v: %v", v, v, got[i])
		}
	}
}

// TestRests holds that rests are exact for quotients of any size, and that every mode has the bits of plain Go, also in place.
func TestRests(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 10))
	const n = 100_000
	a, b := make([]float32, n), make([]float32, n)
	for i := range a {
		a[i], b[i] = fewBits(r, 24), fewBits(r, 24)
		switch r.IntN(4) {
		case 0: // a multiple, or next to one
			a[i] = b[i] * float32(r.IntN(1<<uint(r.IntN(24))))
		case 1:
			b[i] = a[i] / float32(1+r.IntN(1<<uint(r.IntN(24))))
		}
	}
	a, b = append(a, special()...), append(b, special()...)
	for name, f := range map[string]func(m Mode, dst, a, b []float32){
		"fmod": Mode.Fmod, "remainder": Mode.Remainder, "floor divide": Mode.FloorDivide, "atan2": Mode.Atan2,
	} {
		want := make([]float32, len(a))
		f(Mode{Level: Scalar}, want, a, b)
		for _, m := range modes() {
			for _, got := range [][]float32{make([]float32, len(a)), append([]float32(nil), a...)} {
				x := a
				if got[0] == a[0] {
					x = got
				}
				f(m, got, x, b)
				for i := range got {
					if !sameBits(got[i], want[i]) {
						t.Fatalf("%v: %s of %g and %g is %g, plain Go %g", m, name, a[i], b[i], got[i], want[i])
					}
				}
			}
		}
	}
}

// TestBytesOfEveryLength compares and chooses bytes of every length in every mode, and touches nothing outside.
func TestBytesOfEveryLength(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	some := func(n int) []uint8 {
		s := make([]uint8, n)
		for i := range s {
			s[i] = []uint8{0, 1, 2, 127, 128, 129, 254, 255}[r.IntN(8)]
		}
		return s
	}
	for _, m := range modes() {
		for _, n := range append(lengths(), 4*chunk+100) {
			a, b := some(n), some(n)
			for op, holds := range []func(a, b uint8) bool{
				Equal: func(a, b uint8) bool { return a == b }, NotEqual: func(a, b uint8) bool { return a != b },
				Less: func(a, b uint8) bool { return a < b }, LessOrEqual: func(a, b uint8) bool { return a <= b },
			} {
				got, chosen := make([]bool, n+1), make([]uint8, n+1)
				m.compareBytes(Comparison(op), got[:n], a, b)
				Where(m, chosen[:n], a, b, got[:n])
				m.Done()
				for i := range n {
					want, of := holds(a[i], b[i]), b[i]
					if want {
						of = a[i]
					}
					if got[i] != want || chosen[i] != of {
						t.Fatalf("%v: %d and %d, element %d of %d, comparison %d: %v, chosen is %d", m, a[i], b[i], i, n, op, got[i], chosen[i])
					}
				}
				if got[n] || chosen[n] != 0 {
					t.Fatalf("%v: %d bytes: wrote outside", m, n)
				}
			}
		}
	}
}
