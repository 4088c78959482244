package tensor

import (
	"bytes"
	"math"
	"testing"
	"unsafe"
)

// A gradient that is written past the caches has the bits of one that is written
// over its logits.
func TestLargeCrossEntropyGradientIsTheSameInPlace(t *testing.T) {
	cpu := NewCPU(nil)
	const n, classes = 3, 400001
	values := make([]float32, n*classes)
	for i := range values {
		values[i] = float32(math.Sin(float64(i)))
	}
	x := FromSlice(cpu, values, n, classes)
	targets := FromSlice(cpu, []int64{7, classes - 1, 4096}, n)
	shift := FromSlice(cpu, []float32{1, 0.5, 0}, n)
	for _, coef := range [][]float32{{2, 3, 0, 0, 0, 0, 1, 1, 0}, {2, 3, 0.5, 0, 0, 0, 1, 1, 0.25}} {
		for _, weight := range []*Tensor{nil, FromSlice(cpu, values[:classes], classes)} {
			c := FromSlice(cpu, coef, n, 3)
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

// Logits of bfloat16 give the bits of the same logits as float32; their gradient is
// that of float32, rounded. Some rows are longer than what is widened at a time.
func TestBFloat16CrossEntropy(t *testing.T) {
	cpu := NewCPU(nil)
	for _, shape := range [][2]int{{5, 7}, {300, 500}, {2, widenedLogits + 3}, {3, 0}, {0, 4}} {
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
		half := Cast(FromSlice(cpu, values, n, classes), BFloat16)
		wide, target := Cast(half, Float32), FromSlice(cpu, ids, n)
		weight := Full(cpu, Float32, 0.75, classes)
		if got, want := CrossEntropyStats(half, target, 10, weight, true), CrossEntropyStats(wide, target, 10, weight, true); !sameBits(got, want) {
			t.Errorf("%v: statistics are %v, want %v", shape, got, want)
		}
		lse, coef := FromSlice(cpu, shifts, n), FromSlice(cpu, coefs, n, 3)
		want := Cast(CrossEntropyGrad(nil, wide, target, 10, lse, coef, weight), BFloat16)
		if got := CrossEntropyGrad(nil, half, target, 10, lse, coef, weight); !sameBits(got, want) {
			t.Errorf("%v: the gradient is %v, want %v", shape, got, want)
		}
		if CrossEntropyGrad(half, half, target, 10, lse, coef, weight); !sameBits(half, want) {
			t.Errorf("%v: the gradient in place is %v, want %v", shape, half, want)
		}
	}
}

// sameBits reports whether two tensors have the same type and bits.
func sameBits(a, b *Tensor) bool {
	x, y := unsafe.Slice((*byte)(a.Ptr()), a.Bytes()), unsafe.Slice((*byte)(b.Ptr()), b.Bytes())
	return a.DType() == b.DType() && bytes.Equal(x, y)
}
