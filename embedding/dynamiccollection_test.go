package embedding_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// A mixture is a program of a collection with tables of keys and of rows.
type mixture struct {
	samples  int
	mode     embedding.Mode
	weighted bool
	shared   bool // samples share lists
	fused    bool
	narrow   bool
	rows     bool // Rows, not Bags
	even     bool // lists of one id, in rows of one width
	admit    int
	lists    [][][][]int64 // by step, feature and sample
}

var mixedFeatures = []string{"row", "key", "more", "other"} // of the tables "rows", "keys" twice, and "others"

func someMixture(rng *rand.Rand) *mixture {
	x := &mixture{samples: rng.IntN(8), mode: embedding.Mode(rng.IntN(3)), weighted: rng.IntN(3) == 0, shared: rng.IntN(3) == 0,
		fused: rng.IntN(2) == 0, narrow: rng.IntN(4) == 0, rows: rng.IntN(3) == 0,
		even: rng.IntN(3) == 0, admit: rng.IntN(3)}
	if x.weighted {
		x.mode = embedding.Sum
	}
	for range 4 {
		step := make([][][]int64, len(mixedFeatures))
		for f := range step {
			step[f] = make([][]int64, x.samples)
			for s := range step[f] {
				if x.shared && s > 0 && rng.IntN(2) == 0 {
					step[f][s] = step[f][s-1]
					continue
				}
				n := rng.IntN(4)
				if x.even {
					n = 1
				}
				for range n {
					id := rng.Int64N(6)
					if f > 0 && rng.IntN(8) > 0 { // keys of few slices, so that they lose their rows
						id = rng.Int64N(40) * 1e15
					}
					step[f][s] = append(step[f][s], id)
				}
			}
		}
		x.lists = append(x.lists, step)
	}
	return x
}

// batch returns the samples of a step.
func (x *mixture) batch(m *dtensor.Mesh, step int, places []layout.Placement) (*embedding.Jagged, error) {
	spread := dtensor.Zeros(m, tensor.Int64, []int{x.samples}, places...)
	offset, _ := spread.Offset()
	var all []embedding.Lists
	for f, name := range mixedFeatures {
		l := embedding.Lists{Feature: name}
		for s := offset[0]; s < offset[0]+spread.LocalShape()[0]; s++ {
			its := x.lists[step][f][s]
			if x.shared && s > offset[0] && slices.Equal(its, x.lists[step][f][s-1]) {
				l.Inverse = append(l.Inverse, len(l.Lengths)-1)
				continue
			}
			l.Lengths, l.IDs = append(l.Lengths, len(its)), append(l.IDs, its...)
			l.Inverse = append(l.Inverse, len(l.Lengths)-1)
			for _, id := range its {
				l.Weights = append(l.Weights, float32(id%7)/4)
			}
		}
		if !x.weighted {
			l.Weights = nil
		}
		if !x.shared {
			l.Inverse = nil
		}
		all = append(all, l)
	}
	return embedding.JaggedOf(m, x.samples, all, places...)
}

// tables makes the tables: of rows in a layout, and of keys over an axis each.
func (x *mixture) tables(m *dtensor.Mesh, rows embedding.Layout, axes ...string) (*embedding.Collection, []*embedding.Dynamic) {
	dt, size := tensor.Float32, 4
	if x.narrow {
		dt, size = tensor.BFloat16, 2
	}
	var keys []*embedding.Dynamic
	for i, axis := range axes {
		dim := 2 + i
		if x.even {
			dim = 3
		}
		keys = append(keys, embedding.NewDynamic(m, embedding.DynamicConfig{Name: []string{"keys", "others"}[i], Axis: axis, Dim: dim,
			Budget: 256 * dim * size, DType: dt, Seed: uint64(7 + i), AdmitAfter: x.admit, ExpireAfter: 2})) // one row a slice
	}
	c := embedding.NewCollection(m,
		embedding.CollectionTable{Features: mixedFeatures[1:3], Mode: x.mode, Dynamic: keys[0]},
		embedding.CollectionTable{Features: mixedFeatures[:1], Mode: x.mode,
			Config: embedding.Config{Name: "rows", Rows: 6, Dim: 3, Layout: rows, Key: dtensor.Key{Seed: 3}, DType: dt}},
		embedding.CollectionTable{Features: mixedFeatures[3:], Mode: x.mode, Dynamic: keys[1]})
	return c, keys
}

// An adagrad is row-wise Adagrad of a table, which remembers a number for each row.
type adagrad struct{ table, sums *dtensor.Tensor }

func newAdagrad(params []*dtensor.Tensor) embedding.Optimizer {
	w := params[0]
	places := w.Placements()
	for axis, p := range places {
		if p.Shards(1) {
			places[axis] = replicate
		}
	}
	sums := dtensor.Zeros(w.Mesh(), tensor.Float32, []int{w.Dim(0)}, places...)
	sums.Local().Persist()
	return &adagrad{w, sums}
}

func (a *adagrad) Step(grads []dtensor.Grad, lr float64) error {
	rows, ok := grads[0].Rows()
	if !ok {
		return errors.New("the gradient is dense")
	}
	rows = rows.Distinct() // those of a table on a disk are in one order on all ranks, though not in slots of one number
	offset, _ := a.table.Offset()
	its := tensor.Rows{Index: tensor.AddScalar(rows.Index, -float64(offset[0])), Values: rows.Values}
	numbers := tensor.Arange(its.Index.Device(), tensor.Int64, 0, its.Index.Numel())
	squares := tensor.RowPowSums(dtensor.WholeRows(a.table, its.Values), numbers, 2)
	means := tensor.Cast(squares, tensor.Float64)
	tensor.Adagrad{LR: lr, Eps: 1e-10}.StepRows(a.table.Local(), its, a.sums.Local(), means)
	return nil
}

func (a *adagrad) State() iter.Seq2[string, *dtensor.Tensor] {
	return func(yield func(string, *dtensor.Tensor) bool) { yield("sum.0", a.sums) }
}

// run trains the tables and returns what is looked up, the rows in the end, and what has happened to keys.
func (x *mixture) run(ctx context.Context, m *dtensor.Mesh, c *embedding.Collection, keys []*embedding.Dynamic,
	places []layout.Placement) (numbers []float64, happened string, err error) {
	if x.fused {
		c.Fuse(embedding.FusedOptimizer{New: newAdagrad, Rate: 0.5})
	}
	every := m.Every(replicate)
	for step := range x.lists {
		j, err := x.batch(m, step, places)
		if err != nil {
			return nil, "", err
		}
		_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			var parts []*dtensor.Tensor
			if x.rows {
				all := c.Rows(j)
				for _, name := range mixedFeatures {
					parts = append(parts, all.Feature(name))
				}
			} else {
				parts = append(parts, c.Bags(j).Values())
			}
			sum := dtensor.Zeros(m, tensor.Float32, nil, every...)
			for _, y := range parts {
				numbers = append(numbers, whole(y.Detach())...)
				y = y.Cast(tensor.Float32)
				sum = sum.Add(y.Mul(y).Sum(nil, false))
			}
			return sum
		}, c.Params()...)
		if err != nil {
			return nil, "", err
		}
		if !x.fused {
			for t, table := range c.Tables() {
				rows, ok := grads[t].Rows()
				if !ok {
					return nil, "", fmt.Errorf("the gradient of table %d is dense", t)
				}
				makers["SGD"](table.Weight())(rows, 0.5)
			}
		}
		for _, d := range keys {
			d.Advance()
			happened += fmt.Sprintln(d.Stats())
		}
	}
	for _, d := range keys {
		all := d.Keys()
		happened += fmt.Sprintln(all)
		for _, row := range rowsOf(m, d, append(all, -1)) {
			numbers = append(numbers, row...)
		}
	}
	return append(numbers, whole(c.Tables()[1].Weight())...), happened, nil
}

// A collection of tables of keys and of rows gives on every mesh what it gives on one rank, bags and rows, gradients, and
// which keys have a row; with same bits to the bit.
func TestCollectionWithKeysOnMeshes(t *testing.T) {
	layouts := []func(a, b string) embedding.Layout{
		func(a, b string) embedding.Layout { return embedding.Replicated() },
		func(a, b string) embedding.Layout { return embedding.RowWise(a) },
		func(a, b string) embedding.Layout { return embedding.ColumnWise(b) },
		func(a, b string) embedding.Layout { return embedding.Grid(a, b) },
		func(a, b string) embedding.Layout { return embedding.RowCyclic(b) },
	}
	meshtest.Random(t, func(rng *rand.Rand, i int) {
		x, same := someMixture(rng), rng.IntN(3) == 0
		var want []float64
		var happened string
		for _, mesh := range [][]int{{1, 1}, {1 + rng.IntN(3), 1 + rng.IntN(3)}, {1, 4}, {2, 2}} {
			places := []layout.Placement{replicate, replicate}
			for axis := range places {
				if rng.IntN(2) == 0 && !(x.rows && axis == 1 && places[0] == shard0) { // Rows refuses samples over two axes
					places[axis] = shard0
				}
			}
			lies, axis := layouts[rng.IntN(len(layouts))], rng.IntN(2)
			if lies("a", "b").String() == "grid, rows over a and columns over b" && rng.IntN(2) == 0 {
				axis = 0
			}
			meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				m.SetSameBits(same)
				a, b := m.Axes()[axis].Name, m.Axes()[1-axis].Name
				c, keys := x.tables(m, lies(a, b), a, m.Axes()[1].Name)
				got, its, err := x.run(ctx, m, c, keys, places)
				if err != nil {
					return err
				}
				if m.Comm().Rank() > 0 {
					return nil
				}
				if want == nil {
					want, happened = got, its
				}
				what := fmt.Sprintf("case %d, %v on mesh %v, samples %v, same bits %v", i, lies(a, b), mesh, places, same)
				if its != happened {
					return fmt.Errorf("%s: keys %s, on one rank %s", what, its, happened)
				}
				for k := range got {
					if same && got[k] != want[k] {
						return fmt.Errorf("%s: number %d of %d is %x, on one rank %x", what, k, len(got), got[k], want[k])
					}
				}
				if x.narrow {
					return nil // sums that round differently part
				}
				return closeTo(what, got, want)
			})
		}
	})
}

// Bags of one feature a table are those of Dynamic.Bags and of a collection without tables of keys.
func TestCollectionWithKeysIsItsParts(t *testing.T) {
	meshtest.Random(t, func(rng *rand.Rand, i int) {
		x, mesh := someMixture(rng), meshtest.SomeMesh(rng)
		x.narrow, x.fused, x.rows = false, true, false
		places := make([]layout.Placement, len(mesh))
		for axis := range places {
			if rng.IntN(2) == 0 {
				places[axis] = shard0
			}
		}
		axis := rng.IntN(len(mesh))
		meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			key := func() *embedding.Dynamic {
				return embedding.NewDynamic(m, embedding.DynamicConfig{Name: "keys", Axis: m.Axes()[axis].Name, Dim: 3, Budget: 256 * 12,
					AdmitAfter: x.admit, ExpireAfter: 2})
			}
			rows := embedding.CollectionTable{Features: []string{"row"}, Mode: x.mode,
				Config: embedding.Config{Name: "rows", Rows: 6, Dim: 3, Layout: embedding.RowWise(m.Axes()[0].Name)}}
			d, e := key(), key()
			both, alone := embedding.NewCollection(m, rows, embedding.CollectionTable{Features: []string{"key"}, Mode: x.mode, Dynamic: d}),
				embedding.NewCollection(m, rows)
			both.Fuse(embedding.FusedOptimizer{New: newAdagrad, Rate: 0.5})
			alone.Fuse(embedding.FusedOptimizer{New: newAdagrad, Rate: 0.5})
			opt := newAdagrad([]*dtensor.Tensor{e.Weight()})
			e.Follow(opt.State())
			e.Fuse(func(rows *dtensor.Rows) error { return opt.Step([]dtensor.Grad{dtensor.Sparse(rows)}, 0.5) })
			for step := range x.lists {
				j, err := x.batch(m, step, places)
				if err != nil {
					return err
				}
				var out [2][]float64
				for k, bags := range []func() *dtensor.Tensor{
					func() *dtensor.Tensor { return both.Bags(j).Values() },
					func() *dtensor.Tensor { return dtensor.Cat(1, alone.Bags(j).Values(), e.Bags(j, "key", x.mode)) },
				} {
					params := both.Params()
					if k == 1 {
						params = append(alone.Params(), e.Param())
					}
					if _, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
						y := bags()
						out[k] = whole(y.Detach())
						return y.Mul(y).Sum(nil, false)
					}, params...); err != nil {
						return err
					}
				}
				d.Advance()
				e.Advance()
				if got, want := d.Stats(), e.Stats(); got != want {
					return fmt.Errorf("case %d, step %d: %v, by itself %v", i, step, got, want)
				}
				if err := closeTo(fmt.Sprintf("case %d, step %d", i, step), out[0], out[1]); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// Tables of keys and of rows have one exchange together; where samples differ and tables of keys have replicas, these get the
// keys in two collectives for all of them.
func TestCollectionWithKeysCommunication(t *testing.T) {
	for _, c := range []struct {
		mesh        []int
		samples     []layout.Placement
		axes        []string // of the tables of keys
		look, train tally
	}{
		{[]int{1, 2}, two(replicate, shard0), []string{"b", "b"},
			tally{"status and counts": 1, "ids": 1, "rows": 1},
			tally{"status and counts": 1, "ids": 1, "rows": 1, "gradients of rows": 1}},
		{[]int{1, 2}, two(replicate, replicate), []string{"b", "b"}, tally{"rows": 1}, tally{"rows": 1}},
		{[]int{2, 2}, two(shard0, shard0), []string{"b", "b"},
			tally{"status and counts": 1, "ids": 1, "rows": 1},
			tally{"status and counts": 1, "ids": 1, "rows": 1, "gradients of rows": 1, "counts of replicas": 2, "keys of replicas": 1,
				"gradients of replicas": 1}},
	} {
		meshtest.On(t, c.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			x := someMixture(rand.New(rand.NewPCG(1, 2)))
			x.rows, x.narrow, x.fused = false, false, false
			tables, _ := x.tables(m, embedding.RowWise("b"), c.axes...)
			j, err := x.batch(m, 0, c.samples)
			if err != nil {
				return err
			}
			train := func() error {
				_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return tables.Bags(j).Values().Sum(nil, false) }, tables.Params()...)
				return err
			}
			if err := train(); err != nil { // groups are made
				return err
			}
			for _, run := range []struct {
				do   func() error
				want tally
			}{
				{func() error { tables.Bags(j); return nil }, c.look},
				{train, c.train},
				{func() error { tables.Prefetch(j); return nil }, tally{}},
			} {
				record := m.Comm().Record()
				err := run.do()
				record.Stop()
				if err != nil {
					return err
				}
				if err := run.want.check(record.Events(), "Bags", 1<<20); err != nil {
					return fmt.Errorf("mesh %v: %w", c.mesh, err)
				}
			}
			return nil
		})
	}
}

func TestCollectionWithKeysRefusals(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		config := embedding.DynamicConfig{Name: "users", Axis: "a", Dim: 4, Budget: 1 << 20}
		d := embedding.NewDynamic(m, config)
		narrow := config
		narrow.Name, narrow.DType = "narrow", tensor.BFloat16
		n := embedding.NewDynamic(m, narrow)
		table := embedding.CollectionTable{Dynamic: d, Features: []string{"user"}}
		other := embedding.CollectionTable{Config: embedding.Config{Name: "items", Rows: 3, Dim: 2}, Features: []string{"item"}}
		make := func(tables ...embedding.CollectionTable) func() {
			return func() { embedding.NewCollection(m, tables...) }
		}
		both := table
		both.Config = other.Config
		fused := func() {
			c := embedding.NewCollection(m, table)
			c.Fuse(embedding.FusedOptimizer{New: newAdagrad})
			c.Fuse(embedding.FusedOptimizer{New: newAdagrad})
		}
		for _, c := range []struct {
			do   func()
			want string
		}{
			{make(embedding.CollectionTable{Dynamic: d, Config: embedding.Config{Layout: embedding.RowWise("a")}}), "has a Config too"},
			{make(both), `dynamic table "users" of 65536 rows of 4 over a has a Config too, of table "items"; give one of them`},
			{make(table, embedding.CollectionTable{Dynamic: d}), `two tables are called "users"`},
			{make(other, embedding.CollectionTable{Dynamic: n}), `table "items" holds float32 and table "narrow" bfloat16`},
			{func() { embedding.NewCollection(m.Sub("a"), table) }, "and the collection on another"},
			{fused, `is followed already`},
		} {
			err := dtensor.Try(ctx, m, c.do)
			if _, ok := errors.AsType[*embedding.Error](err); !ok || !strings.Contains(err.Error(), c.want) {
				return fmt.Errorf("the error is %v, want one with %q", err, c.want)
			}
		}
		return nil
	})
}
