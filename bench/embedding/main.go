// Command embedding measures lookups in tables that are divided over the ranks,
// forward, and forward with the gradient of the table.
//
//	gorun -np 2 ./bench/embedding            a table
//	gorun -np 2 ./bench/embedding -json      a line of JSON for each case
//
// A case is named after the table's layout, the layout of the result, and sizes:
// "row-wise to S(0)/131072x256/8192" looks up 8192 random ids in a table of
// 131072 rows of 256 float32. The ids are replicated, except where the name says
// otherwise. The gradient of the result is a tensor of ones made
// before; the gradient of the table is row-sparse (dtensor.Rows). "calls_made" lists the
// collectives of a call. Before a case is timed, the result is compared with the rows of the
// whole table, to the bit, and the gradient with how often each id occurs.
//
// The cases "bag" and "collection" sum bags of ids of samples that are sharded, by
// Bag and by a Collection: "collection, mixed/26 tables of 100000x64/2048 of 1" looks up
// 2048 bags of one id in each of 26 tables, whose layouts take turns. The cases "dynamic"
// look up 64-bit keys that all have rows, and insert as many new keys. "keys of a
// dynamic table" only finds and adds keys, on each rank by itself. "mkeys_s_rank" is
// millions of keys per second and rank.
//
// The cases "stored" make steps of training on a table in memory, and on one on a disk with a cache
// of a sixteenth of its rows. "of_memory" is the steps a second of the one on a disk by those of the one in
// memory, "hit_rate" the share of rows that are in the cache without a prefetch. TMPDIR is where the disk is.
//
//	gorun -np 2 ./bench/embedding -dlrm                    the tables of a DLRM
//	gorun -np 2 ./bench/embedding -dlrm -rows 10000000     with their sizes, but one
//
// With -dlrm only these are measured: 26 tables with the sizes of the log of Criteo's Kaggle
// challenge, of -rows rows at most, 64 features and 2048 samples with an id for each table,
// drawn evenly. "dlrm, Adagrad" is the bags, the gradient and the update by that fused
// optimizer; "samples_s_core" is samples per second and rank. A million rows at most take
// 1.4 GB on all ranks together, and ten million 8.6 GB; Adagrad takes as much again, and
// SparseAdam twice as much.
//
//	gorun -np 2 ./bench/embedding -estimate                what the planner says beside what is measured
//
// With -estimate only steps as those of -dlrm are measured, with row-wise Adagrad, in each kind of layout and in what the
// planner chooses. "estimate_ns" is what it says that a step takes, from rates that it has measured just before;
// "of_median" is that by the time measured, and "of_least" by the least time.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"

	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/tensor"
)

func main() {
	only := flag.Bool("dlrm", false, "measure the tables of a DLRM, and nothing else")
	estimates := flag.Bool("estimate", false, "measure steps in each layout beside the planner's estimates, and nothing else")
	rows := flag.Int("rows", 1_000_000, "of a table, at most, with -dlrm")
	measure.Main(func(b *measure.Bench) error {
		switch {
		case *rows < 1:
			return fmt.Errorf("-rows %d: give at least 1", *rows)
		case *estimates:
			return runEstimates(b, []dlrmSize{{5, 16, 512}, {20_000, 16, 512}, {200_000, 64, 2048}}, 16)
		case *only:
			return runDLRM(b, dlrmSize{*rows, 64, 2048}, 16)
		}
		if err := run(b, []size{{50304, 768, 4096}, {131072, 256, 8192}, {1_000_000, 64, 65536}}); err != nil {
			return err
		}
		if err := runDynamic(b, []size{{1_000_000, 64, 65536}}); err != nil {
			return err
		}
		if err := runKeys(b, 10_000_000, 1<<15); err != nil {
			return err
		}
		if err := runStored(b, []storedSize{{1 << 22, 64, 16, 1024, 26, 512}}); err != nil {
			return err
		}
		return runBags(b, []bagSize{{1, 1_000_000, 64, 4096, 16}, {26, 100_000, 64, 2048, 1}, {26, 100_000, 16, 256, 8}})
	})
}

// size is the size of a table [rows, dim], and the number of ids to look up in it.
type size struct{ rows, dim, ids int }

func (s size) String() string { return fmt.Sprintf("%dx%d/%d", s.rows, s.dim, s.ids) }

// variant is the layouts of the table, the ids and the result.
type variant struct {
	name           string
	table, ids, to layout.Placement
}

func variants() []variant {
	R, S := layout.Replicate(), layout.Shard
	return []variant{
		{"row-wise to R", S(0), R, R},
		{"row-wise to S(0)", S(0), R, S(0)},
		{"row-wise, ids S(0)", S(0), S(0), S(0)},
		{"column-wise to R", S(1), R, R},
		{"column-wise to S(1)", S(1), R, S(1)},
		{"data-parallel, ids S(0)", R, S(0), S(0)},
	}
}

func run(b *measure.Bench, sizes []size) error {
	for _, s := range sizes {
		for _, v := range variants() {
			name := v.name + "/" + s.String()
			if !b.Wants(name+"/forward") && !b.Wants(name+"/both") {
				continue
			}
			if err := measureVariant(b, name, v, s); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// lookup is one case with its tensors.
type lookup struct {
	b     *measure.Bench
	table *dtensor.Tensor // [V, D]
	ids   *dtensor.Tensor // [N]
	to    layout.Placement
	seed  *dtensor.Tensor // [N, D], the gradient from above: ones in the layout of the result
	size  size
}

func measureVariant(b *measure.Bench, name string, v variant, s size) error {
	rng := rand.New(rand.NewPCG(7, 0))
	ids := make([]int64, s.ids)
	for i := range ids {
		ids[i] = rng.Int64N(int64(s.rows))
	}
	l := &lookup{
		b: b, to: v.to, size: s,
		table: dtensor.Normal(b.Mesh, dtensor.Key{Seed: 3}, 0, 1, []int{s.rows, s.dim}, v.table),
		ids:   dtensor.Distribute(b.Mesh, tensor.FromSlice(b.Mesh.Device(), ids, s.ids), v.ids),
		seed:  dtensor.Full(b.Mesh, tensor.Float32, 1, []int{s.ids, s.dim}, v.to),
	}
	defer l.table.Local().Free()
	if err := l.check(ids); err != nil {
		return err
	}
	forward := func() error { return dtensor.Try(b.Context(), b.Mesh, func() { l.forward() }) }
	both := func() error {
		_, err := l.both()
		return err
	}
	return measurePhases(b, name, forward, both, l.seed)
}

// measurePhases measures a case forward, and forward with its gradient. out has the size
// of the result.
func measurePhases(b *measure.Bench, name string, forward, both func() error, out *dtensor.Tensor) error {
	for _, c := range []struct {
		phase string
		run   func() error
	}{{"forward", forward}, {"both", both}} {
		made, err := b.Calls(c.run)
		if err != nil {
			return err
		}
		err = b.CaseErr(name+"/"+c.phase, c.run, func(measure.Timing) []measure.Field {
			fields := []measure.Field{{Name: "calls_made", Value: made}}
			m, err := b.Memory(c.run)
			if err != nil {
				return fields // the communicator is dead: the next case says so
			}
			return append(fields, m.Fields(out.Local().Bytes())...)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// forward is the measured lookup.
func (l *lookup) forward() *dtensor.Tensor {
	return embedding.LookupAs(l.table, l.ids, embedding.Options{}, l.to)
}

// both is the lookup and the gradient of the table.
func (l *lookup) both() (dtensor.Grad, error) {
	grads, err := gradients(l.b, l.forward, l.seed, l.table)
	if err != nil {
		return dtensor.Grad{}, err
	}
	return grads[0], nil
}

// gradients returns the gradients of tables if the result of f has the gradient seed. It takes
// them of a scalar function of the result that is 0 and has that gradient.
func gradients(b *measure.Bench, f func() *dtensor.Tensor, seed *dtensor.Tensor, tables ...*dtensor.Tensor) ([]dtensor.Grad, error) {
	_, grads, err := dtensor.ValueAndGrad(b.Context(), func() *dtensor.Tensor {
		out := f()
		zero := dtensor.Zeros(b.Mesh, tensor.Float32, nil, layout.Replicate())
		return dtensor.Record("Seed", zero, []*dtensor.Tensor{out}, func(*dtensor.Tensor) []dtensor.Grad {
			return []dtensor.Grad{dtensor.Dense(seed)}
		})
	}, tables...)
	return grads, err
}
