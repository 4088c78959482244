// Command 16-dlrm trains a DLRM (Naumov et al. 2019, arXiv 1906.00091) on a click log of
// Criteo's format. The batch is divided over all ranks; a planner says where each of the 26
// tables lies. Then it says how well the model tells clicks in the last tenth of the log, which
// it has not seen: 0.5 is that of a guess. Without -data it invents a log.
//
//	gorun -np 4 ./examples/16-dlrm
//	gorun -np 2 ./examples/16-dlrm -data train.txt.gz -lines 0 -steps 20000 -checkpoint /tmp/clicks
//
// Output:
//
//	area under the curve: 0.73
package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/data"
	"github.com/gorun-spmd/gorun/data/criteo"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/metrics"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/runtime"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/train"
)

const width, batch, vectors = 16, 256, 1 + criteo.Categorical

// A dlrm multiplies vectors with each other: one of the counts, and one of each category. B is the batch, D the width.
type dlrm struct {
	tables      *embedding.Collection // 26 of [rows, D]
	bottom, top nn.Sequential         // 13 → 64 → D, D + 351 → 64 → 1
}

func newDLRM(mesh *dtensor.Mesh, v *criteo.Vocabulary) (*dlrm, error) {
	var tables []embedding.CollectionTable
	for f, rows := range v.Rows {
		name := criteo.Feature(f)
		tables = append(tables, embedding.CollectionTable{Features: []string{name}, Config: embedding.Config{Name: name, Rows: rows,
			Dim: width, Std: 0.1, Key: dtensor.Key{Seed: 1, Stream: uint64(1000 + f)}}})
	}
	o := embedding.PlanOptions{Axis: "tp", Ranks: mesh.Size(), Batch: batch, StateBytes: 4}
	if _, err := embedding.PlanTables(tables, embedding.TypicalRates(), o); err != nil {
		return nil, err
	}
	init, gelu := nn.NewInit(mesh, 1), (*dtensor.Tensor).Gelu
	return &dlrm{embedding.NewCollection(mesh, tables...),
		append(nn.NewLinears(init, gelu, criteo.Dense, 64, width), nn.Func(gelu)),
		nn.NewLinears(init, gelu, width+vectors*(vectors-1)/2, 64, 1)}, nil
}

// logits returns a score of each line, [B] S(0).
func (m *dlrm) logits(counts *dtensor.Tensor, ids *embedding.Jagged) *dtensor.Tensor { // [B, 13] S(0), B samples S(0)
	x := m.bottom.Forward(counts)                                                     // [B, D] S(0)
	all := dtensor.Cat(1, x, m.tables.Bags(ids).Values()).Reshape(-1, vectors, width) // [B, 27, D] S(0)
	return m.top.Forward(dtensor.Cat(1, x, nn.DotInteraction(all))).Flatten(0, 1)     // [B, D + 351] → [B]
}

func main() { runtime.Main(run) }

func run(ctx context.Context, world *comm.Comm) error {
	var keep train.Keep
	f := flag.NewFlagSet("16-dlrm", flag.ContinueOnError)
	file, lines := f.String("data", "", "learn the clicks in this `file`"), f.Int("lines", 20_000, "of the log; 0: all of a file")
	steps := f.Int("steps", 70, "to make")
	keep.Flags(f, 1000, "-np")
	if err := train.Parse(world, f); err != nil {
		return err
	}
	log, _, err := criteo.Load(ctx, world, *file, criteo.Options{Rows: *lines, Seed: 1})
	if err != nil {
		return err
	}
	cut := log.Rows() * 9 / 10
	known := criteo.NewVocabulary(log.Cut(0, cut), 100_000)
	order, err := data.NewOrder(cut, batch, 1)
	if err != nil {
		return err
	}
	mesh, err := train.NewMesh(world, 1, 0)
	if err != nil {
		return err
	}
	m, err := newDLRM(mesh, known)
	if err != nil {
		return err
	}
	tables, dense := nn.List[*embedding.Table](m.tables.Tables()), nn.Join([]string{"bottom", "top"}, m.bottom, m.top)
	params := nn.Join([]string{"tables", "bottom", "top"}, tables, m.bottom, m.top)
	r := train.Run{Program: "16-dlrm", Advice: "lower the rates", Steps: *steps, Unit: "lines", PerStep: batch,
		Loss: func(step, _ int) *dtensor.Tensor {
			counts, labels, ids := log.Batch(mesh, known, order.Batch(step))
			return loss.BinaryCrossEntropy(m.logits(counts, ids), labels, loss.Mean)
		},
		Params: params, Rate: optim.Constant{Rate: 1}, Keep: keep, Optimizer: optim.NewGroups(nn.Tensors(params),
			optim.Group{Params: m.tables.Params(), Rate: 0.05, New: optim.With(optim.NewRowAdagrad, optim.RowAdagradConfig{})},
			optim.Group{Params: nn.Tensors(dense), Rate: 0.002, New: optim.With(optim.NewAdamW, optim.AdamWConfig{})})}
	if err := r.Do(ctx, world, nil); err != nil {
		return err
	}
	return dtensor.Try(ctx, mesh, func() {
		rest := make([]int, log.Rows()-cut)
		for i := range rest {
			rest[i] = cut + i
		}
		counts, _, ids := log.Batch(mesh, known, rest)
		scores := tensor.ToSlice[float32](m.logits(counts, ids).Full())
		if auc, ok := metrics.AUC(scores, log.Labels[cut:]); ok && world.Rank() == 0 {
			fmt.Printf("area under the curve: %.2f\n", auc)
		}
	})
}
