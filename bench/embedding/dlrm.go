package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// kaggleRows are the sizes of the 26 tables of DLRM on the log of Criteo's Kaggle challenge: the
// number of values of each category, as the preprocessing of github.com/facebookresearch/dlrm
// counts them.
var kaggleRows = []int{1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10, 5652,
	2173, 4, 7046547, 18, 15, 286181, 105, 142572}

// dlrmSize is the size of the case: kaggleRows cut to most, of dim features, looked up by samples
// with an id for each table.
type dlrmSize struct{ most, dim, samples int }

func (s dlrmSize) String() string {
	return fmt.Sprintf("26 tables up to %dx%d/%d", s.most, s.dim, s.samples)
}

func (s dlrmSize) rows(table int) int { return min(kaggleRows[table], s.most) }

// dlrmOptimizers are the optimizers that dlrm measures; the first two are PyTorch's too.
var dlrmOptimizers = []struct {
	name string
	make func(params []*dtensor.Tensor) embedding.Optimizer
}{
	{"Adagrad", optim.With(optim.NewAdagrad, optim.AdagradConfig{})},
	{"SparseAdam", optim.With(optim.NewSparseAdam, optim.SparseAdamConfig{})},
	{"row-wise Adagrad", optim.With(optim.NewRowAdagrad, optim.RowAdagradConfig{})},
}

// dlrmRate is the learning rate.
const dlrmRate = 0.25

// dlrm is a case with its tables and batches, which take turns so that caches do not keep their rows.
type dlrm struct {
	b       *measure.Bench
	size    dlrmSize
	state   int              // bytes of a row's state, as the planner is told; 0: it is not
	kinds   []embedding.Kind // that a table may have; none: all
	plan    *embedding.Plan  // of the tables
	tables  *embedding.Collection
	ids     [][][]int64 // by batch and table: the ids of all samples
	batches []*embedding.Jagged
	at      int             // the last batch
	seed    *dtensor.Tensor // the gradient from above: ones
}

// runDLRM measures what the tables of a DLRM take of a training step: bags of all tables, the
// gradient, and the update by a fused optimizer, in the layouts that the planner chooses.
func runDLRM(b *measure.Bench, size dlrmSize, batches int) error {
	for _, o := range dlrmOptimizers {
		name := fmt.Sprintf("dlrm, %s/%v", o.name, size)
		if !b.Wants(name) {
			continue
		}
		if err := measureDLRM(b, name, size, batches, o.make); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func measureDLRM(b *measure.Bench, name string, size dlrmSize, batches int, optimizer func([]*dtensor.Tensor) embedding.Optimizer) error {
	d := &dlrm{b: b, size: size}
	scope := b.Mesh.Device().Open() // the tables and the state of their optimizers go with it
	defer scope.Close()
	if err := d.make(batches, optimizer); err != nil {
		return err
	}
	return b.CaseErr(name, d.next, func(t measure.Timing) []measure.Field {
		return []measure.Field{{Name: "samples_s_core", Value: float64(size.samples) / float64(b.World.Size()) / t.NS * 1e9}}
	})
}

// make makes the tables, with their optimizer, and the batches, and checks a step.
func (d *dlrm) make(batches int, optimizer func([]*dtensor.Tensor) embedding.Optimizer) error {
	if err := d.makeTables(); err != nil {
		return err
	}
	d.tables.Fuse(embedding.FusedOptimizer{New: optimizer, Rate: dlrmRate})
	if err := d.makeBatches(batches); err != nil {
		return err
	}
	return d.check()
}

// makeTables makes the tables in the layouts of a plan.
func (d *dlrm) makeTables() error {
	rates, err := embedding.MeasureRates(d.b.Context(), d.b.Mesh, axis)
	if err != nil {
		return err
	}
	demands := make([]embedding.Demand, len(kaggleRows))
	for t := range demands {
		demands[t] = embedding.Demand{Name: fmt.Sprint(t), Rows: d.size.rows(t), Dim: d.size.dim, IDs: 1, Kinds: d.kinds}
	}
	plan, err := embedding.NewPlan(demands, rates, embedding.PlanOptions{Axis: axis, Ranks: d.b.Mesh.Size(), Batch: d.size.samples,
		StateBytes: d.state})
	if err != nil {
		return err
	}
	d.plan = plan
	configs := make([]embedding.CollectionTable, len(demands))
	for t, table := range demands {
		configs[t] = embedding.CollectionTable{Mode: embedding.Sum, Features: []string{table.Name}, Config: embedding.Config{Name: table.Name,
			Rows: table.Rows, Dim: table.Dim, Layout: plan.Layouts[t], Key: dtensor.Key{Seed: uint64(t)}}}
	}
	return dtensor.Try(d.b.Context(), d.b.Mesh, func() {
		d.tables = embedding.NewCollection(d.b.Mesh, configs...)
		for _, t := range d.tables.Tables() {
			dtensor.Keep(t.Weight())
		}
	})
}

// makeBatches makes batches of random ids, of which each rank has its samples.
func (d *dlrm) makeBatches(n int) error {
	rng, place := rand.New(rand.NewPCG(7, 0)), layout.Shard(0)
	d.seed = dtensor.Full(d.b.Mesh, tensor.Float32, 1, []int{d.size.samples, len(kaggleRows) * d.size.dim}, place)
	offset, _ := d.seed.Offset()
	mine := d.seed.LocalShape()[0]
	for range n {
		ids, lists := make([][]int64, len(kaggleRows)), make([]embedding.Lists, len(kaggleRows))
		for t := range ids {
			for range d.size.samples {
				ids[t] = append(ids[t], rng.Int64N(int64(d.size.rows(t))))
			}
			lists[t] = embedding.Lists{Feature: fmt.Sprint(t), IDs: ids[t][offset[0]:][:mine]}
			for range mine {
				lists[t].Lengths = append(lists[t].Lengths, 1)
			}
		}
		batch, err := embedding.JaggedOf(d.b.Mesh, d.size.samples, lists, place)
		if err != nil {
			return err
		}
		d.ids, d.batches = append(d.ids, ids), append(d.batches, batch)
	}
	return nil
}

// next is the measured step with the next batch.
func (d *dlrm) next() error {
	d.at = (d.at + 1) % len(d.batches)
	return d.step(d.at)
}

// step is the measured step with a batch.
func (d *dlrm) step(batch int) error {
	_, err := gradients(d.b, func() *dtensor.Tensor { return d.tables.Bags(d.batches[batch]).Values() }, d.seed, d.tables.Params()...)
	return err
}

// check compares the first step with what it must be. The rows are those that a table begins with.
// Of each optimizer here the first step moves an element with a gradient above 0 by the rate,
// whatever the gradient.
func (d *dlrm) check() error {
	bags := func() (values []float32, err error) {
		err = dtensor.Try(d.b.Context(), d.b.Mesh, func() { values = tensor.ToSlice[float32](d.tables.Bags(d.batches[0]).Values().Local()) })
		return values, err
	}
	before, err := bags()
	if err != nil {
		return err
	}
	offset, _ := d.seed.Offset()
	width := len(kaggleRows) * d.size.dim
	for t := range kaggleRows {
		if d.size.rows(t) > 1<<14 { // the whole table on each rank takes its memory and time
			continue
		}
		var whole []float32
		if err := dtensor.Try(d.b.Context(), d.b.Mesh, func() {
			whole = tensor.ToSlice[float32](dtensor.Normal(d.b.Mesh, dtensor.Key{Seed: uint64(t)}, 0, 1, []int{d.size.rows(t), d.size.dim},
				layout.Replicate()).Local())
		}); err != nil {
			return err
		}
		for i := range len(before) / width {
			row := whole[int(d.ids[0][t][offset[0]+i])*d.size.dim:]
			for j := range d.size.dim {
				if got := before[i*width+t*d.size.dim+j]; got != row[j] {
					return fmt.Errorf("sample %d has %v at feature %d of table %d, want %v", offset[0]+i, got, j, t, row[j])
				}
			}
		}
	}
	if err := d.step(0); err != nil {
		return err
	}
	after, err := bags()
	if err != nil {
		return err
	}
	for i := range before {
		if moved := before[i] - after[i]; !(math.Abs(float64(moved)-dlrmRate) < 1e-5) {
			return fmt.Errorf("sample %d, column %d: the first step went from %v to %v, want a step of %v", offset[0]+i/width, i%width, before[i],
				after[i], dlrmRate)
		}
	}
	return nil
}
