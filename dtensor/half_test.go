package dtensor_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// The addends of bfloat16 are summed in float32 and rounded once, by every plan and
// for gradients: 256 + 1 + 1 + 1 is 260, and in bfloat16 from left to right 256.
func TestBFloat16SumsAreRoundedOnce(t *testing.T) {
	onMesh(t, []int{4}, func(ctx context.Context, m *dtensor.Mesh) error {
		addend := 1.0
		if m.Coord()[0] == 0 {
			addend = 256
		}
		part, err := dtensor.FromLocal(m, tensor.Full(m.Device(), tensor.BFloat16, addend, 6), []int{6}, layout.Partial(layout.Sum))
		if err != nil {
			return err
		}
		for _, to := range []layout.Placement{layout.Replicate(), layout.Shard(0), layout.ShardSizes(0, 1, 0, 5, 0)} {
			got := tensor.ToSlice[float32](tensor.Cast(part.Redistribute(to).Full(), tensor.Float32))
			if !slices.Equal(got, slices.Repeat([]float32{260}, 6)) {
				return fmt.Errorf("to %v: %v", to, got)
			}
		}
		p, q := dtensor.Full(m, tensor.BFloat16, 1, []int{6}, layout.Replicate()),
			dtensor.Full(m, tensor.BFloat16, 1, []int{3}, layout.Replicate())
		_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			zero := dtensor.Full(m, tensor.Float32, 0, nil, layout.Replicate())
			return dtensor.Record("addends", zero, []*dtensor.Tensor{p, q}, func(*dtensor.Tensor) []dtensor.Grad {
				short, err := dtensor.FromLocal(m, tensor.Narrow(part.Local(), 0, 0, 3), []int{3}, layout.Partial(layout.Sum))
				if err != nil {
					t.Error(err)
				}
				return []dtensor.Grad{dtensor.Dense(part), dtensor.Dense(short)}
			})
		}, p, q)
		if err != nil {
			return err
		}
		for i, g := range grads {
			got := g.Dense()
			if got.DType() != tensor.BFloat16 || slices.ContainsFunc(tensor.ToSlice[float32](tensor.Cast(got.Full(), tensor.Float32)),
				func(v float32) bool { return v != 260 }) {
				return fmt.Errorf("gradient %d is %v", i, got.Full())
			}
		}
		return nil
	})
}

// Products of bfloat16 and their gradients, in every layout of the operands, are
// those of the float32 values rounded: once, or where ranks add up parts of the sums
// once a part.
func TestBFloat16Products(t *testing.T) {
	for _, mesh := range [][]int{{1}, {2}, {3}, {2, 2}} {
		onMesh(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			replicated := make([]layout.Placement, len(mesh))
			list := []layout.Placement{layout.Replicate(), layout.Shard(0), layout.Shard(1), layout.Partial(layout.Sum)}
			number := func(stream uint64, shape ...int) *dtensor.Tensor {
				return dtensor.Normal(m, dtensor.Key{Seed: 3, Stream: stream}, 0, 1, shape, replicated...).Cast(tensor.BFloat16)
			}
			x, w, bias, gy := number(1, 5, 7), number(2, 6, 7), number(3, 6), number(4, 5, 6).Cast(tensor.Float32)
			ops := map[string]func(x, w, bias *dtensor.Tensor) *dtensor.Tensor{
				"Linear":           func(x, w, bias *dtensor.Tensor) *dtensor.Tensor { return x.Linear(w, bias) },
				"MatMul":           func(x, w, _ *dtensor.Tensor) *dtensor.Tensor { return x.MatMul(w.Transpose(0, 1)) },
				"a weight shared":  func(x, w, _ *dtensor.Tensor) *dtensor.Tensor { return x.Linear(w, nil).Add(x.Linear(w, nil)) },
				"batches":          func(x, w, _ *dtensor.Tensor) *dtensor.Tensor { return x.Reshape(1, 5, 7).Linear(w, nil).Reshape(5, 6) },
				"in other layouts": func(x, w, bias *dtensor.Tensor) *dtensor.Tensor { return x.Linear(w, bias).Redistribute(replicated...) },
			}
			for _, name := range []string{"Linear", "MatMul", "a weight shared", "batches", "in other layouts"} {
				f := ops[name]
				stride := 1
				if len(mesh) > 1 {
					stride = every
				}
				for k := 0; k < 1<<(4*len(mesh)); k += stride { // placements of x and w
					xp, wp := placementsOf(m, list, k), placementsOf(m, list, k>>(2*len(mesh)))
					values := func(x, w, bias *dtensor.Tensor) (y *dtensor.Tensor, grads []dtensor.Grad, err error) {
						_, grads, err = dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
							y = f(x, w, bias)
							wide := y.Cast(tensor.Float32)
							y = wide.Detach().Redistribute(replicated...)
							dtensor.Keep(y)
							return wide.Mul(gy).Sum(nil, false)
						}, x, w, bias)
						return y, grads, err
					}
					y, grads, err := values(x.Redistribute(xp...), w.Redistribute(wp...), bias)
					if err != nil {
						return fmt.Errorf("%s: x %v, w %v: %w", name, xp, wp, err)
					}
					want, wantGrads, err := values(x.Cast(tensor.Float32), w.Cast(tensor.Float32), bias.Cast(tensor.Float32))
					if err != nil {
						return err
					}
					if err := nearHalf(y.Full(), want.Full()); err != nil {
						return fmt.Errorf("%s: x %v, w %v: %w", name, xp, wp, err)
					}
					for i, g := range grads {
						if dt := g.Dense().DType(); dt != tensor.BFloat16 {
							return fmt.Errorf("%s: gradient %d is %v", name, i, dt)
						}
						if err := nearHalf(g.Dense().Full(), wantGrads[i].Dense().Full()); err != nil {
							return fmt.Errorf("%s: x %v, w %v: gradient %d: %w", name, xp, wp, i, err)
						}
					}
				}
			}
			return nil
		})
	}
}

// nearHalf returns an error unless each number is that of float32 within a few
// roundings to 8 bits, of numbers up to 8 that cancel.
func nearHalf(got, want *tensor.Tensor) error {
	g, w := tensor.ToSlice[float64](tensor.Cast(got, tensor.Float64)), tensor.ToSlice[float64](tensor.Cast(want, tensor.Float64))
	for i := range w {
		if !(math.Abs(g[i]-w[i]) <= 0x1p-8*(math.Abs(w[i])+8)) {
			return fmt.Errorf("element %d is %v, want %v", i, g[i], w[i])
		}
	}
	return nil
}

// The gradient of what was picked 260 times is 260, also where ranks share the picks:
// in bfloat16 from one to the next it stays 256.
func TestBFloat16PicksAreAddedUp(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, p := range []layout.Placement{layout.Replicate(), layout.Shard(0), layout.Shard(1)} {
			x := dtensor.Full(m, tensor.BFloat16, 1, []int{3, 2}, p)
			_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
				index := dtensor.Full(m, tensor.Int64, 2, []int{260}, layout.Replicate())
				all := x.IndexSelect(0, index).Add(x.Gather(0, index.Unsqueeze(1).Expand(260, 2)))
				return all.Cast(tensor.Float32).Sum(nil, false)
			}, x)
			if err != nil {
				return err
			}
			want := []float32{0, 0, 0, 0, 520, 520}
			if got := tensor.ToSlice[float32](tensor.Cast(grads[0].Dense().Full(), tensor.Float32)); !slices.Equal(got, want) {
				return fmt.Errorf("%v: %v, want %v", p, got, want)
			}
		}
		return nil
	})
}

// Gradients of 1, and values of 1, add up to their number: over parts, over uses of
// one parameter, over uses of what was computed from it, dense and of rows.
func TestBFloat16GradientsAddUp(t *testing.T) {
	for _, shape := range [][]int{{1}, {3}} {
		onMesh(t, shape, func(ctx context.Context, m *dtensor.Mesh) error {
			for k := range 2 {
				place := placementsOf(m, []layout.Placement{layout.Replicate(), layout.Shard(0)}, k)
				w := dtensor.Full(m, tensor.BFloat16, 1, []int{4}, place...)
				table := dtensor.Full(m, tensor.BFloat16, 1, []int{4, 2}, placementsOf(m, []layout.Placement{layout.Replicate()}, 0)...)
				both := dtensor.Full(m, tensor.BFloat16, 1, []int{4, 2}, placementsOf(m, []layout.Placement{layout.Replicate()}, 0)...)
				params := []T{w, table, both}
				one := func(w T) T {
					sum := w.Sum(nil, false).Add(take(table, []int64{1}).Sum(nil, false)).Add(take(both, []int64{1}).Sum(nil, false))
					return sum.Add(both.Sum(nil, false))
				}
				v, grads, err := dtensor.Accumulate(ctx, addends, func(int) T { return one(w).Scale(1. / 16) }, params...)
				if err != nil {
					return err
				}
				if got := v.Item(); got != addends || v.DType() != tensor.BFloat16 {
					return fmt.Errorf("layouts %d: the value is %v of %v, want %d of bfloat16", k, got, v.DType(), addends)
				}
				want := func(i int, g dtensor.Grad, want ...float64) error {
					d := g.Dense()
					if got := tensor.ToSlice[float64](tensor.Cast(d.Full(), tensor.Float64)); d.DType() != tensor.BFloat16 || !slices.Equal(got, want) {
						return fmt.Errorf("layouts %d: gradient %d is %v %v, want %v of bfloat16", k, i, d, got, want)
					}
					return nil
				}
				const n = addends / 16.
				if err := cmp.Or(want(0, grads[0], n, n, n, n), want(1, grads[1], 0, 0, n, n, 0, 0, 0, 0),
					want(2, grads[2], n, n, 2*n, 2*n, n, n, n, n)); err != nil {
					return err
				}
				for _, of := range []func() T{func() T { return w }, w.Neg} {
					var sign float64
					_, grads, err = dtensor.ValueAndGrad(ctx, func() T {
						w := of()
						sign = w.Sum(nil, false).Item() / 4
						sum := w.Sum(nil, false)
						for range addends - 1 {
							sum = sum.Add(w.Sum(nil, false))
						}
						return sum
					}, w)
					if err == nil {
						err = want(0, grads[0], addends*sign, addends*sign, addends*sign, addends*sign)
					}
					if err != nil {
						return err
					}
				}
				ones := func(int) T { return w.Sum(nil, false) }
				if _, grads, err = dtensor.Accumulate(ctx, addends, ones, w); err == nil {
					err = want(0, grads[0], addends, addends, addends, addends)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// Gradients of float32 parameters that are cast to a narrow type cross the ranks in that type, all of them in one
// collective for each way in which they are summed, also after several parts, and come back in float32.
func TestNarrowGradientsCrossTogether(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		number := func(stream uint64, p layout.Placement, shape ...int) *dtensor.Tensor {
			return dtensor.Normal(m, dtensor.Key{Seed: 5, Stream: stream}, 0, 1, shape, p)
		}
		r, s := layout.Replicate(), layout.Shard(0)
		x := number(1, s, 8, 4)
		whole, divided := []*dtensor.Tensor{number(2, r, 4, 4), number(3, r, 4, 4), number(4, r, 4, 4)},
			[]*dtensor.Tensor{number(5, s, 4, 4), number(6, s, 4, 4)}
		params := append(append([]*dtensor.Tensor{}, whole...), divided...)
		for _, overlap := range []int{0, 1 << 20} {
			for _, parts := range []int{1, 3} {
				var causes any
				f := func(dt tensor.DType) ([]dtensor.Grad, string, error) {
					record := m.Comm().Record()
					defer record.Stop()
					m.SetOverlap(overlap)
					_, grads, err := dtensor.Accumulate(ctx, parts, func(part int) *dtensor.Tensor {
						h := x.Linear(whole[2], nil)
						for _, w := range append(whole, whole[1]) { // one of them twice
							h = h.Add(x.Cast(dt).Linear(w.Cast(dt), nil).Cast(tensor.Float32))
						}
						for _, w := range divided {
							h = h.Add(x.Cast(dt).Linear(w.Cast(dt).Redistribute(r), nil).Cast(tensor.Float32))
						}
						return h.Square().Mean(nil, false).Scale(1 / float64(parts))
					}, params...)
					causes = record.Stats().Causes
					return grads, record.Stats().Calls(), err
				}
				want, _, err := f(tensor.Float32)
				if err != nil {
					return err
				}
				for _, dt := range []tensor.DType{tensor.BFloat16, tensor.Float16} {
					grads, calls, err := f(dt)
					if err != nil {
						return err
					}
					// The value, the narrow gradients, and that of a weight which float32 numbers are multiplied with too.
					if want := fmt.Sprintf("AllReduce×3, AllGatherV×%d, ReduceScatterV×1", 2*parts); calls != want {
						return fmt.Errorf("%v, %d parts, overlap %d: %s, want %s: %v", dt, parts, overlap, calls, want, causes)
					}
					for i, g := range grads {
						d := g.Dense()
						if d.DType() != tensor.Float32 || d.Layout() != params[i].Layout() {
							return fmt.Errorf("%v: gradient %d is %v of %v", dt, i, d, d.DType())
						}
						if err := nearHalf(d.Full(), want[i].Dense().Full()); err != nil {
							return fmt.Errorf("%v, %d parts: gradient %d: %w", dt, parts, i, err)
						}
					}
				}
			}
		}
		return nil
	})
}

// Norms, variances and logarithms of sums of narrow types are computed in float32 and rounded once: squares of 300 are above, and of
// 0.0001 below, what float16 has.
func TestStatisticsOfNarrowTypes(t *testing.T) {
	stats := []struct {
		name string
		of   func(x *dtensor.Tensor) *dtensor.Tensor
	}{
		{"Norm of 1", func(x *dtensor.Tensor) *dtensor.Tensor { return x.Norm(1, []int{0}, false) }},
		{"Norm of 2", func(x *dtensor.Tensor) *dtensor.Tensor { return x.Norm(2, []int{0}, false) }},
		{"Norm of 3", func(x *dtensor.Tensor) *dtensor.Tensor { return x.Norm(3, []int{0}, false) }},
		{"Norm of -1", func(x *dtensor.Tensor) *dtensor.Tensor { return x.Norm(-1, []int{0}, false) }},
		{"Var", func(x *dtensor.Tensor) *dtensor.Tensor { return x.Var([]int{0}, 1, false) }},
		{"LogSumExp", func(x *dtensor.Tensor) *dtensor.Tensor { return x.LogSumExp([]int{0}, false) }},
	}
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, dt := range []tensor.DType{tensor.Float16, tensor.BFloat16} {
			for _, stat := range stats {
				for _, p := range []layout.Placement{layout.Replicate(), layout.Shard(0), layout.Shard(1)} {
					for _, scale := range []float64{300, 1, 1e-4} {
						half := dtensor.Normal(m, dtensor.Key{Seed: 9}, 0, scale, []int{7, 3}, p).Cast(dt)
						wide := half.Cast(tensor.Float32)
						var y, want *dtensor.Tensor
						dy := dtensor.Gradients(func() *dtensor.Tensor { y = stat.of(half); return y.Sum(nil, false) }, half)[0]
						wantDY := dtensor.Gradients(func() *dtensor.Tensor { want = stat.of(wide); return want.Sum(nil, false) }, wide)[0]
						for i, pair := range [][2]*dtensor.Tensor{{y, want.Cast(dt)}, {dy, wantDY.Cast(dt)}} {
							if got, want := fmt.Sprint(pair[0].Full()), fmt.Sprint(pair[1].Full()); got != want {
								return fmt.Errorf("%s of %v %v times %v, result %d: %s, want %s", stat.name, dt, p, scale, i, got, want)
							}
						}
					}
				}
			}
		}
		return nil
	})
}
