package cuda

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// attentionCases are [B, H, T, S, D, E]: some tiles and one, uneven ones, fewer keys than
// queries and more, widths that 16 does not divide.
var attentionCases = testenv.Fewer([][6]int{
	{1, 1, 1, 1, 8, 8}, {1, 1, 1, 70, 64, 64}, {1, 3, 70, 1, 24, 16}, {2, 1, 150, 150, 64, 64}, {1, 2, 70, 133, 40, 64},
	{1, 1, 300, 65, 16, 8}, {1, 2, 130, 129, 128, 128}, {1, 1, 65, 200, 72, 120}, {1, 1, 33, 40, 8, 96},
	{1, 2, 3, 0, 8, 8}, {0, 2, 3, 3, 8, 8}, {1, 2, 0, 3, 8, 8},
}, 0, 2, 9)

// TestAttention compares what goes through products with the CPU: rows that are held in
// registers and one that is not.
func TestAttention(t *testing.T) {
	c := newCheck(t, openGPU(t, true))
	for _, dt := range floats {
		for _, n := range [][6]int{{2, 1, 150, 150, 8, 8}, {1, 2, 70, 133, 5, 7}, {1, 1, 9, 8300, 2, 3}, {1, 2, 3, 0, 8, 8}, {1, 2, 0, 3, 8, 8}} {
			for _, causal := range []bool{false, true} {
				c.same(fmt.Sprint(dt, n, causal), 10*rounding(dt), func(x []*tensor.Tensor) []*tensor.Tensor {
					y, lse := tensor.Attention(x[0], x[1], x[2], causal)
					dq, dk, dv := tensor.AttentionGrad(x[3], x[0], x[1], x[2], y, lse, causal)
					return []*tensor.Tensor{y, lse, dq, dk, dv, tensor.AttentionOver(x[0], x[1], x[2], n[3]/2)}
				}, c.arg(dt, n[0], n[1], n[2], n[4]), c.arg(dt, n[0], n[1], n[3], n[4]), c.arg(dt, n[0], n[1], n[3], n[5]),
					c.arg(dt, n[0], n[1], n[2], n[5]))
			}
		}
	}
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
			sizes, _ := tensor.Attention(c.wide(q), c.wide(k), tensor.Unary(kernel.OpAbs, c.wide(v)), causal)
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

// TestBFloat16AttentionGrad compares the gradients with those of the CPU in float64 of the
// same y. dv = Pᵀ·dy rounds each weight, dq = dS·k/√D and dk = dSᵀ·q/√D each element of dS,
// and float32 changes dS by slop of P·(|dy|·|v| + |dy|·|y|).
func TestBFloat16AttentionGrad(t *testing.T) {
	c := newCheck(t, openGPU(t, false))
	for _, n := range attentionCases {
		q, k, v := c.half(n[0], n[1], n[2], n[4]), c.half(n[0], n[1], n[3], n[4]), c.half(n[0], n[1], n[3], n[5])
		dy := c.half(n[0], n[1], n[2], n[5])
		for _, causal := range []bool{false, true} {
			y, lse := tensor.Attention(c.wide(q), c.wide(k), c.wide(v), causal)
			y = tensor.Cast(y, tensor.BFloat16)
			args := []*tensor.Tensor{c.wide(dy), c.wide(q), c.wide(k), c.wide(v), c.wide(y), lse}
			dq, dk, dv := tensor.AttentionGrad(args[0], args[1], args[2], args[3], args[4], lse, causal)
			bounds := gradBounds(n, causal, c.cpu, args)
			got := c.steady(func(x []*tensor.Tensor) []*tensor.Tensor {
				dq, dk, dv := tensor.AttentionGrad(x[0], x[1], x[2], x[3], x[4], x[5], causal)
				return []*tensor.Tensor{dq, dk, dv}
			}, dy, q, k, v, y, tensor.Cast(lse, tensor.Float32))
			for i, want := range []*tensor.Tensor{dq, dk, dv} {
				w := values(c.cpu, want)
				c.within(fmt.Sprint(n, causal, " gradient ", i), got[i], w, func(j int) float64 { return bounds[i][j] + halfUnit*math.Abs(w[j]) })
			}
		}
	}
}

// gradBounds returns what rounding to bfloat16 and float32 scores may change of each
// element of dq, dk and dv before it is rounded.
func gradBounds(n [6]int, causal bool, cpu tensor.Device, args []*tensor.Tensor) (bounds [3][]float64) {
	heads, t, s, d, e := n[0]*n[1], n[2], n[3], n[4], n[5]
	x := make([][]float64, len(args))
	for i, a := range args {
		x[i] = values(cpu, a)
	}
	dy, q, k, v, y, lse := x[0], x[1], x[2], x[3], x[4], x[5]
	bounds = [3][]float64{make([]float64, len(q)), make([]float64, len(k)), make([]float64, len(v))}
	scale := 1 / math.Sqrt(float64(d))
	for i := range heads * t {
		for j := i / t * s; j < i/t*s+s && (!causal || j-i/t*s <= i%t); j++ {
			var score, dp, delta, size float64
			for c := range d {
				score += q[i*d+c] * k[j*d+c] * scale
			}
			for c := range e {
				g := dy[i*e+c]
				dp += g * v[j*e+c]
				delta += g * y[i*e+c]
				size += math.Abs(g*v[j*e+c]) + math.Abs(g*y[i*e+c])
			}
			p := math.Exp(score - lse[i])
			ds := p * (halfUnit*math.Abs(dp-delta) + slop*size) * scale
			for c := range d {
				bounds[0][i*d+c] += ds * math.Abs(k[j*d+c])
				bounds[1][j*d+c] += ds * math.Abs(q[i*d+c])
			}
			for c := range e {
				bounds[2][j*e+c] += (halfUnit + slop) * p * math.Abs(dy[i*e+c])
			}
		}
	}
	return bounds
}

// TestBFloat16AttentionToNothing has queries whose scores are all -Inf: they get zeros, and
// give v no gradient.
func TestBFloat16AttentionToNothing(t *testing.T) {
	dev := openGPU(t, false)
	q, k := tensor.Full(dev, tensor.BFloat16, 1, 1, 1, 20, 8), tensor.Full(dev, tensor.BFloat16, 1, 1, 1, 90, 8)
	tensor.Fill(tensor.Narrow(k, 2, 0, 7), math.Inf(-1))
	v := tensor.Full(dev, tensor.BFloat16, 2, 1, 1, 90, 8)
	y, lse := tensor.Attention(q, k, v, true)
	_, _, dv := tensor.AttentionGrad(tensor.Full(dev, tensor.BFloat16, 1, 1, 1, 20, 8), q, k, v, y, lse, true)
	cpu := tensor.NewCPU(nil)
	got, gotDV := values(cpu, y), values(cpu, dv)
	for i, l := range values(cpu, lse) {
		if nothing := i < 7; nothing != math.IsInf(l, 1) || nothing && (got[8*i] != 0 || gotDV[8*i] != 0) || !nothing &&
			(got[8*i] != 2 || gotDV[8*i] == 0) {
			t.Errorf("query %d: y %g, lse %g, and dv %g", i, got[8*i], l, gotDV[8*i])
		}
	}
}

// wide returns x as float64.
func (c *check) wide(x *tensor.Tensor) *tensor.Tensor { return tensor.Cast(x, tensor.Float64) }

// steady runs f on the GPU, with many blocks and with one: the bits must be the same.
func (c *check) steady(f func(x []*tensor.Tensor) []*tensor.Tensor, args ...*tensor.Tensor) [][]float64 {
	c.t.Helper()
	var first [][]float64
	grids := c.dev.grids
	defer func() { c.dev.grids = grids }()
	for _, n := range []int{grids, 1} {
		c.dev.grids = n
		for i, r := range f(clones(args, c.dev)) {
			v := values(c.cpu, r)
			if n == grids {
				first = append(first, v)
			} else if !slices.EqualFunc(v, first[i], func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }) {
				c.t.Errorf("result %d of one block is another", i)
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
