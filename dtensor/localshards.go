package dtensor

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// A LocalShard is one box of a table on this rank.
type LocalShard struct {
	Data   *tensor.Tensor // [rows, columns] of the box
	Offset [2]int         // of its first element in the table
}

// A Chunk is where a LocalShard of some rank lies in the table.
type Chunk struct {
	Position     int // in the mesh
	Offset, Size [2]int
}

// LocalShards is a 2-D table of which each rank of a mesh holds any number of
// boxes, none for one: several shards of rows, or several of columns. It is how
// a planner may place tables where no list of placements says it. Cast and View
// work shard by shard, and embedding.LookupShards looks rows up. Param is what an
// optimizer trains. For anything else bring it to a Tensor with Distribute.
type LocalShards struct {
	mesh   *Mesh
	dt     tensor.DType
	shape  [2]int
	shards []LocalShard
	chunks []Chunk // of all ranks, by position and then in the order given
	param  *Tensor // nil before Param
}

// NewLocalShards makes a table of the given shape and type from the shards of
// all ranks of the mesh, with this rank's in shards. It is collective over the
// mesh: the ranks tell each other where their shards lie. Together they must
// cover each element of the table once. If they do not, or a shard is not 2-D
// or of another type, every rank gets the same error, which names the shards.
func NewLocalShards(mesh *Mesh, dt tensor.DType, shape [2]int, shards ...LocalShard) (*LocalShards, error) {
	l := &LocalShards{mesh: mesh, dt: dt, shape: shape, shards: slices.Clone(shards)}
	if mesh.outside() {
		l.shards = nil
		return l, nil
	}
	// A size of -1 stands for a shard that is not 2-D or of another type.
	var mine []int64
	for _, s := range shards {
		if s.Data == nil || s.Data.NDim() != 2 || s.Data.DType() != dt {
			mine = append(mine, int64(s.Offset[0]), int64(s.Offset[1]), -1, -1)
			continue
		}
		mine = append(mine, int64(s.Offset[0]), int64(s.Offset[1]), int64(s.Data.Dim(0)), int64(s.Data.Dim(1)))
	}
	all, err := comm.AllGatherSlices(mesh.eng.ctx, mesh.all, mine)
	if err != nil {
		return nil, err
	}
	for p, its := range all {
		for c := range slices.Chunk(its, 4) {
			l.chunks = append(l.chunks, Chunk{Position: p, Offset: [2]int{int(c[0]), int(c[1])}, Size: [2]int{int(c[2]), int(c[3])}})
		}
	}
	if err := l.validate(); err != nil {
		return nil, fault.Located(err)
	}
	return l, nil
}

// validate checks that the chunks cover the table once.
func (l *LocalShards) validate() error {
	area := 0
	for i, c := range l.chunks {
		for d := range 2 {
			if c.Size[d] < 0 {
				return fmt.Errorf("dtensor: NewLocalShards: a shard of rank %d at %v is not a 2-D tensor of %v; pass [rows, columns] of that type",
					l.mesh.ranks[c.Position], c.Offset, l.dt)
			}
			if c.Offset[d] < 0 || c.Offset[d]+c.Size[d] > l.shape[d] {
				return fmt.Errorf("dtensor: NewLocalShards: the shard of rank %d at %v of size %v is not within the table %v", l.mesh.ranks[c.Position],
					c.Offset, c.Size, l.shape)
			}
		}
		for _, o := range l.chunks[:i] {
			if overlap(c.Offset[0], c.Size[0], o.Offset[0], o.Size[0]) && overlap(c.Offset[1], c.Size[1], o.Offset[1], o.Size[1]) {
				return fmt.Errorf("dtensor: NewLocalShards: the shards of rank %d at %v of size %v and of rank %d at %v of size %v overlap; "+
					"each element has one owner",
					l.mesh.ranks[o.Position], o.Offset, o.Size, l.mesh.ranks[c.Position], c.Offset, c.Size)
			}
		}
		area += c.Size[0] * c.Size[1]
	}
	if total := l.shape[0] * l.shape[1]; area != total {
		return fmt.Errorf("dtensor: NewLocalShards: the shards have %d of the %d elements of the table %v; cover each once", area, total, l.shape)
	}
	return nil
}

func overlap(a, n, b, m int) bool { return n > 0 && m > 0 && a < b+m && b < a+n }

// Mesh returns the mesh whose ranks hold the shards.
func (l *LocalShards) Mesh() *Mesh { return l.mesh }

// Shape returns the shape of the table.
func (l *LocalShards) Shape() [2]int { return l.shape }

// Stride returns how far apart rows and columns of the table are, in elements: it is
// row-major, and so is each shard.
func (l *LocalShards) Stride() [2]int { return [2]int{max(l.shape[1], 1), 1} }

// DType returns the element type.
func (l *LocalShards) DType() tensor.DType { return l.dt }

// Shards returns this rank's shards in the order given; do not modify it.
func (l *LocalShards) Shards() []LocalShard { return l.shards }

// Chunks says where the shards of all ranks lie; do not modify it.
func (l *LocalShards) Chunks() []Chunk { return l.chunks }

// Param returns the elements of all shards as one tensor, the parameter to train:
//
//	[P·n, w], sharded by rows over all axes of a mesh of P ranks
//
// The n rows of a rank hold the elements of its shards, one shard after the other, and
// then zeros. w is the largest width into which the columns of all shards divide: shards
// of whole rows of D columns have w = D, and their rows are rows of Param. From the first
// call on the shards of this rank lie in Param, so a step of an optimizer changes them.
// Param communicates nothing. Call it outside ValueAndGrad.
func (l *LocalShards) Param() *Tensor {
	if l.param != nil {
		return l.param
	}
	width, most, sizes := 0, 0, make([]int, l.mesh.Size())
	for _, c := range l.chunks {
		if n := c.Size[0] * c.Size[1]; n > 0 {
			width = gcd(width, c.Size[1])
			sizes[c.Position] += n
			most = max(most, sizes[c.Position])
		}
	}
	width = max(width, 1)
	m := l.mesh
	l.param = Zeros(m, l.dt, []int{len(sizes) * (most / width), width}, m.Every(layout.Shard(0))...)
	if m.outside() {
		return l.param
	}
	l.param.local.Persist()
	flat, at := l.param.local.Reshape(most), 0
	for i := range l.shards {
		s := &l.shards[i]
		in := tensor.Narrow(flat, 0, at, s.Data.Numel()).Reshape(s.Data.Shape()...)
		tensor.Copy(in, s.Data)
		s.Data = in
		at += in.Numel()
	}
	return l.param
}

// Tracked reports whether the running ValueAndGrad differentiates by Param.
func (l *LocalShards) Tracked() bool { return l.param != nil && l.param.tracked() }

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Cast returns the table with elements of another type, shard by shard.
func (l *LocalShards) Cast(dt tensor.DType) *LocalShards {
	out := &LocalShards{mesh: l.mesh, dt: dt, shape: l.shape, chunks: l.chunks}
	for _, s := range l.shards {
		out.shards = append(out.shards, LocalShard{tensor.Cast(s.Data, dt), s.Offset})
	}
	return out
}

// View returns the table in another shape of the same number of elements, in the
// same row-major order, shard by shard. That is possible where each shard has
// whole rows that are whole rows of the new shape too; it returns an error, the
// same on every rank, for any other.
func (l *LocalShards) View(shape [2]int) (*LocalShards, error) {
	if shape[0] < 0 || shape[1] < 0 || shape[0]*shape[1] != l.shape[0]*l.shape[1] {
		return nil, fault.Located(fmt.Errorf("dtensor: LocalShards.View: a table %v cannot be viewed as %v; keep the number of elements", l.shape,
			shape))
	}
	out := &LocalShards{mesh: l.mesh, dt: l.dt, shape: shape, shards: slices.Clone(l.shards), chunks: slices.Clone(l.chunks)}
	if shape == l.shape {
		return out, nil
	}
	rows := func(n int) (rows int, ok bool) { // of the new shape, for n rows of the table
		if shape[1] == 0 {
			return 0, true
		}
		return n * l.shape[1] / shape[1], n*l.shape[1]%shape[1] == 0
	}
	k := 0
	for i, c := range l.chunks {
		first, ok := rows(c.Offset[0])
		count, ok2 := rows(c.Size[0])
		if !ok || !ok2 || c.Size[1] != l.shape[1] {
			return nil, fault.Located(fmt.Errorf("dtensor: LocalShards.View: the shard of rank %d at %v of size %v of a table %v is no list of "+
				"rows of %v; shard by rows, or Distribute",
				l.mesh.ranks[c.Position], c.Offset, c.Size, l.shape, shape))
		}
		out.chunks[i].Offset, out.chunks[i].Size = [2]int{first, 0}, [2]int{count, shape[1]}
		if l.mesh.all.Rank() == c.Position {
			out.shards[k] = LocalShard{l.shards[k].Data.Reshape(count, shape[1]), out.chunks[i].Offset}
			k++
		}
	}
	return out, nil
}

// Distribute returns the table as a Tensor with the placements: one exchange,
// in which each element goes to every rank that is to hold it. It throws a
// *LayoutError for placements that do not fit.
func (l *LocalShards) Distribute(placements ...layout.Placement) *Tensor {
	m := l.mesh
	s := m.mustSpec("Distribute", l.shape[:], placements)
	base := s.gradient().blocks()
	if m.outside() {
		return m.empty(s, l.dt)
	}
	src, send := l.outgoing(base)
	boxes, recv := l.incoming(base)
	dst := tensor.New(m.eng.dev, l.dt, ints.Sum(recv))
	call := comm.Call{Kind: comm.AllToAllVKind, Dst: BufferOf(dst), Src: BufferOf(src), DstCounts: recv, SrcCounts: send,
		Cause: "LocalShards: Distribute"}
	m.Do(m.all, call)
	runtime.KeepAlive(src)
	out := wrap(base, tensor.New(m.eng.dev, l.dt, base.local...))
	at := 0
	for _, b := range boxes {
		tensor.UnpackBox(out.local, []int{b.off[0] - base.offset[0], b.off[1] - base.offset[1]}, dst, at, b.size)
		at += ints.Product(b.size)
	}
	return out.to(s, "Distribute")
}

// A box is a part of the table, by global indices.
type box struct{ off, size []int }

// outgoing packs what this rank's shards have for each position, shard by shard.
func (l *LocalShards) outgoing(s *spec) (src *tensor.Tensor, counts []int) {
	type part struct {
		LocalShard
		box
	}
	var parts []part
	counts = make([]int, l.mesh.Size())
	for p := range counts {
		coord := l.mesh.pure.Coord(p)
		for _, shard := range l.shards {
			if b, ok := boxOf(shard.Offset, [2]int(shard.Data.Shape()), s.layout, coord); ok {
				parts = append(parts, part{shard, b})
				counts[p] += ints.Product(b.size)
			}
		}
	}
	src = tensor.New(l.mesh.eng.dev, l.dt, ints.Sum(counts))
	at := 0
	for _, t := range parts {
		tensor.PackBox(src, at, t.Data, []int{t.off[0] - t.Offset[0], t.off[1] - t.Offset[1]}, t.size)
		at += ints.Product(t.size)
	}
	return src, counts
}

// incoming lists what this rank gets, by position and shard by shard.
func (l *LocalShards) incoming(s *spec) (boxes []box, counts []int) {
	counts = make([]int, l.mesh.Size())
	for _, c := range l.chunks {
		if b, ok := boxOf(c.Offset, c.Size, s.layout, l.mesh.coord); ok {
			boxes = append(boxes, b)
			counts[c.Position] += ints.Product(b.size)
		}
	}
	return boxes, counts
}

// boxOf returns where a shard of the table meets what the rank at coord holds of a layout.
func boxOf(offset, size [2]int, l layout.Layout, coord []int) (b box, ok bool) {
	b = box{make([]int, 2), make([]int, 2)}
	for d := range 2 {
		start, n := l.Span(coord, d)
		b.off[d] = max(start, offset[d])
		if b.size[d] = min(start+n, offset[d]+size[d]) - b.off[d]; b.size[d] <= 0 {
			return box{}, false
		}
	}
	return b, true
}

// Shards returns t, a 2-D tensor that is not Partial, as LocalShards: one shard
// on each rank that is the first to hold it, none on the others. It is
// collective over the mesh, as NewLocalShards.
func (t *Tensor) Shards() (*LocalShards, error) {
	if t.NDim() != 2 || t.spec.partial {
		return nil, fault.Located(fmt.Errorf("dtensor: Shards: %v: a table is 2-D and not Partial; reshape or redistribute it", t.spec))
	}
	m := t.spec.mesh
	t = t.inBlocks("Shards")
	var shards []LocalShard
	if !m.outside() && t.spec.layout.Owner(m.coord) && t.local.Numel() > 0 {
		shards = []LocalShard{{t.local, [2]int(t.spec.offset)}}
	}
	return NewLocalShards(m, t.DType(), [2]int(t.spec.shape), shards...)
}
