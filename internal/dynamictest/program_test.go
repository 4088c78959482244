// Package dynamictest holds the tests of tables that need the packages above embedding: random
// programs that also train and go through checkpoints. Dynamic tables are compared with maps, tables
// on a disk with ones in memory.
package dynamictest

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
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
	"github.com/gorun-spmd/gorun/internal/keytable"
	"github.com/gorun-spmd/gorun/internal/philox"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

var programs = flag.Int("programs", 3, "how many random programs run")

const (
	dim  = 4
	rate = 0.5
	seed = 7
)

// A world of a program: the table's policy, and what happens.
type program struct {
	rows, admit, expire int
	narrow              bool // rows of bfloat16
	ops                 []op
}

type op struct {
	kind    string // "look up", "train", "bags", "insert", "advance"
	keys    []int64
	grad    []float32 // train: of the rows of keys; bags: of the bags
	starts  []int64   // of bags
	sharded bool      // the keys lie S(0)
}

func newProgram(n uint64) program {
	rng := rand.New(rand.NewPCG(n, 3))
	p := program{rows: 1 + rng.IntN(3), admit: rng.IntN(3), expire: rng.IntN(2) * (1 + rng.IntN(12)), narrow: n%3 == 2}
	population := int64(200 + rng.IntN(3000))
	for range 60 {
		o := op{kind: []string{"look up", "train", "train", "train", "bags", "insert", "advance", "advance", "advance"}[rng.IntN(9)],
			sharded: rng.IntN(2) == 0}
		most := []int{1, 10, 300, 1500}[rng.IntN(4)] // 1500 distinct keys do not fit into 256 slices of few rows
		for range rng.IntN(most + 1) {
			key := int64(float64(population)*math.Pow(rng.Float64(), 2)) - 50
			if rng.IntN(40) == 0 {
				key = []int64{math.MinInt64, math.MaxInt64, 0, -1, 1 << 56}[rng.IntN(5)]
			}
			o.keys = append(o.keys, key)
		}
		if rng.IntN(10) == 0 { // all equal
			for i := range o.keys {
				o.keys[i] = o.keys[0]
			}
		}
		rows := len(o.keys)
		if o.kind == "bags" {
			for at := 0; at < len(o.keys); at += rng.IntN(5) {
				o.starts = append(o.starts, int64(at))
			}
			o.sharded, rows = false, len(o.starts)
		}
		for range rows * dim {
			o.grad = append(o.grad, float32(rng.IntN(17)-8)/8)
		}
		p.ops = append(p.ops, o)
	}
	return p
}

// A row of the oracle.
type row struct {
	count, last int64
	values      [dim]float64
	sum         float64
}

// An oracle is the table as maps.
type oracle struct {
	p                program
	rows, candidates map[int64]*row
	step             int64
}

// leastOf returns the keys of a slice that this step has not used, the least first.
func (w *oracle) leastOf(m map[int64]*row, slice int) (list []int64, all int) {
	for key, r := range m {
		if keytable.Mix(key).Slice() == slice {
			all++
			if r.last != w.step {
				list = append(list, key)
			}
		}
	}
	slices.SortFunc(list, func(a, b int64) int {
		x, y := m[a], m[b]
		return slices.Compare([]int64{x.count, x.last, a}, []int64{y.count, y.last, b})
	})
	return list, all
}

// room takes keys of a slice out of m and returns which of the new ones fit.
func (w *oracle) room(m map[int64]*row, slice int, fresh []int64, counts map[int64]int64) []int64 {
	slices.SortFunc(fresh, func(a, b int64) int {
		return slices.Compare([]int64{counts[b], b}, []int64{counts[a], a})
	})
	least, all := w.leastOf(m, slice)
	if need := all + len(fresh) - w.p.rows; need > 0 {
		for _, key := range least[:min(len(least), max(need, w.p.rows/16))] {
			delete(m, key)
			all--
		}
	}
	return fresh[:min(len(fresh), w.p.rows-all)]
}

func (w *oracle) use(keys []int64) {
	counts := map[int64]int64{}
	for _, key := range keys {
		counts[key]++
	}
	list, fresh := map[int][]int64{}, map[int][]int64{}
	for key, n := range counts {
		slice := keytable.Mix(key).Slice()
		r, c := w.rows[key], w.candidates[key]
		if c != nil {
			counts[key] += c.count
		}
		switch {
		case r != nil:
			r.count, r.last = r.count+n, w.step
		case counts[key] >= int64(w.p.admit):
			delete(w.candidates, key)
			list[slice] = append(list[slice], key)
		case c != nil:
			c.count, c.last = counts[key], w.step
		default:
			fresh[slice] = append(fresh[slice], key)
		}
	}
	for slice, its := range fresh {
		for _, key := range w.room(w.candidates, slice, its, counts) {
			w.candidates[key] = &row{count: counts[key], last: w.step}
		}
	}
	for slice, its := range list {
		for _, key := range w.room(w.rows, slice, its, counts) {
			r := &row{count: counts[key], last: w.step}
			var words [dim]uint32
			philox.Key{Seed: seed, Stream: uint64(key)}.Words(words[:], 0)
			for j := range r.values {
				r.values[j] = w.round(0.1 * philox.Normal(words[j]))
			}
			w.rows[key] = r
		}
	}
}

func (w *oracle) round(x float64) float64 {
	if w.p.narrow {
		return float64(tensor.ToSlice[float32](tensor.Cast(tensor.Cast(tensor.FromSlice(tensor.NewCPU(nil), []float32{float32(x)}, 1),
			tensor.BFloat16), tensor.Float32))[0])
	}
	return float64(float32(x))
}

// train is a step of row-wise Adagrad with the gradients of rows.
func (w *oracle) train(grads map[int64]*[dim]float64) {
	for key, g := range grads {
		r := w.rows[key]
		if r == nil {
			continue
		}
		for _, v := range g {
			r.sum += v * v / dim
		}
		for j, v := range g {
			if r.sum > 0 {
				r.values[j] -= rate * v / math.Sqrt(r.sum)
			}
		}
	}
}

func (w *oracle) advance() {
	w.step++
	if e := int64(w.p.expire); e > 0 && w.step%max(1, e/8) == 0 {
		for _, m := range []map[int64]*row{w.rows, w.candidates} {
			for key, r := range m {
				if w.step-r.last >= e {
					delete(m, key)
				}
			}
		}
	}
}

// run does an operation and returns what it looks up.
func (w *oracle) run(o op) (out []float64) {
	rowOf := func(key int64) [dim]float64 {
		if r := w.rows[key]; r != nil {
			return r.values
		}
		return [dim]float64{}
	}
	grads := map[int64]*[dim]float64{}
	add := func(key int64, g []float32) {
		if grads[key] == nil {
			grads[key] = new([dim]float64)
		}
		for j, v := range g {
			grads[key][j] += float64(v)
		}
	}
	switch o.kind {
	case "advance":
		w.advance()
	case "insert":
		w.use(o.keys)
	case "look up", "train":
		if o.kind == "train" {
			w.use(o.keys)
		}
		for i, key := range o.keys {
			v := rowOf(key)
			out = append(out, v[:]...)
			add(key, o.grad[i*dim:(i+1)*dim])
		}
		if o.kind == "train" {
			w.train(grads)
		}
	case "bags":
		w.use(o.keys)
		for b, at := range o.starts {
			end := int64(len(o.keys))
			if b+1 < len(o.starts) {
				end = o.starts[b+1]
			}
			var s [dim]float64
			for _, key := range o.keys[at:end] {
				for j, v := range rowOf(key) {
					s[j] += v
				}
				add(key, o.grad[b*dim:(b+1)*dim])
			}
			out = append(out, s[:]...)
		}
		w.train(grads)
	}
	return out
}

// A machine runs a program on a table of some ranks.
type machine struct {
	ctx   context.Context
	mesh  *dtensor.Mesh
	p     program
	table *embedding.Dynamic
	opt   *optim.RowAdagrad
}

func newMachine(ctx context.Context, world *comm.Comm, p program) (*machine, error) {
	mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "tp", Size: world.Size()})
	if err != nil {
		return nil, err
	}
	m := &machine{ctx: ctx, mesh: mesh, p: p}
	return m, dtensor.Try(ctx, mesh, func() {
		c := embedding.DynamicConfig{Name: "users", Axis: "tp", Dim: dim, Budget: p.rows * keytable.Slices * dim * 4, Seed: seed, Std: 0.1,
			AdmitAfter: p.admit, ExpireAfter: p.expire}
		if p.narrow {
			c.DType, c.Budget = tensor.BFloat16, c.Budget/2
		}
		m.table = embedding.NewDynamic(mesh, c)
		m.opt = optim.NewRowAdagrad([]*dtensor.Tensor{m.table.Weight()}, optim.RowAdagradConfig{})
		m.table.Follow(m.opt.State())
	})
}

// run does an operation and returns what it looks up.
func (m *machine) run(o op) (out []float32, err error) {
	place := layout.Replicate()
	if o.sharded {
		place = layout.Shard(0)
	}
	var keys, grad *dtensor.Tensor
	looked := func() *dtensor.Tensor {
		var h *dtensor.Tensor
		if o.kind != "bags" {
			h = m.table.Lookup(keys)
		} else {
			starts := tensor.FromSlice(m.mesh.Device(), o.starts, len(o.starts))
			h = m.table.Bag(keys, dtensor.Distribute(m.mesh, starts, layout.Replicate()), nil, embedding.Sum)
		}
		out = tensor.ToSlice[float32](tensor.Cast(h.Detach().Full(), tensor.Float32))
		return h
	}
	err = dtensor.Try(m.ctx, m.mesh, func() {
		keys = dtensor.Distribute(m.mesh, tensor.FromSlice(m.mesh.Device(), o.keys, len(o.keys)), place)
		switch o.kind {
		case "advance":
			m.table.Advance()
		case "insert":
			m.table.Insert(keys)
		case "look up":
			looked()
		default:
			grad = dtensor.Distribute(m.mesh, tensor.FromSlice(m.mesh.Device(), o.grad, len(o.grad)/dim, dim), place)
			_, grads, err := dtensor.ValueAndGrad(m.ctx, func() *dtensor.Tensor {
				return looked().Cast(tensor.Float32).Mul(grad).Sum(nil, false)
			}, m.table.Param())
			if err != nil {
				panic(err)
			}
			if err := m.opt.Step(grads, rate); err != nil {
				panic(err)
			}
		}
	})
	return out, err
}

// digest sums up the bits of all that the table has.
func (m *machine) digest() (text string, err error) {
	err = dtensor.Try(m.ctx, m.mesh, func() {
		keys := m.table.Keys()
		h := fnv.New64a()
		fmt.Fprint(h, keys)
		if len(keys) > 0 {
			rows := m.table.Lookup(dtensor.Distribute(m.mesh, tensor.FromSlice(m.mesh.Device(), keys, len(keys)), layout.Replicate())).Full()
			for _, v := range tensor.ToSlice[float32](tensor.Cast(rows, tensor.Float32)) {
				fmt.Fprint(h, math.Float32bits(v), " ")
			}
		}
		s := m.table.Stats()
		if s.Keys != len(keys) || m.table.Len() != len(keys) {
			panic("Keys, Len and Stats differ")
		}
		s.Uses, s.Hits, s.Admitted, s.Evicted, s.Expired, s.Refused = 0, 0, 0, 0, 0, 0 // a checkpoint has none of these
		text = fmt.Sprintf("%x %v", h.Sum64(), s)
	})
	return text, err
}

// TestRandomPrograms compares tables on 1, 2, 3, 4 and 8 ranks, and one that goes through
// checkpoints from one number of ranks to another, with maps; and their bits with each
// other.
func TestRandomPrograms(t *testing.T) {
	for n := range uint64(*programs) {
		p := newProgram(n)
		w := &oracle{p: p, rows: map[int64]*row{}, candidates: map[int64]*row{}}
		var want [][]float64
		for _, o := range p.ops {
			want = append(want, w.run(o))
		}
		var digest string
		run := func(ranks, from, to int, load, save string) {
			t.Helper()
			commtest.Run(t, ranks, func(ctx context.Context, world *comm.Comm) error {
				m, err := newMachine(ctx, world, p)
				if err != nil {
					return err
				}
				var state checkpoint.State
				state.AddGrowing("users.", m.table)
				if load != "" {
					if err := checkpoint.Load(ctx, world, load, &state, checkpoint.LoadOptions{}); err != nil {
						return err
					}
				}
				for i := from; i < to; i++ {
					got, err := m.run(p.ops[i])
					if err != nil {
						return fmt.Errorf("program %d operation %d: %w", n, i, err)
					}
					if len(got) != len(want[i]) {
						return fmt.Errorf("program %d operation %d: %d numbers, want %d", n, i, len(got), len(want[i]))
					}
					for k, v := range got {
						limit := 1e-4 * (1 + math.Abs(want[i][k]))
						if p.narrow {
							limit *= 500
						}
						if math.Abs(float64(v)-want[i][k]) > limit {
							return fmt.Errorf("program %d operation %d, %s: number %d is %v, want %v", n, i, p.ops[i].kind, k, v, want[i][k])
						}
					}
				}
				if save != "" {
					store, err := checkpoint.Open(ctx, world, save, checkpoint.Options{})
					if err != nil {
						return err
					}
					if err := store.Save(ctx, to, &state); err != nil {
						return err
					}
					return store.Wait()
				}
				mine, err := m.digest()
				if world.Rank() == 0 && err == nil {
					if digest == "" {
						digest = mine
					} else if mine != digest {
						return fmt.Errorf("program %d on %d ranks ends with %s, on 1 with %s", n, ranks, mine, digest)
					}
				}
				return err
			})
			if t.Failed() {
				t.FailNow()
			}
		}
		for _, ranks := range []int{1, 2, 3, 4, 8} {
			run(ranks, 0, len(p.ops), "", "")
		}
		t.Logf("program %d: %d rows in a slice, admission after %d, expiry after %d: %s", n, p.rows, p.admit, p.expire, digest)
		dir := t.TempDir()
		at := func(step int) string { return filepath.Join(dir, fmt.Sprintf("step-%06d", step)) }
		run(3, 0, 15, "", dir)
		run(1, 15, 30, at(15), dir)
		run(4, 30, 45, at(30), dir)
		run(2, 45, len(p.ops), at(45), "")
	}
}
