package loss_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/tensor"
)

// A sameCase is a loss whose bits must be those of one rank.
type sameCase struct {
	n, c      int
	dt        tensor.DType
	smoothing float64
	weight    bool
	z         float64
	soft      bool
	linear    bool
	workspace int // of a linear one: 0: the default
	reduction loss.Reduction
	inner     int    // positions are [n, inner] if above 0
	calls     string // where classes are divided
	divided   string // where positions are
}

// bits returns the bits of the loss and of its gradients, with the logits, or the hidden and the
// weight, in a layout.
func (c *sameCase) bits(ctx context.Context, m *dtensor.Mesh, positions, classes layout.Placement, axes []int) (all []uint64, calls string,
	err error) {
	const width = 5
	R := layout.Replicate()
	place := func(dims ...layout.Placement) []layout.Placement {
		p := m.Every(R)
		for axis := range p {
			p[axis] = dims[axes[axis]]
		}
		return p
	}
	number := func(seed float64, shape ...int) *dtensor.Tensor {
		n := 1
		for _, size := range shape {
			n *= size
		}
		t := tensor.FromSlice(m.Device(), meshtest.Numbers(n, seed, 3), shape...)
		return dtensor.Distribute(m, tensor.Cast(t, c.dt), m.Every(R)...)
	}
	err = dtensor.Try(ctx, m, func() {
		o := loss.Options{LabelSmoothing: c.smoothing, ZLoss: c.z, Reduction: c.reduction, Workspace: c.workspace}
		if c.weight {
			o.Weight = number(3, c.c).Square().AddScalar(0.1).Cast(c.dt.Wide())
		}
		shape, logits := []int{c.n}, []int{c.n, c.c}
		if c.inner > 0 {
			shape, logits = append(shape, c.inner), append(logits, c.inner)
		}
		y := make([]int64, c.n*max(1, c.inner))
		for i := range y {
			if y[i] = int64(i * i * 7 % c.c); i%5 == 4 {
				y[i] = -100
			}
		}
		targets := dtensor.Distribute(m, tensor.FromSlice(m.Device(), y, shape...), m.Every(R)...)
		if c.soft {
			targets = number(4, logits...).Cast(c.dt.Wide()).Softmax(1)
		}
		params := []*dtensor.Tensor{number(1, logits...).Redistribute(place(positions, classes)...)}
		if c.linear {
			h := positions
			params = []*dtensor.Tensor{number(1, c.n, width).Redistribute(place(h, R)...),
				number(2, c.c, width).Redistribute(place(R, classes.WithDim(0))...)}
		}
		record := m.Comm().Record()
		value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			var out *dtensor.Tensor
			if c.linear {
				out = loss.LinearCrossEntropy(params[0], params[1], targets, o)
			} else {
				out = loss.CrossEntropy(params[0], targets, o)
			}
			if c.reduction == loss.None {
				out = out.Redistribute(m.Every(R)...).Sum(nil, false)
			}
			return out
		}, params...)
		if err != nil {
			panic(err)
		}
		record.Stop()
		calls = record.Stats().Calls()
		out := []*dtensor.Tensor{value}
		for _, g := range grads {
			out = append(out, g.Dense())
		}
		for _, t := range out {
			for _, v := range tensor.ToSlice[float64](tensor.Cast(t.Full(), tensor.Float64)) {
				all = append(all, math.Float64bits(v))
			}
		}
	})
	return all, calls, err
}

// With SameBits losses and their gradients have the bits of one rank in every layout; where ranks
// have nodes of the classes they send four numbers a position, in one call. Ranks that divide the positions of a linear one
// divide the classes instead: they gather the hidden, and the gradient of the weight from parts.
func TestLossesHaveTheSameBits(t *testing.T) {
	cases := []sameCase{
		{n: 8, c: 1024, calls: "AllGather×1"}, {n: 6, c: 7}, {n: 6, c: 258}, {n: 8, c: 640, smoothing: 0.1, z: 1e-3, calls: "AllGather×1"},
		{n: 8, c: 512, weight: true, calls: "AllGather×1"}, {n: 8, c: 512, weight: true, smoothing: 0.2}, {n: 8, c: 512, soft: true},
		{n: 4, c: 512, inner: 3, smoothing: 0.1, calls: "AllGather×1"}, {n: 12, c: 512, reduction: loss.None, calls: "AllGather×1"},
		{n: 7, c: 512, reduction: loss.Sum, calls: "AllGather×1"}, {n: 4, c: 512, dt: tensor.Float64, calls: "AllGather×1"},
		{n: 8, c: 512, dt: tensor.BFloat16, smoothing: 0.1, calls: "AllGather×1"},
		{n: 12, c: 1024, linear: true, calls: "AllGather×2", divided: "AllGather×2, AllGatherV×2"},
		{n: 12, c: 512, linear: true, workspace: 5 * 512 * 4 * 4 / 3, smoothing: 0.1},
		{n: 12, c: 512, linear: true, dt: tensor.Float64},
		{n: 12, c: 512, linear: true, dt: tensor.BFloat16, calls: "AllGather×2", divided: "AllGather×2, AllGatherV×2"},
		{n: 12, c: 512, linear: true, dt: tensor.BFloat16, workspace: 5 * 512 * 6 * 4 / 3, smoothing: 0.1},
		{n: 12, c: 512, linear: true, dt: tensor.BFloat16, weight: true, smoothing: 0.1}, {n: 8, c: 254, linear: true, dt: tensor.BFloat16},
		{n: 12, c: 512, linear: true, weight: true, smoothing: 0.1}, {n: 9, c: 640, linear: true, weight: true, reduction: loss.None},
	}
	R, S := layout.Replicate(), layout.Shard
	for _, c := range cases {
		if c.dt == 0 {
			c.dt = tensor.Float32
		}
		var want []uint64
		for _, mesh := range [][]int{{1}, {2}, {3}, {4}, {5}, {2, 2}, {3, 2}} {
			meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				m.SetSameBits(true)
				for k, p := range [][2]layout.Placement{{R, R}, {R, S(1)}, {S(0), S(1)}, {S(0), R}} {
					for first := range 2 {
						axes := make([]int, len(mesh)) // whether an axis of the mesh divides positions or classes
						for i := range axes {
							axes[i] = (first + i) % 2
						}
						got, calls, err := c.bits(ctx, m, p[0], p[1], axes)
						if err != nil {
							return err
						}
						if want == nil {
							want = got
						}
						if i := differ(got, want); i >= 0 {
							return fmt.Errorf("%+v, mesh %v, %v, axes %v: number %d is %v, want %v", c, m, p, axes, i,
								math.Float64frombits(got[i]), math.Float64frombits(want[i]))
						}
						even := slices.Contains([]string{"[2]", "[4]"}, fmt.Sprint(mesh))
						if c.calls != "" && k == 1 && first == 1 && even && calls != c.calls ||
							c.divided != "" && k == 3 && first == 0 && even && calls != c.divided {
							return fmt.Errorf("%+v, mesh %v, %v: the calls are %s", c, m, p, calls)
						}
					}
				}
				return nil
			})
		}
	}
}

// differ returns the first index at which two lists differ, -1 for none.
func differ(a, b []uint64) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// With same bits, ranks that do not divide the classes equally move the weight of the logits and its gradient, not logits.
func TestLogitsStayWhereTheyAreMade(t *testing.T) {
	const positions, width, classes = 64, 8, 2048
	for _, ranks := range []int{3, 5, 6, 7} {
		meshtest.On(t, []int{ranks}, func(ctx context.Context, m *dtensor.Mesh) error {
			m.SetSameBits(true)
			hidden := dtensor.Normal(m, dtensor.Key{Stream: 1}, 0, 1, []int{positions, width}, layout.Replicate())
			weight := dtensor.Normal(m, dtensor.Key{Stream: 2}, 0, 1, []int{classes, width}, layout.Shard(0))
			targets := dtensor.Uniform(m, dtensor.Key{Stream: 3}, 0, classes, []int{positions}, layout.Replicate()).Cast(tensor.Int64)
			record := m.Comm().Record()
			_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
				return loss.CrossEntropy(hidden.Linear(weight, nil), targets, loss.Options{})
			}, hidden, weight)
			record.Stop()
			for by, n := range record.Stats().Causes {
				if by.Kind == comm.AllToAllVKind && n.Bytes > 4*classes*width && err == nil {
					err = fmt.Errorf("mesh %v: %d bytes for %s, want at most those of the weight", m, n.Bytes, by.Cause)
				}
			}
			return err
		})
	}
}
