package embedding_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

var (
	replicate = layout.Replicate()
	shard0    = layout.Shard(0)
	shard1    = layout.Shard(1)
)

// onMesh runs f on every rank of a mesh of the given shape, axes a, b, ….
func onMesh(t *testing.T, shape []int, f func(ctx context.Context, m *dtensor.Mesh) error) {
	t.Helper()
	n := 1
	var axes []dtensor.Axis
	for i, size := range shape {
		axes = append(axes, dtensor.Axis{Name: string(rune('a' + i)), Size: size})
		n *= size
	}
	commtest.Run(t, n, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMesh(world, axes...)
		if err != nil {
			return err
		}
		var failed error
		if err := dtensor.Try(ctx, m, func() { failed = f(ctx, m) }); err != nil {
			return err
		}
		return failed
	})
}

// numbers returns n numbers between -1 and 1 that look random.
func numbers(n int, seed float64) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = math.Sin(seed*7 + float64(i*i)*1.3 + float64(i))
	}
	return x
}

// someIDs returns n ids below rows that look random, with repetitions; the first
// is the last row.
func someIDs(n, rows int, seed int) []int64 {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = int64((i*i*7 + i*seed + rows - 1) % rows)
	}
	return ids
}

// place puts a whole tensor on the mesh, in memory of its own.
func place[T tensor.Elem](m *dtensor.Mesh, data []T, shape []int, places ...layout.Placement) *dtensor.Tensor {
	t := dtensor.Distribute(m, tensor.FromSlice(m.Device(), data, shape...), places...)
	return m.Wrap("place", tensor.Clone(t.Local()), nil, false, shape, places...)
}

// near compares a whole tensor with what it should be.
func near(what string, t *tensor.Tensor, want []float64) error {
	got := tensor.ToSlice[float64](tensor.Cast(t, tensor.Float64))
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i, g := range got {
		if !(math.Abs(g-want[i]) <= 1e-12+1e-6*math.Abs(want[i])) {
			return fmt.Errorf("%s: element %d is %v, want %v", what, i, g, want[i])
		}
	}
	return nil
}

// lookUp is the lookup as a loop.
func lookUp(table []float64, width int, ids []int64) []float64 {
	var out []float64
	for _, id := range ids {
		out = append(out, table[int(id)*width:int(id+1)*width]...)
	}
	return out
}

// gradOf is the gradient of the lookup as a loop. padding is a row or -1.
func gradOf(rows, width int, ids []int64, gy []float64, padding int, byFrequency bool) []float64 {
	g := make([]float64, rows*width)
	times := map[int64]float64{}
	for _, id := range ids {
		times[id]++
	}
	for i, id := range ids {
		if int(id) == padding {
			continue
		}
		for j := range width {
			v := gy[i*width+j]
			if byFrequency {
				v /= times[id]
			}
			g[int(id)*width+j] += v
		}
	}
	return g
}

// renormed is the table after max_norm, as a loop.
func renormed(table []float64, width int, ids []int64, limit, p float64) []float64 {
	out := append([]float64(nil), table...)
	done := map[int64]bool{}
	for _, id := range ids {
		if done[id] {
			continue
		}
		done[id] = true
		row := out[int(id)*width : int(id+1)*width]
		norm := 0.0
		for _, v := range row {
			if math.IsInf(p, 1) {
				norm = max(norm, math.Abs(v))
			} else {
				norm += math.Pow(math.Abs(v), p)
			}
		}
		if !math.IsInf(p, 1) {
			norm = math.Pow(norm, 1/p)
		}
		if norm > limit {
			for j := range row {
				row[j] *= limit / (norm + 1e-7)
			}
		}
	}
	return out
}

// floats returns this rank's part of t.
func floats(t *dtensor.Tensor) []float64 {
	return tensor.ToSlice[float64](tensor.Cast(t.Local(), tensor.Float64))
}
