package suite

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
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
				errs := make([][]error, n)
				commtest.Run(t, n, func(ctx context.Context, world *comm.Comm) error {
					runner := NewRunner(world)
					for _, c := range cases {
						errs[world.Rank()] = append(errs[world.Rank()], runner.Run(ctx, c))
					}
					return nil
				})
				for i, c := range cases {
					for rank := range n {
						if i < len(errs[rank]) && errs[rank][i] != nil {
							t.Errorf("%s: rank %d: %v", c.Name, rank, errs[rank][i])
							break
						}
					}
				}
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
				if NewRunner(world).Run(ctx, &spoiled) == nil {
					return fmt.Errorf("the case passes")
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
	spoil("error", func(c *Case) { c.Expect = Expect{Error: "something"} })
	spoil("operator", func(c *Case) { c.Op = "nothing" })
}
