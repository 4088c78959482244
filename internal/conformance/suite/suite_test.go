package suite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// TestCases runs every case of testdata on ranks that are goroutines, each on
// the mesh it names and those of one axis also on meshes of 1 and 3 ranks.
func TestCases(t *testing.T) {
	files, err := filepath.Glob("../testdata/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no case files: %v", err)
	}
	for _, file := range files {
		cases, err := Load(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			bySize := map[int][]*Case{}
			for _, c := range cases {
				bySize[c.Mesh.Size()] = append(bySize[c.Mesh.Size()], c)
				for _, n := range []int{1, 3} {
					if r, ok := c.Resize(n); ok && c.Mesh.Size() != n {
						bySize[n] = append(bySize[n], r)
					}
				}
			}
			for n, cases := range bySize {
				commtest.Run(t, n, func(ctx context.Context, world *comm.Comm) error {
					runner := NewRunner(world)
					for _, c := range cases {
						result, err := runner.Run(ctx, c)
						if err != nil {
							return err
						}
						if world.Rank() == 0 && !result.Passed() {
							t.Errorf("%s: rank %d: %s", c.Name, result.Rank, result.Text)
						}
					}
					return nil
				})
			}
		})
	}
}

// TestWrongAnswersAreFound changes what cases expect and sees them fail.
func TestWrongAnswersAreFound(t *testing.T) {
	cases, err := Load("../testdata/mul.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	c := *cases[0]
	spoil := func(name string, change func(c *Case)) {
		t.Run(name, func(t *testing.T) {
			spoiled := c
			change(&spoiled)
			commtest.Run(t, c.Mesh.Size(), func(ctx context.Context, world *comm.Comm) error {
				if result, err := NewRunner(world).Run(ctx, &spoiled); err != nil || result.Passed() {
					return fmt.Errorf("the case passes, error %v", err)
				}
				return nil
			})
		})
	}
	change := func(a *Array) *Array {
		b := *a
		b.Data = append(numbers(nil), a.Data...)
		b.Data[len(b.Data)-1] += 0.1
		return &b
	}
	spoil("output", func(c *Case) { c.Expect.Output = change(c.Expect.Output) })
	spoil("gradient", func(c *Case) {
		c.Expect.Grads = map[string]*Array{"input": change(c.Expect.Grads["input"]), "other": c.Expect.Grads["other"]}
	})
	spoil("input afterwards", func(c *Case) { c.Expect.InputsAfter = map[string]*Array{"other": change(c.Inputs["other"])} })
	spoil("error", func(c *Case) { c.Expect = Expect{Error: "something"} })
	spoil("operator", func(c *Case) { c.Op = "nothing" })
}

// TestAbsentAndNull runs cases that leave out what has a default, or say null, and cases
// that leave a cast to PyTorch.
func TestAbsentAndNull(t *testing.T) {
	const row = `{"dtype":"float32","shape":[1,3],"data":[1e-4,3e-4,2e-4],"placements":["S(1)"]}`
	expect := func(dtype, shape, data string) string {
		return `"expect":{"output":{"dtype":"` + dtype + `","shape":` + shape + `,"data":` + data + `}`
	}
	const list, floats = `{"dtype":"int64","shape":[2],"data":[3,2],"placements":["S(0)"]}`,
		`{"dtype":"float32","shape":[2],"data":[0.5,1.5],"placements":["R"]}`
	for _, c := range []struct{ op, inputs, args, expect string }{
		// integers are floats where PyTorch makes them
		{"div", `"input":` + list + `,"other":` + list, ``, expect("float32", "[2]", "[1,1]")},
		{"mul", `"input":` + list + `,"other":` + floats, ``, expect("float32", "[2]", "[1.5,3]")},
		{"maximum", `"input":` + floats + `,"other":` + list, ``, expect("float32", "[2]", "[3,2]")},
		{"sigmoid", `"input":` + list, ``, expect("float32", "[2]", "[0.952574127,0.880797078]")},
		{"matmul", `"input":` + list + `,"other":` + list, ``, expect("int64", "[]", "[13]")},
		{"cat", `"a":` + list + `,"b":` + floats, ``, expect("float32", "[4]", "[3,2,0.5,1.5]")},
		// of 1e-4·(1, 3, 2): the variance is 2/3·1e-8, the mean of squares 14/3·1e-8
		{"layer_norm", `"input":` + row, `"normalized_shape":[3]`, expect("float32", "[1,3]", "[-0.0316122,0.0316122,0]")},
		{"layer_norm", `"weight":null,"input":` + row, `"normalized_shape":3,"eps":null`, expect("float32", "[1,3]", "[-0.0316122,0.0316122,0]")},
		{"rms_norm", `"input":` + row, `"normalized_shape":[3],"eps":null`, expect("float32", "[1,3]", "[0.245532,0.736596,0.491064]")},
		{"argmax", `"input":` + row, ``, expect("int64", "[]", "[1]")},
		{"topk", `"input":` + row, `"k":1`, expect("float32", "[1,1]", "[3e-4]") + `,"indices":{"dtype":"int64","shape":[1,1],"data":[1]}`},
		{"cat", `"a":` + row + `,"b":` + row, `"dim":null`, expect("float32", "[2,3]", "[1e-4,3e-4,2e-4,1e-4,3e-4,2e-4]")},
		{"sum", `"input":` + row, `"dim":null,"keepdim":null`, expect("float32", "[]", "[6e-4]")},
		{"reshape", `"input":` + row, `"shape":-1`, expect("float32", "[3]", "[1e-4,3e-4,2e-4]")},
		// what nobody understands is the operator's to refuse
		{"redistribute", `"input":` + row, `"placements":["X"]`, `"expect":{"error":"not a placement"`},
		{"cross_entropy", `"logits":` + row, `"reduction":"most"`, `"expect":{"error":"most"`},
		{"layer_norm", `"input":` + row + `,"weight":` + row, `"normalized_shape":[3]`, `"expect":{"error":"normalized_shape"`},
		{"rms_norm", `"input":` + row, `"normalized_shape":[1,1,3]`, `"expect":{"error":"normalized_shape"`},
		{"embedding", `"weight":` + row + `,"input":{"dtype":"int64","shape":[1],"data":[0],"placements":["R"]}`, `"max_norm":-1`,
			`"expect":{"error":"max_norm"`},
		{"embedding_bag", `"weight":` + row + `,"per_sample_weights":` + row +
			`,"input":{"dtype":"int64","shape":[1],"data":[0],"placements":["R"]}` +
			`,"offsets":{"dtype":"int64","shape":[1],"data":[0],"placements":["R"]}`, ``, `"expect":{"error":"per_sample_weights"`},
	} {
		const line = `{"name":%q,"op":%[1]q,"mesh":{"shape":[2]},"inputs":{%s},"args":{%s},%s},"tol":{"rtol":1e-5,"atol":1e-8}}`
		cases, err := read(strings.NewReader(fmt.Sprintf(line, c.op, c.inputs, c.args, c.expect)), "t")
		if err != nil {
			t.Fatal(err)
		}
		commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
			if result, err := NewRunner(world).Run(ctx, cases[0]); err != nil || !result.Passed() {
				return fmt.Errorf("%s {%s}: %v, error %v", c.op, c.args, result.Text, err)
			}
			return nil
		})
	}
}

// TestOneRankFailsAlone runs a case in which one rank throws or panics while the
// others wait for it, among cases that must pass before and after.
func TestOneRankFailsAlone(t *testing.T) {
	cases, err := Load("../testdata/relu.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	good, _ := cases[0].Resize(3)
	for name, fail := range map[string]func(){
		"throws": func() { fault.Throw(errors.New("this rank alone")) },
		"panics": func() { panic("this rank alone") },
	} {
		t.Run(name, func(t *testing.T) {
			operators[t.Name()] = func(in inputs, _ *Args) (out, extra *dtensor.Tensor) {
				x := in["input"]
				if x.Mesh().Coord()[0] == 1 {
					fail()
				}
				return x.Redistribute(layout.Replicate()), nil
			}
			t.Cleanup(func() { delete(operators, t.Name()) })
			bad := *good
			bad.Op = t.Name()
			commtest.Run(t, 3, func(ctx context.Context, world *comm.Comm) error {
				runner := NewRunner(world)
				for i, c := range []*Case{good, &bad, good, &bad, &bad, good} {
					result, err := runner.Run(ctx, c)
					if err != nil {
						return err
					}
					if result.Passed() != (c == good) || c == &bad && !strings.Contains(result.Text, "this rank alone") {
						return fmt.Errorf("case %d: %+v", i, result)
					}
				}
				return nil
			})
		})
	}
}
