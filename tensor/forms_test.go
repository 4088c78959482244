package tensor

import (
	"math"
	"testing"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// The fast forms of integer operators give what their definitions do, of two tensors and of a number on either side.
func TestIntegerForms(t *testing.T) {
	cpu := NewCPU(nil)
	values := []int64{0, 1, -1, 2, -2, 3, 7, -7, 100, -128, 127, math.MaxInt64, math.MinInt64, math.MinInt64 + 1}
	var a, b []int64
	for _, v := range values {
		for _, w := range values {
			a, b = append(a, v), append(b, w)
		}
	}
	for _, dt := range []DType{Int8, Int16, Int32, Int64, Uint8} {
		x, y := Cast(FromSlice(cpu, a, len(a)), dt), Cast(FromSlice(cpu, b, len(b)), dt)
		v, w := ToSlice[int64](Cast(x, Int64)), ToSlice[int64](Cast(y, Int64))
		for _, op := range kernel.BinaryOps() {
			if !op.Takes(dt) {
				continue
			}
			f := op.Row().Integer
			wrapped := func(v int64) int64 { return ToSlice[int64](Cast(Cast(FromSlice(cpu, []int64{v}, 1), dt), Int64))[0] }
			both, right, left := whole(Binary(op, x, y)), whole(BinaryScalar(op, x, 7)), whole(ScalarBinary(op, 7, y))
			for i := range v {
				if want := wrapped(f(v[i], w[i])); both[i] != want {
					t.Fatalf("%v of %v %d and %d: %d, want %d", op, dt, v[i], w[i], both[i], want)
				}
				if want := wrapped(f(v[i], 7)); right[i] != want {
					t.Fatalf("%v of %v %d and the number 7: %d, want %d", op, dt, v[i], right[i], want)
				}
				if want := wrapped(f(7, w[i])); left[i] != want {
					t.Fatalf("%v of the number 7 and %v %d: %d, want %d", op, dt, w[i], left[i], want)
				}
			}
		}
		for _, op := range kernel.UnaryOps() {
			if f := op.Row().Integer; f != nil {
				for i, got := range whole(Unary(op, x)) {
					if want := ToSlice[int64](Cast(Cast(FromSlice(cpu, []int64{f(v[i])}, 1), dt), Int64))[0]; got != want {
						t.Fatalf("%v of %v %d: %d, want %d", op, dt, v[i], got, want)
					}
				}
			}
		}
	}
}

func whole(x *Tensor) []int64 { return ToSlice[int64](Cast(x, Int64)) }

// The fast forms of float64 have the bits of their definitions.
func TestFloat64Forms(t *testing.T) {
	cpu := NewCPU(nil)
	x := []float64{0, math.Copysign(0, -1), 1, -1, 2.5, -2.5, math.Inf(1), math.Inf(-1), math.NaN(), 0x1p-1074, math.MaxFloat64}
	for _, op := range kernel.UnaryOps() {
		for i, got := range ToSlice[float64](Unary(op, FromSlice(cpu, x, len(x)))) {
			if want := op.Row().Value(x[i]); math.Float64bits(got) != math.Float64bits(want) && (got == got || want == want) {
				t.Errorf("%v of %v: %v, want %v", op, x[i], got, want)
			}
		}
	}
}
