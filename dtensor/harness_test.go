package dtensor_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// meshes are the mesh shapes that operators are tried on.
var meshes = [][]int{{1}, {2}, {3}, {4}, {2, 2}, {2, 1, 2}}

var axisNames = []string{"a", "b", "c"}

// onMesh runs f on every rank of a mesh of the given shape.
func onMesh(t testing.TB, shape []int, f func(ctx context.Context, m *dtensor.Mesh) error) {
	t.Helper()
	n := 1
	var axes []dtensor.Axis
	for i, size := range shape {
		axes = append(axes, dtensor.Axis{Name: axisNames[i], Size: size})
		n *= size
	}
	commtest.Run(t, n, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMesh(world, axes...)
		if err != nil {
			return err
		}
		return f(ctx, m)
	})
}

// options are the placements that a tensor of the shape is tried with on one axis.
func options(shape []int, ints bool) []layout.Placement {
	list := []layout.Placement{layout.Replicate()}
	for d := range shape {
		list = append(list, layout.Shard(d))
	}
	list = append(list, layout.Partial(layout.Sum), layout.Partial(layout.Max))
	if !ints {
		list = append(list, layout.Partial(layout.Avg))
	}
	return list
}

// placementsOf returns the k-th combination of options for the axes.
func placementsOf(m *dtensor.Mesh, list []layout.Placement, k int) []layout.Placement {
	p := make([]layout.Placement, len(m.Axes()))
	for i := range p {
		p[i] = list[k%len(list)]
		k /= len(list)
	}
	return p
}

// valid reports whether a tensor can have these placements: reductions that
// cannot be exchanged do not mix.
func valid(m *dtensor.Mesh, shape []int, p []layout.Placement) bool {
	axes, err := layout.NewAxes(m.Axes()...)
	if err != nil {
		return false
	}
	_, err = layout.New(axes, shape, p...)
	return err == nil
}

// An opCase is an operator with the shapes it is tried on.
type opCase struct {
	name   string
	shapes [][][]int // alternatives, each with one shape an input
	ints   []int     // for each input: 0 a number, n an integer below n
	f      func(in []*dtensor.Tensor) *dtensor.Tensor
	nograd bool
	tol    float64 // 0: 2e-5
}

// check compares the operator on every layout of its inputs with itself on
// replicated ones, values and gradients.
func (c *opCase) check(ctx context.Context, m *dtensor.Mesh) error {
	for k, shapes := range c.shapes {
		if err := c.checkShapes(ctx, m, shapes); err != nil {
			return fmt.Errorf("%s, shapes %d %v, mesh %v: %w", c.name, k, shapes, m, err)
		}
	}
	return nil
}

func (c *opCase) checkShapes(ctx context.Context, m *dtensor.Mesh, shapes [][]int) error {
	whole := make([]*dtensor.Tensor, len(shapes))
	replicated := make([]layout.Placement, len(m.Axes()))
	for i, s := range shapes {
		whole[i] = c.input(m, i, s, replicated)
	}
	want, wantGrads, err := c.run(ctx, whole)
	if err != nil {
		return fmt.Errorf("replicated: %w", err)
	}
	rng := rand.New(rand.NewPCG(1, uint64(len(shapes))))
	for trial, p := range c.trials(m, shapes, rng) {
		in := make([]*dtensor.Tensor, len(whole))
		label := ""
		for i := range in {
			in[i] = whole[i].Redistribute(p[i]...)
			label += " " + in[i].String()
		}
		got, grads, err := c.run(ctx, in)
		if err != nil {
			return fmt.Errorf("trial %d:%s: %w", trial, label, err)
		}
		if err := c.same(ctx, got, want); err != nil {
			return fmt.Errorf("trial %d:%s → %v: %w", trial, label, got, err)
		}
		for i, g := range grads {
			if g.Dense() == nil {
				continue
			}
			if err := gradLayout(in[i], g.Dense()); err != nil {
				return fmt.Errorf("trial %d:%s: gradient %d: %w", trial, label, i, err)
			}
			if err := c.same(ctx, g.Dense(), wantGrads[i].Dense()); err != nil {
				return fmt.Errorf("trial %d:%s: gradient %d: %w", trial, label, i, err)
			}
		}
	}
	return nil
}

// gradLayout checks that a gradient has its parameter's layout.
func gradLayout(p, g *dtensor.Tensor) error {
	for axis, its := range g.Placements() {
		want := p.Placements()[axis]
		if !want.IsShard() {
			want = layout.Replicate()
		}
		if its != want {
			return fmt.Errorf("its layout is %v, the parameter's %v", g, p)
		}
	}
	return nil
}

// input makes input i: the same numbers in any layout.
func (c *opCase) input(m *dtensor.Mesh, i int, shape []int, p []layout.Placement) *dtensor.Tensor {
	if i < len(c.ints) && c.ints[i] > 0 {
		return dtensor.Uniform(m, dtensor.Key{Seed: 7, Stream: uint64(i)}, 0, float64(c.ints[i]), shape, p...).Cast(tensor.Int64)
	}
	return dtensor.Normal(m, dtensor.Key{Seed: 7, Stream: uint64(i)}, 0, 1, shape, p...)
}

// trials lists the layouts to try: every one of each input with the others
// replicated, and a sample of combinations.
func (c *opCase) trials(m *dtensor.Mesh, shapes [][]int, rng *rand.Rand) [][][]layout.Placement {
	var list [][][]layout.Placement
	opts := make([][]layout.Placement, len(shapes))
	all := make([]int, len(shapes))
	for i, s := range shapes {
		opts[i] = options(s, i < len(c.ints) && c.ints[i] > 0)
		all[i] = int(math.Pow(float64(len(opts[i])), float64(len(m.Axes()))))
	}
	add := func(k []int) {
		var p [][]layout.Placement
		for i := range shapes {
			p = append(p, placementsOf(m, opts[i], k[i]))
			if !valid(m, shapes[i], p[i]) {
				return
			}
		}
		list = append(list, p)
	}
	for i := range shapes {
		k := make([]int, len(shapes))
		if all[i] <= most {
			for k[i] = range all[i] {
				add(k)
			}
			continue
		}
		for range most {
			k[i] = rng.IntN(all[i])
			add(k)
		}
	}
	if len(shapes) > 1 {
		for range most {
			k := make([]int, len(shapes))
			for i := range k {
				k[i] = rng.IntN(all[i])
			}
			add(k)
		}
	}
	return list
}

// run computes the operator and, unless it has none, the gradients of the sum
// of its result times fixed weights.
func (c *opCase) run(ctx context.Context, in []*dtensor.Tensor) (*dtensor.Tensor, []dtensor.Grad, error) {
	var out *dtensor.Tensor
	m := in[0].Mesh()
	if err := dtensor.Try(ctx, m, func() { out = c.f(in); dtensor.Keep(out) }); err != nil || c.nograd {
		return out, nil, err
	}
	grads := make([]dtensor.Grad, len(in))
	var params []*dtensor.Tensor
	var at []int
	for i, t := range in {
		if t.DType().Float() {
			params, at = append(params, t), append(at, i)
		}
	}
	_, g, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		y := c.f(in)
		w := dtensor.Normal(m, dtensor.Key{Seed: 3}, 0, 1, y.Shape(), make([]layout.Placement, len(m.Axes()))...)
		return y.Mul(w).Sum(nil, false)
	}, params...)
	if err != nil {
		return nil, nil, fmt.Errorf("ValueAndGrad: %w", err)
	}
	for i, k := range at {
		grads[k] = g[i]
	}
	return out, grads, nil
}

// same compares two tensors as wholes.
func (c *opCase) same(ctx context.Context, x, y *dtensor.Tensor) (err error) {
	if thrown := dtensor.Try(ctx, x.Mesh(), func() { err = c.equal(x.Full(), y.Full()) }); thrown != nil {
		return thrown
	}
	return err
}

func (c *opCase) equal(got, want *tensor.Tensor) error {
	tol := c.tol
	if tol == 0 {
		tol = 2e-5
	}
	if !slices.Equal(got.Shape(), want.Shape()) || got.DType() != want.DType() {
		return fmt.Errorf("got %v%v, want %v%v", got.DType(), got.Shape(), want.DType(), want.Shape())
	}
	a, b := tensor.ToSlice[float64](tensor.Cast(got, tensor.Float64)), tensor.ToSlice[float64](tensor.Cast(want, tensor.Float64))
	for i := range a {
		if d := math.Abs(a[i] - b[i]); d > tol*(1+math.Abs(b[i])) || math.IsNaN(a[i]) != math.IsNaN(b[i]) {
			return fmt.Errorf("element %d is %v, want %v (got %v, want %v)", i, a[i], b[i], got, want)
		}
	}
	return nil
}

// failf throws: what a test says inside Try.
func failf(format string, args ...any) { fault.Throw(fmt.Errorf(format, args...)) }
