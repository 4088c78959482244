package embedding_test

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

var (
	replicate = layout.Replicate()
	shard0    = layout.Shard(0)
	shard1    = layout.Shard(1)
)

// someIDs returns n ids below rows that look random, with repetitions; the first
// is the last row.
func someIDs(n, rows int, seed int) []int64 {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = int64((i*i*7 + i*seed + rows - 1) % rows)
	}
	return ids
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

// near compares a whole tensor with what it should be.
func near(what string, t *tensor.Tensor, want []float64) error {
	return meshtest.Near(what, t, want, 1e-6, 1e-12)
}

// A precision is the element type of a table: float64, in which the loops compute, or
// bfloat16 or float16, of which loops and tables get the same rounded numbers.
type precision tensor.DType

const (
	double = precision(tensor.Float64)
	half   = precision(tensor.BFloat16)
)

// somePrecision returns one of them.
func somePrecision(rng *rand.Rand) precision {
	return []precision{double, half, precision(tensor.Float16)}[rng.IntN(3)]
}

func (p precision) String() string { return tensor.DType(p).String() }

// numbers returns x rounded.
func (p precision) numbers(x []float64) []float64 {
	if x == nil {
		return nil
	}
	return meshtest.Values(tensor.Cast(tensor.FromSlice(tensor.NewCPU(nil), x, len(x)), tensor.DType(p)))
}

// place puts a whole tensor of the precision on the mesh.
func (p precision) place(m *dtensor.Mesh, x []float64, shape []int, places ...layout.Placement) *dtensor.Tensor {
	return meshtest.Place(m, x, shape, places...).Cast(tensor.DType(p))
}

// near compares what is computed in the precision: bfloat16 is computed in float32 and
// rounded once, or more often where sums are made of parts of up to the given value.
func (p precision) near(what string, t *tensor.Tensor, want []float64, parts float64) error {
	switch {
	case t.DType() != tensor.DType(p):
		return fmt.Errorf("%s is %v", what, t)
	case p == double:
		return near(what, t, want)
	}
	return meshtest.Near(what, t, want, 0x1.001p-8, 1e-6+parts*0x1p-8)
}
