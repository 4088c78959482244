// Command redistribute measures changes of layout of a [8192, 4096] float32
// tensor, 128 MiB.
//
//	gorun -np 2 ./bench/redistribute            a table
//	gorun -np 2 ./bench/redistribute -json      a line of JSON for each pair of layouts
//
// "gbs" is the number of bytes that each rank must receive at least ("recv_bytes"), divided by
// the time; where that is 0, the bytes of the result count. "calls_made" lists the collectives.
// Before a case is timed, its result is compared with the tensor that the source stands for.
package main

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

func main() { measure.Main(func(b *measure.Bench) error { return run(b, 8192, 4096) }) }

// run measures tensors of [n, d].
func run(b *measure.Bench, n, d int) error {
	R, S, P := layout.Replicate(), layout.Shard, layout.Partial(layout.Sum)
	size := b.World.Size()
	full := 4 * n * d
	part := full * (size - 1) / size
	for _, c := range []struct {
		name     string
		from, to layout.Placement
		received int // bytes that each rank must receive at least
	}{
		{"S(0) to R", S(0), R, part},
		{"S(1) to R", S(1), R, part},
		{"S(0) to S(1)", S(0), S(1), part / size},
		{"S(1) to S(0)", S(1), S(0), part / size},
		{"P to R", P, R, 2 * part},
		{"P to S(0)", P, S(0), part},
		{"P to S(1)", P, S(1), part},
		{"R to S(0)", R, S(0), 0},
		{"R to S(1)", R, S(1), 0},
	} {
		if !b.Wants(c.name) {
			continue
		}
		if err := pair(b, c.name, c.from, c.to, c.received, n, d); err != nil {
			return err
		}
	}
	return nil
}

// pair measures one change of layout.
func pair(b *measure.Bench, name string, from, to layout.Placement, received, n, d int) error {
	shape := []int{n, d}
	x, err := source(b, from, shape)
	if err != nil {
		return err
	}
	defer x.Local().Free()
	if err := check(b, name, x, to); err != nil {
		return err
	}
	call := func() { x.Redistribute(to) }
	try := func() error { return dtensor.Try(b.Context(), b.Mesh, call) }
	made, err := b.Calls(try)
	if err != nil {
		return err
	}
	return b.Case(name, call, func(t measure.Timing) []measure.Field {
		moved := received
		if moved == 0 {
			moved = 4 * n * d / b.World.Size()
		}
		fields := []measure.Field{
			{Name: "recv_bytes", Value: received}, measure.Rate("gbs", moved, t), {Name: "calls_made", Value: made},
		}
		m, err := b.Memory(try)
		if err != nil {
			return fields // the communicator is dead: the next case says so
		}
		return append(fields, m.Fields(0)[:2]...)
	})
}

// source returns whole numbers that depend on the global index, in the layout
// from. If that is Partial, every rank contributes to the sum.
func source(b *measure.Bench, from layout.Placement, shape []int) (*dtensor.Tensor, error) {
	if !from.IsPartial() {
		return integers(b.Mesh, shape, from), nil
	}
	part := integers(b.Mesh, shape, layout.Replicate()).Local()
	tensor.AddScaledTo(part, float64(b.World.Rank()), tensor.Full(b.Mesh.Device(), tensor.Float32, 1, shape...))
	return dtensor.FromLocal(b.Mesh, part, shape, from)
}

// integers returns random whole numbers from -100 to 100, whose sums are exact.
func integers(mesh *dtensor.Mesh, shape []int, p layout.Placement) *dtensor.Tensor {
	t := dtensor.Uniform(mesh, dtensor.Key{Seed: 1}, -100, 100, shape, p)
	for i, v := range tensor.Data[float32](t.Local()) {
		tensor.Data[float32](t.Local())[i] = float32(int(v))
	}
	return t
}

// check compares the result with numbers made in its layout. If the source is Partial, it scales
// them to the source's sum.
func check(b *measure.Bench, name string, x *dtensor.Tensor, to layout.Placement) error {
	same := true
	err := dtensor.Try(b.Context(), b.Mesh, func() {
		want := integers(b.Mesh, x.Shape(), to).Local()
		if size := float64(b.World.Size()); x.Placements()[0].IsPartial() {
			tensor.ScaleTo(want, size)
			tensor.AddTo(want, tensor.Full(b.Mesh.Device(), tensor.Float32, size*(size-1)/2, want.Shape()...))
		}
		got := x.Redistribute(to).Local()
		same = slices.Equal(tensor.Data[float32](got), tensor.Data[float32](want))
	})
	if err == nil && !same {
		err = fmt.Errorf("redistribute: %s: rank %d of %d has a wrong result", name, b.World.Rank(), b.World.Size())
	}
	return err
}
