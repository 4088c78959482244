package main

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/checkpoint"
	"github.com/gorun-spmd/gorun/data"
	"github.com/gorun-spmd/gorun/data/criteo"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/nn"
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
	stored         bool     // some are on disks

	params   []*dtensor.Tensor
	tables   []func(dtensor.Grad) error // that update one each
	networks optim.Optimizer

	order  *data.Order                // of the lines to train on
	loader *data.Prefetcher[[]*batch] // loads the batch of step next while others are computed
	next   int
	ready  []*batch // of step next-1, on the mesh already, if some tables are on disks

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
		caches, err := stores(t.vocabulary, o, mesh.Size())
		if err != nil {
			return nil, fmt.Errorf("recsys: %w", err)
		}
		layouts, its, err := t.place(ctx, caches)
		if err != nil {
			return nil, err
		}
		t.stored = len(caches) > 0
		tables, plan = tablesFor(t.vocabulary, o, layouts, caches), its
	}
	for _, table := range tables {
		t.names, t.plan = append(t.names, table.Name), append(t.plan, table.Layout.String())
	}
	if t.model, err = newModel(ctx, mesh, o, tables); err != nil {
		return nil, err
	}
	rows := 0
	if keys := t.model.keys; keys != nil {
		t.optimize(keys.Weight(), keys)
		plan, rows = keys.String(), keys.Rows()
		t.params, t.plan = []*dtensor.Tensor{keys.Param()}, []string{plan}
	} else {
		for i, table := range t.model.tables.Tables() {
			t.optimize(table.Resident(), table)
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

// optimize makes the optimizer of a table, of which rows are in memory. It changes them in the backward pass or
// after it.
func (t *trainer) optimize(rows *dtensor.Tensor, table interface {
	Follow(state iter.Seq2[string, *dtensor.Tensor])
	Fuse(update func(rows *dtensor.Rows) error)
}) {
	opt := optim.NewRowAdagrad([]*dtensor.Tensor{rows}, optim.RowAdagradConfig{})
	table.Follow(opt.State())
	update := func(g dtensor.Grad) error {
		t.run.Lift(append(nn.Tensors(opt.State()), rows)...)
		return opt.Step([]dtensor.Grad{g}, t.o.tableRate)
	}
	if t.tables = append(t.tables, update); !t.o.apart {
		table.Fuse(func(rows *dtensor.Rows) error { return update(dtensor.Sparse(rows)) })
	}
}

// setUp says what a run is and what a checkpoint of it has: the tables and the
// networks, and what their optimizers remember, fused ones too.
func (t *trainer) setUp() {
	if t.model.keys != nil {
		t.state.AddGrowing("keys.", t.model.keys)
	} else {
		for i, table := range t.model.tables.Tables() {
			t.state.AddTensor("tables."+t.names[i], table.Weight())
			t.state.AddTensors("optimizer.tables."+t.names[i]+".", table.State())
		}
	}
	for i, p := range t.model.dense() {
		t.state.AddTensor(fmt.Sprintf("networks.%d", i), p)
	}
	t.state.AddTensors("optimizer.networks.", t.networks.State())
	t.run = train.Run{
		Program: "recsys", Advice: "lower -lr or -table-lr", Steps: t.steps(), Unit: "lines", PerStep: min(t.o.batch, t.learn.Rows()),
		Metrics: t.o.metrics, Keep: t.o.keep, Sealed: t.mesh.SameBits(),
		Step: func(ctx context.Context, step int, _ float64) (float64, error) { return t.step(ctx, step) },
	}
	t.run.Keep.State = &t.state
	t.run.Keep.Settings = map[string]string{"seed": fmt.Sprint(t.o.seed), "batch": fmt.Sprint(t.o.batch)}
	if t.model.keys == nil { // rows belong to the values of one log
		t.run.Keep.Settings["data"] = fmt.Sprintf("a log of the values %016x", t.vocabulary.Sum())
	}
}

// place plans where the tables lie, and says it in words. caches has those that are on disks.
func (t *trainer) place(ctx context.Context, caches map[int]int) (layouts []embedding.Layout, overview string, err error) {
	rates := embedding.TypicalRates()
	if t.o.measure {
		if rates, err = embedding.MeasureRates(ctx, t.mesh, "tp"); err != nil {
			return nil, "", err
		}
	}
	part := t.learn.Cut(0, min(t.learn.Rows(), (t.o.batch-1)/t.mesh.Size()+1)) // like a rank's part of a batch
	var demands, stored []embedding.Demand
	for f, rows := range t.vocabulary.Rows {
		sample := make([]int64, part.Rows())
		for i := range sample {
			sample[i] = t.vocabulary.Row(f, part.Codes[i*criteo.Categorical+f])
		}
		d := embedding.Demand{Name: criteo.Feature(f), Rows: rows, Dim: t.o.dim, DType: t.o.dtype(), IDs: 1, Sample: sample}
		if _, ok := caches[f]; ok {
			stored = append(stored, d)
		} else {
			demands = append(demands, d)
		}
	}
	state := tensor.Float32.Size() // the sum of squares of a row
	if t.o.bfloat16 {
		state += t.o.dim * tensor.Float32.Size() // its weights in float32
	}
	plan, err := embedding.NewPlan(demands, rates, embedding.PlanOptions{Axis: "tp", Ranks: t.o.tp, Copies: t.o.dp, Batch: t.o.batch,
		MemoryBytes: int(t.o.memory * 1e6), StateBytes: state})
	if err != nil {
		return nil, "", err
	}
	onDisks, err := placeOnDisks(stored, rates, t.o)
	if err != nil {
		return nil, "", err
	}
	inMemory := plan.Layouts
	var disks []string
	for f, rows := range t.vocabulary.Rows {
		from := &inMemory
		if cache, ok := caches[f]; ok {
			from = &onDisks
			disks = append(disks, fmt.Sprintf("%s (%d of %d rows, %v)", criteo.Feature(f), cache/(t.o.dim*t.o.dtype().Size()), rows, onDisks[0]))
		}
		layouts, *from = append(layouts, (*from)[0]), (*from)[1:]
	}
	overview = plan.Overview()
	if len(disks) > 0 {
		overview += fmt.Sprintf("\non disks in %s, with the rows that are in memory: %s", t.o.store, strings.Join(disks, ", "))
	}
	return layouts, overview, nil
}

// placeOnDisks plans where tables on disks lie. Each rank has rows of its own: in blocks or in turn over tp, or over a mesh that has dp
// too in blocks.
func placeOnDisks(demands []embedding.Demand, rates embedding.Rates, o *options) ([]embedding.Layout, error) {
	if o.dp > 1 {
		return slices.Repeat([]embedding.Layout{embedding.RowWise("dp", "tp")}, len(demands)), nil
	}
	for i := range demands {
		demands[i].Kinds = []embedding.Kind{embedding.RowWiseKind, embedding.RowCyclicKind}
	}
	plan, err := embedding.NewPlan(demands, rates, embedding.PlanOptions{Axis: "tp", Ranks: o.tp, Batch: o.batch})
	if err != nil {
		return nil, err
	}
	return plan.Layouts, nil
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
	parts, err := t.batches(ctx, step)
	if err != nil {
		return 0, err
	}
	total := 0
	for _, b := range parts {
		total += len(b.lines)
	}
	value, grads, err := dtensor.Accumulate(ctx, len(parts), func(part int) *dtensor.Tensor {
		b := parts[part].put()
		mean := loss.BinaryCrossEntropy(t.forward(b), b.labels, loss.Mean)
		if len(parts) == 1 {
			return mean
		}
		return mean.Scale(float64(len(b.lines)) / float64(total))
	}, t.params...)
	if err != nil {
		return 0, err
	}
	n := len(t.tables)
	for i := 0; t.o.apart && i < n; i++ { // else they have been changed already
		if err := t.tables[i](grads[i]); err != nil {
			return 0, err
		}
	}
	t.run.Lift(append(nn.Tensors(t.networks.State()), t.model.dense()...)...)
	if err := t.networks.Step(grads[n:], t.o.rate); err != nil {
		return 0, err
	}
	if t.model.keys != nil {
		t.model.keys.Advance()
	}
	return value.Item(), nil
}

// A batch is lines of a log, and from put on on the mesh.
type batch struct {
	data           *criteo.Data
	lines          []int
	part           *criteo.Part
	counts, labels *dtensor.Tensor
	ids            *embedding.Jagged
}

func (t *trainer) batch(data *criteo.Data, lines []int) *batch {
	return &batch{data: data, lines: lines, part: data.Part(t.mesh, t.vocabulary, lines)}
}

// put puts the batch on the mesh.
func (b *batch) put() *batch {
	if b.counts == nil {
		b.counts, b.labels, b.ids = b.part.Batch()
	}
	return b
}

// load reads the micro-batches of lines. The last batch of an epoch may be small.
func (t *trainer) load(lines []int) (parts []*batch) {
	n := min(t.o.micro, len(lines))
	for part := range n {
		parts = append(parts, t.batch(t.learn, lines[part*len(lines)/n:(part+1)*len(lines)/n]))
	}
	return parts
}

// loaded returns the micro-batches of a step, and has those of the next loaded meanwhile.
func (t *trainer) loaded(step int) ([]*batch, error) {
	if t.loader == nil || step != t.next { // the first of a run
		t.close()
		order := *t.order // of its own, as one goroutine uses an Order
		t.loader = data.Prefetch(step, 1, func(step int) ([]*batch, error) { return t.load(order.Batch(step)), nil })
	}
	t.next = step + 1
	return t.loader.Next()
}

// batches returns the micro-batches of a step. If some tables are on disks, it begins to read from there what the step after
// needs: batches are then put in no scope, for they outlive a step.
func (t *trainer) batches(ctx context.Context, step int) (all []*batch, err error) {
	if all = t.ready; all == nil || step+1 != t.next { // else they were loaded in the step before
		if all, err = t.loaded(step); err != nil {
			return nil, err
		}
	}
	if t.ready = nil; !t.stored || step+1 == t.run.Steps {
		return all, nil
	}
	if t.ready, err = t.loaded(step + 1); err != nil {
		return nil, err
	}
	for _, b := range t.ready {
		b.put()
	}
	return all, dtensor.Try(ctx, t.mesh, func() {
		for _, b := range t.ready {
			t.model.tables.Prefetch(b.ids)
		}
	})
}

// close ends what loads batches.
func (t *trainer) close() {
	if t.loader != nil {
		t.loader.Close()
	}
}

// forward returns the model's logits of a batch, [B].
func (t *trainer) forward(b *batch) *dtensor.Tensor {
	if keys := t.model.keys; keys != nil {
		rows := keys.Lookup(b.data.Keys(t.mesh, b.lines)).Reshape(len(b.lines), criteo.Categorical*t.o.dim)
		return t.model.logits(b.counts, rows)
	}
	return t.model.logits(b.counts, t.model.tables.Bags(b.ids).Values())
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
			logits := t.forward(t.batch(t.heldOut, lines).put())
			all = append(all, tensor.ToSlice[float32](tensor.Cast(logits.Full(), tensor.Float32))...)
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
