package embedding_test

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// A pooled is a lookup of bags, whole.
type pooled struct {
	rows, width int
	table       []float64
	ids         []int64
	starts      []int // of the bags, and the end of the last
	factors     []float64
	padding     int
	mode        embedding.Mode
	byFrequency bool
	norm        float64 // MaxNorm, 0: none
	length      int     // of all bags, if they have one and there are no offsets; else -1
	last        bool    // IncludeLastOffset
	precision           // of table and factors; 0: double
}

// A bagPlaces is a layout of everything that Bag takes.
type bagPlaces struct{ weight, ids, offsets, factors []layout.Placement }

// wholeBags is a layout of which offsets and factors are replicated.
func wholeBags(weight, ids []layout.Placement) bagPlaces {
	whole := make([]layout.Placement, len(weight))
	return bagPlaces{weight, ids, whole, whole}
}

// run is forward and gradients of the bags as loops, and the table with its norms;
// gy is [bags, width].
func (p *pooled) run(gy []float64) (out, dTable, dFactors, table []float64) {
	bags, times := len(p.starts)-1, map[int64]float64{}
	out, dTable, dFactors, table = make([]float64, bags*p.width), make([]float64, len(p.table)), make([]float64, len(p.ids)), p.table
	if p.norm > 0 {
		table = renormed(p.table, p.width, p.ids, p.norm, 2)
	}
	for b := range bags {
		var used []int
		for i := p.starts[b]; i < p.starts[b+1]; i++ {
			if int(p.ids[i]) != p.padding {
				used = append(used, i)
				times[p.ids[i]]++
			}
		}
		for j := range p.width {
			at := func(i int) int { return int(p.ids[i])*p.width + j }
			o, g := &out[b*p.width+j], gy[b*p.width+j]
			if p.mode == embedding.Max {
				best := -1
				for _, i := range used {
					if best < 0 || table[at(i)] > table[at(best)] || math.IsNaN(table[at(i)]) && !math.IsNaN(table[at(best)]) {
						best = i
					}
				}
				if best >= 0 {
					*o = table[at(best)]
					dTable[at(best)] += g
				}
				continue
			}
			for _, i := range used {
				f := 1.0
				switch {
				case p.mode == embedding.Mean:
					f = 1 / float64(len(used))
				case p.factors != nil:
					f = p.factors[i]
				}
				*o += f * table[at(i)]
				dTable[at(i)] += f * g
				dFactors[i] += table[at(i)] * g
			}
		}
	}
	for i := range dTable {
		if n := times[int64(i/p.width)]; p.byFrequency && n > 0 {
			dTable[i] /= n
		}
	}
	return out, dTable, dFactors, table
}

// check runs the bags on the mesh in the given layout and counts what they
// communicate.
func (p *pooled) check(ctx context.Context, m *dtensor.Mesh, at bagPlaces) error {
	bags := len(p.starts) - 1
	rounded := *p
	if p = &rounded; p.precision == 0 {
		p.precision = double
	}
	p.table, p.factors = p.numbers(p.table), p.numbers(p.factors)
	gy := p.numbers(meshtest.Numbers(bags*p.width, 3, 1))
	out, dTable, dFactors, table := p.run(gy)
	w := p.place(m, p.table, []int{p.rows, p.width}, at.weight...)
	shape := []int{len(p.ids)}
	var offsets, factors *dtensor.Tensor
	if p.length >= 0 {
		shape = []int{bags, p.length}
	} else {
		var list []int64
		for _, s := range p.starts {
			list = append(list, int64(s))
		}
		if !p.last {
			list = list[:bags]
		}
		offsets = meshtest.Place(m, list, []int{len(list)}, at.offsets...)
	}
	x := meshtest.Place(m, p.ids, shape, at.ids...)
	params := []*dtensor.Tensor{w}
	if p.factors != nil {
		factors = p.place(m, p.factors, shape, at.factors...)
		params = append(params, factors)
	}
	o := embedding.BagOptions{Mode: p.mode, IncludeLastOffset: p.last, Options: embedding.Options{ScaleGradByFreq: p.byFrequency}}
	if p.padding >= 0 {
		o.PaddingIdx = new(p.padding - p.rows)
	}
	if p.norm > 0 {
		o.MaxNorm = &p.norm
	}
	g := meshtest.Place(m, gy, []int{bags, p.width}, make([]layout.Placement, len(at.weight))...)
	var failed error
	record := m.Comm().Record()
	_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		y := embedding.Bag(w, x, offsets, factors, o)
		failed = p.near("output", y.Full(), out, 8)
		return y.Cast(tensor.Float64).Mul(g).Sum(nil, false)
	}, params...)
	events := record.Stop()
	if err != nil || failed != nil {
		return fmt.Errorf("%v %v", err, failed)
	}
	if _, ok := grads[0].Rows(); !ok {
		return errors.New("the gradient of the table is dense")
	}
	if err := p.near("table", w.Full(), table, 0); err != nil {
		return err
	}
	if err := p.near("gradient of the table", grads[0].Dense().Full(), dTable, 0); err != nil {
		return err
	}
	if factors != nil {
		if err := p.near("gradient of the weights", grads[1].Dense().Full(), dFactors, 8); err != nil {
			return err
		}
	}
	kept := make([]bool, len(at.ids)) // axes that keep the bags sharded
	for axis, place := range at.ids {
		kept[axis] = p.length >= 0 && place.Shards(0) && at.weight[axis].IsReplicate()
	}
	ranks := m.Comm().Size()
	most := 8 * max(len(p.ids)*(p.width+2), 2*bags*p.width, ranks*(ranks+2))
	return bagTally(m, at.weight, kept, p.mode, p.norm > 0).check(events, "Bag", most)
}
