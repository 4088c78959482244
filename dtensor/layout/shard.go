package layout

// Span returns which elements of tensor dimension dim the rank at coord holds:
// length of them from start on, in global indices. An empty span starts where
// its elements would be.
func (l Layout) Span(coord []int, dim int) (start, length int) {
	s := l.spec.Value()
	length = s.shape.at(dim)
	for i := range s.axes.Len() {
		p := placementAt(s.places, i)
		if !p.Shards(dim) {
			continue
		}
		offset, n := p.piece(length, s.axes.Size(i), coord[i])
		start += offset
		length = n
	}
	return start, length
}

// LocalShape returns the shape of what the rank at coord holds.
func (l Layout) LocalShape(coord []int) []int {
	shape := make([]int, l.NDim())
	for d := range shape {
		_, shape[d] = l.Span(coord, d)
	}
	return shape
}

// Offset returns the global index of the first element that the rank at coord holds.
func (l Layout) Offset(coord []int) []int {
	offset := make([]int, l.NDim())
	for d := range offset {
		offset[d], _ = l.Span(coord, d)
	}
	return offset
}

// LocalNumel returns the number of elements that the rank at coord holds.
func (l Layout) LocalNumel(coord []int) int {
	n := 1
	for d := range l.NDim() {
		_, length := l.Span(coord, d)
		n *= length
	}
	return n
}

// Owner reports whether the rank at coord is the first of those that hold its
// shard: where an axis does not shard, the one at 0 along it. What owners hold, taken
// together, is the global tensor once, unless the layout is partial.
func (l Layout) Owner(coord []int) bool {
	for i, c := range coord {
		if c != 0 && !l.Placement(i).IsShard() {
			return false
		}
	}
	return true
}
