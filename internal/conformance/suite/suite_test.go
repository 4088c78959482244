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
