package tensor

import (
	"math"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// ScatterReduceTo folds in row-major order, of every type, and along each dimension, a source that is smaller than dst.
func TestScatterReduce(t *testing.T) {
	cpu, nan := NewCPU(nil), math.NaN()
	index := FromSlice(cpu, []int64{2, 0, 2, 2, 2, 2}, 3, 2) // of dst [3, 2] along dimension 0
	src := []float64{3, 5, -2, 3, 4, -1}
	for _, c := range []struct {
		op          kernel.ReduceOp
		with, alone []float64
	}{
		{kernel.OpSum, []float64{1, 7, 1, 2, 6, 4}, []float64{1, 5, 1, 2, 5, 2}},
		{kernel.OpProd, []float64{1, 10, 1, 2, -24, -6}, []float64{1, 5, 1, 2, -24, -3}},
		{kernel.OpAmax, []float64{1, 5, 1, 2, 4, 3}, []float64{1, 5, 1, 2, 4, 3}},
		{kernel.OpAmin, []float64{1, 2, 1, 2, -2, -1}, []float64{1, 5, 1, 2, -2, -1}},
	} {
		for _, dt := range []DType{Float32, Float64, Float16, BFloat16, Int8, Int16, Int32, Int64} {
			for _, alone := range []bool{false, true} {
				want := c.with
				if alone {
					want = c.alone
				}
				dst := Cast(FromSlice(cpu, []float64{1, 2, 1, 2, 1, 2}, 3, 2), dt)
				ScatterReduceTo(dst, 0, index, Cast(FromSlice(cpu, src, 3, 2), dt), c.op, alone)
				if got := ToSlice[float64](Cast(dst, Float64)); !slices.Equal(got, want) {
					t.Errorf("%v of %v, alone %v: %v, want %v", c.op, dt, alone, got, want)
				}
				// The same along the last dimension, of a transposed dst with more rows than the source.
				dst = Cast(FromSlice(cpu, []float64{1, 1, 1, 2, 2, 2, 7, 7, 7}, 3, 3), dt)
				ScatterReduceTo(dst, -1, Transpose(index, 0, 1), Cast(Transpose(FromSlice(cpu, src, 3, 2), 0, 1), dt), c.op, alone)
				if got := ToSlice[float64](Cast(Transpose(Narrow(dst, 0, 0, 2), 0, 1), Float64)); !slices.Equal(got, want) {
					t.Errorf("%v of %v along the last dimension: %v, want %v", c.op, dt, got, want)
				}
			}
		}
	}
	// A NaN stays, the first one and one that comes later.
	for _, op := range []kernel.ReduceOp{kernel.OpAmax, kernel.OpAmin} {
		dst := FromSlice(cpu, []float64{0, nan, 0}, 3)
		ScatterReduceTo(dst, 0, FromSlice(cpu, []int32{0, 0, 1, 2}, 4), FromSlice(cpu, []float64{nan, 1, 1, 1}, 4), op, false)
		if got := ToSlice[float64](dst); got[0] == got[0] || got[1] == got[1] || got[2] != got[2] {
			t.Errorf("%v of NaN: %v", op, got)
		}
	}
	// As in Reduce, 0 is larger than -0, whichever comes first.
	minus := math.Copysign(0, -1)
	for op, want := range map[kernel.ReduceOp]float64{kernel.OpAmax: 0, kernel.OpAmin: minus} {
		for _, pair := range [][]float64{{0, minus}, {minus, 0}} {
			dst, x := FromSlice(cpu, pair[:1], 1), FromSlice(cpu, pair, 2)
			ScatterReduceTo(dst, 0, FromSlice(cpu, []int64{0}, 1), Narrow(x, 0, 1, 1), op, false)
			got, reduced := dst.Item(), Reduce(op, x, nil, false).Item()
			if math.Signbit(got) != math.Signbit(want) || math.Signbit(reduced) != math.Signbit(want) {
				t.Errorf("%v of %v: %v, and Reduce %v, want %v", op, pair, got, reduced, want)
			}
		}
	}
	// Products of int8 wrap.
	small := FromSlice(cpu, []int8{100}, 1)
	ScatterReduceTo(small, 0, FromSlice(cpu, []int64{0}, 1), FromSlice(cpu, []int8{3}, 1), kernel.OpProd, false)
	if got := ToSlice[int8](small)[0]; got != 44 {
		t.Errorf("100·3 is %d, want 44", got)
	}
}
