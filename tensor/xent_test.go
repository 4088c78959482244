package tensor

import (
	"math"
	"testing"
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
