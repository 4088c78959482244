package embedding

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/keytable"
	"github.com/gorun-spmd/gorun/tensor"
)

// A DynamicConfig describes a Dynamic table.
type DynamicConfig struct {
	Name string // in errors; may be empty
	Dim  int    // D
	// Axis is the axis of the mesh whose ranks share the rows; over the other axes the
	// table is replicated.
	Axis string
	// Budget is how many bytes the rows of all keys may take, on all ranks of the axis
	// together. It is divided among 256 slices of the keys, and taken at once; the keys and
	// what an optimizer remembers of the rows come on top.
	Budget int
	DType  tensor.DType // of the rows: Float32, which 0 stands for, or BFloat16
	// Seed makes the initial values: normal numbers of (Seed, key, column). Tables of one
	// Seed begin with the same rows: give each its own.
	Seed uint64
	// Std is their standard deviation; 0: 1.
	Std float64
	// AdmitAfter is how often a key is used before it has a row; 0 or 1: it has one at
	// once. Until then it is a candidate. There are as many of them at most as rows.
	AdmitAfter int
	// ExpireAfter is for how many steps a key may be unused before it is dropped with its
	// row; 0: for ever. Advance looks for such keys once in ExpireAfter/8 steps, or in each.
	ExpireAfter int
}

// A Dynamic is an embedding table whose rows have 64-bit keys instead of numbers: any
// integers, without collisions. A key gets a row when it is first used in training, and
// loses it when others need the memory more.
//
//	users := embedding.NewDynamic(mesh, embedding.DynamicConfig{Axis: "tp", Dim: 64, Budget: 8 << 30})
//	opt := optim.NewRowAdagrad([]*dtensor.Tensor{users.Weight()}, optim.RowAdagradConfig{})
//	users.Follow(opt.State())
//	...
//	value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
//		h := users.Lookup(keys) // keys [B, T] int64  →  h [B, T, D]
//		...
//	}, users.Param())
//	err = opt.Step(grads, rate)
//	users.Advance() // the next step begins
//
// # Which keys have a row
//
// A lookup inside a ValueAndGrad that has Param uses its keys: it counts how often each
// occurs on all ranks, and gives rows to those that are to have one. Any other lookup
// changes nothing. A key without a row is looked up as zeros and has no gradient. A
// ValueAndGrad or Accumulate that returns an error has used no keys.
//
// A slice of the keys whose rows are all taken drops the least keys by (count, last step,
// key), a sixteenth of its rows at a time, but no key that this step has used. If that
// is not enough, the new keys that have occurred least get no row, which Stats counts as
// refused. A key that was dropped begins again, with its first row, an optimizer that
// remembers nothing of it, and no count.
//
// All of this depends on the keys of the steps alone. It is the same for every number of
// ranks and every layout of the keys; so are the rows, as far as sums of gradients are.
//
// # Weight
//
// Weight is a tensor of all rows that there is room for, [Rows, D], and a gradient a
// dtensor.Rows of it. The row that a key has there means nothing and changes when a
// checkpoint is loaded: save a Dynamic by State.AddGrowing of package checkpoint.
// Optimizers that change only the rows of a gradient, SGD, RowAdagrad, Adagrad and
// SparseAdam, do for each key what they do for a row of a Table.
type Dynamic struct {
	table   *Table // of Weight; its row numbers are those of keys
	config  DynamicConfig
	axis    int
	rows    int             // of each slice
	keys    *keytable.Table // of this rank's slices; nil on a rank outside the mesh
	step    int64
	follows []followed
	routes  map[uint]*route // by the axes that shard keys
	noting  bool            // a ValueAndGrad is in progress, and what keys change is taken back if it fails
	lost    []lostRows      // in it
	facts   uint32          // a hash of the config
}

// A followed tensor goes with the rows, or if it has no row for each with the table.
type followed struct {
	name   string
	tensor *dtensor.Tensor
	byRow  bool
	first  *tensor.Tensor // if byRow [1, …]: what a new key begins with; nil for its row of the table, and on a rank without rows
}

// NewDynamic makes an empty table. It communicates nothing. It throws an *Error that
// names the field if the configuration makes no sense.
func NewDynamic(mesh *dtensor.Mesh, c DynamicConfig) *Dynamic {
	const op = "NewDynamic"
	if c.DType == 0 {
		c.DType = tensor.Float32
	}
	if c.Std == 0 {
		c.Std = 1
	}
	axis, ok := mesh.Axis(c.Axis)
	switch {
	case !ok:
		refuse(op, "table %q: mesh %v has no axis %q; use one of its names", c.Name, mesh, c.Axis)
	case mesh.Axes()[axis].Size > keytable.Slices:
		refuse(op, "table %q: axis %q has %d ranks; keys are divided among %d at most", c.Name, c.Axis, mesh.Axes()[axis].Size, keytable.Slices)
	case c.Dim < 1:
		refuse(op, "table %q: Dim is %d; it must be positive", c.Name, c.Dim)
	case c.DType != tensor.Float32 && c.DType != tensor.BFloat16:
		refuse(op, "table %q: DType is %v; use float32 or bfloat16", c.Name, c.DType)
	case c.AdmitAfter < 0 || c.ExpireAfter < 0:
		refuse(op, "table %q: AdmitAfter is %d and ExpireAfter %d; they are not negative", c.Name, c.AdmitAfter, c.ExpireAfter)
	case c.ExpireAfter > math.MaxInt32:
		refuse(op, "table %q: ExpireAfter is %d; give at most 2³¹-1, or 0 for ever", c.Name, c.ExpireAfter)
	}
	if !tensor.OnHost(mesh.Device()) {
		refuse(op, "table %q: the mesh is on %v; a table of keys lies on CPUs, so make a mesh of them", c.Name, mesh.Device())
	}
	rows := c.Budget / (c.Dim * c.DType.Size()) / keytable.Slices
	if rows < 1 || rows > 1<<31/keytable.Slices {
		refuse(op, "table %q: Budget is %d bytes, %d rows for each of %d slices of the keys; give %d bytes for each row of them, 1 to %d rows",
			c.Name, c.Budget, rows, keytable.Slices, c.Dim*c.DType.Size()*keytable.Slices, 1<<31/keytable.Slices)
	}
	sizes := layout.ChunkSizes(keytable.Slices, mesh.Axes()[axis].Size)
	for i := range sizes {
		sizes[i] *= rows
	}
	places := mesh.Every(layout.Replicate())
	places[axis] = layout.ShardSizes(0, sizes...)
	weight := dtensor.Zeros(mesh, c.DType, []int{keytable.Slices * rows, c.Dim}, places...)
	weight.Local().Persist()
	d := &Dynamic{table: TableOf(weight, Options{Table: c.Name}), config: c, axis: axis, rows: rows, routes: map[uint]*route{}}
	d.table.keys = true
	d.facts = uint32(agreed(weight.Facts()).text(fmt.Sprint(c)))
	if mesh.Inside() {
		first, n := d.own()
		d.keys = keytable.New(first/rows, n/rows, keytable.Policy{Rows: rows, Admit: c.AdmitAfter, Expire: c.ExpireAfter})
	}
	return d
}

// own returns this rank's rows; none outside the mesh.
func (d *Dynamic) own() (first, n int) {
	if !d.mesh().Inside() {
		return 0, 0
	}
	return d.table.weight.Layout().Span(d.mesh().Coord(), 0)
}

func (d *Dynamic) mesh() *dtensor.Mesh { return d.table.weight.Mesh() }

// Weight returns the rows, for an optimizer.
func (d *Dynamic) Weight() *dtensor.Tensor { return d.table.weight }

// Param returns what to pass to ValueAndGrad; see Table.Param.
func (d *Dynamic) Param() *dtensor.Tensor { return d.table.Param() }

// Fuse makes the backward pass update the table itself; see Table.Fuse.
func (d *Dynamic) Fuse(update func(rows *dtensor.Rows) error) { d.table.Fuse(update) }

// Follow makes what an optimizer remembers of the rows come and go with them: a tensor of
// state that has a row for each row of Weight has for a new key what it has now for rows without
// a key: zeros as a rule, the Initial of an Adagrad. Averages of weights begin with the key's row.
// Checkpoints of the table have all of state, so it is not added to them otherwise.
//
//	users.Follow(opt.State())
//	users.Follow(ema.State()) // of an optim.EMA
//
// It throws an *Error for a name that is followed already, and for state of two parameters with as many rows.
func (d *Dynamic) Follow(state iter.Seq2[string, *dtensor.Tensor]) {
	w := d.table.weight
	seen := map[string]string{} // what is by row, by its name without the parameter's number
	for name, t := range state {
		if slices.ContainsFunc(d.follows, func(f followed) bool { return f.name == name }) {
			refuse("Follow", "%q of %v is followed already; give the states of two optimizers names of their own", name, d)
		}
		byRow := t.NDim() > 0 && t.Dim(0) == w.Dim(0) && t.Mesh() == w.Mesh() && t.Placement(d.axis) == w.Placement(d.axis)
		f := followed{name: name, tensor: t, byRow: byRow}
		if byRow {
			kind := name[:max(strings.LastIndexByte(name, '.'), 0)]
			if other, ok := seen[kind]; ok && kind != "" {
				refuse("Follow", "%q and %q both have a row for each of %v, and one of them is of another parameter; "+
					"make an optimizer of this table alone", other, name, d)
			}
			seen[kind] = name
			if kind != "master" && kind != "ema" && kind != "swa" {
				f.first = d.unused(t)
			}
		}
		d.follows = append(d.follows, f)
	}
}

// unused returns what this rank has in t, a tensor of rows, for a row without a key, or zeros if all of its rows have one.
func (d *Dynamic) unused(t *dtensor.Tensor) *tensor.Tensor {
	rows := byRows(t.Local())
	if d.keys == nil || rows.Dim(0) == 0 {
		return nil
	}
	first, _ := d.own()
	taken := map[int]bool{}
	for _, e := range d.keys.Entries(false) {
		taken[d.keys.Row(e.Hash, e.Slot)-first] = true
	}
	for row := range rows.Dim(0) {
		if !taken[row] {
			return tensor.TakeRows(rows, tensor.FromSlice(rows.Device(), []int64{int64(row)}, 1), 0).Persist()
		}
	}
	return tensor.Zeros(rows.Device(), rows.DType(), 1, rows.Dim(1)).Persist()
}

// Lookup returns the rows of keys, an int64 tensor in any layout; zeros for a key that
// has none.
//
//	keys [...]   →   [..., D], placed as keys are
//
// What is replicated over the axis of the table is divided among its ranks and gathered,
// so keys that are sharded over it are looked up with fewer bytes:
//
//	keys     forward                                          gradient
//	S        counts, keys to their owners, rows back          rows to their owners
//	R        the same, and the rows of all ranks              the same
//
// In training, keys that are sharded over an axis on which the table is replicated go to
// all replicas, with two collectives more, and so do their gradients. With same bits the gradients of all keys are gathered.
//
// Lookup throws an *Error for keys that are not int64 or on another mesh, and in training inside dtensor.Recompute.
func (d *Dynamic) Lookup(keys *dtensor.Tensor) *dtensor.Tensor {
	const op = "Lookup"
	d.checkKeys(op, keys)
	shape := append(keys.Shape(), d.config.Dim)
	if keys.NDim() == 0 {
		return d.Lookup(keys.Reshape(1)).Reshape(shape...)
	}
	at, final := d.place(keys)
	mesh, places := d.mesh(), at.Placements()
	if !mesh.Inside() {
		return mesh.Wrap(op, tensor.New(mesh.Device(), d.config.DType, 0), nil, false, shape, places...).Redistribute(final...)
	}
	input := d.table.input()
	l := d.newLookup(op, at.Local(), places, dtensor.Tracked(input))
	rows := tensor.TakeRows(l.rows, l.x.distinct[0].Slot.Reshape(at.Local().Shape()...), 0)
	out := mesh.Wrap(op, rows, nil, false, shape, places...)
	out = dtensor.Record(op, out, []*dtensor.Tensor{input}, func(gy *dtensor.Tensor) []dtensor.Grad {
		if mesh.SameBits() {
			return []dtensor.Grad{d.table.take(d.gradientOfAll(l, keys, gy))}
		}
		return []dtensor.Grad{d.table.take(l.backward(gy.Redistribute(places...).Local()))}
	})
	return out.Redistribute(final...)
}

// place brings keys to a layout in which the ranks of the table's axis have different
// ones. final has the placements of what is looked up.
func (d *Dynamic) place(keys *dtensor.Tensor) (at *dtensor.Tensor, final []layout.Placement) {
	want := keys.Placements()
	for axis, p := range want {
		if p.IsPartial() {
			want[axis] = layout.Replicate()
		}
	}
	final = slices.Clone(want)
	d.divide(want)
	layout.Refit(want, keys.Placements())
	return keys.Redistribute(want...), final
}

// divide changes placements so that the ranks of the table's axis have different keys.
func (d *Dynamic) divide(places []layout.Placement) {
	if !places[d.axis].IsReplicate() {
		return
	}
	places[d.axis] = layout.Shard(0)
	for axis := d.axis + 1; axis < len(places); axis++ {
		if places[axis].Shards(0) { // its sizes were of more keys
			places[axis] = layout.Shard(0)
		}
	}
}

// checkKeys throws unless keys are int64 on the table's mesh.
func (d *Dynamic) checkKeys(op string, keys *dtensor.Tensor) {
	if keys.DType() != tensor.Int64 {
		refuse(op, "the keys for %v are %v; use int64", d, keys)
	}
	if keys.Mesh() != d.mesh() {
		refuse(op, "the keys are on mesh %v and %v on another, %v; move one of them", keys.Mesh(), d, d.mesh())
	}
}

// Insert uses keys as a lookup in training does, and looks up nothing.
func (d *Dynamic) Insert(keys *dtensor.Tensor) {
	const op = "Insert"
	d.checkKeys(op, keys)
	if keys.NDim() == 0 {
		keys = keys.Reshape(1)
	}
	scope := d.mesh().Device().Open()
	defer scope.Close()
	at, _ := d.place(keys)
	if d.mesh().Inside() {
		d.request(op, at.Local(), at.Placements(), true)
	}
}

// Assign makes rows the rows of keys, as those of a table that another program has trained. It uses the keys as Insert does; a key
// that has no row then, because of AdmitAfter or since there is no room, gets none. Weights that follow the table become rows too.
//
//	keys [...] int64   rows [..., D], in any layouts
//
// A key that is there several times has the mean of its rows. Assign throws an *Error for rows that do not fit, and inside a ValueAndGrad.
func (d *Dynamic) Assign(keys, rows *dtensor.Tensor) {
	const op = "Assign"
	d.checkKeys(op, keys)
	mesh := d.mesh()
	if want := append(keys.Shape(), d.config.Dim); !slices.Equal(rows.Shape(), want) || !rows.DType().Float() || rows.Mesh() != mesh {
		refuse(op, "the rows for %v are %v; give numbers of shape %v on its mesh", d, rows, want)
	}
	if mesh.Training() {
		refuse(op, "a ValueAndGrad is using %v; assign before it", d)
	}
	scope := mesh.Device().Open()
	defer scope.Close()
	at, _ := d.place(keys.Reshape(-1))
	rows = rows.Cast(d.config.DType.Wide()).Reshape(-1, d.config.Dim).Redistribute(at.Placements()...)
	if !mesh.Inside() {
		return
	}
	l := d.newLookup(op, at.Local(), at.Placements(), true)
	l.s.frequency = true // the mean over equal keys
	its := l.backward(rows.Local())
	first, _ := d.own()
	index := tensor.AddScalar(its.Index, -float64(first))
	d.write(d.table.weight.Local(), index, its.Values)
	for _, f := range d.follows {
		if f.byRow && f.first == nil {
			local := byRows(f.tensor.Local())
			d.write(local, index, tensor.Cast(its.Values, local.DType()))
		}
	}
}

// Advance ends a step: after it, keys that the step has used may lose their rows again.
// Call it once in each step of training, after the optimizer's. It communicates nothing.
func (d *Dynamic) Advance() {
	d.end(nil)
	if d.step++; d.step > math.MaxInt32 {
		refuse("Advance", "%v has made 2³¹ steps, which is all it can count", d)
	}
	if e := int64(d.config.ExpireAfter); e > 0 && d.step%max(1, e/8) == 0 && d.keys != nil {
		d.keys.Expire(int32(d.step))
	}
}

// Rows returns for how many keys there is room.
func (d *Dynamic) Rows() int { return d.table.weight.Dim(0) }

// Len returns how many keys have a row, on all ranks. It is collective.
func (d *Dynamic) Len() int { return d.Stats().Keys }

// Keys returns the keys that have a row, on all ranks, ascending. It is collective.
func (d *Dynamic) Keys() []int64 {
	if !d.mesh().Inside() {
		return nil
	}
	var mine []int64
	for _, e := range d.keys.Entries(false) {
		mine = append(mine, e.Hash.Key())
	}
	var sizes []int
	for _, n := range gatherAll(d.mesh(), d.group(), []int64{int64(len(mine))}, slices.Repeat([]int{1}, d.group().Size()), "Keys: counts") {
		sizes = append(sizes, int(n))
	}
	all := gatherAll(d.mesh(), d.group(), mine, sizes, "Keys: keys")
	slices.Sort(all)
	return all
}

// DynamicStats are what has happened in a Dynamic on all ranks, since it was made.
// A key that occurs several times in a lookup counts as often.
type DynamicStats struct {
	Keys       int // that have a row now
	Rows       int // for how many there is room
	Candidates int // keys that are counted and have no row

	Uses     int // of keys in training
	Hits     int // those of keys that had a row before
	Admitted int // keys that were given a row
	Evicted  int // keys that lost it because others needed room
	Expired  int // keys that lost it because they were not used
	Refused  int // times that a key got no row because all were of keys in use
}

// String prints them on a line.
func (s DynamicStats) String() string {
	hits := 0.0
	if s.Uses > 0 {
		hits = float64(s.Hits) / float64(s.Uses)
	}
	return fmt.Sprintf("%d keys in %d rows (%.1f%%), %d candidates, %.1f%% of %d uses found, %d admitted, %d evicted, %d expired, %d refused",
		s.Keys, s.Rows, 100*float64(s.Keys)/float64(max(s.Rows, 1)), s.Candidates, 100*hits, s.Uses, s.Admitted, s.Evicted, s.Expired, s.Refused)
}

// Stats returns the statistics of the table. It is collective; on a rank outside the mesh
// they are zero.
func (d *Dynamic) Stats() DynamicStats {
	if !d.mesh().Inside() {
		return DynamicStats{}
	}
	s := d.keys.Stats
	n := []int64{int64(d.keys.Len()), int64(d.keys.Candidates()), s.Uses, s.Hits, s.Admitted, s.Evicted, s.Expired, s.Refused}
	d.mesh().Do(d.group(), comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum, Dst: comm.Of(n), Src: comm.Of(n), Cause: "Stats"})
	return DynamicStats{Keys: int(n[0]), Rows: d.Rows(), Candidates: int(n[1]), Uses: int(n[2]), Hits: int(n[3]), Admitted: int(n[4]),
		Evicted: int(n[5]), Expired: int(n[6]), Refused: int(n[7])}
}

// group returns the ranks that share the rows.
func (d *Dynamic) group() *comm.Comm { return d.mesh().Group(d.config.Axis) }

// String describes the table.
func (d *Dynamic) String() string {
	name := "the dynamic table"
	if d.config.Name != "" {
		name = fmt.Sprintf("dynamic table %q", d.config.Name)
	}
	return fmt.Sprintf("%s of %d rows of %d over %s", name, d.Rows(), d.config.Dim, d.config.Axis)
}

// damaged throws an *Error about a checkpoint.
func (d *Dynamic) damaged(format string, args ...any) {
	fault.Throw(&Error{Op: "Restore", Detail: d.String() + ": " + fmt.Sprintf(format, args...)})
}
