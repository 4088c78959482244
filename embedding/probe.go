package embedding

import (
	"context"
	"fmt"
	"time"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/rates"
	"github.com/gorun-spmd/gorun/tensor"
)

// A probe is a step that MeasureRates times: a lookup in each of probeTables tables of rows of width
// features, the gradient, and the update. A rank has so many ids of each, some of them distinct.
type probe struct{ width, ids, distinct int }

const (
	probeTables  = 8
	probeBytes   = 1 << 17 // of a table on each rank: together more than the nearest cache has, and less than a step of a program
	probeBatches = 6       // that take turns, so that rows are not where the step before has left them
)

// probesFor returns what MeasureRates times. Each has one thing more than the one before: ids, distinct ones, bytes.
// As each rank gets the gradients of all copies, there are fewer ids where there are many.
func probesFor(copies int) [4]probe {
	many := max(4, 256/copies)
	few := max(1, many/16)
	return [...]probe{{16, 1, 1}, {16, many, few}, {16, many, many}, {64, many, many}}
}

// measureLookups sets Table, ID, Row and Copy. Of what a probe takes that is left which the planner's own model
// does not ascribe to what is known already; and the same model says how many ids, rows and bytes there were.
func (r *Rates) measureLookups(ctx context.Context, watch *rates.Stopwatch, mesh *dtensor.Mesh, axis int) error {
	o := PlanOptions{Axis: mesh.Axes()[axis].Name, Ranks: mesh.Axes()[axis].Size}
	o.Copies = mesh.Size() / o.Ranks
	probes := probesFor(o.Copies)
	scope := mesh.Device().Open() // all tensors go with it
	defer scope.Close()
	var tables *Collection
	var steps []func() error
	for i, p := range probes {
		if i == 0 || p.width != probes[i-1].width {
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
	r.Table = time.Duration(rest(0) / probeTables)
	oneByte := Rates{Copy: Rate{Bandwidth: 1e3}} // a byte counts a millisecond
	r.Copy.Bandwidth = 1e9 * (count(3, oneByte) - count(2, oneByte)) / max(1, rest(3)-rest(2))
	oneRow := Rates{Row: time.Millisecond}
	r.Row = time.Duration(max(0, rest(2)-rest(1)) / (count(2, oneRow) - count(1, oneRow)))
	r.ID = time.Duration(rest(1) / count(1, Rates{ID: time.Millisecond}))
	return nil
}

// rows is how many a table has.
func (p probe) rows(ranks int) int { return ranks * probeBytes / (p.width * tensor.Float32.Size()) }

// estimate returns what the planner says of the probe, in ns.
func (p probe) estimate(r Rates, o PlanOptions) float64 {
	demands := make([]Demand, probeTables)
	for t := range demands {
		demands[t] = Demand{Rows: p.rows(o.Ranks), Dim: p.width, IDs: 1, Distinct: float64(p.distinct)}
	}
	o.Batch = p.ids * o.Ranks * o.Copies
	plan := &Plan{rates: r, demands: demands, options: o}
	kind := RowWiseKind
	if o.Ranks == 1 {
		kind = DataParallelKind
	}
	var all cost
	for t := range demands {
		all.add(plan.costOf(t, kind))
	}
	return float64(plan.timed(value{}, all.each, all.shared, all.copied).time)
}

// tables makes those of the probe, with row-wise Adagrad.
func (p probe) tables(ctx context.Context, mesh *dtensor.Mesh, o PlanOptions) (c *Collection, err error) {
	var tables []CollectionTable
	for t := range probeTables {
		name := fmt.Sprint(t)
		tables = append(tables, CollectionTable{Config: Config{Name: name, Rows: p.rows(o.Ranks), Dim: p.width, Layout: RowWise(o.Axis)},
			Features: []string{name}, Mode: Sum})
	}
	if err := dtensor.Try(ctx, mesh, func() {
		c = NewCollection(mesh, tables...)
		dtensor.Keep(c.Params()...)
	}); err != nil {
		return nil, err
	}
	for _, t := range c.tables {
		local, first := t.weight.Local(), float64(firstRow(t.weight))
		sums := tensor.Zeros(mesh.Device(), tensor.Float32, local.Dim(0))
		t.Fuse(func(rows *dtensor.Rows) error {
			own := tensor.Rows{Index: tensor.AddScalar(rows.Index, -first), Values: rows.Values}
			tensor.Adagrad{LR: 1e-3, Eps: 1e-10}.StepRows(local, own, sums, nil)
			return nil
		})
	}
	return c, nil
}

// step returns a function that makes the step, each time with the next of some batches.
func (p probe) step(ctx context.Context, c *Collection, o PlanOptions) (func() error, error) {
	mesh, rows := c.mesh, p.rows(o.Ranks)
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
