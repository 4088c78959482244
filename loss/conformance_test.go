package loss_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/tensor"
)

// A recorded is one line of a file of answers that PyTorch gave.
type recorded struct {
	Name string
	Mesh struct {
		Shape []int
		Names []string
		Ranks []int
	}
	Inputs map[string]*array
	Args   struct {
		Reduction      string
		IgnoreIndex    *int64  `json:"ignore_index"`
		LabelSmoothing float64 `json:"label_smoothing"`
	}
	GradOutput *array `json:"grad_output"`
	Expect     struct {
		Output *array
		Grads  map[string]*array
		Error  string
	}
	Tol struct{ Rtol, Atol float64 }
}

type array struct {
	DType      string
	Shape      []int
	Data       []float64
	Placements []string
}

func load(t *testing.T, file string) []*recorded {
	t.Helper()
	f, err := os.Open("../internal/conformance/testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var cases []*recorded
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<26)
	for in.Scan() {
		c := new(recorded)
		if err := json.Unmarshal(in.Bytes(), c); err != nil {
			t.Fatal(err)
		}
		cases = append(cases, c)
	}
	if err := in.Err(); err != nil || len(cases) < 4 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	return cases
}

// ranks is the size of the case's mesh.
func (c *recorded) ranks() int {
	n := 1
	for _, s := range c.Mesh.Shape {
		n *= s
	}
	return n
}

// place makes the input a on the mesh.
func (a *array) place(m *dtensor.Mesh) (*dtensor.Tensor, error) {
	var whole *tensor.Tensor
	if a.DType == "int64" {
		ints := make([]int64, len(a.Data))
		for i, v := range a.Data {
			ints[i] = int64(v)
		}
		whole = tensor.FromSlice(m.Device(), ints, a.Shape...)
	} else {
		floats := make([]float32, len(a.Data))
		for i, v := range a.Data {
			floats[i] = float32(v)
		}
		whole = tensor.FromSlice(m.Device(), floats, a.Shape...)
	}
	var places []layout.Placement
	for _, text := range a.Placements {
		p, err := layout.Parse(text)
		if err != nil {
			return nil, err
		}
		places = append(places, p)
	}
	if places == nil {
		places = make([]layout.Placement, len(m.Axes()))
	}
	return dtensor.Distribute(m, whole, places...), nil
}

// same compares the global tensor t with a recorded one.
func (c *recorded) same(what string, t *tensor.Tensor, want *array) error {
	if !slices.Equal(t.Shape(), want.Shape) {
		return fmt.Errorf("%s: shape %v, want %v", what, t.Shape(), want.Shape)
	}
	for i, g := range tensor.ToSlice[float64](tensor.Cast(t, tensor.Float64)) {
		if w := want.Data[i]; !(math.Abs(g-w) <= c.Tol.Atol+c.Tol.Rtol*math.Abs(w)) {
			return fmt.Errorf("%s: element %d of %v is %v, want %v", what, i, want.Shape, g, w)
		}
	}
	return nil
}

// run runs the case on this rank with the operator op, which returns its output
// for the inputs by name.
func (c *recorded) run(ctx context.Context, world *comm.Comm, op func(in map[string]*dtensor.Tensor) *dtensor.Tensor) error {
	var axes []dtensor.Axis
	for i, size := range c.Mesh.Shape {
		axes = append(axes, dtensor.Axis{Name: c.Mesh.Names[i], Size: size})
	}
	ranks := c.Mesh.Ranks
	for r := len(ranks); r < world.Size(); r++ {
		ranks = append(ranks, r)
	}
	m, err := dtensor.NewMeshOf(world, ranks, axes...)
	if err != nil {
		return err
	}
	in := map[string]*dtensor.Tensor{}
	for name, a := range c.Inputs {
		if in[name], err = a.place(m); err != nil {
			return err
		}
	}
	if c.Expect.Error != "" {
		err := dtensor.Try(ctx, m, func() { op(in) })
		if err == nil || !strings.Contains(err.Error(), c.Expect.Error) {
			return fmt.Errorf("got error %v, want one that contains %q", err, c.Expect.Error)
		}
		return comm.Barrier(ctx, world) // the group is still usable
	}
	var failed error
	if err := dtensor.Try(ctx, m, func() { failed = c.check(ctx, m, in, op) }); err != nil {
		return err
	}
	return failed
}

func (c *recorded) check(ctx context.Context, m *dtensor.Mesh, in map[string]*dtensor.Tensor, op func(in map[string]*dtensor.Tensor) *dtensor.Tensor) error {
	var failed error
	out := func() *dtensor.Tensor {
		y := op(in)
		if err := c.same("output", y.Full(), c.Expect.Output); failed == nil {
			failed = err
		}
		return y
	}
	if c.GradOutput == nil {
		if err := dtensor.Try(ctx, m, func() { out() }); err != nil {
			return err
		}
		return failed
	}
	var names []string
	var params []*dtensor.Tensor
	for name := range c.Expect.Grads {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		params = append(params, in[name])
	}
	gy, err := c.GradOutput.place(m)
	if err != nil {
		return err
	}
	_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return out().Mul(gy).Sum(nil, false) }, params...)
	if err != nil {
		return err
	}
	for i, name := range names {
		if err := c.same("gradient of "+name, grads[i].Dense().Full(), c.Expect.Grads[name]); failed == nil {
			failed = err
		}
	}
	return failed
}

func TestConformanceLinearCrossEntropy(t *testing.T) {
	for _, c := range load(t, "linear_cross_entropy.jsonl") {
		t.Run(c.Name, func(t *testing.T) {
			reduction, ok := loss.ParseReduction(c.Args.Reduction)
			if !ok {
				t.Fatal(c.Args.Reduction)
			}
			commtest.Run(t, c.ranks(), func(ctx context.Context, world *comm.Comm) error {
				return c.run(ctx, world, func(in map[string]*dtensor.Tensor) *dtensor.Tensor {
					return loss.LinearCrossEntropy(in["hidden"], in["weight"], in["target"], loss.Options{IgnoreIndex: c.Args.IgnoreIndex, Reduction: reduction})
				})
			})
		})
	}
}

func TestConformanceCrossEntropy(t *testing.T) {
	for _, c := range load(t, "cross_entropy.jsonl") {
		t.Run(c.Name, func(t *testing.T) {
			reduction, ok := loss.ParseReduction(c.Args.Reduction)
			if !ok {
				t.Fatal(c.Args.Reduction)
			}
			commtest.Run(t, c.ranks(), func(ctx context.Context, world *comm.Comm) error {
				return c.run(ctx, world, func(in map[string]*dtensor.Tensor) *dtensor.Tensor {
					return loss.CrossEntropy(in["logits"], in["target"], loss.Options{Weight: in["weight"], IgnoreIndex: c.Args.IgnoreIndex,
						Reduction: reduction, LabelSmoothing: c.Args.LabelSmoothing})
				})
			})
		})
	}
}
