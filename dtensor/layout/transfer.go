package layout

import "github.com/gorun-spmd/gorun/internal/ints"

// A Transfer is a box of elements that one rank gives another.
type Transfer struct {
	// Peer is the other rank: its place in the step's group, or its world rank in a
	// transfer between meshes. It can be the rank itself.
	Peer int
	// Size is the shape of the box; no size is 0.
	Size []int
	// Src is the index of the box's first element in what the sender holds before,
	// Dst in what the receiver holds after, Global in the whole tensor.
	Src, Dst, Global []int
}

// Numel returns the number of elements of the box.
func (t *Transfer) Numel() int { return ints.Product(t.Size) }

// Sends returns what the rank at coord gives each member of its group, itself
// included, in the order of their places; members that get nothing are left out.
//
// For every kind the box is the intersection of what the sender holds before the
// step and what the receiver holds after it. In AllGather, AllToAll and Exchange every
// element of a receiver has one sender; in AllReduce and ReduceScatter every member
// of the group sends an addend of it.
func (s *Step) Sends(coord []int) []Transfer {
	return s.transfers(coord, func(me, peer []int) (from, to []int) { return me, peer })
}

// Recvs returns what the rank at coord gets from each member of its group, itself
// included, in the order of their places; members that give nothing are left out.
// What one rank sends another is, box by box, what the other receives from it.
func (s *Step) Recvs(coord []int) []Transfer {
	return s.transfers(coord, func(me, peer []int) (from, to []int) { return peer, me })
}

// transfers lists the boxes that pass between the rank at coord and its group;
// direct says which of two ranks is the sender.
func (s *Step) transfers(coord []int, direct func(me, peer []int) (from, to []int)) []Transfer {
	n := s.GroupSize()
	peer := make([]int, len(coord))
	var list []Transfer
	for place := range n {
		from, to := direct(coord, s.member(peer, coord, place))
		if t, ok := intersect(s.From, s.To, from, to); ok {
			t.Peer = place
			list = append(list, t)
		}
	}
	return list
}

// SendCounts returns how many elements the rank at coord sends each member of its
// group, itself included, in the order of their places.
func (s *Step) SendCounts(coord []int) []int {
	counts, peer := make([]int, s.GroupSize()), make([]int, len(coord))
	for place := range counts {
		counts[place] = overlap(s.From, s.To, coord, s.member(peer, coord, place))
	}
	return counts
}

// RecvCounts returns how many elements the rank at coord receives from each member
// of its group, itself included, in the order of their places.
func (s *Step) RecvCounts(coord []int) []int {
	counts, peer := make([]int, s.GroupSize()), make([]int, len(coord))
	for place := range counts {
		counts[place] = overlap(s.From, s.To, s.member(peer, coord, place), coord)
	}
	return counts
}

// overlap returns the number of elements that sender holds in from and receiver in to.
func overlap(from, to Layout, sender, receiver []int) int {
	n := 1
	for d := range from.NDim() {
		a, na := from.Span(sender, d)
		b, nb := to.Span(receiver, d)
		n *= max(0, min(a+na, b+nb)-max(a, b))
	}
	return n
}

// intersect returns the box that sender holds in from and receiver in to; ok is
// false if there is none.
func intersect(from, to Layout, sender, receiver []int) (t Transfer, ok bool) {
	if overlap(from, to, sender, receiver) == 0 {
		return Transfer{}, false
	}
	nd := from.NDim()
	all := make([]int, 4*nd)
	t.Size, t.Src, t.Dst, t.Global = all[:nd:nd], all[nd:2*nd:2*nd], all[2*nd:3*nd:3*nd], all[3*nd:]
	for d := range nd {
		a, na := from.Span(sender, d)
		b, nb := to.Span(receiver, d)
		start := max(a, b)
		t.Global[d], t.Src[d], t.Dst[d] = start, start-a, start-b
		t.Size[d] = min(a+na, b+nb) - start
	}
	return t, true
}

// MaskRange returns which rows of the table a Mask step gives the rank at coord:
// ids from start to start+length-1 become 0 to length-1, all others are masked.
// Where several axes hold the same MaskPartial, an axis further to the right takes
// its part of what the ones to its left left over, as with shards. ok is false for
// a layout without a MaskPartial.
func MaskRange(l Layout, coord []int) (start, length int, ok bool) {
	axes := l.Axes()
	for i := range axes.Len() {
		p := l.Placement(i)
		if !p.IsMask() {
			continue
		}
		if !ok {
			ok, length = true, p.list.at(int(p.dim))
		}
		offset, n := Shard(0).piece(length, axes.Size(i), coord[i])
		start += offset
		length = n
	}
	return start, length, ok
}
