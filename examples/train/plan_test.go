//go:build linux

package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/programtest"
)

// A plan's memory does not grow with the model, its batch or what ranks exchange: floats are addresses
// that nobody touches, also where they are sent among integers, and a rank makes its own part of the batch.
func TestPlanMemory(t *testing.T) {
	folder := t.TempDir()
	var words strings.Builder
	for i := range 4000 {
		words.WriteString(strconv.Itoa(i * i))
	}
	if err := os.WriteFile(filepath.Join(folder, "text"), []byte(words.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	r, peak := programtest.Build(t).PlanMemory(t, 1024, "-tp", "2", "-batch", "1024", "-layers", "16", "-width", "2048", "-heads", "16",
		"-context", "512", "-vocab", "300", "-ngram", "1", "-bfloat16", "-plot", "", "-data", folder)
	exchanged := false
	for _, c := range r.Ranks[0].Calls {
		exchanged = exchanged || c.Kind == "AllReduce" && strings.Contains(c.Cause, "gradients of replicas") // 512 have the same rows
	}
	if rank := r.Ranks[0].Memory; rank.Peak < 10e9 || !exchanged {
		t.Errorf("a rank has %d bytes, and rows are exchanged: %v; the plan is to be of a large model", rank.Peak, exchanged)
	}
	if peak > 256<<20 {
		t.Errorf("the plan had %d bytes in memory", peak)
	}
}

// What gorun plan says of a step is what the step does: each rank's calls and bytes, and its memory.
func TestPlan(t *testing.T) {
	t.Setenv("GORUN_CHECK", "0") // as the plan has it: checks take memory
	folder := t.TempDir()
	words := strings.Repeat("to plan is to count what will be ", 200)
	if err := os.WriteFile(filepath.Join(folder, "text"), []byte(words), 0o666); err != nil {
		t.Fatal(err)
	}
	p := programtest.Build(t)
	for _, m := range append([][2]int{{1, 1}, {1, 2}, {3, 1}, {2, 2}, {4, 2}}, programtest.Many([2]int{16, 4})...) {
		args := []string{"-dp", strconv.Itoa(m[0]), "-tp", strconv.Itoa(m[1]), "-steps", "3", "-ngram", "1", "-context", "33", "-width", "64",
			"-heads", "4", "-batch", "7", "-plot", "", "-data", folder}
		n := m[0] * m[1]
		real := programtest.NewReality(n)
		commtest.Run(t, n, func(ctx context.Context, world *comm.Comm) error {
			o, err := parse(args, n)
			if err != nil {
				return err
			}
			mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: o.dp}, dtensor.Axis{Name: "tp", Size: o.tp})
			if err != nil {
				return err
			}
			text, err := load(ctx, world, o, quiet)
			if err != nil {
				return err
			}
			model, err := newModel(ctx, mesh, o, text.Tokenizer.VocabSize())
			if err != nil {
				return err
			}
			tr, err := newTrainer(mesh, model, text, text.Train, o)
			if err != nil {
				return err
			}
			tr.run.Out = io.Discard
			tr.run.OnStep = func(int, float64) { real.Step(mesh) }
			programtest.Collect(mesh)
			return tr.run.Do(ctx, world, quiet)
		})
		real.Compare(t, p.Plan(t, n, args...))
	}
}
