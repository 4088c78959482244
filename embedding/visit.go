package embedding

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// A visit is one lookup in all tables of a collection on one rank.
type visit struct {
	*route
	c  *Collection
	op string
	j  *Jagged
	at []int // of each feature in the batch

	uniq  []tensor.Uniq    // by table: of this rank's ids, those of its features one after the other
	first [][]int          // by table: where the ids of each of its features begin among them
	count [][]int64        // [feature][rank of batch] ids, where the op needs them
	asked [][]int          // [asker][table] how many rows it asks of this rank
	begin [][]int          // [asker][table] where they begin in wants
	wants *tensor.Tensor   // int64: the rows that the askers want, in their order and then by table
	rows  []*tensor.Tensor // by table: the distinct rows of this rank's ids, [U, D]
}

// newVisit checks this rank's ids, with the other ranks where they have others.
// counted says that they are to know how many ids each has.
func (c *Collection) newVisit(op string, j *Jagged, at []int, counted bool) *visit {
	v := &visit{route: c.routeFor(j), c: c, op: op, j: j, at: at}
	bad := make([]int64, badSize)
	for t := range c.tables {
		var parts []*tensor.Tensor
		first, n := make([]int, len(c.of[t])), 0
		for i, f := range c.of[t] {
			part := j.idsOf(at[f])
			first[i] = n
			n += part.Numel()
			parts = append(parts, part)
			if pos, id, ok := tensor.CheckIndex(part, c.tables[t].weight.Dim(0)); !ok {
				v.blame(bad, f, pos, id)
			}
		}
		ids := tensor.New(c.mesh.Device(), tensor.Int64, 0)
		if len(parts) > 0 {
			ids = tensor.Cat(0, parts...)
		}
		v.uniq = append(v.uniq, tensor.Unique(ids, 0, c.tables[t].weight.Dim(0)))
		v.first = append(v.first, first)
	}
	v.agree(bad, counted)
	v.send()
	v.renormalize()
	return v
}

// What a rank says of its worst id.
const (
	badFeature = iota // its feature plus one, 0: none is bad
	badSample
	badAt // in the sample's list
	badID
	badSize
)

// blame notes the bad id at a position among this rank's ids of feature f, if
// no earlier feature has one.
func (v *visit) blame(bad []int64, f, pos, id int) {
	if bad[badFeature] != 0 && bad[badFeature] <= int64(f+1) {
		return
	}
	start, _ := v.j.batch.Span(v.c.mesh.Coord(), 0)
	for s, n := range v.j.lengthsOf(v.at[f]) {
		if pos < n {
			copy(bad, []int64{int64(f + 1), int64(start + s), int64(pos), int64(id)})
			return
		}
		pos -= n
	}
}

// agree tells the ranks with other samples whether all ids are good, how many
// rows will be asked for, and how many ids there are; so all throw the same error
// or none.
func (v *visit) agree(bad []int64, counted bool) {
	head := bad
	for _, p := range v.askers {
		for t := range v.c.tables {
			_, n := v.segment(&p, t)
			head = append(head, int64(n))
		}
	}
	if counted {
		for _, at := range v.at {
			head = append(head, int64(v.j.idsOf(at).Numel()))
		}
	}
	all := head
	if v.batch != nil {
		all = make([]int64, v.batch.Size()*len(head))
		v.do(v.batch, comm.Call{Kind: comm.AllGatherKind, Dst: comm.Of(all), Src: comm.Of(head), Cause: "status and counts"})
	}
	worst := bad[:badSize]
	for its := range slices.Chunk(all, len(head)) {
		if its[badFeature] != 0 && (worst[badFeature] == 0 || slices.Compare(its[:badSize], worst) < 0) {
			worst = its[:badSize]
		}
	}
	if worst[badFeature] != 0 {
		f := v.c.features[worst[badFeature]-1]
		fault.Throw(&IDError{Op: v.op, Table: fmt.Sprintf("feature %q in table %q", f.name, v.c.nameOf(f.table)), ID: worst[badID],
			Position: []int{int(worst[badSample]), int(worst[badAt])}, Rows: v.c.tables[f.table].weight.Dim(0)})
	}
	tables, begin := len(v.c.tables), 0
	for i := range v.askers {
		its := all[v.askers[i].head*len(head)+badSize+v.self*tables:]
		asked, begins := make([]int, tables), make([]int, tables)
		for t := range asked {
			asked[t], begins[t] = int(its[t]), begin
			begin += asked[t]
		}
		v.asked, v.begin = append(v.asked, asked), append(v.begin, begins)
	}
	if counted {
		v.count = make([][]int64, len(v.at))
		for its := range slices.Chunk(all, len(head)) {
			for f := range v.at {
				v.count[f] = append(v.count[f], its[len(head)-len(v.at)+f])
			}
		}
	}
}

// segment returns which of this rank's distinct ids of table t a peer has: n of
// them from one on.
func (v *visit) segment(p *peer, t int) (from, n int) {
	b := p.boxes[t]
	if !p.fits[t] || b.rows == 0 || b.columns == 0 && !v.c.settings[t].renorm { // norms are agreed on by ranks without columns too
		return 0, 0
	}
	index := tensor.Read[int64](v.uniq[t].Index)
	from, _ = slices.BinarySearch(index, int64(b.row))
	to, _ := slices.BinarySearch(index, int64(b.row+b.rows))
	return from, to - from
}

// send takes the ids to the ranks that have their rows.
func (v *visit) send() {
	out, in := make([]int, len(v.askers)), make([]int, len(v.askers))
	var parts []*tensor.Tensor
	for i := range v.askers {
		for t := range v.c.tables {
			if from, n := v.segment(&v.askers[i], t); n > 0 {
				parts = append(parts, tensor.Narrow(v.uniq[t].Index, 0, from, n))
				out[i] += n
			}
			in[i] += v.asked[i][t]
		}
	}
	mine := tensor.New(v.c.mesh.Device(), tensor.Int64, 0)
	if len(parts) > 0 {
		mine = tensor.Cat(0, parts...)
	}
	v.wants = v.swap(v.ask, mine, out, in, "ids")
}

// fetch brings the rows.
func (v *visit) fetch() {
	in, out := make([]int, len(v.givers)), make([]int, len(v.givers))
	for i := range v.givers {
		p := &v.givers[i]
		for t := range v.c.tables {
			_, n := v.segment(p, t)
			in[i] += n * p.boxes[t].columns
			if p.fits[t] {
				out[i] += v.asked[p.twin][t] * v.own(t).columns
			}
		}
	}
	dev := v.c.mesh.Device()
	mine, at := tensor.New(dev, v.c.dtype, sum(out)), 0
	for i := range v.givers {
		p := &v.givers[i]
		for t := range v.c.tables {
			n, w := v.asked[p.twin][t], v.own(t).columns
			if !p.fits[t] || n*w == 0 {
				continue
			}
			tensor.TakeRowsTo(tensor.Narrow(mine, 0, at, n*w).Reshape(n, w), v.c.local(t), v.wanted(p.twin, t), v.own(t).row, false)
			at += n * w
		}
	}
	got := v.swap(v.give, mine, out, in, "rows")
	at = 0
	for t := range v.c.tables {
		v.rows = append(v.rows, tensor.New(dev, v.c.dtype, v.uniq[t].Index.Numel(), v.c.tables[t].weight.Dim(1)))
	}
	for i := range v.givers {
		p := &v.givers[i]
		for t, b := range p.boxes {
			if from, n := v.segment(p, t); n > 0 {
				tensor.UnpackBox(v.rows[t], []int{from, b.column}, got, at, []int{n, b.columns})
				at += n * b.columns
			}
		}
	}
}

// own is the part of table t that this rank has.
func (v *visit) own(t int) box { return v.askers[v.self].boxes[t] }

// wanted returns the rows of table t that an asker wants of this rank.
func (v *visit) wanted(asker, t int) *tensor.Tensor {
	return tensor.Narrow(v.wants, 0, v.begin[asker][t], v.asked[asker][t])
}

// swap exchanges parts of a 1-D tensor; without a group there is one part, which stays.
func (v *visit) swap(g *comm.Comm, mine *tensor.Tensor, out, in []int, cause string) *tensor.Tensor {
	if g == nil {
		return mine
	}
	got := tensor.New(mine.Device(), mine.DType(), sum(in))
	v.do(g, comm.Call{Kind: comm.AllToAllVKind, Dst: dtensor.BufferOf(got), Src: dtensor.BufferOf(mine), DstCounts: in, SrcCounts: out, Cause: cause})
	runtime.KeepAlive(mine)
	return got
}

// do makes a call under the context of the running operator, and throws its error.
func (v *visit) do(g *comm.Comm, call comm.Call) {
	call.Cause = v.op + ": " + call.Cause
	v.c.mesh.Do(g, call)
}
