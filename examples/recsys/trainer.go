package main

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/checkpoint"
	"github.com/gorun-spmd/gorun/data"
	"github.com/gorun-spmd/gorun/data/criteo"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/train"
)

// A trainer trains one model on one log.
type trainer struct {
	o     *options
	mesh  *dtensor.Mesh
	model *model

	learn, heldOut *criteo.Data
	vocabulary     *criteo.Vocabulary
	names          []string // of the tables
	plan           []string // how the tables lie

	params   []*dtensor.Tensor
	tables   []optim.Optimizer // one a table
	networks optim.Optimizer

	order *data.Order // of the lines to train on

	state checkpoint.State
	run   train.Run
}

func newTrainer(ctx context.Context, mesh *dtensor.Mesh, log *criteo.Data, o *options, say func(string, ...any)) (*trainer, error) {
	cut := log.Rows() - max(1, log.Rows()/10) // the last tenth, later in time, is held out
	order, err := data.NewOrder(cut, o.batch, o.seed)
	if err != nil {
		return nil, err
	}
	t := &trainer{o: o, mesh: mesh, learn: log.Cut(0, cut), heldOut: log.Cut(cut, log.Rows()), order: order}
	t.vocabulary = criteo.NewVocabulary(t.learn, o.tableRows)
	var tables []embedding.CollectionTable
	var plan string
	if o.dynamic == 0 {
		p, err := t.place(ctx)
		if err != nil {
			return nil, err
		}
		tables, plan = tablesFor(t.vocabulary, o, p.Layouts), p.Overview()
	}
	for _, table := range tables {
		t.names, t.plan = append(t.names, table.Name), append(t.plan, table.Layout.String())
	}
	if t.model, err = newModel(ctx, mesh, o, tables); err != nil {
		return nil, err
	}
	rows := 0
	if keys := t.model.keys; keys != nil {
		keys.Follow(t.optimize(keys).State())
		plan, rows = keys.String(), keys.Rows()
		t.params, t.plan = []*dtensor.Tensor{keys.Param()}, []string{plan}
	} else {
		for i, table := range t.model.tables.Tables() {
			t.optimize(table)
			rows += t.vocabulary.Rows[i]
		}
		t.params = t.model.tables.Params()
	}
	t.params = append(t.params, t.model.dense()...)
	t.networks = optim.NewAdamW(t.model.dense(), optim.AdamWConfig{})
	say("log: %s, %d lines to train on, %d held out", o.source(), t.learn.Rows(), t.heldOut.Rows())
	say("model: %d tables of %d rows together, %d features; mesh %v", len(t.tables), rows, o.dim, mesh)
	say("%s", plan)
	t.setUp()
	return t, nil
}

// optimize makes the optimizer of a table, which changes its rows in the backward pass or
// after it.
func (t *trainer) optimize(table interface {
	Weight() *dtensor.Tensor
	Fuse(update func(rows *dtensor.Rows) error)
}) optim.Optimizer {
	opt := optim.NewRowAdagrad([]*dtensor.Tensor{table.Weight()}, optim.RowAdagradConfig{})
	if t.tables = append(t.tables, opt); !t.o.apart {
		table.Fuse(func(rows *dtensor.Rows) error { return opt.Step([]dtensor.Grad{dtensor.Sparse(rows)}, t.o.tableRate) })
	}
	return opt
}

// setUp says what a run is and what a checkpoint of it has: the tables and the
// networks, and what their optimizers remember, fused ones too.
func (t *trainer) setUp() {
	if t.model.keys != nil {
		t.state.AddGrowing("keys.", t.model.keys)
	} else {
		for i, table := range t.model.tables.Tables() {
			t.state.AddTensor("tables."+t.names[i], table.Weight())
			t.state.AddTensors("optimizer.tables."+t.names[i]+".", t.tables[i].State())
		}
	}
	for i, p := range t.model.dense() {
		t.state.AddTensor(fmt.Sprintf("networks.%d", i), p)
	}
	t.state.AddTensors("optimizer.networks.", t.networks.State())
	t.run = train.Run{
		Program: "recsys", Advice: "lower -lr or -table-lr", Steps: t.steps(), Unit: "lines", PerStep: min(t.o.batch, t.learn.Rows()),
		Metrics: t.o.metrics, Keep: t.o.keep,
		Step: func(ctx context.Context, step int, _ float64) (float64, error) { return t.step(ctx, step) },
	}
	t.run.Keep.State = &t.state
	t.run.Keep.Settings = map[string]string{"seed": fmt.Sprint(t.o.seed), "batch": fmt.Sprint(t.o.batch)}
	if t.model.keys == nil { // rows belong to the values of one log
		t.run.Keep.Settings["data"] = fmt.Sprintf("a log of the values %016x", t.vocabulary.Sum())
	}
}

// place plans where the tables lie.
func (t *trainer) place(ctx context.Context) (*embedding.Plan, error) {
	rates := embedding.TypicalRates()
	if t.o.measure {
		var err error
		if rates, err = embedding.MeasureRates(ctx, t.mesh, "tp"); err != nil {
			return nil, err
		}
	}
	part := t.learn.Cut(0, min(t.learn.Rows(), (t.o.batch-1)/t.mesh.Size()+1)) // like a rank's part of a batch
	var demands []embedding.Demand
	for f, rows := range t.vocabulary.Rows {
		sample := make([]int64, part.Rows())
		for i := range sample {
			sample[i] = t.vocabulary.Row(f, part.Codes[i*criteo.Categorical+f])
		}
		demands = append(demands, embedding.Demand{Name: criteo.Feature(f), Rows: rows, Dim: t.o.dim, IDs: 1, Sample: sample})
	}
	return embedding.NewPlan(demands, rates, embedding.PlanOptions{Axis: "tp", Ranks: t.o.tp, Copies: t.o.dp, Batch: t.o.batch,
		MemoryBytes: int(t.o.memory * 1e6), StateBytes: tensor.Float32.Size()})
}

// steps returns how many steps to make.
func (t *trainer) steps() int {
	if t.o.steps > 0 {
		return t.o.steps
	}
	return t.o.epochs * t.order.Steps()
}

// step makes one step and returns the loss from before it.
func (t *trainer) step(ctx context.Context, step int) (float64, error) {
	lines := t.order.Batch(step)
	value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		logits, labels := t.forward(t.learn, lines)
		return loss.BinaryCrossEntropy(logits, labels, loss.Mean)
	}, t.params...)
	if err != nil {
		return 0, err
	}
	n := len(t.tables)
	for i := 0; t.o.apart && i < n; i++ { // else they have been changed already
		if err := t.tables[i].Step(grads[i:i+1], t.o.tableRate); err != nil {
			return 0, err
		}
	}
	if err := t.networks.Step(grads[n:], t.o.rate); err != nil {
		return 0, err
	}
	if t.model.keys != nil {
		t.model.keys.Advance()
	}
	return value.Item(), nil
}

// forward returns the model's logits of some lines, [B], and their labels.
func (t *trainer) forward(data *criteo.Data, lines []int) (logits, labels *dtensor.Tensor) {
	counts, labels, ids := data.Batch(t.mesh, t.vocabulary, lines)
	if keys := t.model.keys; keys != nil {
		rows := keys.Lookup(data.Keys(t.mesh, lines)).Reshape(len(lines), criteo.Categorical*t.o.dim)
		return t.model.logits(counts, rows), labels
	}
	return t.model.logits(counts, t.model.tables.Bags(ids).Values()), labels
}

// logits returns the model's logits of the held-out lines, on every rank.
func (t *trainer) logits(ctx context.Context) ([]float32, error) {
	var all []float32
	size := max(t.o.batch, 4096)
	for first := 0; first < t.heldOut.Rows(); first += size {
		var lines []int
		for i := first; i < min(first+size, t.heldOut.Rows()); i++ {
			lines = append(lines, i)
		}
		err := dtensor.Try(ctx, t.mesh, func() {
			logits, _ := t.forward(t.heldOut, lines)
			all = append(all, tensor.ToSlice[float32](logits.Full())...)
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
