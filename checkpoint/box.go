package checkpoint

// A box is a block of a tensor: the elements whose index in each dimension d is
// in [offset[d], offset[d]+size[d]). Kept by itself it is dense and row-major.
type box struct{ offset, size []int }

// whole is the box of all elements.
func whole(shape []int) box { return box{make([]int, len(shape)), shape} }

func (b box) numel() int {
	n := 1
	for _, s := range b.size {
		n *= s
	}
	return n
}

// overlaps reports whether the boxes share an element.
func (b box) overlaps(c box) bool {
	for d := range b.size {
		if max(b.offset[d], c.offset[d]) >= min(b.offset[d]+b.size[d], c.offset[d]+c.size[d]) {
			return false
		}
	}
	return true
}

// A run is a piece of memory that two boxes share: n elements, from element x of
// the one and element y of the other.
type run struct{ x, y, n int }

// runs calls yield for each run that x and y share, in ascending order in both,
// until it returns false. It equals, but for the length of the runs,
//
//	for every index i in x and y {
//		yield(run{position of i in x, position of i in y, 1})
//	}
func runs(x, y box, yield func(run) bool) {
	if !x.overlaps(y) {
		return
	}
	dims := len(x.size)
	lo, n := make([]int, dims), make([]int, dims)
	for d := range dims {
		lo[d] = max(x.offset[d], y.offset[d])
		n[d] = min(x.offset[d]+x.size[d], y.offset[d]+y.size[d]) - lo[d]
	}
	// Dimensions from split on are one piece in both: all but the first of them
	// are whole in both.
	split := dims
	length := 1
	for split > 0 {
		split--
		length *= n[split]
		if n[split] != x.size[split] || n[split] != y.size[split] {
			break
		}
	}
	at := make([]int, split) // odometer over the dimensions before split
	for {
		r := run{n: length}
		for d := range dims {
			i := lo[d]
			if d < split {
				i += at[d]
			}
			r.x = r.x*x.size[d] + i - x.offset[d]
			r.y = r.y*y.size[d] + i - y.offset[d]
		}
		if !yield(r) {
			return
		}
		d := split - 1
		for ; d >= 0; d-- {
			if at[d]++; at[d] < n[d] {
				break
			}
			at[d] = 0
		}
		if d < 0 {
			return
		}
	}
}
