package optim_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// clipped are gradients whose layouts differ; the norm counts each element once.
type clipped struct {
	params []*dtensor.Tensor
	grads  []dtensor.Grad
	dense  [][]float64 // what the gradients are
}

// makeClipped has on a 2-D mesh one gradient for each way to lie, and one with
// rows of which one appears twice.
func makeClipped(m *dtensor.Mesh) (c clipped) {
	add := func(shape []int, places ...layout.Placement) {
		n := shape[0] * shape[1]
		values := meshtest.Numbers(n, float64(len(c.params)), 1)
		c.params = append(c.params, spread(m, tensor.Float32, meshtest.Numbers(n, 9, 1), shape, places...))
		c.grads = append(c.grads, dtensor.Dense(spread(m, tensor.Float32, values, shape, places...)))
		c.dense = append(c.dense, values)
	}
	add([]int{3, 5}, replicate, replicate)
	add([]int{3, 5}, rowWise, replicate)
	add([]int{3, 5}, replicate, colWise)
	add([]int{3, 5}, rowWise, rowWise)
	add([]int{1, 2}, colWise, rowWise)
	table := spread(m, tensor.Float32, meshtest.Numbers(12, 9, 1), []int{6, 2}, replicate, rowWise)
	values := meshtest.Numbers(12, 77, 1)
	c.params = append(c.params, table)
	c.grads = append(c.grads, rowsOf(table, values, []int{4, 1, 4, 5}))
	want := make([]float64, 12)
	for _, r := range []int{4, 1, 4, 5} {
		want[2*r] += values[2*r]
		want[2*r+1] += values[2*r+1]
	}
	c.dense = append(c.dense, want)
	return c
}

func (c *clipped) norm() float64 {
	s := 0.0
	for _, d := range c.dense {
		for _, v := range d {
			s += v * v
		}
	}
	return math.Sqrt(s)
}

// TestClipGradNorm measures and clips, in one call of one number. With SameBits it is a call of a few numbers of each
// gradient, however that is divided.
func TestClipGradNorm(t *testing.T) {
	for _, of := range []struct {
		mesh []int
		same bool
		want string
	}{
		{[]int{1, 1}, false, ""}, {[]int{1, 1}, true, ""},
		{[]int{2, 1}, false, "AllReduce×1"}, {[]int{2, 1}, true, "AllGather×1"},
		{[]int{1, 3}, false, "AllReduce×1"}, {[]int{1, 3}, true, "AllGather×1"},
		{[]int{2, 2}, false, "AllReduce×1"}, {[]int{2, 2}, true, "AllGather×1"},
	} {
		meshtest.On(t, of.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			m.SetSameBits(of.same)
			c := makeClipped(m)
			want := c.norm()
			for _, limit := range []float64{math.Inf(1), want * 2, want / 3} {
				record := m.Comm().Record()
				got, err := optim.ClipGradNorm(ctx, c.params, c.grads, limit)
				if err != nil {
					return err
				}
				record.Stop()
				stats := record.Stats()
				if calls := stats.Calls(); calls != of.want || !of.same && m.Size() > 1 && stats.Total().Bytes != 8 {
					return fmt.Errorf("mesh %v, same bits %v: the calls are %s of %d bytes, want %s: %v", m, of.same, calls, stats.Total().Bytes,
						of.want, stats.Causes)
				}
				if math.Abs(got-want) > 1e-5*want {
					return fmt.Errorf("mesh %v: norm %v, want %v", m, got, want)
				}
			}
			for i, d := range c.dense {
				for j := range d {
					d[j] *= 1.0 / 3
				}
				if err := near(fmt.Sprintf("gradient %d", i), c.grads[i].Dense(), d, 1e-5); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// TestClipStages counts what is on meshes of different ranks, of which one is in
// none, on all ranks alike.
func TestClipStages(t *testing.T) {
	commtest.Run(t, 4, func(ctx context.Context, world *comm.Comm) error {
		first, err := dtensor.NewMeshOf(world, []int{2, 0}, dtensor.Axis{Name: "dp", Size: 2})
		if err != nil {
			return err
		}
		second, err := dtensor.NewMeshOf(world, []int{3}, dtensor.Axis{Name: "dp", Size: 1})
		if err != nil {
			return err
		}
		a := spread(first, tensor.Float32, []float64{1, 2, 3}, []int{3}, rowWise)
		b := spread(first, tensor.Float32, []float64{4, 5}, []int{2}, replicate)
		c := spread(second, tensor.Float32, []float64{6, 7}, []int{2}, replicate)
		params := []*dtensor.Tensor{a, b, c}
		grads := []dtensor.Grad{dtensor.Dense(a), dtensor.Dense(b), dtensor.Dense(c)}
		want := math.Sqrt(1 + 4 + 9 + 16 + 25 + 36 + 49)
		record := world.Record()
		norm, err := optim.ClipGradNorm(ctx, params, grads, want/2)
		if err != nil || math.Abs(norm-want) > 1e-5 {
			return fmt.Errorf("norm %v, %v, want %v", norm, err, want)
		}
		calls := 1
		if first.Inside() {
			calls = 2
		}
		if events := record.Stop(); len(events) != calls {
			return fmt.Errorf("collectives %v, want %d", events, calls)
		}
		for i, values := range [][]float64{{0.5, 1, 1.5}, {2, 2.5}, {3, 3.5}} {
			if m := params[i].Mesh(); m.Inside() {
				if err := near(fmt.Sprintf("gradient %d", i), params[i], values, 1e-5); err != nil {
					return err
				}
			}
		}
		bad := spread(second, tensor.Float32, []float64{6, math.NaN()}, []int{2}, replicate)
		_, err = optim.ClipGradNorm(ctx, params, []dtensor.Grad{grads[0], grads[1], dtensor.Dense(bad)}, 1)
		if !errors.Is(err, optim.ErrNotFinite) || !strings.Contains(err.Error(), "gradient 2") {
			return fmt.Errorf("a stage with NaN: %v", err)
		}

		half, err := world.Split(ctx, world.Rank()/2, 0)
		if err != nil {
			return err
		}
		other, err := dtensor.NewMesh(half, dtensor.Axis{Name: "dp", Size: 2})
		if err != nil {
			return err
		}
		d := spread(other, tensor.Float32, []float64{1, 2}, []int{2}, rowWise)
		whole, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: 4})
		if err != nil {
			return err
		}
		e := spread(whole, tensor.Float32, []float64{1, 2}, []int{2}, replicate)
		_, err = optim.ClipGradNorm(ctx, []*dtensor.Tensor{e, d}, []dtensor.Grad{dtensor.Dense(e), dtensor.Dense(d)}, 1)
		if err == nil || !strings.Contains(err.Error(), "made from another communicator") {
			return fmt.Errorf("meshes of two communicators: %v", err)
		}
		return nil
	})
}

// TestClipWithoutShards needs no collective.
func TestClipWithoutShards(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		p := spread(m, tensor.Float64, []float64{3, 4}, []int{2}, replicate)
		record := m.Comm().Record()
		norm, err := optim.ClipGradNorm(ctx, []*dtensor.Tensor{p}, []dtensor.Grad{dtensor.Dense(p)}, 1)
		if err != nil || math.Abs(norm-5) > 1e-12 {
			return fmt.Errorf("norm %v, %v, want 5", norm, err)
		}
		if n := len(record.Stop()); n != 0 {
			return fmt.Errorf("%d collectives for replicated gradients", n)
		}
		return near("gradient", p, []float64{0.6, 0.8}, 1e-5)
	})
}

// A norm that is not finite leaves the gradients as they are and is an error, which names
// the gradient on every rank; who only measures gets it as it is.
func TestClipNotFinite(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, bad := range []float64{math.Inf(1), math.NaN()} {
			for i, place := range []layout.Placement{rowWise, replicate} {
				fine := spread(m, tensor.Float32, []float64{1, 1}, []int{2}, []layout.Placement{replicate, rowWise}[i])
				p := spread(m, tensor.Float32, []float64{3, bad, 1}, []int{3}, place)
				params, grads := []*dtensor.Tensor{fine, p}, []dtensor.Grad{dtensor.Dense(fine), dtensor.Dense(p)}
				for _, limit := range []float64{1, math.Inf(1)} {
					norm, err := optim.ClipGradNorm(ctx, params, grads, limit)
					if limit == 1 && (!errors.Is(err, optim.ErrNotFinite) || !strings.Contains(err.Error(), "gradient 1, of parameter float32 [3]")) {
						return fmt.Errorf("%v: norm %v, %v", place, norm, err)
					}
					if limit > 1 && err != nil || !(math.IsNaN(norm) || math.IsInf(norm, 1)) {
						return fmt.Errorf("%v: norm %v, %v", place, norm, err)
					}
				}
				if got := tensor.ToSlice[float32](p.Full()); got[0] != 3 || got[2] != 1 {
					return fmt.Errorf("the gradient became %v", got)
				}
			}
		}
		if _, err := optim.ClipGradNorm(ctx, nil, nil, 0); err == nil {
			return errors.New("a limit of 0 passes")
		}
		return nil
	})
}

// TestClipBFloat16 measures in float32 and rounds what it scales.
func TestClipBFloat16(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		p := spread(m, tensor.BFloat16, []float64{3, 4, 256, 1}, []int{4}, rowWise)
		g := dtensor.Dense(spread(m, tensor.BFloat16, []float64{3, 4, 256, 1}, []int{4}, rowWise))
		norm, err := optim.ClipGradNorm(ctx, []*dtensor.Tensor{p}, []dtensor.Grad{g}, 1)
		want := math.Sqrt(3*3 + 4*4 + 256*256 + 1)
		if err != nil || math.Abs(norm-want) > 1e-4 {
			return fmt.Errorf("norm %v, %v, want %v", norm, err, want)
		}
		return meshtest.Near("clipped", g.Dense().Full(), []float64{3 / want, 4 / want, 256 / want, 1 / want}, 0x1.01p-8, 0)
	})
}

// Each element is between the limits, that of rows that occur twice after they are added up; nothing is communicated.
func TestClipGradValue(t *testing.T) {
	meshtest.On(t, []int{2, 2}, func(ctx context.Context, m *dtensor.Mesh) error {
		const limit = 0.4
		c := makeClipped(m)
		recorder := m.Comm().Record()
		err := optim.ClipGradValue(ctx, c.params, c.grads, limit)
		recorder.Stop()
		if calls := recorder.Stats().Calls(); err != nil || calls != "" {
			return fmt.Errorf("got %v and the calls %s", err, calls)
		}
		for i, values := range c.dense {
			for k, v := range values {
				values[k] = max(-limit, min(v, limit))
			}
			if err := near(fmt.Sprint("gradient ", i), c.grads[i].Dense(), values, 1e-6); err != nil {
				return err
			}
		}
		for limit, says := range map[float64]string{0: "the limit is 0", math.NaN(): "the limit is NaN"} {
			if err := optim.ClipGradValue(ctx, c.params, c.grads, limit); err == nil || !strings.Contains(err.Error(), "ClipGradValue: "+says) {
				return fmt.Errorf("limit %v: got %v", limit, err)
			}
		}
		err = optim.ClipGradValue(ctx, c.params, c.grads[1:], 1)
		if err == nil || !strings.Contains(err.Error(), "5 gradients for 6 parameters") {
			return fmt.Errorf("got %v", err)
		}
		return optim.ClipGradValue(ctx, nil, nil, 1)
	})
}

// Gradients whose squares add up to more than float64 holds, though none does alone, are an error on every rank.
func TestNormOfLargeGradients(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		var params []*dtensor.Tensor
		var grads []dtensor.Grad
		for range 2 {
			p := spread(m, tensor.Float64, []float64{1.2e154, 0}, []int{2}, rowWise)
			params, grads = append(params, p), append(grads, dtensor.Dense(p))
		}
		_, err := optim.ClipGradNorm(ctx, params, grads, 1)
		if !errors.Is(err, optim.ErrNotFinite) || !strings.Contains(err.Error(), "it is +Inf, and no gradient alone makes it so") {
			return fmt.Errorf("the error is %v", err)
		}
		return nil
	})
}

// Ranks that clip to other norms get an error that names both.
func TestClipToOtherLimits(t *testing.T) {
	for _, same := range []bool{false, true} {
		meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
			m.SetSameBits(same)
			w := spread(m, tensor.Float32, ones(4), []int{2, 2}, rowWise)
			rank := m.Comm().Rank()
			_, err := optim.ClipGradNorm(ctx, []*dtensor.Tensor{w}, []dtensor.Grad{dtensor.Dense(w)}, float64(1+rank))
			want := "rank 0's is of a limit of 1, rank 1's of a limit of 2; give the same on all ranks"
			if !errors.Is(err, comm.ErrMismatch) || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("got %v", err)
			}
			return nil
		})
	}
}
