package embedding_test

import (
	"context"
	"errors"
	"fmt"
	"math"
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

// dynamicOn makes a table over a random axis of the mesh, trained by SGD of rate 1 as its
// gradients arrive.
func dynamicOn(rng *rand.Rand, m *dtensor.Mesh, c embedding.DynamicConfig) *embedding.Dynamic {
	c.Axis = m.Axes()[rng.IntN(len(m.Axes()))].Name
	d := embedding.NewDynamic(m, c)
	d.Fuse(func(rows *dtensor.Rows) error {
		tensor.SGD{LR: 1}.StepRows(d.Weight().Local(), local(d.Weight(), rows))
		return nil
	})
	return d
}

// rowsOf returns the row of each key as it is now, zeros for none.
func rowsOf(m *dtensor.Mesh, d *embedding.Dynamic, keys []int64) [][]float64 {
	all := whole(d.Lookup(dtensor.Distribute(m, tensor.FromSlice(m.Device(), keys, len(keys)), m.Every(replicate)...)))
	return slices.Collect(slices.Chunk(all, len(all)/len(keys)))
}

// whole returns all elements of t.
func whole(t *dtensor.Tensor) []float64 { return meshtest.Values(t.Full()) }

// Lookups in training, of keys in any layout, give the rows, and their gradients reach
// them.
func TestDynamicLookups(t *testing.T) {
	meshtest.Random(t, func(rng *rand.Rand, i int) {
		mesh, shape := meshtest.SomeMesh(rng), []int{1 + rng.IntN(7), rng.IntN(4)}[:1+rng.IntN(2)]
		places := meshtest.SomePlaces(rng, mesh, shape...)
		n := shape[0]
		if len(shape) == 2 {
			n *= shape[1]
		}
		keys, grad := make([]int64, n), make([]float64, 3*n)
		for k := range keys {
			keys[k] = rng.Int64N(6) * (math.MaxInt64 / 7)
		}
		for k := range grad {
			grad[k] = float64(rng.IntN(9)-4) / 4
		}
		seed := rng.Uint64()
		meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			d := dynamicOn(rand.New(rand.NewPCG(seed, 0)), m, embedding.DynamicConfig{Name: "users", Dim: 3, Budget: 256 * 4 * 12, Seed: 5})
			at, g := meshtest.Place(m, keys, shape, places...), meshtest.Place(m, grad, append(slices.Clone(shape), 3), places...)
			all := []int64{1}
			for k := range int64(6) {
				all = append(all, k*(math.MaxInt64/7))
			}
			for _, row := range rowsOf(m, d, all) {
				if slices.Max(row) != 0 || slices.Min(row) != 0 {
					return fmt.Errorf("a row of an empty table is %v", row)
				}
			}
			if n := d.Len(); n != 0 {
				return fmt.Errorf("a lookup outside training gives %d keys a row", n)
			}
			d.Insert(at)
			before := rowsOf(m, d, all)
			var looked []float64
			var lies []layout.Placement
			if _, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
				h := d.Lookup(at)
				looked, lies = whole(h.Detach()), h.Placements()
				return h.Mul(g.Cast(tensor.Float32)).Sum(nil, false)
			}, d.Param()); err != nil {
				return err
			}
			if !slices.Equal(lies, places) {
				return fmt.Errorf("keys %v are looked up as %v", places, lies)
			}
			want := slices.Clone(before)
			for k := range want {
				want[k] = slices.Clone(want[k])
			}
			for p, key := range keys {
				k := slices.Index(all, key)
				if !slices.Equal(looked[3*p:3*p+3], before[k]) {
					return fmt.Errorf("key %d at %d is looked up as %v, its row is %v", key, p, looked[3*p:3*p+3], before[k])
				}
			}
			sums := map[int64][]float32{}
			for p, key := range keys {
				if sums[key] == nil {
					sums[key] = make([]float32, 3)
				}
				for j := range 3 {
					sums[key][j] += float32(grad[3*p+j])
				}
			}
			for key, s := range sums {
				for j, v := range s {
					w := &want[slices.Index(all, key)][j]
					*w = float64(float32(*w) - v)
				}
			}
			for k, row := range rowsOf(m, d, all) {
				if !slices.Equal(row, want[k]) {
					return fmt.Errorf("case %d, keys %v: after a step key %d is %v, want %v, before %v", i, places, all[k], row, want[k], before[k])
				}
			}
			distinct := slices.Compact(slices.Sorted(slices.Values(keys)))
			if got := d.Keys(); !slices.Equal(got, distinct) {
				return fmt.Errorf("keys %v, want %v", got, distinct)
			}
			if s := d.Stats(); s.Uses != 2*n || s.Hits != n || s.Admitted != len(distinct) {
				return fmt.Errorf("%d uses of %d keys: %v", 2*n, len(distinct), s)
			}
			return nil
		})
	})
}

// Keys that lie in uneven parts over an axis, and are the same on all ranks of the table's, are looked up and used.
func TestDynamicOfUnevenKeys(t *testing.T) {
	meshtest.On(t, []int{2, 2}, func(ctx context.Context, m *dtensor.Mesh) error {
		d := embedding.NewDynamic(m, embedding.DynamicConfig{Name: "users", Axis: "a", Dim: 2, Budget: 256 * 8 * 8})
		keys := meshtest.Place(m, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, []int{5, 2}, replicate, layout.ShardSizes(0, 4, 1))
		d.Insert(keys)
		rows, bags := d.Lookup(keys), d.Bag(keys, nil, nil, embedding.Sum)
		lies := keys.Placements()
		if got := d.Len(); got != 10 || !slices.Equal(rows.Placements(), lies) || !slices.Equal(bags.Placements(), lies) {
			return fmt.Errorf("%d keys have a row, %v and %v", got, rows, bags)
		}
		return closeTo("bags", whole(bags), whole(rows.Sum([]int{1}, false)))
	})
}

// Bags in all modes, with and without offsets and weights, are those of a Table of the
// same rows, and so are their gradients.
func TestDynamicBags(t *testing.T) {
	meshtest.Random(t, func(rng *rand.Rand, i int) {
		mesh, mode, fixed, weighted := meshtest.SomeMesh(rng), embedding.Mode(rng.IntN(3)), rng.IntN(2) == 0, rng.IntN(2) == 0
		weighted = weighted && mode == embedding.Sum
		bags, length := rng.IntN(6), 1+rng.IntN(3)
		n := bags * length
		var starts []int64
		for b := range bags {
			starts = append(starts, int64(b*length))
			if b > 0 && rng.IntN(3) == 0 {
				starts[b] = starts[b-1] // the bag before is empty
			}
		}
		ids, grad, factors := make([]int64, n), make([]float64, 2*bags), make([]float64, n)
		for k := range ids {
			ids[k], factors[k] = rng.Int64N(5), float64(rng.IntN(5))/2
		}
		for k := range grad {
			grad[k] = float64(rng.IntN(9)-4) / 4
		}
		places := make([]layout.Placement, len(mesh))
		if fixed {
			for axis := range places {
				if rng.IntN(2) == 0 {
					places[axis] = shard0
				}
			}
		}
		seed := rng.Uint64()
		meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			d := dynamicOn(rand.New(rand.NewPCG(seed, 0)), m, embedding.DynamicConfig{Dim: 2, Budget: 256 * 9 * 8, Seed: 5})
			shape, at := []int{n}, places
			if fixed {
				shape = []int{bags, length}
			}
			keys := meshtest.Place(m, ids, shape, at...)
			d.Insert(keys)
			every := m.Every(replicate)
			table := dtensor.Distribute(m, tensor.FromSlice(m.Device(), slices.Concat(rowsOf(m, d, []int64{0, 1, 2, 3, 4})...), 5, 2), every...)
			table = table.Cast(tensor.Float32)
			var offsets, weights *dtensor.Tensor
			if !fixed {
				offsets = meshtest.Place(m, starts, []int{bags}, every...)
			}
			weights = meshtest.Place(m, factors, shape, at...).Cast(tensor.Float32)
			seedGrad := meshtest.Place(m, grad, []int{bags, 2}, every...).Cast(tensor.Float32)
			var out [2][]float64
			var weightGrads [2][]float64
			var fixedRows []float64
			for k, bag := range []func(*dtensor.Tensor) *dtensor.Tensor{
				func(w *dtensor.Tensor) *dtensor.Tensor { return d.Bag(keys, offsets, w, mode) },
				func(w *dtensor.Tensor) *dtensor.Tensor {
					return embedding.Bag(table, keys, offsets, w, embedding.BagOptions{Mode: mode})
				},
			} {
				params := []*dtensor.Tensor{d.Param(), weights}
				if k == 1 {
					params[0] = table
				}
				_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
					var w *dtensor.Tensor
					if weighted {
						w = weights
					}
					h := bag(w)
					out[k] = whole(h.Detach())
					return h.Redistribute(every...).Mul(seedGrad).Sum(nil, false)
				}, params...)
				if err != nil {
					return err
				}
				if weighted {
					weightGrads[k] = whole(grads[1].Dense())
				}
				if k == 1 {
					rows, _ := grads[0].Rows()
					fixedRows = whole(table.Sub(rows.Dense()))
				}
			}
			what := fmt.Sprintf("case %d: %v of %d bags of %v in %v, %v", i, mode, bags, ids, starts, places)
			if err := closeTo(what, out[0], out[1]); err != nil {
				return err
			}
			if err := closeTo(what+": gradient of weights", weightGrads[0], weightGrads[1]); err != nil {
				return err
			}
			got := rowsOf(m, d, []int64{0, 1, 2, 3, 4})
			return closeTo(what+": rows after a step", slices.Concat(got...), fixedRows)
		})
	})
}

// closeTo returns an error unless numbers are nearly what they should be.
func closeTo(what string, got, want []float64) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d numbers, want %d", what, len(got), len(want))
	}
	for i := range got {
		if math.Abs(got[i]-want[i]) > 1e-5*(1+math.Abs(want[i])) {
			return fmt.Errorf("%s: number %d is %v, want %v", what, i, got[i], want[i])
		}
	}
	return nil
}

// A lookup of sharded keys makes three collectives and its gradient one, as that of a
// Table does; keys of two words in training.
func TestDynamicCommunication(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		d := dynamicOn(rand.New(rand.NewPCG(1, 0)), m, embedding.DynamicConfig{Dim: 4, Budget: 1 << 20})
		keys := meshtest.Place(m, []int64{5, 5, 6, 7, 5, 9}, []int{6}, shard0)
		train := func() error {
			_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return d.Lookup(keys).Sum(nil, false) }, d.Param())
			return err
		}
		if err := train(); err != nil { // groups are made
			return err
		}
		for _, c := range []struct {
			do    func() error
			calls string
		}{
			{func() error { d.Lookup(keys); return nil }, "AllGather×1, AllToAllV×2"},
			{func() error { d.Insert(keys); return nil }, "AllGather×1, AllToAllV×1"},
			{train, "AllReduce×1, AllGather×1, AllToAllV×3"},
			{func() error { d.Advance(); return nil }, ""},
			{func() error { d.Stats(); return nil }, "AllReduce×1"},
		} {
			record := m.Comm().Record()
			err := c.do()
			record.Stop()
			if err != nil {
				return err
			}
			if got := record.Stats().Calls(); got != c.calls {
				return fmt.Errorf("%q, want %q", got, c.calls)
			}
		}
		return nil
	})
}

// Assign gives keys the rows of another table, in every layout of both, on all replicas, and of keys that occur twice the mean.
func TestDynamicAssign(t *testing.T) {
	meshtest.Random(t, func(rng *rand.Rand, i int) {
		mesh, shape := meshtest.SomeMesh(rng), []int{1 + rng.IntN(7), rng.IntN(4)}[:1+rng.IntN(2)]
		keyPlaces, rowPlaces := meshtest.SomePlaces(rng, mesh, shape...), meshtest.SomePlaces(rng, mesh, append(shape, 3)...)
		n := shape[0]
		if len(shape) == 2 {
			n *= shape[1]
		}
		keys, rows := make([]int64, n), make([]float32, 3*n)
		for k := range keys {
			keys[k] = rng.Int64N(6) * (math.MaxInt64 / 7)
		}
		sums, times := map[int64][3]float64{}, map[int64]float64{}
		for k := range rows {
			rows[k] = float32(rng.IntN(9)-4) / 4
			sum := sums[keys[k/3]]
			sum[k%3] += float64(rows[k])
			sums[keys[k/3]] = sum
			times[keys[k/3]] += 1. / 3
		}
		seed, dt := rng.Uint64(), []tensor.DType{tensor.Float32, tensor.BFloat16}[rng.IntN(2)]
		meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			c := embedding.DynamicConfig{Name: "users", Dim: 3, Budget: 256 * 4 * 12, Seed: 5, DType: dt}
			c.Axis = m.Axes()[rand.New(rand.NewPCG(seed, 0)).IntN(len(m.Axes()))].Name
			return dtensor.Try(ctx, m, func() {
				d := embedding.NewDynamic(m, c)
				average := dtensor.Zeros(m, tensor.Float32, d.Weight().Shape(), d.Weight().Placements()...)
				dtensor.Keep(average)
				d.Follow(func(yield func(string, *dtensor.Tensor) bool) { yield("ema.0", average) })
				d.Insert(dtensor.Distribute(m, tensor.FromSlice(m.Device(), keys[:n/2], n/2), m.Every(replicate)...))
				d.Assign(dtensor.Distribute(m, tensor.FromSlice(m.Device(), keys, shape...), m.Every(replicate)...).Redistribute(keyPlaces...),
					dtensor.Distribute(m, tensor.FromSlice(m.Device(), rows, append(slices.Clone(shape), 3)...), m.Every(replicate)...).
						Redistribute(rowPlaces...))
				if n == 0 {
					return
				}
				for k, got := range rowsOf(m, d, keys) {
					for j := range got {
						want := sums[keys[k]][j] / math.Round(times[keys[k]])
						if math.Abs(got[j]-want) > map[tensor.DType]float64{tensor.Float32: 1e-6, tensor.BFloat16: 1. / 128}[dt] {
							dtensor.Throw(fmt.Errorf("the row of %d is %v, want %v of %v", keys[k], got, want, j))
						}
					}
				}
				if got, want := fmt.Sprint(average.Full()), fmt.Sprint(d.Weight().Cast(tensor.Float32).Full()); got != want {
					dtensor.Throw(fmt.Errorf("what follows is %s, want %s", got, want))
				}
				if got := d.Keys(); len(got) != len(sums) {
					dtensor.Throw(fmt.Errorf("%d keys, want %d", len(got), len(sums)))
				}
			})
		})
	})
}

func TestDynamicRefusals(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		good := embedding.DynamicConfig{Name: "users", Axis: "a", Dim: 4, Budget: 1 << 20}
		change := func(f func(c *embedding.DynamicConfig)) func() {
			c := good
			f(&c)
			return func() { embedding.NewDynamic(m, c) }
		}
		d := embedding.NewDynamic(m, good)
		state := func(yield func(string, *dtensor.Tensor) bool) {
			yield("sum.0", dtensor.Zeros(m, tensor.Float32, nil, replicate))
		}
		batch, err := embedding.NewJagged(m, []string{"users"}, 1, []int{1}, []int64{3}, []float32{2})
		if err != nil {
			return err
		}
		for _, c := range []struct {
			do   func()
			want string
		}{
			{change(func(c *embedding.DynamicConfig) { c.Axis = "tp" }), `has no axis "tp"`},
			{change(func(c *embedding.DynamicConfig) { c.Dim = 0 }), "Dim is 0; it must be positive"},
			{change(func(c *embedding.DynamicConfig) { c.DType = tensor.Int32 }), "DType is int32; use float32 or bfloat16"},
			{change(func(c *embedding.DynamicConfig) { c.AdmitAfter = -1 }), "AdmitAfter is -1"},
			{change(func(c *embedding.DynamicConfig) { c.ExpireAfter = 1 << 40 }), "at most 2³¹-1"},
			{change(func(c *embedding.DynamicConfig) { c.Budget = 4095 }), "give 4096 bytes for each row of them"},
			{change(func(c *embedding.DynamicConfig) { c.Budget = math.MaxInt }), "1 to 8388608 rows"},
			{func() { d.Lookup(dtensor.Zeros(m, tensor.Int32, []int{3}, replicate)) }, "use int64"},
			{func() {
				d.Assign(dtensor.Zeros(m, tensor.Int64, []int{3}, replicate), dtensor.Zeros(m, tensor.Float32, []int{3, 5}, replicate))
			},
				"give numbers of shape [3 4] on its mesh"},
			{func() {
				_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
					d.Assign(dtensor.Zeros(m, tensor.Int64, []int{3}, replicate), dtensor.Zeros(m, tensor.Float32, []int{3, 4}, replicate))
					return nil
				}, d.Param())
				dtensor.Check(err)
			}, "a ValueAndGrad is using"},
			{func() { d.Bags(batch, "hours", embedding.Sum) }, `has no feature "hours"; it has "users"`},
			{func() { d.Bags(batch, "users", 7) }, "Mode is 7"},
			{func() { d.Bags(batch, "users", embedding.Max) }, "and Mode is max; they are for Sum"},
			{func() { d.Follow(state); d.Follow(state) }, `"sum.0" of dynamic table "users"`},
		} {
			err := dtensor.Try(ctx, m, c.do)
			if _, ok := errors.AsType[*embedding.Error](err); !ok || !strings.Contains(err.Error(), c.want) {
				return fmt.Errorf("the error is %v, want one with %q", err, c.want)
			}
		}
		return nil
	})
}

// What cannot have been saved is refused on every rank, and the table stays as it was.
func TestDynamicRefusesDamagedState(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		c := embedding.DynamicConfig{Name: "users", Axis: "a", Dim: 4, Budget: 256 * 4 * 16, Seed: 1}
		full, small := embedding.NewDynamic(m, c), c
		keys := make([]int64, 600)
		for i := range keys {
			keys[i] = int64(i)
		}
		full.Insert(meshtest.Place(m, keys, []int{600}, shard0))
		small.Budget /= 4
		for _, want := range []string{"in the order", "give the table a "} {
			spoil := want == "in the order"
			saved := map[string]*dtensor.Tensor{}
			tensors, free := full.Saved()
			for name, t := range tensors {
				saved[name] = t
			}
			d := embedding.NewDynamic(m, c)
			if !spoil {
				d = embedding.NewDynamic(m, small)
			}
			d.Insert(meshtest.Place(m, []int64{42}, []int{1}, replicate))
			before := d.Keys()
			there, done := d.Loading(func(name string) []int { return saved[name].Shape() })
			for name, t := range there {
				tensor.Copy(t.Local(), saved[name].Redistribute(t.Placements()...).Local())
				if spoil && name == "keys" && m.Comm().Rank() == 1 {
					its := tensor.ToSlice[int64](t.Local())
					its[3], its[4] = its[4], its[3]
					tensor.Copy(t.Local(), tensor.FromSlice(m.Device(), its, len(its)))
				}
			}
			free()
			err := dtensor.Try(ctx, m, done)
			if err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("the error is %v, want one with %q", err, want)
			}
			if got := d.Keys(); !slices.Equal(got, before) {
				return fmt.Errorf("after the error it has the keys %v, before %v", got, before)
			}
		}
		return nil
	})
}

// Bags of a batch of lists, wherever its samples are, are those of a collection of the same rows, and so are the gradients of
// rows and of factors by position: in all modes, with weights, with lists that samples share, and with empty ones.
func TestDynamicJaggedBags(t *testing.T) {
	meshtest.Random(t, func(rng *rand.Rand, i int) {
		mesh, mode, samples, kind := meshtest.SomeMesh(rng), embedding.Mode(rng.IntN(3)), rng.IntN(9), rng.IntN(4)
		sameBits := rng.IntN(3) == 0
		if kind > 0 {
			mode = embedding.Sum
		}
		lists, factors := make([][]int64, samples), make([][]float32, samples)
		for s := range lists {
			if s > 0 && kind == 3 && rng.IntN(2) == 0 {
				lists[s] = lists[s-1]
				continue
			}
			for range rng.IntN(4) {
				lists[s], factors[s] = append(lists[s], rng.Int64N(5)), append(factors[s], float32(rng.IntN(5))/2)
			}
		}
		places := make([]layout.Placement, len(mesh))
		for axis := range places {
			if rng.IntN(2) == 0 {
				places[axis] = shard0
			}
		}
		grad := make([]float64, 2*samples)
		for k := range grad {
			grad[k] = float64(rng.IntN(9)-4) / 4
		}
		seed := rng.Uint64()
		meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			m.SetSameBits(sameBits)
			d := dynamicOn(rand.New(rand.NewPCG(seed, 0)), m, embedding.DynamicConfig{Dim: 2, Budget: 256 * 9 * 8, Seed: 5})
			every, five := m.Every(replicate), []int64{0, 1, 2, 3, 4}
			d.Insert(dtensor.Distribute(m, tensor.FromSlice(m.Device(), five, 5), every...))
			c := embedding.NewCollection(m, embedding.CollectionTable{Features: []string{"f"}, Mode: mode,
				Config: embedding.Config{Name: "t", Rows: 5, Dim: 2}})
			table := dtensor.Distribute(m, tensor.FromSlice(m.Device(), slices.Concat(rowsOf(m, d, five)...), 5, 2), every...).Cast(tensor.Float32)
			tensor.Copy(c.Tables()[0].Weight().Local(), table.Local())

			spread := dtensor.Zeros(m, tensor.Int64, []int{samples}, places...)
			offset, _ := spread.Offset()
			other, its := embedding.Lists{Feature: "other"}, embedding.Lists{Feature: "f"}
			for s := offset[0]; s < offset[0]+spread.LocalShape()[0]; s++ {
				other.Lengths, other.IDs = append(other.Lengths, 1), append(other.IDs, 7)
				if kind == 3 && s > offset[0] && slices.Equal(lists[s], lists[s-1]) {
					its.Inverse = append(its.Inverse, len(its.Lengths)-1)
					continue
				}
				its.Lengths, its.IDs = append(its.Lengths, len(lists[s])), append(its.IDs, lists[s]...)
				if its.Inverse = append(its.Inverse, len(its.Lengths)-1); kind == 1 {
					its.Weights = append(its.Weights, factors[s]...)
				}
			}
			j, err := embedding.JaggedOf(m, samples, []embedding.Lists{other, its}, places...)
			if err != nil {
				return err
			}
			p, err := embedding.NewPositionWeights(m, []string{"f"}, []int{3})
			if err != nil {
				return err
			}
			tensor.Copy(p.Params()[0].Local(), tensor.FromSlice(m.Device(), []float32{1, 0.5, 2}, 3))
			if kind == 2 {
				if j, err = p.Apply(j); err != nil {
					return err
				}
			}
			seedGrad := meshtest.Place(m, grad, []int{samples, 2}, every...).Cast(tensor.Float32)
			var out, byPosition [2][]float64
			var rows []float64
			var placed []layout.Placement
			for k, bags := range []func() *dtensor.Tensor{
				func() *dtensor.Tensor { return d.Bags(j, "f", mode) },
				func() *dtensor.Tensor { return c.Bags(j).Values() },
			} {
				params := append([]*dtensor.Tensor{d.Param()}, p.Params()...)
				if k == 1 {
					params[0] = c.Params()[0]
				}
				_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
					h := bags()
					out[k], placed = whole(h.Detach()), h.Placements()
					return h.Redistribute(every...).Mul(seedGrad).Sum(nil, false)
				}, params...)
				if err != nil {
					return err
				}
				if !slices.Equal(placed, spread.Placements()) {
					return fmt.Errorf("bags are %v, the samples %v", placed, spread.Placements())
				}
				byPosition[k] = whole(grads[1].Dense())
				if k == 1 {
					its, _ := grads[0].Rows()
					rows = whole(table.Sub(its.Dense()))
				}
			}
			what := fmt.Sprintf("case %d: %v of %v in %v, kind %d", i, mode, lists, places, kind)
			if err := closeTo(what, out[0], out[1]); err != nil {
				return err
			}
			if err := closeTo(what+": gradient of factors by position", byPosition[0], byPosition[1]); err != nil {
				return err
			}
			return closeTo(what+": rows after a step", slices.Concat(rowsOf(m, d, five)...), rows)
		})
	})
}
