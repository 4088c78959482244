package embedding

import (
	"context"
	"fmt"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/rates"
	"github.com/gorun-spmd/gorun/tensor"
)

// A probe is a step that MeasureRates times: a lookup in each of probeTables tables of rows of width features, the gradient, and
// the update. A rank has so many ids of each, some of them distinct.
type probe struct {
	width, ids, distinct int
	kind                 Kind
}

const (
	probeTables     = 8
	probeBytes      = 1 << 20 // of a table on each rank: together more than the near caches have
	probeBytesOfAll = 1 << 22 // of a table on all ranks, but leastProbeBytes on each
	leastProbeBytes = 1 << 14
	probeBatches    = 6 // that take turns, so that rows are not where the step before has left them
)

// probesFor returns what MeasureRates times. Each of the first has one thing more than the one before: ids, distinct ones, bytes; the
// last two are of divided columns. As each rank gets the gradients of all copies, there are fewer ids where there are many.
func probesFor(o PlanOptions) []probe {
	const narrow, wide = 16, 128
	many := max(4, 512/o.Copies)
	few := max(1, many/16)
	if o.Ranks == 1 {
		k := DataParallelKind
		return []probe{{narrow, 1, 1, k}, {narrow, many, few, k}, {narrow, many, many, k}, {wide, many, many, k}}
	}
	k, c := RowWiseKind, ColumnWiseKind
	return []probe{{narrow, 1, 1, k}, {narrow, many, few, k}, {narrow, many, many, k}, {wide, many, many, k},
		{wide, many, many, c}, {narrow, many, many, c}}
}

// measureLookups sets what is not a call. Of what a probe takes that is left which the planner's own model
// does not ascribe to what is known already; and the same model says how many ids, rows and bytes there were.
func (r *Rates) measureLookups(ctx context.Context, watch *rates.Stopwatch, mesh *dtensor.Mesh, axis int) error {
	o := PlanOptions{Axis: mesh.Axes()[axis].Name, Ranks: mesh.Axes()[axis].Size}
	o.Copies = mesh.Size() / o.Ranks
	probes := probesFor(o)
	scope := mesh.Device().Open() // all tensors go with it
	defer scope.Close()
	var tables *Collection
	var steps []func() error
	for i, p := range probes {
		if i == 0 || p.width != probes[i-1].width || p.kind != probes[i-1].kind {
			var err error
			if tables, err = p.tables(ctx, mesh, o); err != nil {
				return err
			}
		}
		step, err := p.step(ctx, tables, o)
		if err != nil {
			return err
		}
		steps = append(steps, step)
	}
	seconds, err := watch.Each(steps...)
	if err != nil {
		return err
	}
	rest := func(i int) float64 { return max(0, 1e9*seconds[i]-probes[i].estimate(*r, o)) } // ns that are not known yet
	count := func(i int, one Rates) float64 { return probes[i].estimate(one, o) / float64(time.Millisecond) }
	aByte := Rate{Bandwidth: 1e3} // a byte counts a millisecond
	r.Table = time.Duration(rest(0) / probeTables)
	r.Copy.Bandwidth = 1e9 * (count(3, Rates{Copy: aByte}) - count(2, Rates{Copy: aByte})) / max(1, rest(3)-rest(2))
	oneRow := Rates{Row: time.Millisecond}
	r.Row = time.Duration(max(0, rest(2)-rest(1)) / (count(2, oneRow) - count(1, oneRow)))
	r.ID = time.Duration(rest(1) / count(1, Rates{ID: time.Millisecond}))
	if o.Ranks > 1 {
		bytes := count(4, Rates{Split: aByte}) - count(5, Rates{Split: aByte})
		r.Split.Bandwidth = 1e9 * bytes / max(1, rest(4)-rest(5))
		r.Split.Latency = time.Duration(rest(5) / count(5, Rates{Split: Rate{Latency: time.Millisecond}}))
	}
	return nil
}

// rows is how many a table has.
func (p probe) rows(o PlanOptions) int {
	bytes := max(leastProbeBytes, min(probeBytes, probeBytesOfAll/(o.Ranks*o.Copies)))
	return o.Ranks * bytes / (p.width * tensor.Float32.Size())
}

// estimate returns what the planner says of the probe, in ns.
func (p probe) estimate(r Rates, o PlanOptions) float64 {
	demands := make([]Demand, probeTables)
	for t := range demands {
		demands[t] = Demand{Rows: p.rows(o), Dim: p.width, IDs: 1, Distinct: float64(p.distinct)}
	}
	o.Batch = p.ids * o.Ranks * o.Copies
	plan := &Plan{rates: r, demands: demands, options: o}
	var all cost
	for t := range demands {
		all.add(plan.costOf(t, p.kind))
	}
	return float64(plan.timed(value{}, all.each, all.shared, all.copied).time)
}

// tables makes those of the probe, with row-wise Adagrad.
func (p probe) tables(ctx context.Context, mesh *dtensor.Mesh, o PlanOptions) (c *Collection, err error) {
	var tables []CollectionTable
	lies := choice{kind: p.kind}.layout(o.Axis)
	for t := range probeTables {
		name := fmt.Sprint(t)
		tables = append(tables, CollectionTable{Config: Config{Name: name, Rows: p.rows(o), Dim: p.width, Layout: lies},
			Features: []string{name}, Mode: Sum})
	}
	if err := dtensor.Try(ctx, mesh, func() {
		c = NewCollection(mesh, tables...)
	}); err != nil {
		return nil, err
	}
	for _, t := range c.tables {
		local, first := t.weight.Local(), float64(firstRow(t.weight))
		sums := tensor.Zeros(mesh.Device(), tensor.Float32, local.Dim(0))
		t.Fuse(func(rows *dtensor.Rows) error {
			own := tensor.Rows{Index: tensor.AddScalar(rows.Index, -first), Values: rows.Values}
			var mean *tensor.Tensor
			if p.kind == ColumnWiseKind { // each rank has some of the squares of a row
				mean = tensor.Cast(tensor.RowPowSums(rows.Values, tensor.Arange(mesh.Device(), tensor.Int64, 0, rows.Values.Dim(0)), 2), tensor.Float64)
				buf := dtensor.BufferOf(mean)
				mesh.Do(mesh.Group(o.Axis), comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum, Dst: buf, Src: buf, Cause: "MeasureRates"})
			}
			tensor.Adagrad{LR: 1e-3, Eps: 1e-10}.StepRows(local, own, sums, mean)
			return nil
		})
	}
	return c, nil
}

// step returns a function that makes the step, each time with the next of some batches.
func (p probe) step(ctx context.Context, c *Collection, o PlanOptions) (func() error, error) {
	mesh, rows := c.mesh, p.rows(o)
	var names []string
	for _, f := range c.features {
		names = append(names, f.name)
	}
	batches := make([]*Jagged, probeBatches)
	for b := range batches {
		lengths, ids := make([]int, probeTables*p.ids), make([]int64, probeTables*p.ids)
		for i := range ids { // from each part of a table as many, elsewhere on each rank and in each batch
			at, part := i%p.distinct, rows/p.distinct
			lengths[i], ids[i] = 1, int64(at*part+(mesh.Comm().Rank()+7*b+3*at)%part)
		}
		var err error
		if batches[b], err = NewJagged(mesh, names, p.ids*mesh.Size(), lengths, ids, nil, mesh.Every(layout.Shard(0))...); err != nil {
			return nil, err
		}
	}
	next := 0
	return func() error {
		next = (next + 1) % probeBatches
		_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return c.Bags(batches[next]).Values().Sum(nil, false) }, c.Params()...)
		return err
	}, nil
}
