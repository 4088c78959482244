package layout

// Cyclic returns the mesh axis that deals the rows out in turn, -1 for none.
func (l Layout) Cyclic() int {
	s := l.spec.Value()
	for i := range s.axes.Len() {
		if placementAt(s.places, i).cyclic {
			return i
		}
	}
	return -1
}

// Blocks returns the layout with Shard(0) in place of a ShardCyclic; l itself without one.
func (l Layout) Blocks() Layout {
	axis := l.Cyclic()
	if axis < 0 {
		return l
	}
	places := l.Placements()
	places[axis] = Shard(0)
	s := l.spec.Value()
	return intern(s.axes, s.shape, places)
}

// Held says which rows of a tensor a rank holds: N of them, First, First+Stride, First+2·Stride, …
type Held struct{ First, Stride, N int }

// Held returns which rows the rank at coord holds. Their stride is 1 unless a ShardCyclic deals the rows out.
func (l Layout) Held(coord []int) Held {
	first, n := l.Span(coord, 0)
	if axis := l.Cyclic(); axis >= 0 {
		return Held{coord[axis], l.Axes().Size(axis), n}
	}
	return Held{first, 1, n}
}

// Row returns the i-th of the rows, from 0 on.
func (h Held) Row(i int) int { return h.First + i*h.Stride }

// Below returns how many of the rows are below a row of the tensor.
func (h Held) Below(row int) int { return min(max(0, (row-h.First+h.Stride-1)/h.Stride), h.N) }

// Served returns where a row lies among the rows of all ranks, rank by rank: the number
// by which Span and Offset count it. That is the row's own number unless a ShardCyclic
// deals the rows out.
func (l Layout) Served(row int) int {
	axis := l.Cyclic()
	if axis < 0 {
		return row
	}
	n := l.Axes().Size(axis)
	first, _ := l.Placement(axis).piece(l.Dim(0), n, row%n)
	return first + row/n
}
