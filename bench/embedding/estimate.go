package main

import (
	"fmt"

	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// estimateKinds are the kinds of layout that are measured beside their estimates; the last is what the planner chooses.
var estimateKinds = []struct {
	name  string
	kinds []embedding.Kind
}{
	{"data-parallel", []embedding.Kind{embedding.DataParallelKind}},
	{"row-wise", []embedding.Kind{embedding.RowWiseKind}},
	{"column-wise", []embedding.Kind{embedding.ColumnWiseKind}},
	{"table-wise", []embedding.Kind{embedding.TableWiseKind}},
	{"planned", nil},
}

// runEstimates measures steps with all tables in each layout beside what the planner says that they take.
func runEstimates(b *measure.Bench, sizes []dlrmSize, batches int) error {
	for _, size := range sizes {
		for _, k := range estimateKinds {
			name := fmt.Sprintf("estimate, %s/%v", k.name, size)
			if !b.Wants(name) {
				continue
			}
			if err := measureEstimate(b, name, size, k.kinds, batches); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

func measureEstimate(b *measure.Bench, name string, size dlrmSize, kinds []embedding.Kind, batches int) error {
	d := &dlrm{b: b, size: size, kinds: kinds, state: tensor.Float32.Size()}
	scope := b.Mesh.Device().Open() // the tables and the state of their optimizers go with it
	defer scope.Close()
	if err := d.make(batches, optim.With(optim.NewRowAdagrad, optim.RowAdagradConfig{})); err != nil {
		return err
	}
	return b.CaseErr(name, d.next, func(t measure.Timing) []measure.Field {
		ns := float64(d.plan.Time)
		return []measure.Field{{Name: "estimate_ns", Value: ns}, {Name: "of_median", Value: ns / t.NS}, {Name: "of_least", Value: ns / t.MinNS}}
	})
}
