package layout

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// A twin is the dumb model of a tensor on a mesh: for every position, the value of
// each element of the global tensor that the position holds. Elements are numbered in
// row-major order; the value of element e of the global tensor is value(e).
type twin struct {
	axes   Axes
	shape  []int
	values []int64   // of the global tensor, by element
	held   [][]int64 // by position and element; absent where it is not held
}

// absent marks an element that a position does not hold; no value or product of
// values is odd and so large.
const absent = int64(-1)<<62 + 1

// unit divides every value and addend, so that averages over three axes of 1 to 4
// ranks, taken one after the other, are whole.
const unit = 12 * 12 * 12

// someValues returns the values of a tensor of n elements: none is 0.
func someValues(n int) []int64 {
	values := make([]int64, n)
	for e := range values {
		values[e] = int64(e%97+1) * unit
	}
	return values
}

func numel(shape []int) int {
	n := 1
	for _, s := range shape {
		n *= s
	}
	return n
}

// walk calls f with the number of every element of the box.
func walk(shape, offset, size []int, f func(element int)) {
	index := make([]int, len(shape))
	if numel(size) == 0 {
		return
	}
	for {
		e := 0
		for d := range shape {
			e = e*shape[d] + offset[d] + index[d]
		}
		f(e)
		d := len(shape) - 1
		for ; d >= 0; d-- {
			if index[d]++; index[d] < size[d] {
				break
			}
			index[d] = 0
		}
		if d < 0 {
			return
		}
	}
}

// newTwin returns the twin of a layout of a tensor of the given values: partial axes
// hold random addends.
func newTwin(rnd *rand.Rand, l Layout, values []int64) *twin {
	t := emptyTwin(l, values)
	for e := range numel(t.shape) {
		t.scatter(rnd, l, make([]int, t.axes.Len()), 0, e, values[e])
	}
	for pos := range t.held {
		coord := t.axes.Coord(pos)
		kept := make([]bool, numel(t.shape))
		walk(t.shape, l.Offset(coord), l.LocalShape(coord), func(e int) { kept[e] = true })
		for e := range kept {
			if !kept[e] {
				t.held[pos][e] = absent
			}
		}
	}
	return t
}

// emptyTwin returns a twin in which no position holds anything yet.
func emptyTwin(l Layout, values []int64) *twin {
	t := &twin{axes: l.Axes(), shape: l.Shape(), values: values}
	n := numel(t.shape)
	all := make([]int64, n*t.axes.Count())
	for i := range all {
		all[i] = absent
	}
	for pos := range t.axes.Count() {
		t.held = append(t.held, all[pos*n:(pos+1)*n])
	}
	return t
}

// scatter gives v to all coordinates from an axis on: whole, or as addends.
func (t *twin) scatter(rnd *rand.Rand, l Layout, coord []int, axis, e int, v int64) {
	if axis == t.axes.Len() {
		t.held[t.axes.Position(coord)][e] = v
		return
	}
	n := t.axes.Size(axis)
	op, isPartial := l.Placement(axis).Op()
	addends := make([]int64, n)
	for i := range addends {
		addends[i] = v
	}
	if isPartial {
		split(rnd, op, addends)
	}
	for i, a := range addends {
		coord[axis] = i
		t.scatter(rnd, l, coord, axis+1, e, a)
	}
}

// split replaces equal values by random addends that reduce to that value.
func split(rnd *rand.Rand, op ReduceOp, v []int64) {
	lucky := rnd.IntN(len(v))
	x := v[0]
	switch op {
	case Sum, Avg, Nodes:
		if op == Avg {
			x *= int64(len(v))
		}
		for i := range v {
			v[i] = int64(rnd.IntN(201)-100) * unit
			x -= v[i]
		}
		v[lucky] += x
	case Prod:
		for i := range v {
			v[i] = 1
		}
		v[lucky] = x
	case Min, Max:
		sign := int64(1)
		if op == Max {
			sign = -1
		}
		for i := range v {
			if i != lucky {
				v[i] += sign * int64(rnd.IntN(3))
			}
		}
	}
}

// reduce combines addends.
func reduce(op ReduceOp, v []int64) int64 {
	r := v[0]
	for _, x := range v[1:] {
		switch op {
		case Sum, Avg, Nodes:
			r += x
		case Prod:
			r *= x
		case Min:
			r = min(r, x)
		case Max:
			r = max(r, x)
		}
	}
	if op == Avg {
		r /= int64(len(v))
	}
	return r
}

// run carries out one step on every position. It checks that what is received was
// sent, that it comes once, and that MaxBytes is the most that any position receives.
func (t *twin) run(s *Step) (*twin, error) {
	next := emptyTwin(s.To, t.values)
	most := 0
	sends := make([][]Transfer, len(t.held))
	for pos := range sends {
		if !s.Kind.Local() {
			sends[pos] = s.Sends(t.axes.Coord(pos))
		}
	}
	for pos := range t.held {
		coord := t.axes.Coord(pos)
		var err error
		switch s.Kind {
		case Relabel, Slice, Partition, Mask:
			err = t.runLocal(s, next, pos, coord)
		default:
			var received int
			received, err = t.runCollective(s, next, sends, pos, coord)
			most = max(most, received)
		}
		if err != nil {
			return nil, fmt.Errorf("%v at %v: %w", s, coord, err)
		}
	}
	if (s.Kind == AllGather || s.Kind == AllToAll || s.Kind == Exchange || s.Kind == ReduceScatter) && most != s.MaxBytes {
		return nil, fmt.Errorf("%v: MaxBytes is %d, but %d bytes are received", s, s.MaxBytes, most)
	}
	return next, nil
}

func (t *twin) runLocal(s *Step, next *twin, pos int, coord []int) error {
	var err error
	walk(t.shape, s.To.Offset(coord), s.To.LocalShape(coord), func(e int) {
		v := t.held[pos][e]
		if v == absent {
			err = fmt.Errorf("element %d is not held before", e)
		}
		// The twin treats a masked row as one of which one rank holds the value
		// and the others nothing, which is what reducing it comes to.
		if s.Kind == Mask {
			if start, length, _ := MaskRange(s.To, coord); e%maskRows < start || e%maskRows >= start+length {
				v = 0
			}
		}
		if s.Kind == Partition && s.Place(coord) != 0 {
			switch s.Op {
			case Sum, Nodes:
				v = 0
			case Prod:
				v = 1
			}
		}
		next.held[pos][e] = v
	})
	return err
}

func (t *twin) runCollective(s *Step, next *twin, sends [][]Transfer, pos int, coord []int) (received int, err error) {
	addends := make([][]int64, len(next.held[pos]))
	counts := make([]int, s.GroupSize())
	me := s.Place(coord)
	sender := make([]int, len(coord))
	for _, r := range s.Recvs(coord) {
		s.member(sender, coord, r.Peer)
		from := t.axes.Position(sender)
		if !slices.ContainsFunc(sends[from], func(x Transfer) bool {
			return x.Peer == me && slices.Equal(x.Global, r.Global) && slices.Equal(x.Size, r.Size) &&
				slices.Equal(x.Src, r.Src) && slices.Equal(x.Dst, r.Dst)
		}) {
			return 0, fmt.Errorf("receives %v from %v, which does not send it", r, sender)
		}
		for d := range t.shape {
			a, _ := s.From.Span(sender, d)
			b, _ := s.To.Span(coord, d)
			if r.Global[d] != a+r.Src[d] || r.Global[d] != b+r.Dst[d] {
				return 0, fmt.Errorf("receives %v: its offsets disagree", r)
			}
		}
		counts[r.Peer] = r.Numel()
		if r.Peer != s.Place(coord) {
			received += r.Numel()
		}
		walk(t.shape, r.Global, r.Size, func(e int) {
			addends[e] = append(addends[e], t.held[from][e])
		})
	}
	if got := s.RecvCounts(coord); !slices.Equal(got, counts) {
		return 0, fmt.Errorf("RecvCounts is %v, but the boxes have %v", got, counts)
	}
	for e, v := range addends {
		if len(v) == 0 {
			continue
		}
		if slices.Contains(v, absent) {
			return 0, fmt.Errorf("element %d comes from a rank that does not hold it", e)
		}
		if s.Kind == AllReduce || s.Kind == ReduceScatter || s.Kind == Rows { // rows of others stand as zeros in the sum
			if len(v) != s.GroupSize() {
				return 0, fmt.Errorf("element %d has %d addends in a group of %d", e, len(v), s.GroupSize())
			}
			next.held[pos][e] = reduce(s.Op, v)
			continue
		}
		if len(v) != 1 {
			return 0, fmt.Errorf("element %d comes %d times", e, len(v))
		}
		next.held[pos][e] = v[0]
	}
	return received, nil
}

// check returns an error unless the twin is what the layout says: each position
// holds exactly its box, and what partial axes hold reduces to the values.
func (t *twin) check(l Layout) error {
	for pos := range t.held {
		coord := t.axes.Coord(pos)
		inBox := make([]bool, numel(t.shape))
		walk(t.shape, l.Offset(coord), l.LocalShape(coord), func(e int) { inBox[e] = true })
		for e, in := range inBox {
			v := t.held[pos][e]
			if in != (v != absent) {
				return fmt.Errorf("position %v: element %d in its box: %v, held: %v", coord, e, in, v != absent)
			}
			if !in {
				continue
			}
			if got := t.gather(l, slices.Clone(coord), 0, e); got != t.values[e] {
				return fmt.Errorf("position %v: element %d is %d, want %d", coord, e, got, t.values[e])
			}
		}
	}
	return nil
}

// gather reduces an element over the partial axes from an axis on.
func (t *twin) gather(l Layout, coord []int, axis, e int) int64 {
	if axis == t.axes.Len() {
		return t.held[t.axes.Position(coord)][e]
	}
	op, isPartial := l.Placement(axis).Op()
	if !isPartial {
		return t.gather(l, coord, axis+1, e)
	}
	addends := make([]int64, t.axes.Size(axis))
	for i := range addends {
		coord[axis] = i
		addends[i] = t.gather(l, coord, axis+1, e)
	}
	return reduce(op, addends)
}
