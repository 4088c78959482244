package dtensor_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// Accumulate gives what ValueAndGrad of the sum gives, whatever the layouts: of
// parameters with dense, row-sparse and both kinds of gradients, of two that share
// theirs, and of one that nothing uses.
func TestAccumulate(t *testing.T) {
	R, S := layout.Replicate(), layout.Shard
	const parts = 3
	for _, shape := range meshes {
		onMesh(t, shape, func(ctx context.Context, m *dtensor.Mesh) error {
			for k := range 4 {
				place := func(list ...layout.Placement) []layout.Placement { return placementsOf(m, list, k) }
				x := make([]T, parts)
				for i := range x {
					x[i] = dtensor.Normal(m, dtensor.Key{Stream: uint64(10 + i)}, 0, 1, []int{4, 5}, place(S(0), R, layout.Partial(layout.Sum))...)
				}
				operand := dtensor.Zeros(m, tensor.Float32, []int{4, 5}, place(R, S(0))...)
				w := dtensor.Normal(m, dtensor.Key{Stream: 1}, 0, 1, []int{3, 5}, place(R, S(0), S(1))...)
				b := dtensor.Normal(m, dtensor.Key{Stream: 2}, 0, 1, []int{3}, place(R, S(0))...)
				c := dtensor.Normal(m, dtensor.Key{Stream: 3}, 0, 1, []int{4, 5}, operand.Placements()...)
				d := dtensor.Normal(m, dtensor.Key{Stream: 4}, 0, 1, []int{4, 5}, operand.Placements()...)
				table := dtensor.Normal(m, dtensor.Key{Stream: 5}, 0, 1, []int{5, 3}, placementsOf(m, []layout.Placement{R}, 0)...)
				tied := dtensor.Normal(m, dtensor.Key{Stream: 6}, 0, 1, []int{5, 3}, placementsOf(m, []layout.Placement{R}, 0)...)
				unused := dtensor.Normal(m, dtensor.Key{Stream: 7}, 0, 1, []int{2}, place(S(0), R)...)
				params := []T{w, b, c, d, table, tied, unused}
				f := func(i int) T {
					y := x[i].Linear(w, b).Tanh()
					if i == 1 {
						y = y.Add(x[i].Linear(w.Redistribute(placementsOf(m, []layout.Placement{R}, 0)...), nil))
					}
					rows := take(table, []int64{int64(i), 4, int64(i)}).Mul(take(tied, []int64{0, int64(i), 1}))
					v := y.Square().Sum(nil, false).Add(rows.Sum(nil, false)).Add(tied.Scale(float64(i)).Sum(nil, false))
					v = v.Add(operand.Mul(c.Add(d)).Sum(nil, false))
					if i != 1 {
						v = v.Add(take(table, []int64{2}).Sum(nil, false))
					}
					return v
				}
				// The operand is the same memory for all parts.
				fill := func(i int) { tensor.Fill(operand.Local(), float64(i+1)) }
				var want []*tensor.Tensor
				var sum float64
				for i := range parts {
					fill(i)
					v, grads, err := dtensor.ValueAndGrad(ctx, func() T { return f(i) }, params...)
					if err != nil {
						return err
					}
					sum += v.Local().Item()
					for j, g := range grads {
						if i == 0 {
							want = append(want, tensor.Clone(g.Dense().Full()))
						} else {
							tensor.AddTo(want[j], g.Dense().Full())
						}
					}
				}
				var kept T
				v, grads, err := dtensor.Accumulate(ctx, parts, func(i int) T {
					fill(i)
					if i == 0 {
						kept = x[0].Scale(2)
						dtensor.Keep(kept)
					}
					return f(i)
				}, params...)
				if err != nil {
					return err
				}
				if got := v.Local().Item(); math.Abs(got-sum) > 1e-4*(1+math.Abs(sum)) {
					return fmt.Errorf("layouts %d: value %v, want %v", k, got, sum)
				}
				for j, g := range grads {
					if err := gradLayout(params[j], g.Dense()); err != nil {
						return err
					}
					got, want := tensor.ToSlice[float32](g.Dense().Full()), tensor.ToSlice[float32](want[j])
					for e := range got {
						if math.Abs(float64(got[e]-want[e])) > 1e-4*(1+math.Abs(float64(want[e]))) {
							return fmt.Errorf("layouts %d, parameter %d: gradient %v, want %v", k, j, got, want)
						}
					}
				}
				if _, sparse := grads[4].Rows(); !sparse {
					return fmt.Errorf("layouts %d: the gradient of the table is not row-sparse", k)
				}
				kept.Full() // is still there
			}
			return nil
		})
	}
}

// Values and gradients are summed over the ranks once, not once a part, and the parts
// take the memory of one.
func TestAccumulateCosts(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		const parts, wide = 8, 1 << 14
		x := dtensor.Normal(m, dtensor.Key{Stream: 1}, 0, 1, []int{128, 8}, layout.Shard(0))
		w := dtensor.Normal(m, dtensor.Key{Stream: 2}, 0, 1, []int{wide, 8}, layout.Replicate())
		f := func(int) T { return x.Linear(w, nil).Tanh().Sum(nil, false) }
		most := func(n int) int {
			if _, _, err := dtensor.Accumulate(ctx, n, f, w); err != nil {
				failf("%w", err)
			}
			return m.Device().Stats().HighWater
		}
		// The gradient of the parts so far is there too, and the result of the run before; a
		// single activation is larger.
		const gradient = wide * 8 * 4 // bytes
		if one, many := most(1), most(parts); many > one+4*gradient {
			return fmt.Errorf("%d parts take %d bytes, one takes %d", parts, many, one)
		}
		return dtensor.Try(ctx, m, func() {
			expect(m, "parts", " AllReduce×2", func() { // of the values, of the gradients
				if _, _, err := dtensor.Accumulate(ctx, parts, f, w); err != nil {
					failf("%w", err)
				}
			})
		})
	})
}

// A part that fails ends it, the parameters are usable afterwards, and a rank outside
// the mesh comes along.
func TestAccumulateErrors(t *testing.T) {
	commtest.Run(t, 3, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMeshOf(world, []int{2, 0}, dtensor.Axis{Name: "a", Size: 2})
		if err != nil {
			return err
		}
		w := dtensor.Full(m, tensor.Float32, 3, []int{5}, layout.Shard(0))
		square := func(i int) T { return w.Square().Sum(nil, false) }
		bad := func(i int) T {
			if i == 1 {
				return w
			}
			return square(i)
		}
		for _, c := range []struct {
			want   string
			n      int
			f      func(int) T
			params []T
		}{{"n is 0", 0, square, []T{w}}, {"n is -1", -1, square, []T{w}}, {"no parameters", 2, square, nil}, {"one element", 2, bad, []T{w}}} {
			if _, _, err := dtensor.Accumulate(ctx, c.n, c.f, c.params...); err == nil || !strings.Contains(err.Error(), c.want) {
				return fmt.Errorf("got %v, want an error with %q", err, c.want)
			}
		}
		v, grads, err := dtensor.Accumulate(ctx, 2, square, w)
		if err != nil || !m.Inside() {
			return err
		}
		if got, g := v.Local().Item(), tensor.ToSlice[float32](grads[0].Dense().Full()); got != 90 || g[4] != 12 {
			return fmt.Errorf("value %v, gradient %v, want 90 and 12", got, g)
		}
		return nil
	})
}

// AtEnd calls what the program registers in a ValueAndGrad or Accumulate once, the last first, with the error.
func TestAtEnd(t *testing.T) {
	commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "a", Size: 2})
		if err != nil {
			return err
		}
		w := dtensor.Full(m, tensor.Float32, 3, []int{5}, layout.Shard(0))
		var said string
		f := func(i int) T {
			dtensor.AtEnd(m, func(err error) { said += fmt.Sprint(i, err != nil, " ") })
			if i == 1 {
				return w // no loss
			}
			return w.Square().Sum(nil, false)
		}
		if _, _, err := dtensor.ValueAndGrad(ctx, func() T { return f(0) }, w); err != nil {
			return err
		}
		if _, _, err := dtensor.Accumulate(ctx, 3, f, w); err == nil {
			return fmt.Errorf("a part that is no loss has not failed")
		}
		if dtensor.AtEnd(m, nil) {
			return fmt.Errorf("AtEnd outside")
		}
		if want := "0 false 1 true 0 true "; said != want {
			return fmt.Errorf("got %q, want %q", said, want)
		}
		return nil
	})
}
