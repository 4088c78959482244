package dynamictest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/checkpoint"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// A storedProgram is what happens to two equal sets of tables, of which one lies on a disk.
type storedProgram struct {
	rows, width, cache int
	dtype              tensor.DType
	padding            *int
	optimizer          string
	frequency          bool
	norm, normType     *float64
	ops                []storedOp
}

// A storedOp is an operation on the first table, or on the collection of both.
type storedOp struct {
	kind    string // "look up", "look up as", "bags", "equal bags", "collection", "rows"
	train   bool
	ids     []int64 // for equal bags [n/2, 2]
	starts  []int64
	mode    embedding.Mode
	sharded bool
	next    []int64 // prefetched before; nil: nothing
	head    float32 // the factor of the loss
}

func newStoredProgram(n uint64) storedProgram {
	rng := rand.New(rand.NewPCG(n, 5))
	dtypes := []tensor.DType{tensor.Float32, tensor.Float32, tensor.BFloat16, tensor.Float64}
	optimizers := []string{"SparseAdam", "RowAdagrad", "SGD", "Adagrad"}
	p := storedProgram{rows: 1500 + rng.IntN(2500), width: 1 + rng.IntN(6), dtype: dtypes[n%4], optimizer: optimizers[(n+n/4)%4],
		frequency: n%3 == 1}
	if n%2 == 0 {
		row := rng.IntN(p.rows)
		p.padding = &row
	}
	p.cache = (4*160 + rng.IntN(200)) * p.width * p.dtype.Size() // on each of 4 ranks twice the rows of a step
	for range 40 {
		o := storedOp{kind: []string{"look up", "look up", "look up as", "bags", "equal bags", "collection", "rows"}[rng.IntN(7)],
			train: rng.IntN(4) > 0, mode: []embedding.Mode{embedding.Sum, embedding.Mean, embedding.Max}[rng.IntN(3)], sharded: rng.IntN(2) == 0,
			head: float32(1+rng.IntN(8)) / 8}
		o.ids = p.someIDs(rng, 2*rng.IntN(40))
		if rng.IntN(2) == 0 {
			o.next = p.someIDs(rng, rng.IntN(60))
		}
		if o.kind == "bags" {
			for at := 0; at < len(o.ids); at += rng.IntN(5) {
				o.starts = append(o.starts, int64(at))
			}
		}
		if p.frequency && o.mode == embedding.Max {
			o.mode = embedding.Sum
		}
		if !o.train && rng.IntN(3) == 0 {
			o.ids = p.someIDs(rng, 2*p.rows) // more rows than the cache holds
		}
		p.ops = append(p.ops, o)
	}
	for i := range p.ops[1:] {
		if rng.IntN(2) == 0 {
			p.ops[i].next = p.ops[i+1].ids
		}
	}
	if n%8 > 2 { // nearly all rows are longer at first, and updates make some longer again
		p.norm, p.normType = new(0.3+rng.Float64()/2), []*float64{nil, new(1.0), new(3.0), new(math.Inf(1))}[rng.IntN(4)]
	}
	return p
}

func (p *storedProgram) someIDs(rng *rand.Rand, n int) []int64 {
	ids := make([]int64, n)
	for i := range ids {
		if ids[i] = int64(float64(p.rows) * rng.Float64() * rng.Float64()); p.padding != nil && rng.IntN(8) == 0 {
			ids[i] = int64(*p.padding)
		}
	}
	return ids
}

// A storedSide is the tables in memory, or on a disk.
type storedSide struct {
	c      *embedding.Collection // nil: there is one table only
	tables []*embedding.Table
	state  checkpoint.State
}

// newStoredSide makes the tables; folder is "" for memory.
func (p *storedProgram) newStoredSide(mesh *dtensor.Mesh, folder string, l embedding.Layout) *storedSide {
	var tables []embedding.CollectionTable
	for i, name := range []string{"users", "items"} {
		c := embedding.Config{Name: name, Rows: p.rows / (i + 1), Dim: p.width, DType: p.dtype, Layout: l, Key: dtensor.Key{Seed: uint64(i)},
			Std:             0.5,
			ScaleGradByFreq: p.frequency, MaxNorm: p.norm, NormType: p.normType}
		if i == 0 {
			c.PaddingIdx = p.padding
		}
		if folder != "" {
			c.Store, c.Cache = folder, p.cache
		}
		tables = append(tables, embedding.CollectionTable{Config: c, Features: []string{name}, Mode: embedding.Sum})
	}
	s := &storedSide{}
	if p.dtype == tensor.Float64 { // which collections do not take
		s.addTable(p, embedding.NewTable(mesh, tables[0].Config))
		return s
	}
	s.c = embedding.NewCollection(mesh, tables...)
	for _, t := range s.c.Tables() {
		s.addTable(p, t)
	}
	return s
}

// addTable makes the optimizer of a table.
func (s *storedSide) addTable(p *storedProgram, t *embedding.Table) {
	params := []*dtensor.Tensor{t.Resident()}
	var opt optim.Optimizer
	switch p.optimizer {
	case "SGD":
		opt = optim.NewSGD(params, optim.SGDConfig{})
	case "RowAdagrad":
		opt = optim.NewRowAdagrad(params, optim.RowAdagradConfig{})
	case "Adagrad":
		opt = optim.NewAdagrad(params, optim.AdagradConfig{})
	default:
		opt = optim.NewSparseAdam(params, optim.SparseAdamConfig{})
	}
	t.Follow(opt.State())
	t.Fuse(func(rows *dtensor.Rows) error { return opt.Step([]dtensor.Grad{dtensor.Sparse(rows)}, 0.1) })
	dtensor.Keep(t.Weight())
	prefix := fmt.Sprintf("table %d.", len(s.tables))
	s.tables = append(s.tables, t)
	s.state.AddTensors(prefix, t.Params())
	s.state.AddTensors(prefix, t.State())
}

// batch returns a batch of one id a sample and feature.
func (p *storedProgram) batch(mesh *dtensor.Mesh, ids []int64, sharded bool) (*embedding.Jagged, error) {
	places := mesh.Every(layout.Replicate())
	if sharded {
		places[len(places)-1] = layout.Shard(0)
	}
	spread := dtensor.Zeros(mesh, tensor.Int64, []int{len(ids)}, places...)
	offset, _ := spread.Offset()
	first, n := offset[0], spread.LocalShape()[0]
	lengths := slices.Repeat([]int{1}, 2*n)
	list := slices.Clone(ids[first : first+n])
	for _, id := range ids[first : first+n] {
		list = append(list, id%int64(p.rows/2))
	}
	return embedding.NewJagged(mesh, []string{"users", "items"}, len(ids), lengths, list, nil, places...)
}

// run does an operation and returns what it looks up.
func (s *storedSide) run(ctx context.Context, mesh *dtensor.Mesh, p *storedProgram, o storedOp) (out []float64, err error) {
	every := mesh.Every(layout.Replicate())
	places := slices.Clone(every)
	if o.sharded {
		places[len(places)-1] = layout.Shard(0)
	}
	ids := func(list []int64, shape ...int) *dtensor.Tensor {
		return dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), list, shape...), places...)
	}
	table := s.tables[0]
	params := []*dtensor.Tensor{table.Param()}
	if s.c == nil && (o.kind == "collection" || o.kind == "rows") {
		o.kind = "look up"
	}
	forward := func() *dtensor.Tensor {
		var h *dtensor.Tensor
		switch o.kind {
		case "look up":
			h = table.Lookup(ids(o.ids, len(o.ids))).Reduced()
		case "look up as":
			h = table.LookupAs(ids(o.ids, len(o.ids)), every...)
		case "bags":
			places = every
			h = table.Bag(ids(o.ids, len(o.ids)), ids(o.starts, len(o.starts)), nil, o.mode).Reduced()
		case "equal bags":
			h = table.Bag(ids(o.ids, len(o.ids)/2, 2), nil, nil, o.mode).Reduced()
		default:
			j, err := p.batch(mesh, o.ids, o.sharded)
			if err != nil {
				panic(err)
			}
			if o.kind == "collection" {
				h = s.c.Bags(j).Values()
			} else {
				r := s.c.Rows(j)
				h = r.Feature("users").Add(r.Feature("items"))
			}
		}
		out = tensor.ToSlice[float64](tensor.Cast(h.Detach().Full(), tensor.Float64))
		h = h.Cast(tensor.Float32)
		return h.Mul(h).Sum(nil, false).Scale(float64(o.head))
	}
	err = dtensor.Try(ctx, mesh, func() {
		if o.next != nil {
			if s.c != nil && o.head > 0.5 {
				j, err := p.batch(mesh, o.next, o.sharded)
				if err != nil {
					panic(err)
				}
				s.c.Prefetch(j)
			} else {
				table.Prefetch(ids(o.next, len(o.next)))
			}
		}
		if !o.train {
			forward()
		}
	})
	if err == nil && o.train {
		if s.c != nil {
			params = s.c.Params()
		}
		_, _, err = dtensor.ValueAndGrad(ctx, forward, params...)
	}
	return out, err
}

// saved returns all that a checkpoint has.
func (s *storedSide) saved() (all []float64) {
	for _, t := range s.tables {
		for _, x := range t.Params() {
			all = append(all, tensor.ToSlice[float64](tensor.Cast(x.Full(), tensor.Float64))...)
		}
		for _, x := range t.State() {
			all = append(all, tensor.ToSlice[float64](tensor.Cast(x.Full(), tensor.Float64))...)
		}
	}
	return all
}

// TestStoredPrograms runs random programs on tables on a disk, with a cache of a part of their rows, and
// on equal ones in memory: all that is looked up and saved has the same bits. Checkpoints of each
// are loaded by the other, under other numbers of ranks. Their digests are equal.
func TestStoredPrograms(t *testing.T) {
	storedPrograms(t, func(int) []int { return nil }, func(ranks, i int) embedding.Layout {
		return []embedding.Layout{embedding.RowWise("tp"), embedding.TableWise("tp", ranks-1), embedding.RowCyclic("tp")}[i%3]
	})
}

// So are tables whose columns are divided, of which a rank may have none, and whose rows are too.
func TestStoredProgramsOfColumns(t *testing.T) {
	grid := func(ranks int) []int { return []int{ranks / max(1, ranks-2), max(1, ranks-2)} } // 1x1, 2x1, 3x1 and 2x2
	storedPrograms(t, grid, func(ranks, i int) embedding.Layout {
		if ranks == 3 {
			return []embedding.Layout{embedding.ColumnWise("dp"), embedding.ColumnWiseOn("dp", 0, 2, 2), embedding.RowWise("dp")}[i%3]
		}
		return []embedding.Layout{embedding.ColumnWise("dp", "tp"), embedding.Grid("dp", "tp"), embedding.Grid("tp", "dp")}[i%3]
	})
}

// storedPrograms runs the programs on meshes of the sizes that shape gives, nil for one axis, in layouts by ranks and a number.
func storedPrograms(t *testing.T, shape func(ranks int) []int, layoutOf func(ranks, i int) embedding.Layout) {
	for n := range uint64(max(8, *programs)) {
		p := newStoredProgram(n)
		dir := t.TempDir()
		hits := ""
		run := func(ranks, from, to int) {
			t.Helper()
			commtest.Run(t, ranks, func(ctx context.Context, world *comm.Comm) error {
				axes := []dtensor.Axis{{Name: "tp", Size: ranks}}
				if sizes := shape(ranks); sizes != nil {
					axes = []dtensor.Axis{{Name: "dp", Size: sizes[0]}, {Name: "tp", Size: sizes[1]}}
				}
				mesh, err := dtensor.NewMesh(world, axes...)
				if err != nil {
					return err
				}
				mesh.SetSameBits(n%5 == 4)
				l := layoutOf(ranks, int(n/2+uint64(from)))
				var sides [2]*storedSide
				err = dtensor.Try(ctx, mesh, func() {
					sides = [2]*storedSide{p.newStoredSide(mesh, "", l), p.newStoredSide(mesh, filepath.Join(dir, "store"), l)}
				})
				if err != nil {
					return err
				}
				folder := func(side, step int) string { return filepath.Join(dir, fmt.Sprintf("%d/step-%06d", side, step)) }
				if from > 0 {
					for i, s := range sides {
						if err := checkpoint.Load(ctx, world, folder(1-i, from), &s.state, checkpoint.LoadOptions{}); err != nil {
							return err
						}
					}
				}
				for i := from; i < to; i++ {
					var got [2][]float64
					for k, s := range sides {
						if got[k], err = s.run(ctx, mesh, &p, p.ops[i]); err != nil {
							return fmt.Errorf("program %d on %d ranks, operation %d, %s, side %d: %w", n, ranks, i, p.ops[i].kind, k, err)
						}
					}
					if !slices.Equal(got[0], got[1]) {
						return fmt.Errorf("program %d on %d ranks, operation %d, %s: on a disk %v, in memory %v", n, ranks, i, p.ops[i].kind, got[1],
							got[0])
					}
				}
				var all [2][]float64
				var sums [2]string
				for i, s := range sides {
					digests, err := checkpoint.Digests(ctx, world, &s.state)
					if err != nil {
						return err
					}
					sum, err := checkpoint.SHA256(ctx, world, &s.state)
					if err != nil {
						return err
					}
					sums[i] = fmt.Sprint(digests, sum)
					store, err := checkpoint.Open(ctx, world, filepath.Join(dir, fmt.Sprint(i)), checkpoint.Options{})
					if err != nil {
						return err
					}
					if err := store.Save(ctx, to, &s.state); err != nil {
						return err
					}
					if err := store.Wait(); err != nil {
						return err
					}
					err = dtensor.Try(ctx, mesh, func() { // into new tables in memory
						fresh := p.newStoredSide(mesh, "", l)
						if err := checkpoint.Load(ctx, world, folder(i, to), &fresh.state, checkpoint.LoadOptions{}); err != nil {
							panic(err)
						}
						all[i] = fresh.saved()
					})
					if err != nil {
						return err
					}
				}
				if sums[0] != sums[1] {
					return fmt.Errorf("program %d on %d ranks: digests after operation %d are %s on a disk, %s in memory", n, ranks, to, sums[1],
						sums[0])
				}
				if !slices.Equal(all[0], all[1]) {
					return fmt.Errorf("program %d on %d ranks: what is saved after operation %d differs", n, ranks, to)
				}
				return dtensor.Try(ctx, mesh, func() {
					s := sides[1].tables[0].StoreStats()
					if world.Rank() == 0 && from > 0 && (s.BytesRead == 0 || s.BytesWritten == 0) {
						panic(fmt.Sprintf("program %d never used its disk: %v", n, s))
					}
					if world.Rank() == 0 {
						hits += s.String() + "; "
					}
				})
			})
			if t.Failed() {
				t.FailNow()
			}
		}
		run(3, 0, 10)
		run(1, 10, 20)
		run(4, 20, 30)
		run(2, 30, len(p.ops))
		t.Logf("program %d, %s of %v: %s", n, p.optimizer, p.dtype, hits)
	}
}
