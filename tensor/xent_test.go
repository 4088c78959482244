package tensor

import (
	"bytes"
	"math"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	cpukernels "github.com/gorun-spmd/gorun/tensor/cpu"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A gradient that is written past the caches has the bits of one that is written
// over its logits.
func TestLargeCrossEntropyGradientIsTheSameInPlace(t *testing.T) {
	cpu := NewCPU(nil)
	const n, classes = 12, 400000 // from 16 MiB on it may go past the caches
	values := make([]float32, n*classes)
	for i := range values {
		values[i] = float32(math.Sin(float64(i)))
	}
	x := FromSlice(cpu, values, n, classes)
	targets := FromSlice(cpu, []int64{7, classes - 1, 4096, 0, -1, classes, 1, 2, 3, 4, 5, 6}, n)
	shift := FromSlice(cpu, slices.Repeat([]float32{1, 0.5, 0}, n/3), n)
	for _, coef := range [][]float32{{2, 3, 0, 0, 0, 0, 1, 1, 0}, {2, 3, 0.5, 0, 0, 0, 1, 1, 0.25}} {
		for _, weight := range []*Tensor{nil, FromSlice(cpu, values[:classes], classes)} {
			c := FromSlice(cpu, slices.Repeat(coef, n/3), n, 3)
			got := CrossEntropyGrad(nil, x, targets, 0, shift, c, weight)
			over := Clone(x)
			CrossEntropyGrad(over, over, targets, 0, shift, c, weight)
			want := ToSlice[float32](over)
			for i, v := range ToSlice[float32](got) {
				if math.Float32bits(v) != math.Float32bits(want[i]) {
					t.Fatalf("element %d is %v, in place %v", i, v, want[i])
				}
			}
		}
	}
}

// Logits of a narrow type give the bits of the same logits as float32; their gradient is
// that of float32, rounded. Some rows are longer than what is widened at a time.
func TestNarrowCrossEntropy(t *testing.T) {
	eachNarrow(t, testNarrowCrossEntropy)
}

func testNarrowCrossEntropy(t *testing.T, dt DType) {
	cpu := NewCPU(nil)
	for _, shape := range [][2]int{{5, 7}, {300, 500}, {2, cpukernels.Piece + 3}, {3, 0}, {0, 4}} {
		n, classes := shape[0], shape[1]
		values, ids, coefs, shifts := make([]float32, n*classes), make([]int32, n), make([]float32, 3*n), make([]float32, n)
		for i := range values {
			values[i] = float32(3 * math.Sin(float64(i)))
		}
		for i := range n {
			ids[i] = int32(10 + i*31%max(classes, 1))
			coefs[3*i], coefs[3*i+1], coefs[3*i+2] = 0.5, float32(i), 0.25
			shifts[i] = float32(i % 3)
		}
		half := Cast(FromSlice(cpu, values, n, classes), dt)
		wide, target := Cast(half, Float32), FromSlice(cpu, ids, n)
		weight := Full(cpu, Float32, 0.75, classes)
		if got, want := CrossEntropyStats(half, target, 10, weight, true),
			CrossEntropyStats(wide, target, 10, weight, true); !sameBits(got, want) {
			t.Errorf("%v: statistics are %v, want %v", shape, got, want)
		}
		lse, coef := FromSlice(cpu, shifts, n), FromSlice(cpu, coefs, n, 3)
		want := Cast(CrossEntropyGrad(nil, wide, target, 10, lse, coef, weight), dt)
		if got := CrossEntropyGrad(nil, half, target, 10, lse, coef, weight); !sameBits(got, want) {
			t.Errorf("%v: the gradient is %v, want %v", shape, got, want)
		}
		narrow := New(cpu, dt, n, classes)
		if CrossEntropyGrad(narrow, wide, target, 10, lse, coef, weight); !sameBits(narrow, want) {
			t.Errorf("%v: the gradient of float32, rounded, is %v, want %v", shape, narrow, want)
		}
		if CrossEntropyGrad(half, half, target, 10, lse, coef, weight); !sameBits(half, want) {
			t.Errorf("%v: the gradient in place is %v, want %v", shape, half, want)
		}
	}
	wide, target := Zeros(cpu, Float64, 2, 3), Zeros(cpu, Int64, 2)
	wantThrow[*TypeError](t, func() {
		CrossEntropyGrad(Zeros(cpu, dt, 2, 3), wide, target, 0, Zeros(cpu, Float64, 2), Zeros(cpu, Float64, 2, 3), nil)
	}, "CrossEntropyGrad", "Cast")
}

// The statistics of parts of the classes join to those of all, whatever is in them.
func TestCrossEntropyJoin(t *testing.T) {
	cpu, rng := NewCPU(nil), newRNG()
	const n, classes = 6, 10
	inf := math.Inf(1)
	x := randomArray(rng, n, classes)
	for i := range 4 {
		x.data[1*classes+i] = -inf // the first part of row 1 is masked
	}
	for i := range classes {
		x.data[2*classes+i] = -inf // all of row 2
		x.data[3*classes+i] += 1e4
	}
	x.data[4*classes+7], x.data[5*classes+2] = inf, math.NaN()
	for _, dt := range floats {
		logits, weight := x.tensor(cpu, dt), Abs(randomArray(rng, classes).tensor(cpu, dt))
		target := FromSlice(cpu, []int64{2, 9, 0, 5, 3, 8}, n)
		for _, c := range []struct {
			weight *Tensor
			sums   bool
		}{{nil, false}, {nil, true}, {weight, true}} {
			total := func(from, to int) float64 {
				switch {
				case !c.sums:
					return 0
				case c.weight == nil:
					return float64(to - from)
				}
				return Sum(Narrow(c.weight, 0, from, to-from), nil, false).Item()
			}
			part := func(from, to int) *Tensor {
				w := c.weight
				if w != nil {
					w = Narrow(w, 0, from, to-from)
				}
				return CrossEntropyStats(Narrow(logits, 1, from, to-from), target, from, w, c.sums)
			}
			want := CrossEntropyStats(logits, target, 0, c.weight, c.sums)
			got, at := part(0, 4), 4
			for _, to := range []int{4, 5, 10} { // one part is empty
				CrossEntropyJoin(got, part(at, to), total(0, at), total(at, to))
				at = to
			}
			g, w := toArray(got), toArray(want)
			for i := range g.data {
				if row, column := i/kernel.Stats, i%kernel.Stats; (row == 2 || row == 4 || row == 5) && column == kernel.StatSum {
					continue // -Inf, +Inf and NaN have none
				} else if !near(g.data[i], w.data[i], 5*tolerance(dt)) {
					t.Errorf("%v, sums %v: row %d is %v, want %v", dt, c.sums, row, g.data[row*kernel.Stats:][:kernel.Stats],
						w.data[row*kernel.Stats:][:kernel.Stats])
				}
			}
		}
	}
	a := Zeros(cpu, Float32, 2, 3)
	wantThrow[*ShapeError](t, func() { CrossEntropyJoin(a, Clone(a), 0, 0) }, "CrossEntropyJoin", "[N 4]")
}

func TestCastTo(t *testing.T) {
	cpu := NewCPU(nil)
	x := FromSlice(cpu, []float32{1, 2.7, -3}, 3)
	for _, dt := range []DType{Float32, BFloat16, Int32} {
		dst := New(cpu, dt, 3)
		if CastTo(dst, x); !sameBits(dst, Cast(x, dt)) {
			t.Errorf("%v", dst)
		}
	}
	wantThrow[*ShapeError](t, func() { CastTo(New(cpu, Int32, 2), x) }, "CastTo")
}

// sameBits reports whether two tensors have the same type and bits.
func sameBits(a, b *Tensor) bool {
	defer runtime.KeepAlive(a) // an address is no reference
	defer runtime.KeepAlive(b)
	x, y := unsafe.Slice((*byte)(a.Ptr()), a.Bytes()), unsafe.Slice((*byte)(b.Ptr()), b.Bytes())
	return a.DType() == b.DType() && bytes.Equal(x, y)
}
