package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// A Runner runs cases on the ranks of one world. Meshes are kept from one case
// to the next, so a case that leaves its group unusable is found out by the
// cases after it.
type Runner struct {
	world  *comm.Comm
	meshes map[string]*dtensor.Mesh
}

// NewRunner returns a runner on all ranks of world.
func NewRunner(world *comm.Comm) *Runner {
	return &Runner{world: world, meshes: map[string]*dtensor.Mesh{}}
}

// Run runs one case, whose mesh has as many ranks as the world, and returns
// what differs from what is expected, nil if nothing does. Only what this rank
// sees is compared: a case passes when Run returns nil on every rank.
func (r *Runner) Run(ctx context.Context, c *Case) error {
	mesh, err := r.mesh(c.Mesh)
	if err != nil {
		return err
	}
	in, err := r.inputs(ctx, mesh, c)
	if err == nil {
		err = r.call(ctx, mesh, c, in)
	}
	var differ *difference
	switch want := c.Expect.Error; {
	case errors.As(err, &differ):
		return differ.err
	case want == "":
		return err
	case err == nil:
		return fmt.Errorf("no error, want one that says %q", want)
	case !strings.Contains(err.Error(), want):
		return fmt.Errorf("the error is %q, want one that says %q", err, want)
	default:
		return nil
	}
}

// difference is a wrong result, as opposed to an operator's error.
type difference struct{ err error }

func (d *difference) Error() string { return d.err.Error() }

func (r *Runner) mesh(m Mesh) (*dtensor.Mesh, error) {
	key := fmt.Sprint(m.Shape, m.Names, m.Ranks)
	if mesh := r.meshes[key]; mesh != nil {
		return mesh, nil
	}
	axes := make([]dtensor.Axis, len(m.Shape))
	for i, size := range m.Shape {
		axes[i] = dtensor.Axis{Name: fmt.Sprintf("axis%d", i), Size: size}
		if i < len(m.Names) {
			axes[i].Name = m.Names[i]
		}
	}
	var mesh *dtensor.Mesh
	var err error
	if m.Ranks == nil {
		mesh, err = dtensor.NewMesh(r.world, axes...)
	} else {
		mesh, err = dtensor.NewMeshOf(r.world, m.Ranks, axes...)
	}
	if err == nil {
		r.meshes[key] = mesh
	}
	return mesh, err
}

// inputs builds the inputs of c on the mesh.
func (r *Runner) inputs(ctx context.Context, mesh *dtensor.Mesh, c *Case) (inputs, error) {
	in := inputs{}
	var bad error // of the file
	err := dtensor.Try(ctx, mesh, func() {
		for name, a := range c.Inputs {
			t, err := build(mesh, a)
			if err != nil {
				bad = &difference{fmt.Errorf("input %s: %w", name, err)}
				return
			}
			dtensor.Keep(t)
			in[name] = t
		}
	})
	return in, errors.Join(bad, err)
}

// build makes the input that a describes: for a partial placement each rank
// holds what share says.
func build(mesh *dtensor.Mesh, a *Array) (*dtensor.Tensor, error) {
	want, err := parsePlacements(a.Placements)
	if err != nil {
		return nil, err
	}
	data := slices.Clone([]float64(a.Data))
	whole := slices.Clone(want)
	for axis, p := range want {
		if op, ok := p.Op(); ok {
			share(data, op, mesh.Coord()[axis], mesh.Axes()[axis].Size)
			whole[axis] = layout.Replicate()
		}
	}
	dt, ok := dtypes[a.DType]
	if !ok {
		return nil, fmt.Errorf("unknown dtype %q", a.DType)
	}
	t := tensor.Cast(tensor.FromSlice(mesh.Device(), data, a.Shape...), dt)
	d := dtensor.Distribute(mesh, t, whole...)
	if slices.Equal(whole, want) {
		return d, nil
	}
	return dtensor.FromLocal(mesh, d.ToLocal(), a.Shape, want...)
}

// share turns the elements of a tensor into what the rank at one coordinate
// holds of it, so that no rank alone knows them: of a sum over n ranks the
// first holds 3x, the last -2x and the others nothing (for avg n times that);
// of a maximum rank i mod n holds element i and the others one less.
func share(data []float64, op layout.ReduceOp, at, n int) {
	if n == 1 {
		return
	}
	for i, x := range data {
		switch op {
		case layout.Sum, layout.Avg:
			k := 0.0
			switch at {
			case 0:
				k = 3
			case n - 1:
				k = -2
			}
			if op == layout.Avg {
				k *= float64(n)
			}
			data[i] = k * x
		case layout.Max:
			if i%n != at {
				data[i] = x - 1
			}
		case layout.Min:
			if i%n != at {
				data[i] = x + 1
			}
		}
	}
}

var dtypes = map[string]tensor.DType{
	"float32": tensor.Float32, "float64": tensor.Float64,
	"int32": tensor.Int32, "int64": tensor.Int64, "bool": tensor.Bool,
}

// call calls the operator, with gradients if they are asked for, and compares.
func (r *Runner) call(ctx context.Context, mesh *dtensor.Mesh, c *Case, in inputs) error {
	op, ok := operators[c.Op]
	if !ok {
		return &difference{fmt.Errorf("no operator %q is known here", c.Op)}
	}
	var found error // the first difference
	note := func(err error) {
		if found == nil && err != nil {
			found = &difference{err}
		}
	}
	forward := func() *dtensor.Tensor {
		out, extra := op(in, &c.Args)
		if c.Expect.Error == "" {
			note(compareTensor("output", out, c.Expect.Output, c.Tol))
			if c.Expect.Indices != nil {
				note(compareTensor("indices", extra, c.Expect.Indices, c.Tol))
			}
			if c.Expect.Local != nil {
				note(r.compareLocal(out, c.Expect.Local, c.Tol))
			}
		}
		return out
	}
	if len(c.WantGrad) == 0 || c.Expect.Error != "" {
		err := dtensor.Try(ctx, mesh, func() {
			forward()
			for name, want := range c.Expect.InputsAfter {
				note(compareTensor(name+" afterwards", in[name], want, c.Tol))
			}
		})
		return errors.Join(err, found)
	}

	params := make([]*dtensor.Tensor, len(c.WantGrad))
	for i, name := range c.WantGrad {
		params[i] = in[name]
	}
	_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		out := forward()
		// The gradient of Σ out·g by out is g.
		g := tensor.Cast(tensor.FromSlice(mesh.Device(), []float64(c.GradOutput.Data), c.GradOutput.Shape...), out.DType())
		return out.Mul(dtensor.Distribute(mesh, g, slices.Repeat([]layout.Placement{layout.Replicate()}, len(mesh.Axes()))...)).Sum(nil, false)
	}, params...)
	if err != nil {
		return errors.Join(err, found)
	}
	err = dtensor.Try(ctx, mesh, func() {
		for i, name := range c.WantGrad {
			note(compareTensor("gradient of "+name, grads[i].Dense(), c.Expect.Grads[name], c.Tol))
		}
	})
	return errors.Join(err, found)
}

// compareTensor compares the whole of t.
func compareTensor(what string, t *dtensor.Tensor, want *Array, tol Tol) error {
	if t == nil {
		return fmt.Errorf("%s: none", what)
	}
	return compareDense(what, t.Full(), want, tol)
}

// compareDense compares a tensor that this rank holds, its element type included.
func compareDense(what string, t *tensor.Tensor, want *Array, tol Tol) error {
	if got := t.DType().String(); got != want.DType {
		return fmt.Errorf("%s: %s, want %s", what, got, want.DType)
	}
	return compare(what, t.Shape(), tensor.ToSlice[float64](tensor.Cast(t, tensor.Float64)), want, tol)
}

// compareLocal compares this rank's shard with the one it must hold.
func (r *Runner) compareLocal(t *dtensor.Tensor, want []*Array, tol Tol) error {
	at := r.world.Rank()
	if at >= len(want) {
		return fmt.Errorf("local: %d shards are expected, of %d ranks", len(want), r.world.Size())
	}
	return compareDense(fmt.Sprintf("local tensor of rank %d", at), t.ToLocal(), want[at], tol)
}
