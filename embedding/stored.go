package embedding

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"slices"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/index"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/philox"
	"github.com/gorun-spmd/gorun/internal/rowstore"
	"github.com/gorun-spmd/gorun/tensor"
)

// stored is the rows of a table with a Store.
type stored struct {
	name     string          // what errors call the table
	weight   *dtensor.Tensor // the table, [V, D]; no memory has it
	resident *dtensor.Tensor // those rows that are in memory, [slots of all ranks, D]
	slots    int             // of this rank
	disk     rowstore.Config // where the rows are
	rows     *rowstore.Store // this rank's; nil if it has none
	followed bool

	ahead       aheads
	asks        asks
	found, at   []int64 // the rows that were looked up last, and their slots
	changed, to []int64 // the rows that are to be changed, counted from this rank's first, and their slots
}

// newStored makes the rows of a table that c describes.
func newStored(mesh *dtensor.Mesh, c Config) *stored {
	const op = "NewTable"
	s := &stored{name: fmt.Sprintf("table %q", c.Name)}
	places := c.Layout.Placements(mesh, c.Rows, c.Dim)
	switch {
	case c.Rows < 1 || c.Dim < 1:
		refuse(op, "%s has %d rows of %d features; with a Store it needs some of both", s.name, c.Rows, c.Dim)
	case c.DType != tensor.Float32 && c.DType != tensor.Float64 && c.DType != tensor.BFloat16:
		refuse(op, "%s holds %v; use bfloat16, float32 or float64", s.name, c.DType)
	case !tensor.OnHost(mesh.Device()):
		refuse(op, "%s has a Store and the mesh is on %v; its rows go through the memory of CPUs, so make a mesh of them", s.name, mesh.Device())
	}
	for axis, a := range mesh.Axes() {
		if a.Size > 1 && !places[axis].IsShard() {
			refuse(op, "%s has a Store and lies %s; each rank has to have rows or columns of its own, so name axis %q too: use RowWise or "+
				"ColumnWise over all axes of %v, Grid, RowCyclic over the one of more than one rank, or TableWise", s.name, c.Layout, a.Name, mesh)
		}
	}
	s.disk = rowstore.Config{Table: c.Name, Folder: c.Store, Files: c.files, Patience: c.patience}
	s.weight = mesh.WrapStored(op, storedField{s, 0, c.Dim * c.DType.Size()},
		s.name+" has its rows on a disk, and no operator on them but lookups; make an optimizer of the table's Resident",
		c.DType, []int{c.Rows, c.Dim}, places...)
	slots := placeSlots(mesh, places, slotsOf(s, mesh, c))
	s.resident = dtensor.Zeros(mesh, c.DType, []int{slots, c.Dim}, places...)
	s.resident.Local().Persist()
	s.resident.MarkExcerpt(s.name)
	if !mesh.Inside() {
		return s
	}
	var err error
	its, of := s.weight.Layout().Held(mesh.Coord()), s.disk
	if s.slots = s.resident.LocalShape()[0]; its.N > 0 {
		column, columns := s.weight.Layout().Span(mesh.Coord(), 1)
		of.Number, of.Rows, of.Slots, of.Fresh = its.Row, its.N, s.slots, freshRows(c, its, column, columns)
		if s.rows, err = rowstore.New(of); err == nil {
			s.rows.AddField(bytesOf(s.resident.Local()), columns*c.DType.Size(), nil)
		}
	}
	agreeOnDisks(mesh, op, err)
	return s
}

// slotsOf returns how many slots each rank has, by its place in the mesh.
func slotsOf(s *stored, mesh *dtensor.Mesh, c Config) []int {
	size, l := c.DType.Size(), s.weight.Layout()
	sizes, least := make([]int, mesh.Size()), 0
	for i := range sizes {
		coord := l.Axes().Coord(i)
		_, n := l.Span(coord, 0)
		if n == 0 {
			continue
		}
		_, columns := l.Span(coord, 1)
		least += rowstore.Ways * columns * size
		hi, lo := bits.Mul64(uint64(max(0, c.Cache)/(c.Dim*size)), uint64(n))
		slots, _ := bits.Div64(hi, lo, uint64(c.Rows)) // no float64, which may round a whole number down
		sizes[i] = max(1, min(int(slots), 2*n+rowstore.Ways)/rowstore.Ways) * rowstore.Ways
		if sizes[i] > math.MaxInt32 || n > rowstore.MaxRows {
			refuse("NewTable", "%s: a rank has %d rows, and room for %d in its part of the Cache; give it 2³¹ at most of each, by more ranks",
				s.name, n, sizes[i])
		}
	}
	if c.Cache < least {
		refuse("NewTable", "%s: Cache is %d bytes; give %d or more, room for %d rows on each rank that has rows", s.name, c.Cache, least,
			rowstore.Ways)
	}
	return sizes
}

// placeSlots changes the placements of a table to those of its slots, of which sizes has how many each rank has, and returns how
// many there are.
func placeSlots(mesh *dtensor.Mesh, places []layout.Placement, sizes []int) (slots int) {
	var divided []int // the axes that divide rows
	// If they are several no list of sizes says how the slots lie: all ranks have the same.
	slots = slices.Min(slices.DeleteFunc(slices.Clone(sizes), func(n int) bool { return n == 0 }))
	for axis, a := range mesh.Axes() {
		switch {
		case a.Size == 1:
			places[axis] = layout.Replicate()
		case places[axis].Shards(0):
			divided, slots, places[axis] = append(divided, axis), slots*a.Size, layout.Shard(0)
		}
	}
	if len(divided) == 1 {
		along := make([]int, mesh.Axes()[divided[0]].Size)
		for i, n := range sizes {
			along[mesh.LayoutAxes().Coord(i)[divided[0]]] = n
		}
		places[divided[0]], slots = layout.ShardSizes(0, along...), ints.Sum(along)
	}
	return slots
}

// freshRows returns what sets the columns of a row, counted among those of a rank, to what they are in a new table.
func freshRows(c Config, its layout.Held, column, columns int) func(row int, data []byte) {
	padding := -1
	if s := (settings{}); s.setPadding(c.PaddingIdx, c.Rows) {
		padding = s.padding
	}
	std := c.Std
	return func(i int, data []byte) {
		row := its.Row(i)
		if row == padding {
			clear(data)
			return
		}
		var words [64]uint32
		var numbers [64]float32
		size := c.DType.Size()
		for at := 0; at < columns; at += len(words) {
			its := words[:min(len(words), columns-at)]
			philox.Key(c.Key).Words(its, uint64(row)*uint64(c.Dim)+uint64(column+at))
			philox.Normals(numbers[:len(its)], its, 0, std)
			for i, v := range numbers[:len(its)] {
				to := data[(at+i)*size:]
				switch c.DType {
				case tensor.BFloat16:
					binary.NativeEndian.PutUint16(to, uint16(dtype.ToBF16(v)))
				case tensor.Float64:
					binary.NativeEndian.PutUint64(to, math.Float64bits(float64(v)))
				default:
					binary.NativeEndian.PutUint32(to, math.Float32bits(v))
				}
			}
		}
	}
}

// widened sets data, numbers of float32, to those of bfloat16 in first.
func widened(first, data []byte) {
	for i := range len(data) / 4 {
		binary.NativeEndian.PutUint32(data[4*i:], uint32(binary.NativeEndian.Uint16(first[2*i:]))<<16)
	}
}

// bytesOf returns the memory of a tensor on the host, which lives as long as the table.
func bytesOf(x *tensor.Tensor) []byte {
	if x.Bytes() == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(x.Ptr()), x.Bytes())
}

// storedField is one of the tensors of a stored table: its rows, or one that follows them.
type storedField struct {
	s        *stored
	number   int
	rowBytes int // of a whole row
}

func (f storedField) ReadRows(first int, b []byte) error {
	if f.s.rows == nil {
		return nil
	}
	return f.s.rows.ReadRows(f.number, first, b)
}

func (f storedField) WriteRows(first int, b []byte) error {
	if f.s.rows == nil {
		return nil
	}
	return f.s.rows.WriteRows(f.number, first, b)
}

func (f storedField) Sync() error {
	if f.s.rows == nil {
		return nil
	}
	return f.s.rows.Sync()
}

// take returns rows, counted from this rank's first, [n, D]. use is that of Hold.
func (s *stored) take(rows []int64, use bool) (*tensor.Tensor, error) {
	r := s.resident.Local()
	dst := tensor.New(r.Device(), r.DType(), len(rows), r.Dim(1))
	return dst, s.hold(rows, use, func(at, n int, slots *tensor.Tensor) {
		tensor.TakeRowsTo(tensor.Narrow(dst, 0, at, n), r, slots, 0, false)
		s.found, s.at = append(s.found[:0], rows[at:at+n]...), append(s.at[:0], tensor.Read[int64](slots)...)
	})
}

// scale multiplies rows, counted from this rank's first, by a factor each.
func (s *stored) scale(rows []int64, by *tensor.Tensor) error {
	return s.hold(rows, false, func(at, n int, slots *tensor.Tensor) {
		s.rows.Touch(rows[at:at+n], tensor.Read[int64](slots))
		tensor.ScaleRowsTo(s.resident.Local(), slots, tensor.Narrow(by, 0, at, n))
	})
}

// hold brings rows into memory, some at a time if they are more than there are slots, and calls f with the slots of those n that
// begin with the one at. use is that of Hold.
func (s *stored) hold(rows []int64, use bool, f func(at, n int, slots *tensor.Tensor)) error {
	dev := s.resident.Local().Device()
	guesses := make([]int64, len(rows))
	s.guess(rows, guesses)
	for n, at := len(rows), 0; at < len(rows); {
		n = min(n, len(rows)-at)
		slots := index.New[int64](dev, n)
		copy(slots.Elems, guesses[at:at+n])
		err := s.rows.Hold(rows[at:at+n], slots.Elems[:n], use)
		switch {
		case err == nil:
			f(at, n, slots.Tensor(dev, n))
			at += n
		case errors.Is(err, rowstore.ErrFull) && n > 1:
			n /= 2
		default:
			return err
		}
	}
	return nil
}

// takeAll returns a row for each id, [ids..., D], given the distinct of them; it copies rows from their slots, not by way of take.
// ok is false if there are more than there are slots. Of ids that are not among the distinct rows it sets zeros, or with keep nothing.
func (s *stored) takeAll(ids []int, u *tensor.Uniq, use, keep bool) (dst *tensor.Tensor, ok bool, err error) {
	r := s.resident.Local()
	s.found = append(s.found[:0], tensor.Read[int64](u.Index)...)
	s.at = slices.Grow(s.at[:0], len(s.found))[:len(s.found)]
	s.guess(s.found, s.at)
	if err := s.rows.Hold(s.found, s.at, use); err != nil {
		s.found, s.at = s.found[:0], s.at[:0]
		if errors.Is(err, rowstore.ErrFull) {
			err = nil
		}
		return nil, false, err
	}
	from := tensor.Read[int32](u.Slot)
	slots := index.New[int64](r.Device(), len(from))
	for i, k := range from {
		slots.Elems[i] = -1
		if k >= 0 {
			slots.Elems[i] = s.at[k]
		}
	}
	runtime.KeepAlive(u)
	dst = tensor.New(r.Device(), r.DType(), append(slices.Clone(ids), r.Dim(1))...)
	tensor.TakeRowsTo(dst, r, slots.Tensor(r.Device(), len(from)), 0, !keep)
	return dst, true, nil
}

// update brings the rows of a gradient into memory and has f change them there.
func (s *stored) update(op string, rows *dtensor.Rows, f func(rows *dtensor.Rows) error) error {
	mesh := s.weight.Mesh()
	if !mesh.Inside() {
		return f(dtensor.NewRows(s.resident, rows.Index, rows.Values))
	}
	rows = rows.Coalesce()
	s.changed = appendCounted(s.changed[:0], rows.Index, firstRow(s.weight))
	s.to = slices.Grow(s.to[:0], len(s.changed))[:len(s.changed)]
	local, slots := s.changed, s.to
	var err error
	if all := s.guessAgain(local, slots); s.rows != nil && !(all && s.rows.Change(local, slots)) {
		if err = s.rows.Hold(local, slots, false); err == nil {
			s.rows.Change(local, slots) // before f, which may fail half way
		}
	}
	if errors.Is(err, rowstore.ErrFull) {
		err = fmt.Errorf("%s: a step changes %d rows of this rank, and its part of the Cache has %d; give a Cache of a quarter "+
			"more rows than a step changes, or smaller batches", s.name, len(local), s.slots)
	}
	agreeOnDisks(mesh, op, err)
	first, at := int64(firstRow(s.resident)), index.New[int64](mesh.Device(), len(slots))
	for i, slot := range slots {
		at.Elems[i] = slot + first
	}
	return f(dtensor.NewDistinctRows(s.resident, at.Tensor(mesh.Device(), len(slots)), rows.Values))
}

// appendCounted appends row numbers counted from first.
func appendCounted(list []int64, rows *tensor.Tensor, first int) []int64 {
	for _, row := range tensor.Read[int64](rows) {
		list = append(list, row-int64(first))
	}
	runtime.KeepAlive(rows)
	return list
}

// agreeOnDisks throws the error of the lowest rank that has one, on every rank of the mesh.
func agreeOnDisks(mesh *dtensor.Mesh, op string, err error) {
	c := mesh.Comm()
	text := ""
	if err != nil {
		text = err.Error()
	}
	longest := []int64{int64(len(text))}
	mesh.Do(c, comm.Call{Kind: comm.AllReduceKind, Op: comm.Max, Dst: comm.Of(longest), Src: comm.Of(longest),
		Cause: op + ": status of disks"})
	if longest[0] == 0 {
		return
	}
	mine, all := make([]byte, longest[0]), make([]byte, int(longest[0])*c.Size())
	copy(mine, text)
	mesh.Do(c, comm.Call{Kind: comm.AllGatherKind, Dst: comm.Of(all), Src: comm.Of(mine), Cause: op + ": errors of disks"})
	for r := range c.Size() {
		its := all[r*len(mine) : (r+1)*len(mine)]
		if its[0] != 0 {
			fault.Throw(&StoreError{Op: op, Rank: c.WorldRank(r), Detail: string(its[:cmp.Or(slices.Index(its, 0)+1, len(its)+1)-1])})
		}
	}
}

// fetch brings the rows that are wanted of each table with a Store, counted from this rank's first,
// into tensors [n, D]. It throws what goes wrong, on every rank. norms says that it is for renormalize, which counts as the one use
// of the rows of tables with a MaxNorm.
func (x *exchange) fetch(norms bool, wanted func(t int) []int64) {
	var err error
	any := false
	x.fetched = make([]*tensor.Tensor, len(x.tables))
	for t := range x.tables {
		s := x.tables[t].stored
		if s == nil {
			continue
		}
		any = true
		if s.rows == nil {
			x.fetched[t] = tensor.New(x.mesh.Device(), x.dtype, 0, x.tables[t].columns())
			continue
		}
		rows, failed := s.take(wanted(t), x.renorms(t) == norms)
		if x.fetched[t] = rows; err == nil {
			err = failed
		}
	}
	if any {
		agreeOnDisks(x.mesh, x.op, err)
	}
}

// requested returns the rows of table t that the peers request of this rank, peer by peer,
// counted from its first.
func (x *exchange) requested(t int) []int64 {
	var rows []int64
	for i := range x.requestPeers {
		rows = appendCounted(rows, x.requests(i, t), x.tables[t].row)
	}
	return rows
}

// fetchedRows returns the rows of table t that were fetched, nil if it has no Store.
func (x *exchange) fetchedRows(t int) *tensor.Tensor {
	if x.fetched == nil {
		return nil // of a dynamic table
	}
	return x.fetched[t]
}

// fetchedFor returns the rows of table t that were fetched for a peer.
func (x *exchange) fetchedFor(peer, t int) *tensor.Tensor {
	at := 0
	for i := range peer {
		at += x.requestCount(i, t)
	}
	return tensor.Narrow(x.fetched[t], 0, at, x.requestCount(peer, t))
}

// fetchOwn fetches the rows of the local ids that this rank holds.
func (l *lookup) fetchOwn() *tensor.Tensor {
	l.x.fetch(false, func(int) []int64 { return tensor.ToSlice[int64](l.distinct().Index) })
	return l.x.fetched[0]
}

// takeOwn returns the rows of the local ids of a table with a Store; zeros, or with a mask nothing, where the row belongs to another rank.
func (l *lookup) takeOwn() *tensor.Tensor {
	if s := l.own.stored; s.rows != nil {
		rows, ok, err := s.takeAll(l.ids.Shape(), l.distinct(), !l.s.renorm, l.carries)
		if ok || err != nil {
			agreeOnDisks(l.x.mesh, l.x.op, err)
			return rows
		}
	}
	own := l.fetchOwn()
	rows := tensor.New(own.Device(), own.DType(), append(slices.Clone(l.ids.Shape()), l.own.columns())...)
	tensor.TakeRowsTo(rows, own, l.distinct().Slot.Reshape(l.ids.Shape()...), 0, !l.carries)
	return rows
}

// divideStored is divide for a table with a Store, of whose rows the distinct ones are fetched.
func (b *bags) divideStored(starts []int, ids []int64) {
	u := b.distinct()
	b.table = b.fetchOwn()
	const isPadding, isAway = -1, -2
	places := make([]int32, len(ids))
	for i, slot := range tensor.Read[int32](u.Slot) {
		switch {
		case ids[i] == int64(b.s.padding):
			places[i] = isPadding
		case slot < 0:
			places[i] = isAway
		default:
			places[i] = slot
		}
	}
	runtime.KeepAlive(u.Slot)
	b.p = newPooling(b.table.Device(), b.o.Mode, places, starts, 0, b.table.Dim(0), isPadding)
}
