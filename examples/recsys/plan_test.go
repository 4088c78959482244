//go:build linux

package main

import (
	"context"
	"io"
	"strconv"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/programtest"
)

// What gorun plan says of a step is what the step does: each rank's calls and bytes, which go by
// the ids of its batch, and its memory.
func TestPlan(t *testing.T) {
	t.Setenv("GORUN_CHECK", "0") // as the plan has it: checks take memory
	p := programtest.Build(t)
	for _, m := range append([][2]int{{1, 1}, {1, 2}, {1, 3}, {2, 2}, {2, 4}}, programtest.Many([2]int{16, 4})...) {
		args := []string{"-dp", strconv.Itoa(m[0]), "-tp", strconv.Itoa(m[1]), "-steps", "3", "-rows", "6000", "-batch", "2500"}
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
			data, _, err := load(ctx, world, o, quiet)
			if err != nil {
				return err
			}
			tr, err := newTrainer(ctx, mesh, data, o, quiet)
			if err != nil {
				return err
			}
			defer tr.close()
			tr.run.Out = io.Discard
			tr.run.OnStep = func(int, float64) { real.Step(mesh) }
			programtest.Collect(mesh)
			return tr.run.Do(ctx, world, quiet)
		})
		real.Compare(t, p.PlanOfAll(t, n, args...))
	}
}
