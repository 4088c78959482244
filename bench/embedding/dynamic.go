package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/keytable"
	"github.com/gorun-spmd/gorun/tensor"
)

// key returns the 64-bit key of a table's row. The keys of neighbouring rows are far apart.
func key(row int64) int64 { return row * 0x1f123bb5159a55e5 }

// runDynamic measures tables of 64-bit keys. It repeats the lookups of "row-wise, ids S(0)" with
// keys that all have a row, and inserts keys that have none.
func runDynamic(b *measure.Bench, sizes []size) error {
	for _, s := range sizes {
		name := "dynamic, keys S(0)/" + s.String()
		if !b.Wants(name+"/forward") && !b.Wants(name+"/both") && !b.Wants(name+"/insert") {
			continue
		}
		if err := measureDynamic(b, name, s); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func measureDynamic(b *measure.Bench, name string, s size) error {
	rng := rand.New(rand.NewPCG(7, 0))
	ids, place := make([]int64, s.ids), layout.Shard(0)
	for i := range ids {
		ids[i] = key(rng.Int64N(int64(s.rows)))
	}
	d := embedding.NewDynamic(b.Mesh, embedding.DynamicConfig{Axis: axis, Dim: s.dim, Seed: 3,
		Budget: s.dim * 4 * (s.rows + s.rows/4 + 8192)})
	defer d.Weight().Local().Free()
	distribute := func(list []int64) *dtensor.Tensor {
		return dtensor.Distribute(b.Mesh, tensor.FromSlice(b.Mesh.Device(), list, len(list)), place)
	}
	const piece = 1 << 16
	for first := 0; first < s.rows; first += piece {
		list := make([]int64, min(piece, s.rows-first))
		for i := range list {
			list[i] = key(int64(first + i))
		}
		if err := dtensor.Try(b.Context(), b.Mesh, func() { d.Insert(distribute(list)) }); err != nil {
			return err
		}
	}
	keys := distribute(ids)
	seed := dtensor.Full(b.Mesh, tensor.Float32, 1, []int{s.ids, s.dim}, place)
	lookup := func() *dtensor.Tensor { return d.Lookup(keys) }
	forward := func() error { return dtensor.Try(b.Context(), b.Mesh, func() { lookup() }) }
	both := func() error {
		_, err := gradients(b, lookup, seed, d.Param())
		return err
	}
	if err := checkDynamic(b, d, keys, lookup, seed, s); err != nil {
		return err
	}
	if err := measurePhases(b, name, forward, both, seed); err != nil {
		return err
	}
	next := int64(s.rows)
	fresh := make([]int64, s.ids)
	return b.CaseErr(name+"/insert", func() error {
		for i := range fresh {
			fresh[i] = key(next)
			next++
		}
		return dtensor.Try(b.Context(), b.Mesh, func() {
			d.Advance() // when the table is full, keys of the steps before lose their rows
			d.Insert(distribute(fresh))
		})
	}, func(t measure.Timing) []measure.Field {
		return []measure.Field{{Name: "mkeys_s_rank", Value: float64(s.ids) / float64(b.World.Size()) / t.NS * 1e3}}
	})
}

// checkDynamic checks that all rows of one key in the result are equal, and that the gradients
// for a seed of ones add up to the number of elements looked up.
func checkDynamic(b *measure.Bench, d *embedding.Dynamic, keys *dtensor.Tensor, lookup func() *dtensor.Tensor, seed *dtensor.Tensor,
	s size) (err error) {
	if n := d.Len(); n != s.rows {
		return fmt.Errorf("%d keys have a row, want %d", n, s.rows)
	}
	grads, err := gradients(b, lookup, seed, d.Param())
	if err != nil {
		return err
	}
	rows, _ := grads[0].Rows()
	total := 0.0
	for _, v := range tensor.ToSlice[float32](rows.Values) {
		total += float64(v)
	}
	all := []float64{total}
	if err := comm.AllReduce(b.Context(), b.World, all, comm.Sum); err != nil {
		return err
	}
	if all[0] != float64(s.ids*s.dim) {
		return fmt.Errorf("the gradients add up to %v, want %d", all[0], s.ids*s.dim)
	}
	tryErr := dtensor.Try(b.Context(), b.Mesh, func() {
		got, first := tensor.Data[float32](lookup().Local()), map[int64]int{}
		for i, k := range tensor.Data[int64](keys.Local()) {
			j, seen := first[k]
			if !seen {
				first[k], j = i, i
			}
			for c := range s.dim {
				a, z := got[i*s.dim+c], got[j*s.dim+c]
				if math.Float32bits(a) != math.Float32bits(z) || a == 0 {
					err = fmt.Errorf("key %d has %v and %v at feature %d", k, a, z, c)
				}
			}
		}
	})
	if tryErr != nil {
		return tryErr
	}
	return err
}

// runKeys measures on each rank alone how fast it finds keys in a table of so many keys, and how
// fast it puts them into an empty one. The table has no rows.
func runKeys(b *measure.Bench, keys, calls int) error {
	name := fmt.Sprintf("keys of a dynamic table/%d", keys)
	if !b.Wants(name+"/find") && !b.Wants(name+"/insert") {
		return nil
	}
	rate := func(n int) func(t measure.Timing) []measure.Field {
		return func(t measure.Timing) []measure.Field {
			return []measure.Field{{Name: "mkeys_s_rank", Value: float64(n) / t.NS * 1e3}}
		}
	}
	policy := keytable.Policy{Rows: keys/keytable.Slices + keys/keytable.Slices/8 + 64}
	table := keytable.New(0, keytable.Slices, policy)
	hashes := make([]keytable.Hash, keys)
	insert := func(table *keytable.Table, hashes []keytable.Hash) {
		uses := make([]keytable.Use, len(hashes))
		for i, h := range hashes {
			uses[i] = keytable.Use{Hash: h, Count: 1}
		}
		table.Use(make([]int64, len(uses)), uses, 1)
	}
	for i := range hashes {
		hashes[i] = keytable.Mix(key(int64(i)))
	}
	for at := 0; at < keys; at += calls {
		insert(table, hashes[at:min(at+calls, keys)])
	}
	rand.New(rand.NewPCG(1, 0)).Shuffle(keys, func(i, j int) { hashes[i], hashes[j] = hashes[j], hashes[i] })
	rows, at, missing := make([]int64, calls), 0, 0
	if err := b.CaseErr(name+"/find", func() error {
		if at+calls > keys {
			at = 0
		}
		table.Find(rows, hashes[at:at+calls])
		at += calls
		for _, r := range rows {
			if r < 0 {
				missing++
			}
		}
		return nil
	}, rate(calls)); err != nil {
		return err
	}
	if missing > 0 {
		return fmt.Errorf("%s: %d keys were not found", name, missing)
	}
	fill := min(keys, 16*calls)
	return b.CaseErr(name+"/insert", func() error {
		table := keytable.New(0, keytable.Slices, policy)
		for at := 0; at < fill; at += calls {
			insert(table, hashes[at:min(at+calls, fill)])
		}
		return nil
	}, rate(fill))
}
