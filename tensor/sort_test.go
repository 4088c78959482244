package tensor

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/internal/ints"
)

// Sort is stable in both directions, keeps the bits of its elements and has NaN as the
// largest, as torch.sort with stable=True.
func TestSort(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	x := []float64{2, nan, -1, math.Copysign(0, -1), inf, 0, -inf, 2}
	up, down := []int64{6, 2, 3, 5, 0, 7, 4, 1}, []int64{1, 4, 0, 7, 3, 5, 2, 6}
	cpu := NewCPU(nil)
	for _, dt := range []DType{Float32, Float64, BFloat16} {
		in := Cast(FromSlice(cpu, x, 8), dt)
		for _, descending := range []bool{false, true} {
			want := up
			if descending {
				want = down
			}
			values, index := Sort(in, 0, descending)
			if got := ToSlice[int64](index); !slices.Equal(got, want) {
				t.Errorf("%v, descending %v: %v, want %v", dt, descending, got, want)
			}
			for i, v := range ToSlice[float64](Cast(values, Float64)) {
				if math.Float64bits(v) != math.Float64bits(x[want[i]]) && v == v {
					t.Errorf("%v, descending %v: element %d is %v, want %v", dt, descending, i, v, x[want[i]])
				}
			}
		}
	}
	// Along the first dimension of integers, the least and the largest among them.
	ints := FromSlice(cpu, []int64{3, math.MaxInt64, 3, math.MinInt64, -5, 0}, 3, 2)
	values, index := Sort(ints, 0, false)
	if got := ToSlice[int64](values); !slices.Equal(got, []int64{-5, math.MinInt64, 3, 0, 3, math.MaxInt64}) {
		t.Errorf("values %v", got)
	}
	if got := ToSlice[int64](index); !slices.Equal(got, []int64{2, 1, 0, 2, 1, 0}) {
		t.Errorf("positions %v", got)
	}
}

// Rows of float32 of any length are sorted as those of float64 are.
func TestSortFloat32(t *testing.T) {
	cpu := NewCPU(nil)
	for _, n := range []int{0, 1, 63, 64, 1000, 5000} {
		x := New(cpu, Float32, 3, n)
		FillNormal(x, Key{Seed: 1}, 0, 1e10, []int{3, n}, []int{0, 0})
		for _, descending := range []bool{false, true} {
			values, index := Sort(x, 1, descending)
			wide, want := Sort(Cast(x, Float64), 1, descending)
			if !slices.Equal(ToSlice[int64](index), ToSlice[int64](want)) ||
				!slices.Equal(ToSlice[float64](Cast(values, Float64)), ToSlice[float64](wide)) {
				t.Errorf("%d elements a row, descending %v: another order than that of float64", n, descending)
			}
		}
	}
}

// A row of 64-bit elements is sorted stably whatever its length, with equal elements and with few bytes that differ.
func TestSortInt64(t *testing.T) {
	cpu, r := NewCPU(nil), rand.New(rand.NewPCG(3, 3))
	for _, n := range []int{1, leastRadix - 1, leastRadix, 1000} {
		for _, most := range []int64{1, 7, 1000, math.MaxInt64} {
			x := make([]int64, 2*n)
			for i := range x {
				x[i] = r.Int64N(most)
				if r.IntN(2) == 0 {
					x[i] = -x[i] << r.IntN(2)
				}
			}
			for _, descending := range []bool{false, true} {
				_, index := Sort(FromSlice(cpu, x, 2, n), 1, descending)
				for k, got := range slices.Collect(slices.Chunk(ToSlice[int64](index), n)) {
					row, want := x[k*n:(k+1)*n], make([]int64, n)
					for i := range want {
						want[i] = int64(i)
					}
					slices.SortStableFunc(want, func(a, b int64) int {
						if descending {
							a, b = b, a
						}
						return cmp.Compare(row[a], row[b])
					})
					if !slices.Equal(got, want) {
						t.Fatalf("%d elements below %d, descending %v: another order", n, most, descending)
					}
				}
			}
		}
	}
}

// Argmax of short rows of float32, along any dimension, is that of float64: with equal elements, zeros of both signs, infinities and NaN.
func TestArgmaxShort(t *testing.T) {
	cpu := NewCPU(nil)
	negative, infinite := float32(math.Copysign(0, -1)), float32(math.Inf(1))
	of := []float32{-1, 0, negative, 1, 1e-30, -1e30, 1e30, infinite, -infinite, float32(math.NaN())}
	for _, kinds := range []int{7, 8, 9, 10} { // with infinities and NaN, and without
		for _, shape := range [][]int{{50, 1, 3}, {20, 4, 6}, {9, 31, 5}, {7, 32, 2}, {3, 33, 2}} {
			x := make([]float32, ints.Product(shape))
			r := rand.New(rand.NewPCG(uint64(kinds), uint64(len(x))))
			for i := range x {
				x[i] = of[r.IntN(kinds)]
			}
			in := FromSlice(cpu, x, shape...)
			for dim := range shape {
				got, want := ToSlice[int64](Argmax(in, dim, false)), ToSlice[int64](Argmax(Cast(in, Float64), dim, false))
				if !slices.Equal(got, want) {
					t.Errorf("%d kinds of elements, %v, dim %d: %v, want %v", kinds, shape, dim, got, want)
				}
			}
		}
	}
}
