package dtensor_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// network is a small function of three parameters with most kinds of operators.
func network(x, w, g T) T {
	h := x.Linear(w, nil).Gelu().LayerNorm(g, nil, 1e-5)
	h = h.Add(h.Softmax(-1)).MatMul(w).Tanh()
	return h.Mul(x).Sum(nil, false)
}

// The gradients are those of finite differences, in double precision.
func TestFiniteDifferences(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		R, S := layout.Replicate(), layout.Shard
		params := []T{
			dtensor.Normal(m, dtensor.Key{Stream: 1}, 0, 1, []int{3, 4}, S(0)).Cast(tensor.Float64),
			dtensor.Normal(m, dtensor.Key{Stream: 2}, 0, 1, []int{5, 4}, S(1)).Cast(tensor.Float64),
			dtensor.Normal(m, dtensor.Key{Stream: 3}, 0, 1, []int{5}, R).Cast(tensor.Float64),
		}
		f := func() T { return network(params[0], params[1], params[2]) }
		_, grads, err := dtensor.ValueAndGrad(ctx, f, params...)
		if err != nil {
			return err
		}
		const h = 1e-6
		value := func() (v float64) {
			if err := dtensor.Try(ctx, m, func() { v = f().Full().Item() }); err != nil {
				failf("%w", err)
			}
			return v
		}
		return dtensor.Try(ctx, m, func() {
			for i, p := range params {
				got := tensor.ToSlice[float64](grads[i].Dense().Full())
				whole := tensor.ToSlice[float64](p.Full())
				for k := range whole {
					var v [2]float64
					for side, step := range []float64{-h, h} {
						moved := slices.Clone(whole)
						moved[k] += step
						q := dtensor.Distribute(m, tensor.FromSlice(m.Device(), moved, p.Shape()...), p.Placements()...)
						params[i] = q
						v[side] = value()
					}
					params[i] = p
					if want := (v[1] - v[0]) / (2 * h); math.Abs(got[k]-want) > 1e-6*(1+math.Abs(want)) {
						failf("parameter %d, element %d: gradient %v, finite difference %v", i, k, got[k], want)
					}
				}
			}
		})
	})
}

func TestGradRefusals(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		x := dtensor.Full(m, tensor.Float32, 2, []int{4}, layout.Shard(0))
		ints := dtensor.Full(m, tensor.Int64, 2, []int{4}, layout.Shard(0))
		sum := func() T { return x.Square().Sum(nil, false) }
		for _, c := range []struct {
			name, want string
			f          func() error
		}{
			{"no parameters", "no parameters", func() error { _, _, err := dtensor.ValueAndGrad(ctx, sum); return err }},
			{"twice", "given twice", func() error { _, _, err := dtensor.ValueAndGrad(ctx, sum, x, x); return err }},
			{"integers", "int64", func() error { _, _, err := dtensor.ValueAndGrad(ctx, sum, ints); return err }},
			{"no scalar", "one element", func() error {
				_, _, err := dtensor.ValueAndGrad(ctx, func() T { return x.Square() }, x)
				return err
			}},
			{"nil", "returned nil", func() error { _, _, err := dtensor.ValueAndGrad(ctx, func() T { return nil }, x); return err }},
			{"changed in place", "parameter 0 was changed in place", func() error {
				_, _, err := dtensor.ValueAndGrad(ctx, func() T {
					tensor.ScaleTo(x.Local(), 1) // nothing has used it yet
					y := sum()
					tensor.ScaleTo(tensor.Narrow(x.Local(), 0, 0, 1), 1)
					return y
				}, x)
				return err
			}},
			{"in use", "second derivatives", func() error {
				_, _, err := dtensor.ValueAndGrad(ctx, func() T {
					if _, _, err := dtensor.ValueAndGrad(ctx, sum, x); err != nil {
						failf("inner: %w", err)
					}
					return sum()
				}, x)
				return err
			}},
			{"gradient of a gradient", "second derivatives", func() error {
				y := dtensor.Full(m, tensor.Float32, 3, []int{4}, layout.Shard(0))
				_, _, err := dtensor.ValueAndGrad(ctx, func() T {
					z := x.Square()
					_, _, err := dtensor.ValueAndGrad(ctx, func() T { return z.Mul(y).Sum(nil, false) }, y)
					if err != nil {
						failf("inner: %w", err)
					}
					return sum()
				}, x)
				return err
			}},
		} {
			if err := c.f(); err == nil || !strings.Contains(err.Error(), c.want) {
				return fmt.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
			}
			// The group and the parameters are usable afterwards.
			if _, g, err := dtensor.ValueAndGrad(ctx, sum, x); err != nil || g[0].Dense().Local().NDim() != 1 {
				return fmt.Errorf("after %s: %v", c.name, err)
			}
		}
		return nil
	})
}

func TestUnusedAndKept(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		x := dtensor.Full(m, tensor.Float32, 2, []int{4}, layout.Shard(0))
		unused := dtensor.Full(m, tensor.Float32, 2, []int{3}, layout.Replicate())
		var kept, lost T
		v, g, err := dtensor.ValueAndGrad(ctx, func() T {
			kept, lost = x.Scale(3), x.Scale(4)
			dtensor.Keep(kept)
			return kept.Detach().Mul(x).Sum(nil, false)
		}, x, unused)
		if err != nil {
			return err
		}
		if got := tensor.ToSlice[float32](v.Local()); got[0] != 48 {
			return fmt.Errorf("value %v, want 48", got)
		}
		if got := tensor.ToSlice[float32](g[0].Dense().Local()); got[0] != 6 {
			return fmt.Errorf("gradient through Detach %v, want 6", got)
		}
		if got := tensor.ToSlice[float32](g[1].Dense().Local()); !slices.Equal(got, []float32{0, 0, 0}) {
			return fmt.Errorf("gradient of an unused parameter %v", got)
		}
		if got := tensor.ToSlice[float32](kept.Local()); got[1] != 6 {
			return fmt.Errorf("what was kept is %v", got)
		}
		var gone *tensor.UseError
		if err := dtensor.Try(ctx, m, func() { lost.Neg() }); !errors.As(err, &gone) {
			return fmt.Errorf("what was not kept: %v", err)
		}
		// A kept result of an earlier call is a constant in the next one.
		_, g, err = dtensor.ValueAndGrad(ctx, func() T { return kept.Mul(x).Sum(nil, false) }, x)
		if err != nil || tensor.ToSlice[float32](g[0].Dense().Local())[0] != 6 {
			return fmt.Errorf("with a kept result: %v", err)
		}
		return nil
	})
}

// Two parameters whose gradients are the same tensor get memory of their own,
// and a parameter that is used several times gets the sum.
func TestSharedGradients(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		a := dtensor.Full(m, tensor.Float32, 2, []int{4}, layout.Shard(0))
		b := dtensor.Full(m, tensor.Float32, 3, []int{4}, layout.Shard(0))
		_, g, err := dtensor.ValueAndGrad(ctx, func() T { return a.Add(b).Add(b).Add(b).Add(b.Redistribute(layout.Replicate())).Sum(nil, false) },
			a, b)
		if err != nil {
			return err
		}
		x, y := g[0].Dense().Local(), g[1].Dense().Local()
		if x.Ptr() == y.Ptr() || tensor.ToSlice[float32](x)[0] != 1 || tensor.ToSlice[float32](y)[0] != 4 {
			return fmt.Errorf("gradients %v and %v, want ones and fours, apart", x, y)
		}
		return nil
	})
}

// take is an operator defined outside the package: rows of a table, by local
// row numbers, with a row-sparse gradient.
func take(table T, rows []int64) T {
	m := table.Mesh()
	index := tensor.FromSlice(m.Device(), rows, len(rows))
	out := m.Wrap("take", tensor.IndexSelect(table.Local(), 0, index), nil, false, []int{len(rows), table.Dim(1)}, table.Placements()...)
	return dtensor.Record("take", out, []T{table}, func(gy T) []dtensor.Grad {
		return []dtensor.Grad{dtensor.Sparse(dtensor.NewRows(table, index, gy.Local()))}
	})
}

func TestRows(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		table := dtensor.Distribute(m, numbers(m, []int{5, 2}), layout.Replicate())
		for _, c := range []struct {
			f     func() T
			index []int64 // nil: dense
			dense []float32
		}{
			{func() T { return take(table, []int64{3, 1, 3}).Sum(nil, false) }, []int64{3, 1, 3}, []float32{0, 0, 1, 1, 0, 0, 2, 2, 0, 0}},
			{func() T { return take(table, []int64{3}).Add(take(table, []int64{1})).Sum(nil, false) }, []int64{1, 3},
				[]float32{0, 0, 1, 1, 0, 0, 1, 1, 0, 0}},
			{func() T { return take(table, []int64{4}).Sum(nil, false).Add(table.Sum(nil, false)) }, nil, []float32{1, 1, 1, 1, 1, 1, 1, 1, 2, 2}},
			{func() T { return take(table.Scale(2), []int64{0}).Sum(nil, false) }, nil, []float32{2, 2, 0, 0, 0, 0, 0, 0, 0, 0}},
			{func() T { return take(table.Redistribute(layout.Shard(1)), []int64{4, 0}).Sum(nil, false) }, nil,
				[]float32{1, 1, 0, 0, 0, 0, 0, 0, 1, 1}},
			{func() T {
				return take(table, []int64{2}).Add(take(table.Redistribute(layout.Shard(1)), []int64{4})).Sum(nil, false)
			}, nil, []float32{0, 0, 0, 0, 1, 1, 0, 0, 1, 1}},
		} {
			_, g, err := dtensor.ValueAndGrad(ctx, c.f, table)
			if err != nil {
				return err
			}
			rows, sparse := g[0].Rows()
			if sparse != (c.index != nil) || sparse && !slices.Equal(tensor.ToSlice[int64](rows.Index), c.index) {
				return fmt.Errorf("rows %v (%v), want %v", rows, sparse, c.index)
			}
			if got := tensor.ToSlice[float32](g[0].Dense().Local()); !slices.Equal(got, c.dense) {
				return fmt.Errorf("gradient %v, want %v", got, c.dense)
			}
			if sparse {
				one := rows.Coalesce()
				if got := tensor.ToSlice[int64](one.Index); !slices.IsSorted(got) || len(slices.Compact(got)) != one.Index.Numel() {
					return fmt.Errorf("coalesced rows %v", got)
				}
				if got := tensor.ToSlice[float32](one.Dense().Local()); !slices.Equal(got, c.dense) {
					return fmt.Errorf("coalesced gradient %v, want %v", got, c.dense)
				}
			}
		}
		return nil
	})
}

// Rows of more than one dimension are added up too, and a row that the parameter
// does not have is refused.
func TestCoalesce(t *testing.T) {
	onMesh(t, []int{1}, func(ctx context.Context, m *dtensor.Mesh) error {
		table := dtensor.Zeros(m, tensor.Float32, []int{4, 2, 1}, layout.Replicate())
		rows := func(index ...int64) *dtensor.Rows {
			values := tensor.Arange(m.Device(), tensor.Float32, 0, 2*len(index)).Reshape(len(index), 2, 1)
			return dtensor.NewRows(table, tensor.FromSlice(m.Device(), index, len(index)), values)
		}
		one := rows(3, 0, 3).Coalesce()
		index, values := tensor.ToSlice[int64](one.Index), tensor.ToSlice[float32](one.Values)
		if !slices.Equal(index, []int64{0, 3}) || !slices.Equal(values, []float32{2, 3, 4, 6}) ||
			!slices.Equal(one.Values.Shape(), []int{2, 2, 1}) {
			return fmt.Errorf("rows %v with the values %v of shape %v", index, values, one.Values.Shape())
		}
		var bad *tensor.IndexError
		if err := dtensor.Try(ctx, m, func() { rows(3, 4, 3).Coalesce() }); !errors.As(err, &bad) || bad.Value != 4 {
			return fmt.Errorf("row 4 of a table of 4: %v", err)
		}
		return nil
	})
}

// A layout error is the same on every rank and leaves the group usable.
func TestLayoutErrors(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		a := dtensor.Zeros(m, tensor.Float32, []int{4, 4}, layout.Shard(0))
		b := dtensor.Zeros(m, tensor.Float32, []int{5, 4}, layout.Replicate())
		for _, c := range []struct {
			want []string
			f    func()
		}{
			{[]string{"MatMul", "5", "S(0)"}, func() { a.MatMul(b) }},
			{[]string{"Add", "4", "5"}, func() { a.Add(b) }},
			{[]string{"Redistribute", "dim", "2"}, func() { a.Redistribute(layout.Shard(2)) }},
			{[]string{"Redistribute", "placements"}, func() { a.Redistribute() }},
			{[]string{"Reshape", "15"}, func() { a.Reshape(3, 5) }},
			{[]string{"Softmax", "dim 2"}, func() { a.Softmax(2) }},
			{[]string{"Linear", "4", "5"}, func() { a.Linear(b.Reshape(4, 5), nil) }},
			{[]string{"Narrow", "start 3 and length 2", "out of range", "dim 0"}, func() { a.Narrow(0, 3, 2) }},
			{[]string{"Narrow", "start -9 and length 2"}, func() { a.Narrow(0, -9, 2) }},
			{[]string{"Cat"}, func() { dtensor.Cat(0) }},
			{[]string{"MaskedFill", "MaskedFill: x [4, 4] S(0)", "5 elements along dim 0", "Unsqueeze"}, func() {
				a.MaskedFill(b.CompareScalar(kernel.OpGt, 0), 1)
			}},
			{[]string{"LogicalAnd", "LogicalAnd: ", "[5, 4] R"}, func() { a.LogicalAnd(b) }},
			{[]string{"LogicalOr", "LogicalOr: ", "[5, 4] R"}, func() { a.LogicalOr(b) }},
			{[]string{"TopK", "k is 9"}, func() { a.TopK(9, 0) }},
			{[]string{"QR", "Unsqueeze a vector"}, func() { a.Reshape(-1).QR() }},
			{[]string{"SVD", "Cast it"}, func() { a.Cast(tensor.Int64).SVD() }},
			{[]string{"Eigh", "square matrices"}, func() { b.Eigh() }},
			{[]string{"Zeros", "placements"}, func() { dtensor.Zeros(m, tensor.Float32, []int{4}) }},
		} {
			var wrong *dtensor.LayoutError
			err := dtensor.Try(ctx, m, c.f)
			if !errors.As(err, &wrong) && !strings.Contains(fmt.Sprint(err), "Zeros") {
				return fmt.Errorf("%v: got %v", c.want, err)
			}
			for _, w := range c.want[1:] {
				if !strings.Contains(err.Error(), w) {
					return fmt.Errorf("%q does not say %q", err, w)
				}
			}
			if err := dtensor.Try(ctx, m, func() { a.Full() }); err != nil {
				return fmt.Errorf("after %v: %w", c.want, err)
			}
		}
		return nil
	})
}

// A context that is done ends the collectives of an operator on every rank.
func TestCancel(t *testing.T) {
	cause := errors.New("enough")
	errs := commtest.Ranks(t.Context(), 2, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "x", Size: 2})
		if err != nil {
			return err
		}
		x := dtensor.Full(m, tensor.Float32, 2, []int{4}, layout.Shard(0))
		if world.Rank() == 0 {
			var cancel context.CancelCauseFunc
			ctx, cancel = context.WithCancelCause(ctx)
			cancel(cause)
		}
		_, _, err = dtensor.ValueAndGrad(ctx, func() T { return x.Redistribute(layout.Replicate()).Sum(nil, false) }, x)
		return err
	})
	for r, err := range errs {
		var failed *comm.Error
		if !errors.As(err, &failed) || !strings.Contains(err.Error(), "enough") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// A backward of Record computes with what this rank has of the gradient: it is whole where
// the result is, though what used the result has sent parts of a sum.
func TestRecordGetsWholeGradients(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		x := dtensor.Distribute(m, numbers(m, []int{3, 4}), layout.Replicate())
		w := dtensor.Distribute(m, numbers(m, []int{6, 4}), layout.Shard(0))
		var got layout.Placement
		_, grads, err := dtensor.ValueAndGrad(ctx, func() T {
			y := dtensor.Record("mine", x.Detach(), []T{x}, func(gy T) []dtensor.Grad {
				got = gy.Placements()[0]
				return []dtensor.Grad{dtensor.Dense(m.Wrap("mine", gy.Local(), nil, false, x.Shape(), layout.Replicate()))}
			})
			return y.Linear(w, nil).Sum(nil, false) // y's gradient is P(sum): each rank has some rows of w
		}, x)
		if err != nil {
			return err
		}
		want := w.Sum([]int{0}, false).Expand(3, 4).Full()
		if g := grads[0].Dense().Full(); got != layout.Replicate() || !slices.Equal(tensor.ToSlice[float32](g), tensor.ToSlice[float32](want)) {
			return fmt.Errorf("gradient %v in %v, want %v in R", g, got, want)
		}
		return nil
	})
}
