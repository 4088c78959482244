package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// A Runner runs cases on the ranks of one world. A case runs on a communicator
// split from the world, so that one that spoils its own touches no later case.
// Meshes and the communicator are kept from one case to the next until a case
// fails, as it may be meant to.
type Runner struct {
	world  *comm.Comm
	group  *comm.Comm // nil: to be split
	meshes map[string]*dtensor.Mesh
}

// NewRunner returns a runner on all ranks of world.
func NewRunner(world *comm.Comm) *Runner { return &Runner{world: world} }

// A Result is how a case went, the same on every rank.
type Result struct {
	Text string // what differs from what is expected on rank Rank; "" if nothing does on any
	Rank int    // the lowest rank that found a difference
}

// Passed says that the case did on every rank.
func (r Result) Passed() bool { return r.Text == "" }

// patience is how long a rank whose case has ended with an error waits for the
// others before it ends the case for them. An error meant for all ranks reaches all
// at about the same time; the others may otherwise wait for this rank for ever. It is
// shorter than the time after which ranks that wait for each other are reported.
const patience = 200 * time.Millisecond

// Run runs one case, whose mesh has as many ranks as the world. All ranks must
// call it. An error, or a panic, of one rank is a result; the error that Run
// returns says that the world itself cannot be used.
func (r *Runner) Run(ctx context.Context, c *Case) (Result, error) {
	if r.group == nil {
		group, err := r.world.Split(ctx, 0, r.world.Rank())
		if err != nil {
			return Result{}, err
		}
		r.group, r.meshes = group, map[string]*dtensor.Mesh{}
	}
	failure := r.run(ctx, c)
	if failure != nil {
		group := r.group
		leave := time.AfterFunc(patience, func() { group.Abort(failure) })
		defer leave.Stop()
	}
	result, err := r.agree(ctx, c.judge(failure))
	if c.Expect.Error != "" || !result.Passed() {
		r.group = nil
	}
	return result, err
}

// run is the case on this rank.
func (r *Runner) run(ctx context.Context, c *Case) (err error) {
	defer fault.CatchAll(&err)
	if c.Args.unknown != nil {
		return c.Args.unknown
	}
	mesh, err := r.mesh(c.Mesh)
	if err != nil {
		return err
	}
	in, err := r.inputs(ctx, mesh, c)
	if err != nil {
		return err
	}
	return r.call(ctx, mesh, c, in)
}

// judge returns what is wrong about a case that ended with err on this rank.
func (c *Case) judge(err error) error {
	var differ *difference
	switch want := c.Expect.Error; {
	case errors.As(err, &differ):
		return differ.err
	case want == "":
		return err
	case err == nil:
		return fmt.Errorf("no error, want one that says %q", want)
	case !mentions(err.Error(), want):
		return fmt.Errorf("the error is %q, want one that says %q", err, want)
	default:
		return nil
	}
}

// optionNames has our options by the names that cases use.
var optionNames = strings.NewReplacer("PaddingIdx", "padding_idx", "MaxNorm", "max_norm", "NormType", "norm_type",
	"ScaleGradByFreq", "scale_grad_by_freq",
	"per-sample weights", "per_sample_weights", "IgnoreIndex", "ignore_index", "LabelSmoothing", "label_smoothing")

// mentions says whether a text holds want, in any case, with an option under its
// own name or that of the cases.
func mentions(text, want string) bool {
	want = strings.ToLower(want)
	return strings.Contains(strings.ToLower(text), want) || strings.Contains(strings.ToLower(optionNames.Replace(text)), want)
}

// agree tells every rank what the lowest rank that found something wrong says.
func (r *Runner) agree(ctx context.Context, wrong error) (Result, error) {
	const most = 2000 // bytes of a text
	mine := make([]byte, most)
	if wrong != nil {
		copy(mine, wrong.Error())
	}
	all := make([]byte, most*r.world.Size())
	if err := comm.AllGather(ctx, r.world, all, mine); err != nil {
		return Result{}, err
	}
	for rank := range r.world.Size() {
		if text := bytes.TrimRight(all[rank*most:(rank+1)*most], "\x00"); len(text) > 0 {
			return Result{Text: string(text), Rank: rank}, nil
		}
	}
	return Result{}, nil
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
		mesh, err = dtensor.NewMesh(r.group, axes...)
	} else {
		mesh, err = dtensor.NewMeshOf(r.group, m.Ranks, axes...)
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
		for _, name := range slices.Sorted(maps.Keys(c.Inputs)) { // in one order on all ranks
			t, err := build(mesh, c.Inputs[name])
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
	if slices.Equal(whole, want) {
		return dtensor.Distribute(mesh, t, whole...), nil
	}
	d := mesh.Wrap("build", t, nil, false, a.Shape, mesh.Every(layout.Replicate())...).Redistribute(whole...) // ranks have other data
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
	"float32": tensor.Float32, "float64": tensor.Float64, "bfloat16": tensor.BFloat16,
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
		} else if out != nil {
			out.Full() // what one rank alone could see reaches the others here, if not before
		}
		return out
	}
	inputsAfter := func() {
		for name, want := range c.Expect.InputsAfter {
			note(compareTensor(name+" afterwards", in[name], want, c.Tol))
		}
	}
	if len(c.WantGrad) == 0 || c.Expect.Error != "" {
		err := dtensor.Try(ctx, mesh, func() {
			forward()
			inputsAfter()
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
		inputsAfter()
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
