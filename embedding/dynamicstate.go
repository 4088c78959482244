package embedding

import (
	"iter"
	"maps"
	"math"
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/keytable"
	"github.com/gorun-spmd/gorun/tensor"
)

// The names of what is saved, in the order of the hashes of the keys. Each kind of keys has
// three tensors [n] int64; those that have a row have their rows too.
const (
	savedKeys       = "keys"
	savedCounts     = "count" // how often a key was used
	savedLast       = "last"  // the last step in which it was
	savedWeight     = "weight"
	savedStep       = "step"
	savedCandidates = "candidate." // keys without a row
	savedOptimizer  = "optimizer." // what is followed
)

// Mesh returns the mesh that the table lies on.
func (d *Dynamic) Mesh() *dtensor.Mesh { return d.mesh() }

// Saved returns what a checkpoint has of the table, for State.AddGrowing of package
// checkpoint: the keys that have a row, their rows and what is followed of them, and the
// candidates, in an order that depends on the keys alone. free gives back the memory of
// the copies. It is collective.
func (d *Dynamic) Saved() (tensors iter.Seq2[string, *dtensor.Tensor], free func()) {
	all, copies := map[string]*dtensor.Tensor{}, []*tensor.Tensor{}
	add := func(name string, t *dtensor.Tensor) {
		t.Local().Persist()
		all[name], copies = t, append(copies, t.Local())
	}
	mesh := d.mesh()
	dev := mesh.Device()
	w := d.table.weight
	first, _ := d.own()
	for _, candidates := range []bool{false, true} {
		var entries []keytable.Entry
		if mesh.Inside() {
			entries = d.keys.Entries(candidates)
		}
		sizes := d.sizes(len(entries))
		placed := func(local *tensor.Tensor, shape ...int) *dtensor.Tensor {
			places := mesh.Every(layout.Replicate())
			places[d.axis] = layout.ShardSizes(0, sizes...)
			return mesh.Wrap("Saved", local, nil, false, append([]int{ints.Sum(sizes)}, shape...), places...)
		}
		numbers := func(name string, of func(e *keytable.Entry) int64) *tensor.Tensor {
			t := tensor.New(dev, tensor.Int64, len(entries))
			tensor.Edit(t, func(t []int64) {
				for i := range entries {
					t[i] = of(&entries[i])
				}
			})
			if name != "" {
				add(name, placed(t))
			}
			return t
		}
		prefix := ""
		if candidates {
			prefix = savedCandidates
		}
		numbers(prefix+savedKeys, func(e *keytable.Entry) int64 { return e.Hash.Key() })
		numbers(prefix+savedCounts, func(e *keytable.Entry) int64 { return int64(e.Count) })
		numbers(prefix+savedLast, func(e *keytable.Entry) int64 { return int64(e.Last) })
		if candidates {
			continue
		}
		index := numbers("", func(e *keytable.Entry) int64 { return int64(d.keys.Row(e.Hash, e.Slot) - first) })
		add(savedWeight, placed(tensor.TakeRows(w.Local(), index, 0), d.config.Dim))
		for _, f := range d.follows {
			if f.byRow {
				its := tensor.TakeRows(byRows(f.tensor.Local()), index, 0)
				shape := slices.Clone(f.tensor.Shape()[1:])
				add(savedOptimizer+f.name, placed(its.Reshape(append([]int{len(entries)}, shape...)...), shape...))
			}
		}
		index.Free()
	}
	add(savedStep, dtensor.Full(mesh, tensor.Int64, float64(d.step), []int{1}, mesh.Every(layout.Replicate())...))
	for _, f := range d.follows {
		if !f.byRow {
			all[savedOptimizer+f.name] = f.tensor
		}
	}
	return byName(all), func() {
		for _, t := range copies {
			t.Free()
		}
	}
}

// byName lists tensors in the order of their names.
func byName(all map[string]*dtensor.Tensor) iter.Seq2[string, *dtensor.Tensor] {
	return func(yield func(string, *dtensor.Tensor) bool) {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if !yield(name, all[name]) {
				return
			}
		}
	}
}

// sizes returns how many keys each rank along the table's axis has, on the ranks outside
// the mesh too, which save with the others.
func (d *Dynamic) sizes(mine int) []int {
	counts := make([]int64, d.mesh().Axes()[d.axis].Size)
	if d.mesh().Inside() {
		at := d.mesh().Coord()[d.axis]
		counts[at] = int64(mine)
	}
	d.mesh().Do(d.mesh().Parent(), comm.Call{Kind: comm.AllReduceKind, Op: comm.Max, Dst: comm.Of(counts), Src: comm.Of(counts),
		Cause: "Saved: counts"})
	sizes := make([]int, len(counts))
	for i, n := range counts {
		sizes[i] = int(n)
	}
	return sizes
}

// Loading returns tensors to load a checkpoint into, of the shapes that it has, and done,
// which makes the table what they say. shape returns nil for a name that is not there.
//
// done is collective. It throws an *Error, with the table as it was, if a slice of the
// keys has more rows than there is room for, and for keys that cannot have been saved.
func (d *Dynamic) Loading(shape func(name string) []int) (tensors iter.Seq2[string, *dtensor.Tensor], done func()) {
	mesh := d.mesh()
	places := mesh.Every(layout.Replicate())
	places[d.axis] = layout.Shard(0)
	all := map[string]*dtensor.Tensor{}
	count := func(name string) int {
		if s := shape(name); len(s) > 0 {
			return s[0]
		}
		return 0
	}
	for _, prefix := range []string{"", savedCandidates} {
		for _, name := range []string{savedKeys, savedCounts, savedLast} {
			all[prefix+name] = dtensor.Zeros(mesh, tensor.Int64, []int{count(prefix + savedKeys)}, places...)
		}
	}
	n := count(savedKeys)
	all[savedWeight] = dtensor.Zeros(mesh, d.config.DType, []int{n, d.config.Dim}, places...)
	all[savedStep] = dtensor.Zeros(mesh, tensor.Int64, []int{1}, mesh.Every(layout.Replicate())...)
	for _, f := range d.follows {
		all[savedOptimizer+f.name] = f.tensor
		if f.byRow {
			all[savedOptimizer+f.name] = dtensor.Zeros(mesh, f.tensor.DType(), append([]int{n}, f.tensor.Shape()[1:]...), places...)
		}
	}
	return byName(all), func() {
		if mesh.Inside() {
			d.restore(all)
		}
	}
}

// restore makes the table what all says.
func (d *Dynamic) restore(all map[string]*dtensor.Tensor) {
	step := tensor.ToSlice[int64](all[savedStep].Local())[0]
	var lists [2][]keytable.Entry
	mine := map[string]*tensor.Tensor{}
	for i, prefix := range []string{"", savedCandidates} {
		places := d.owners(all[prefix+savedKeys])
		var numbers [3][]int64
		for j, name := range []string{savedKeys, savedCounts, savedLast} {
			numbers[j] = tensor.ToSlice[int64](all[prefix+name].Redistribute(places...).Local())
		}
		lists[i] = d.entries(numbers[0], numbers[1], numbers[2], step)
		if i == 0 {
			mine[savedWeight] = all[savedWeight].Redistribute(places...).Local()
			for _, f := range d.follows {
				if f.byRow {
					mine[f.name] = byRows(all[savedOptimizer+f.name].Redistribute(places...).Local())
				}
			}
		}
	}
	first, _ := d.own()
	rows := make([]int64, len(lists[0]))
	d.end(nil)
	d.keys.Clear()
	for i, list := range lists {
		for k, e := range list {
			row, _ := d.keys.Put(e, i == 1) // owners has seen that there is room
			if i == 0 {
				rows[k] = int64(row - first)
			}
		}
	}
	index := tensor.FromSlice(d.mesh().Device(), rows, len(rows))
	tensor.PutRows(d.table.weight.Local(), tensor.Rows{Index: index, Values: mine[savedWeight]})
	for _, f := range d.follows {
		if f.byRow {
			tensor.PutRows(byRows(f.tensor.Local()), tensor.Rows{Index: index, Values: mine[f.name]})
		}
	}
	d.step = step
}

// owners returns the placements in which the ranks have the keys of their own slices.
func (d *Dynamic) owners(keys *dtensor.Tensor) []layout.Placement {
	counts := make([]int64, keytable.Slices)
	for _, key := range tensor.Read[int64](keys.Local()) {
		counts[keytable.Mix(key).Slice()]++
	}
	runtime.KeepAlive(keys)
	d.mesh().Do(d.group(), comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum, Dst: comm.Of(counts), Src: comm.Of(counts),
		Cause: "Restore: keys of slices"})
	if most := slices.Max(counts); most > int64(d.rows) {
		d.damaged("a slice of the saved keys has %d and room for %d here; give the table a Budget of %d bytes at least", most, d.rows,
			most*keytable.Slices*int64(d.config.Dim*d.config.DType.Size()))
	}
	sizes := make([]int, d.group().Size())
	at := 0
	for i, n := range layout.ChunkSizes(keytable.Slices, len(sizes)) {
		for _, k := range counts[at : at+n] {
			sizes[i] += int(k)
		}
		at += n
	}
	places := d.mesh().Every(layout.Replicate())
	places[d.axis] = layout.ShardSizes(0, sizes...)
	return places
}

// entries returns this rank's keys with their history, and throws what no table has saved,
// on every rank.
func (d *Dynamic) entries(keys, counts, last []int64, step int64) []keytable.Entry {
	list := make([]keytable.Entry, len(keys))
	first, n := d.own()
	bad := []int64{0} // the position of a bad key, plus one
	for i, key := range keys {
		h := keytable.Mix(key)
		list[i] = keytable.Entry{Hash: h, Count: uint32(counts[i]), Last: int32(last[i])}
		row := h.Slice() * d.rows
		here, ordered := row >= first && row < first+n, i == 0 || h > list[i-1].Hash
		if !here || !ordered || counts[i] < 1 || counts[i] > math.MaxUint32 || last[i] < 0 || last[i] > step {
			bad[0] = int64(i) + 1
		}
	}
	d.mesh().Do(d.group(), comm.Call{Kind: comm.AllReduceKind, Op: comm.Max, Dst: comm.Of(bad), Src: comm.Of(bad), Cause: "Restore: status"})
	if bad[0] != 0 || step < 0 || step > math.MaxInt32 {
		d.damaged("the saved keys are not in the order of their hashes, or their counts and steps are no such; load what a table has saved")
	}
	return list
}
