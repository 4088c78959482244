package cuda

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/tensor"
)

// attentionCases are [B, H, T, S, D, E]: some tiles and one, uneven ones, fewer keys than
// queries and more, widths that 16 does not divide.
var attentionCases = [][6]int{
	{1, 1, 1, 1, 8, 8}, {1, 1, 1, 70, 64, 64}, {1, 3, 70, 1, 24, 16}, {2, 1, 150, 150, 64, 64}, {1, 2, 70, 133, 40, 64},
	{1, 1, 300, 65, 16, 8}, {1, 2, 130, 129, 128, 128}, {1, 1, 65, 200, 72, 120}, {1, 1, 33, 40, 8, 96},
	{1, 2, 3, 0, 8, 8}, {0, 2, 3, 3, 8, 8}, {1, 2, 0, 3, 8, 8},
}

// halfUnit is what rounding to bfloat16 may change of a number, slop what float32 scores
// may change of a weight.
const halfUnit, slop = 0x1p-8, 0x1p-12

// TestBFloat16Attention compares what the tensor cores compute with the CPU's attention of
// float64. Of y [i] = Σ P [i, j]·v [j] each weight is rounded, and then the sum.
func TestBFloat16Attention(t *testing.T) {
	c := newCheck(t, openGPU(t, false))
	for _, n := range attentionCases {
		q, k, v := c.half(n[0], n[1], n[2], n[4]), c.half(n[0], n[1], n[3], n[4]), c.half(n[0], n[1], n[3], n[5])
		for _, causal := range []bool{false, true} {
			y, lse := tensor.Attention(c.wide(q), c.wide(k), c.wide(v), causal)
			sizes, _ := tensor.Attention(c.wide(q), c.wide(k), tensor.Abs(c.wide(v)), causal)
			got := c.steady(func(x []*tensor.Tensor) []*tensor.Tensor {
				y, lse := tensor.Attention(x[0], x[1], x[2], causal)
				return []*tensor.Tensor{y, lse}
			}, q, k, v)
			name, p, want := fmt.Sprint(n, causal), values(c.cpu, sizes), values(c.cpu, y)
			c.within(name+", y", got[0], want, func(i int) float64 { return (halfUnit+slop)*p[i] + halfUnit*math.Abs(want[i]) })
			c.within(name+", lse", got[1], values(c.cpu, lse), func(i int) float64 { return slop })
		}
	}
}

// wide returns x as float64.
func (c *check) wide(x *tensor.Tensor) *tensor.Tensor { return tensor.Cast(x, tensor.Float64) }

// steady runs f on the GPU, with many blocks, three and one: the bits must be the same.
func (c *check) steady(f func(x []*tensor.Tensor) []*tensor.Tensor, args ...*tensor.Tensor) [][]float64 {
	c.t.Helper()
	var first [][]float64
	grids := c.dev.grids
	defer func() { c.dev.grids = grids }()
	for _, n := range []int{grids, 3, 1} {
		c.dev.grids = n
		for i, r := range f(clones(args, c.dev)) {
			v := values(c.cpu, r)
			if n == grids {
				first = append(first, v)
			} else if !slices.EqualFunc(v, first[i], func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }) {
				c.t.Errorf("result %d of %d blocks is another", i, n)
			}
		}
	}
	return first
}

// within checks that each element is as near to that of want as bound says.
func (c *check) within(name string, got, want []float64, bound func(i int) float64) {
	c.t.Helper()
	worst := 0.0
	for i, w := range want {
		if got[i] == w {
			continue
		}
		diff, b := math.Abs(got[i]-w), bound(i)
		if worst = max(worst, diff/b); !(diff <= b) {
			c.t.Errorf("%s, element %d: %g, want %g: off by %g, at most %g", name, i, got[i], w, diff, b)
			return
		}
	}
	c.t.Logf("%s: %.2g of the bound", name, worst)
}
