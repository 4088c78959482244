package layout

import "slices"

// A planner computes plans from one layout. It works on canonical placements: see canonical.
type planner struct {
	axes      Axes
	sizes     []int // of the axes
	shape     intList
	dims      []int // the global shape
	coords    []int // the coordinates of all positions, one after the other
	elemBytes int
	costs     Costs
	origin    Layout // that from stands for
	from, to  *node
	keeps     bool // the mask of from is that of to
}

// A node is a layout that a plan may pass through.
type node struct {
	places []Placement
	spans  []int // for each position and dim: start and length; nil until asked for
	// numel is the number of elements each position holds.
	numel []int
}

// newPlanner prepares plans from a layout; toward says where the next one leads.
func newPlanner(from Layout, elemBytes int, costs Costs) *planner {
	p := &planner{
		axes:      from.Axes(),
		sizes:     from.Axes().Sizes(),
		shape:     from.spec.Value().shape,
		dims:      from.Shape(),
		elemBytes: elemBytes,
		costs:     costs.filled(),
		origin:    from,
	}
	p.coords = make([]int, 0, p.axes.Count()*len(p.sizes))
	for pos := range p.axes.Count() {
		p.coords = p.axes.appendCoord(p.coords, pos)
	}
	p.from = &node{places: p.canonical(from.Placements(), false)}
	return p
}

// toward has the planner plan to a layout of the same mesh and shape.
func (p *planner) toward(to Layout) {
	p.keeps = KeepsMask(p.origin, to)
	p.to = &node{places: p.canonical(to.Placements(), !p.keeps)}
}

// KeepsMask reports whether a plan between two layouts of one mesh leaves the mask of a
// MaskPartial tensor as it is: to has the MaskPartial placements of from and no others.
// On an axis of one rank to may lack them, since nothing is masked there.
func KeepsMask(from, to Layout) bool {
	masked := false
	for i, n := range from.Axes().Sizes() {
		a, b := from.Placement(i), to.Placement(i)
		masked = masked || b.IsMask()
		if a != b && (b.IsMask() || a.IsMask() && n > 1) {
			return false
		}
	}
	return masked
}

// canonical returns placements that say the same with fewer words: a shard or a
// reduction over a single rank is Replicate, and explicit sizes that are those of
// torch.chunk are a Shard. A MaskPartial that the plan makes is kept on an axis of any
// size, because making it shifts the ids.
func (p *planner) canonical(places []Placement, makesMask bool) []Placement {
	p.chunk(places)
	for i, n := range p.sizes {
		if n == 1 && !(makesMask && places[i].IsMask()) {
			places[i] = Replicate()
		}
	}
	return places
}

// chunk replaces each ShardSizes by the Shard with the same sizes, if it is one.
func (p *planner) chunk(places []Placement) {
	for i, q := range places {
		if q.kind == sharded && q.list != "" && q.list == pack(ChunkSizes(q.list.sum(), p.sizes[i])) {
			places[i].list = ""
		}
	}
}

// coord returns the coordinate of a position. It must not be modified.
func (p *planner) coord(position int) []int {
	n := len(p.sizes)
	return p.coords[position*n : position*n+n]
}

// locate fills in what every position holds.
func (p *planner) locate(n *node) {
	if n.spans != nil {
		return
	}
	count, nd := p.axes.Count(), len(p.dims)
	n.spans = make([]int, 2*nd*count+1)
	n.numel = make([]int, count)
	for pos := range count {
		coord, at := p.coord(pos), n.spans[2*nd*pos:]
		total := 1
		for d, length := range p.dims {
			start := 0
			for i, q := range n.places {
				if q.Shards(d) {
					var offset int
					offset, length = q.piece(length, p.sizes[i], coord[i])
					start += offset
				}
			}
			at[2*d], at[2*d+1] = start, length
			total *= length
		}
		n.numel[pos] = total
	}
}

// lacking returns the most elements that any position has in b and not in a, and
// whether every position holds the same box in both.
func (p *planner) lacking(a, b *node) (most int, same bool) {
	p.locate(a)
	p.locate(b)
	nd := len(p.dims)
	same = true
	for pos := range a.numel {
		x, y := a.spans[2*nd*pos:], b.spans[2*nd*pos:]
		common := 1
		for d := range nd {
			lo, hi := max(x[2*d], y[2*d]), min(x[2*d]+x[2*d+1], y[2*d]+y[2*d+1])
			common *= max(0, hi-lo)
		}
		most = max(most, b.numel[pos]-common)
		same = same && common == a.numel[pos] && common == b.numel[pos]
	}
	return most, same
}

// largest returns the most elements that any position holds.
func (p *planner) largest(n *node) int {
	p.locate(n)
	return slices.Max(n.numel)
}

// step returns the Step for an edge between two nodes.
func (p *planner) step(a, b *node, e edge) Step {
	s := Step{
		Kind:     e.kind,
		From:     intern(p.axes, p.shape, a.places),
		To:       intern(p.axes, p.shape, b.places),
		Op:       e.op,
		MaxBytes: e.bytes,
		Cost:     e.cost,
	}
	for i := range p.sizes {
		if e.group&(1<<i) != 0 {
			s.Axes = append(s.Axes, i)
		}
	}
	return s
}
