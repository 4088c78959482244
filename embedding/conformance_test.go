package embedding_test

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
	"github.com/gorun-spmd/gorun/embedding"
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
		PaddingIdx      *int     `json:"padding_idx"`
		MaxNorm         *float64 `json:"max_norm"`
		NormType        *float64 `json:"norm_type"`
		ScaleGradByFreq bool     `json:"scale_grad_by_freq"`
		Mode            string
	}
	GradOutput *array `json:"grad_output"`
	Expect     struct {
		Output      *array
		Grads       map[string]*array
		InputsAfter map[string]*array `json:"inputs_after"`
		Error       string
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
	if err := in.Err(); err != nil || len(cases) < 10 {
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
	t := dtensor.Distribute(m, whole, places...)
	// A parameter that max_norm changes must not share the memory of others.
	return dtensor.FromLocal(m, tensor.Clone(t.Local()), a.Shape, places...)
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
	err = dtensor.Try(ctx, m, func() { failed = c.check(ctx, m, in, op) })
	if err != nil {
		return err
	}
	for name, want := range c.Expect.InputsAfter {
		if failed == nil {
			failed = c.same(name+" afterwards", in[name].Full(), want)
		}
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

func TestConformanceEmbeddingBag(t *testing.T) {
	for _, c := range load(t, "embedding_bag.jsonl") {
		t.Run(c.Name, func(t *testing.T) {
			mode, ok := embedding.ParseMode(c.Args.Mode)
			if !ok {
				t.Fatal(c.Args.Mode)
			}
			commtest.Run(t, c.ranks(), func(ctx context.Context, world *comm.Comm) error {
				return c.run(ctx, world, func(in map[string]*dtensor.Tensor) *dtensor.Tensor {
					return embedding.Bag(in["weight"], in["input"], in["offsets"], in["per_sample_weights"],
						embedding.BagOptions{Options: embedding.Options{PaddingIdx: c.Args.PaddingIdx}, Mode: mode})
				})
			})
		})
	}
}

func TestConformanceEmbedding(t *testing.T) {
	for _, c := range load(t, "embedding.jsonl") {
		t.Run(c.Name, func(t *testing.T) {
			commtest.Run(t, c.ranks(), func(ctx context.Context, world *comm.Comm) error {
				return c.run(ctx, world, func(in map[string]*dtensor.Tensor) *dtensor.Tensor {
					return embedding.Lookup(in["weight"], in["input"], embedding.Options{PaddingIdx: c.Args.PaddingIdx,
						MaxNorm: c.Args.MaxNorm, NormType: c.Args.NormType, ScaleGradByFreq: c.Args.ScaleGradByFreq})
				})
			})
		})
	}
}
