// This file and the code of recipes.md are one program, which a test puts together. It runs
// every recipe on one rank and on 8, compares them, and prints the rows of the page's table.
package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
)

const ranks = 8

// A recipe is a row of the table.
type recipe struct {
	name      string
	f         func(ctx context.Context, world *comm.Comm) (result, error)
	tolerance float64 // of gradients, beside their largest element
}

const rounding, half = 1e-5, 1e-2 // of float32 and float16

var recipes = []recipe{
	{"data parallel", on(dataParallel, "dp"), rounding},
	{"activation checkpointing", on(checkpointing, "dp"), rounding},
	{"gradient accumulation", on(accumulation, "dp"), rounding},
	{"ZeRO 1", on(zero1, "dp"), rounding},
	{"ZeRO 2", on(zero2, "dp"), rounding},
	{"ZeRO 3, FSDP", on(fsdp, "dp"), rounding},
	{"mixed precision", on(mixedPrecision, "dp"), half},
	{"tensor parallel", on(tensorParallel, "tp"), rounding},
	{"sequence parallel", on(sequenceParallel, "tp"), rounding},
	{"context parallel", on(contextParallel, "cp"), rounding},
	{"expert parallel", on(expertParallel, "dp"), rounding},
	{"pipeline, 1F1B", oneForwardOneBackward, rounding},
	{"pipeline, interleaved", interleaved, rounding},
	{"data, tensor, sequence, pipeline", dataTensorPipeline, rounding},
	{"FSDP, context, tensor", on(fsdpContextTensor, "dp", "cp", "tp"), rounding},
	{"FSDP, expert, tensor", on(fsdpExpertTensor, "dp", "ep", "tp"), rounding},
}

// on runs a recipe on a mesh of all ranks.
func on(f func(context.Context, *dtensor.Mesh) (result, error), names ...string) func(context.Context, *comm.Comm) (result, error) {
	return func(ctx context.Context, world *comm.Comm) (result, error) {
		var axes []dtensor.Axis
		for _, name := range names {
			size := int(math.Round(math.Pow(float64(world.Size()), 1/float64(len(names)))))
			axes = append(axes, dtensor.Axis{Name: name, Size: size})
		}
		mesh, err := dtensor.NewMesh(world, axes...)
		if err != nil {
			return result{}, err
		}
		return f(ctx, mesh)
	}
}

func main() {
	for _, r := range recipes {
		if err := r.compare(); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", r.name, err)
			os.Exit(1)
		}
	}
}

// compare runs a recipe on one rank and on 8, and prints its row. A pipeline needs two ranks: it has
// the result of data parallelism.
func (r recipe) compare() error {
	alone, name := r.f, r.name
	if strings.Contains(name, "pipeline") {
		alone = on(dataParallel, "dp")
	}
	var want map[int][]float32
	var before int
	if err := run(1, func(ctx context.Context, world *comm.Comm) (err error) {
		s, err := alone(ctx, world)
		if err == nil {
			want, before = s.numbers(), s.params[0].Mesh().Device().Stats().HighWater
		}
		return err
	}); err != nil {
		return err
	}
	return run(ranks, func(ctx context.Context, world *comm.Comm) error {
		recorder := world.Record()
		s, err := r.f(ctx, world)
		recorder.Stop()
		if err != nil {
			return err
		}
		memory, calls := s.params[0].Mesh().Device().Stats().HighWater, recorder.Stats()
		calls.Kinds[comm.SplitKind] = comm.Count{} // groups of ranks are made once
		for i, got := range s.numbers() {
			if err := near(got, want[i], r.tolerance); err != nil {
				return fmt.Errorf("number %d of %d ranks: %w", i, ranks, err)
			}
		}
		if world.Rank() == 0 {
			fmt.Printf("%s | %s | %s | %.1f | %.1f\n", r.name, s.meshes(), calls.Calls(), float64(before)/1e6, float64(memory)/1e6)
		}
		return nil
	})
}

// run runs f on n ranks.
func run(n int, f func(ctx context.Context, world *comm.Comm) error) error {
	return errors.Join(commtest.Ranks(context.Background(), n, f)...)
}

// numbers returns the gradients that this rank has, whole, by the number of the parameter; the loss is -1.
func (s result) numbers() map[int][]float32 {
	all := map[int][]float32{-1: {float32(s.loss)}}
	for i, g := range s.grads {
		if s.params[i].Mesh().Inside() {
			all[i] = tensor.ToSlice[float32](tensor.Cast(g.Dense().Full(), tensor.Float32))
		}
	}
	return all
}

// meshes describes the meshes of the parameters.
func (s result) meshes() string {
	seen := map[*dtensor.Mesh]bool{}
	for _, p := range s.params {
		seen[p.Mesh()] = true
	}
	if len(seen) > 1 {
		return fmt.Sprintf("%d × %v", len(seen), s.params[0].Mesh())
	}
	return s.params[0].Mesh().String()
}

// near returns an error unless two results differ by rounding alone.
func near(got, want []float32, tolerance float64) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d elements, want %d", len(got), len(want))
	}
	var most, apart float64
	for i, w := range want {
		most, apart = max(most, math.Abs(float64(w))), max(apart, math.Abs(float64(got[i]-w)))
	}
	if !(apart <= tolerance*most) || most == 0 {
		return fmt.Errorf("they differ by %v, the largest is %v", apart, most)
	}
	return nil
}
