package loss_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/tensor"
)

// checkHalf runs the question in bfloat16, with its n positions in the given shape,
// and compares it with the loops over the rounded numbers. The loss is theirs within
// the rounding of float32, and each gradient within halfBounds.
func (l *linear) checkHalf(ctx context.Context, m *dtensor.Mesh, shape []int, hidden, head, targets, weight []layout.Placement) error {
	h := newLinear(&l.question, l.width, halves(l.hidden), halves(l.head))
	whole := make([]layout.Placement, len(hidden))
	place := func(x []float64, shape []int, places []layout.Placement) *dtensor.Tensor {
		return meshtest.Place(m, single(x), shape, whole...).Cast(tensor.BFloat16).Redistribute(places...)
	}
	x, w := place(h.hidden, append(slices.Clone(shape), l.width), hidden), place(h.head, []int{l.c, l.width}, head)
	y := meshtest.Place(m, l.targets, shape, targets...)
	o := loss.Options{IgnoreIndex: &l.ignore, Reduction: l.reduction, LabelSmoothing: l.smoothing, ZLoss: l.z}
	if l.weight != nil {
		o.Weight = meshtest.Place(m, single(l.weight), []int{l.c}, weight...)
	}
	most := 1.0
	for _, v := range h.logits {
		most = max(most, math.Abs(v))
	}
	tol := 1e-6 * most * (1 + l.z*most)
	if l.reduction == loss.None { // these logits are rounded
		tol = 0x1p-6 * most * (1 + l.z*most)
	}
	numel := 1
	if l.reduction == loss.None {
		numel = l.n
	}
	gy := meshtest.Numbers(numel, 5, 1)
	want, dLogits, sizes := h.parts(gy)
	var failed error
	_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		out := l.loss(x, w, y, o)
		if failed = meshtest.Near("loss", out.Full(), want, 1e-5, 3*tol); out.DType() != tensor.Float32 {
			failed = fmt.Errorf("the loss is %v", out)
		}
		return out.Mul(meshtest.Place(m, single(gy), out.Shape(), whole...).Cast(out.DType())).Sum(nil, false)
	}, x, w)
	if err != nil || failed != nil {
		return fmt.Errorf("%v %v", err, failed)
	}
	if l.reduction == loss.None {
		return nil // the product and CrossEntropy, see there
	}
	wantHidden, wantHead := h.gradients(dLogits)
	bounds := h.halfBounds(dLogits, sizes, len(m.Axes()))
	for i, want := range [][]float64{wantHidden, wantHead} {
		got := grads[i].Dense()
		if got.DType() != tensor.BFloat16 {
			return fmt.Errorf("gradient %d is %v", i, got)
		}
		for k, v := range meshtest.Values(got.Full()) {
			if want := want[k]; !(math.Abs(v-want) <= bounds[i][k]) && !(v != v && want != want) {
				return fmt.Errorf("gradient %d: element %d is %v, want %v within %v", i, k, v, want, bounds[i][k])
			}
		}
	}
	return nil
}

// halfBounds returns by how much the elements of the gradients of hidden and head may
// be off, where dLogits are the gradients of the logits and sizes as parts returns them.
// With H the width, C the classes, u = 2⁻²⁴ the relative rounding of float32, and A the
// largest Σ|h·w| of a logit:
//
//	x, a logit, a sum of H exact products      off by H·u·A
//	x - max                                    off by (2H+2)·u·A
//	exp(x - max)                               relatively by that, and 8u for exp
//	p, its quotient by a sum of C of these     relatively by 2·(2H+2)·u·A + (C+20)·u
//	lse = max + log Σ                          off by no more, and u·|lse|
//
// So p and lse are off by less than ε = u·(4(H+2)·A + 2C + 40), and F·p - q, which is
// the gradient of a logit with F = Σq + 2z·lse, by ε·(F·p + 2z·p + q): that is relative
// to the two numbers and not to their difference, which may be 0 where p is near 1.
//
// bfloat16 has 8 bits, and so is rounded by up to v = 2⁻⁸, relatively: the gradient of
// a logit, the sum of its products, what that is scaled to, and once for each axis of
// the mesh a sum over ranks. Rounding so R times changes what is added up, Σ|dx·w| for
// hidden, by (1+v)^R - 1; adding up C or n products in float32 by (C+n)·u.
//
// Numbers below 2⁻¹²⁶ may become 0.
func (l *linear) halfBounds(dLogits, sizes []float64, axes int) [2][]float64 {
	const u, v, least = 0x1p-24, 0x1p-8, 0x1p-126
	h := newLinear(&l.question, l.width, abs(l.hidden), abs(l.head)) // its logits are Σ|h·w|
	most := slices.Max(append([]float64{1}, h.logits...))
	epsilon := u * (4*float64(l.width+2)*most + float64(2*l.c+40))
	rounded := math.Pow(1+v, float64(3+axes)) - 1 + u*float64(l.c+l.n)
	terms := make([]float64, len(dLogits)) // by how much those of a logit may be off
	for i, d := range dLogits {
		terms[i] = rounded*math.Abs(d) + (1+rounded)*epsilon*sizes[i] + least
	}
	hidden, head := h.gradients(terms)
	for _, bounds := range [][]float64{hidden, head} {
		for i := range bounds {
			bounds[i] += least
		}
	}
	return [2][]float64{hidden, head}
}

func abs(x []float64) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = math.Abs(v)
	}
	return y
}

// TestBFloat16LinearCrossEntropy compares loss and both gradients with the loops, for
// every placement of hidden and weight.
func TestBFloat16LinearCrossEntropy(t *testing.T) {
	eachLinear(t, testenv.Fewer([][]int{{1}, {2}, {3}, {2, 2}}, 2), "everything mean", (*linear).checkHalf)
}

// TestRandomBFloat16LinearCrossEntropies does so for random questions and layouts.
func TestRandomBFloat16LinearCrossEntropies(t *testing.T) { randomLinears(t, (*linear).checkHalf) }

// TestLinearBlocks has three blocks of positions with several tiles of classes each, and
// compares loss and gradients with those of all logits in float64. In bfloat16
// the gradient of the weight is added up over the blocks in float32, or is so large that
// it is rounded after each.
func TestLinearBlocks(t *testing.T) {
	const n, rows, bytes, classes = 450, 150, 2_100_000, 5000
	for _, width := range []int{8, 500} {
		for _, c := range []struct {
			ranks        int
			hidden, head layout.Placement
			blocks       int
		}{{1, replicate, replicate, 3}, {2, replicate, shard0, 3}, {2, replicate, layout.ShardSizes(0, 4999, 1), 3}, {2, replicate,
			layout.ShardSizes(0, 0, classes), 3}, {2, shard0, replicate, 2}} {
			if width == 500 && (c.ranks > 1 || testing.Short()) {
				continue
			}
			of := func(dt tensor.DType, inBlocks bool) (l float64, grads [2][]float64) {
				meshtest.On(t, []int{c.ranks}, func(ctx context.Context, m *dtensor.Mesh) error {
					h := dtensor.Normal(m, dtensor.Key{}, 0, 1, []int{n, width}, replicate).Cast(tensor.BFloat16).Cast(dt)
					w := dtensor.Normal(m, dtensor.Key{Seed: 1}, 0, 2/math.Sqrt(float64(width)), []int{classes, width},
						replicate).Cast(tensor.BFloat16).Cast(dt)
					targets := make([]int64, n)
					for i := range targets {
						targets[i] = int64(i * i % classes)
					}
					targets[7] = -100
					y := meshtest.Place(m, targets, []int{n}, replicate)
					weight := dtensor.Uniform(m, dtensor.Key{Seed: 2}, 0.5, 2, []int{classes}, replicate)
					if dt == tensor.Float64 {
						weight = weight.Cast(dt)
					}
					h, w = h.Redistribute(c.hidden), w.Redistribute(c.head)
					record := m.Comm().Record()
					v, all, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
						o := loss.Options{LabelSmoothing: 0.1, Weight: weight}
						if inBlocks {
							return loss.LinearInBlocks(rows, rows+1, bytes)(h, w, y, o)
						}
						return loss.CrossEntropy(h.Linear(w, nil), y, o)
					}, h, w)
					events := record.Stop()
					if err != nil {
						return err
					}
					size := 4 * max(4, weight.DType().Size())
					if calls, bytes := meshtest.Calls(events, "LinearCrossEntropy: classes"); inBlocks && c.head.IsShard() &&
						(calls != c.blocks || bytes != size*n) {
						return fmt.Errorf("%v: %d collectives of %d bytes for %d blocks", c, calls, bytes, c.blocks)
					}
					value, first, second := v.Full().Item(), meshtest.Values(all[0].Dense().Full()), meshtest.Values(all[1].Dense().Full())
					if m.Comm().Rank() == 0 {
						l, grads = value, [2][]float64{first, second}
					}
					return nil
				})
				return l, grads
			}
			want, wantGrads := of(tensor.Float64, false)
			for dt, tol := range map[tensor.DType]float64{tensor.BFloat16: 0x1p-8, tensor.Float32: 1e-6, tensor.Float64: 1e-14} {
				l, grads := of(dt, true)
				if !(math.Abs(l-want) <= min(1e-5, 10*tol)*want) {
					t.Errorf("%v, %v, width %d: the loss is %v, want %v", c, dt, width, l, want)
				}
				for i, g := range grads {
					var off, all float64
					for k, v := range g {
						d := v - wantGrads[i][k]
						off, all = off+d*d, all+wantGrads[i][k]*wantGrads[i][k]
					}
					if got := math.Sqrt(off / all); !(got <= tol) {
						t.Errorf("%v, %v, width %d: gradient %d is off by %v of its length", c, dt, width, i, got)
					}
				}
			}
		}
	}
}

// TestSmallLinearBlocks compares random questions with the loops. Their blocks have tiles
// of a class or a few, or all classes of a position or a few.
func TestSmallLinearBlocks(t *testing.T) {
	for _, c := range []struct{ whole, bytes int }{{101, 0}, {101, 200}, {101, 600}, {1, 600}, {1, 3000}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			for _, check := range []linearCheck{(*linear).check, (*linear).checkHalf} {
				randomLinears(t, func(l *linear, ctx context.Context, m *dtensor.Mesh, shape []int,
					hidden, head, targets, weight []layout.Placement) error {
					small := *l
					small.loss = loss.LinearInBlocks(100, c.whole, c.bytes)
					return check(&small, ctx, m, shape, hidden, head, targets, weight)
				})
			}
		})
	}
}

// A gradient that nobody wants costs nothing, and one alone is right.
func TestBFloat16LinearOneGradient(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		h := dtensor.Normal(m, dtensor.Key{}, 0, 1, []int{6, 4}, replicate).Cast(tensor.BFloat16)
		w := dtensor.Normal(m, dtensor.Key{Seed: 1}, 0, 1, []int{9, 4}, shard0).Cast(tensor.BFloat16)
		y := meshtest.Place(m, []int64{0, 8, 3, -100, 2, 1}, []int{6}, replicate)
		f := func() *dtensor.Tensor { return loss.LinearCrossEntropy(h, w, y, loss.Options{}) }
		both, grads, err := dtensor.ValueAndGrad(ctx, f, h, w)
		if err != nil {
			return err
		}
		for i, p := range []*dtensor.Tensor{h, w} {
			l, one, err := dtensor.ValueAndGrad(ctx, f, p)
			if err != nil {
				return err
			}
			if err := meshtest.Near("gradient", one[0].Dense().Full(), meshtest.Values(grads[i].Dense().Full()), 0, 0); err != nil {
				return err
			}
			if l.Full().Item() != both.Full().Item() {
				return fmt.Errorf("the loss is %v, with both gradients %v", l.Full(), both.Full())
			}
		}
		if l := f(); l.Full().Item() != both.Full().Item() {
			return fmt.Errorf("the loss is %v, with gradients %v", l.Full(), both.Full())
		}
		err = dtensor.Try(ctx, m, func() { loss.LinearCrossEntropy(h, w.Cast(tensor.Float32), y, loss.Options{}) })
		if err == nil || !strings.Contains(err.Error(), "not both float32, both float64 or both bfloat16; Cast one of them") {
			return fmt.Errorf("got %v", err)
		}
		err = dtensor.Try(ctx, m, func() { loss.LinearCrossEntropy(h.Cast(tensor.Float16), w.Cast(tensor.Float16), y, loss.Options{}) })
		if err == nil || !strings.Contains(err.Error(), "are float16; Cast both to float32") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
}
