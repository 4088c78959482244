package dtensor

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// RingAttention is ScaledDotProductAttention of a sequence that is divided over an axis:
// context parallelism, for sequences whose activations are too long for one rank. Each
// rank keeps its queries; keys and values go round the ranks in a ring, and what a query
// has of each part is put together by the logarithms of the softmax's denominators (Liu,
// Zaharia and Abbeel, Ring Attention, 2023).
//
//	q [B, H, T, D]   k [B, H, T, D]   v [B, H, T, E]   →   [B, H, T, E]   all in one layout, S(2) on the axis
//
// With causal the first ranks would have little to do and the last ones much. So the ranks
// first exchange parts: of 2n parts of the sequence on n ranks, rank i computes with parts i
// and 2n-1-i, which makes the work of all ranks equal, and the result goes back. Where T is
// no multiple of 2n, or ranks have different numbers of positions, they keep their parts and
// the last ones have the most work: pad a causal sequence at its end.
//
// It communicates once to exchange parts and once to bring them back, if causal, and n-1
// times in the ring; the gradient the same with n times in the ring. With same bits, and in
// Gradients, each rank gathers the sequence and computes all of it. Computed in float32, or
// float64. It throws a *LayoutError for other layouts or sizes.
func RingAttention(q, k, v *Tensor, causal bool, axis string) *Tensor {
	defer q.spec.mesh.Span("RingAttention").End()
	const op = "RingAttention"
	m := sameMesh(op, q, k, v)
	sameType(op, q, k, v)
	if dt := q.DType(); dt.Narrow() {
		return RingAttention(q.Cast(tensor.Float32), k.Cast(tensor.Float32), v.Cast(tensor.Float32), causal, axis).Cast(dt)
	}
	along := ringAxis(op, axis, q, k, v)
	gathered := func() *Tensor {
		whole := q.Placements()
		whole[along] = layout.Replicate()
		gather := func(x *Tensor) *Tensor { return x.Redistribute(whole...) }
		return ScaledDotProductAttention(gather(q), gather(k), gather(v), causal).Redistribute(q.Placements()...)
	}
	if m.SameBits() { // the ring would put the parts of a sequence together in its order
		return gathered()
	}
	shape := append(slices.Clone(q.Shape()[:3]), v.Dim(3))
	out := &Tensor{spec: m.mustSpec(op, shape, q.spec.placements)}
	if m.outside() {
		out.local = m.empty(out.spec, q.DType()).local
		return RecordComposed(op, out, []*Tensor{q, k, v}, func(*Tensor) []Grad { return make([]Grad, 3) }, gathered)
	}
	r := &ring{m: m, op: op, group: m.Group(axis), size: m.axes[along].Size, me: m.coord[along], causal: causal, pieces: 1,
		positions: positionsOf(q, along)}
	if n := q.Dim(2) / r.size; causal && n > 0 && n%2 == 0 && !slices.ContainsFunc(r.positions, func(has int) bool { return has != n }) {
		r.pieces = 2
	}
	var parts [][]*tensor.Tensor
	var ys, lses []*tensor.Tensor
	r.scoped(func() []*tensor.Tensor {
		parts = r.exchange(q.local, k.local, v.local)
		ys, lses = r.forward(parts[0], parts[1], parts[2])
		out.local = r.back(ys)[0]
		return slices.Concat(parts[0], parts[1], parts[2], ys, lses, []*tensor.Tensor{out.local})
	})
	return RecordComposed(op, out, []*Tensor{q, k, v}, func(gy *Tensor) []Grad {
		gy = gy.to(out.spec, op+"Grad")
		grads := r.scoped(func() []*tensor.Tensor {
			dys := r.exchange(gy.local)[0]
			dq, dk, dv := r.backward(dys, parts[0], parts[1], parts[2], ys, lses)
			return r.back(dq, dk, dv)
		})
		return []Grad{Dense(wrap(q.spec, grads[0])), Dense(wrap(k.spec, grads[1])), Dense(wrap(v.spec, grads[2]))}
	}, gathered)
}

// ringAxis returns the number of the axis along which a RingAttention goes. It throws unless the operands fit it.
func ringAxis(op, axis string, q, k, v *Tensor) int {
	ops := []Operand{operand("q", q), operand("k", k), operand("v", v)}
	along, ok := q.spec.mesh.Axis(axis)
	if !ok {
		refuse(op, fmt.Sprintf("the mesh has no axis %q", axis), "use one of its names", ops...)
	}
	for _, t := range []*Tensor{q, k, v} {
		if t.NDim() != 4 || !slices.Equal(t.Shape()[:3], q.Shape()[:3]) || k.NDim() == 4 && k.Dim(3) != q.Dim(3) {
			refuse(op, "they are not [B, H, T, D], [B, H, T, D] and [B, H, T, E]", sharedHeads(q, k), ops...)
		}
		if !t.spec.placements[along].Shards(2) || !slices.Equal(t.spec.placements, q.spec.placements) || t.spec.partial {
			refuse(op, "the layouts are not one, with S(2) on axis "+axis, "redistribute them", ops...)
		}
		for i, p := range t.spec.placements {
			if i != along && (p.Shards(2) || p.Shards(3)) {
				refuse(op, "another axis divides positions or features", "redistribute them", ops...)
			}
		}
	}
	return along
}

// A ring is the ranks of one axis that compute an attention together.
type ring struct {
	m        *Mesh
	op       string
	group    *comm.Comm
	size, me int
	causal   bool
	pieces   int // of the sequence on each rank

	positions []int // of each rank
}

// positionsOf returns how many positions of q each rank of an axis has, of those that share this rank's other coordinates.
func positionsOf(q *Tensor, axis int) []int {
	m := q.spec.mesh
	coord, list := slices.Clone(m.coord), make([]int, m.axes[axis].Size)
	for rank := range list {
		coord[axis] = rank
		_, list[rank] = q.Layout().Span(coord, 2)
	}
	return list
}

// scoped returns what f does; all other tensors that f makes are gone then.
func (r *ring) scoped(f func() []*tensor.Tensor) []*tensor.Tensor {
	scope := r.m.Device().Open()
	defer scope.Close()
	kept := f()
	scope.Keep(kept...)
	return kept
}

// number returns which piece of the whole sequence piece i of a rank is while it computes.
func (r *ring) number(rank, i int) int {
	if i == 0 {
		return rank
	}
	return 2*r.size - 1 - rank
}

// computes returns the rank that computes with a piece.
func (r *ring) computes(piece int) int { return min(piece, 2*r.size-1-piece) }

// exchange returns the pieces of each tensor that this rank computes with.
func (r *ring) exchange(ts ...*tensor.Tensor) [][]*tensor.Tensor {
	if r.pieces == 1 {
		list := make([][]*tensor.Tensor, len(ts))
		for i, t := range ts {
			list[i] = []*tensor.Tensor{t}
		}
		return list
	}
	halves := make([][]*tensor.Tensor, len(ts))
	for i, t := range ts {
		n := t.Shape()[2] / 2
		halves[i] = []*tensor.Tensor{tensor.Narrow(t, 2, 0, n), tensor.Narrow(t, 2, n, n)}
	}
	to := [2]int{r.computes(2 * r.me), r.computes(2*r.me + 1)}
	from := [2]int{r.number(r.me, 0) / 2, r.number(r.me, 1) / 2}
	return r.swap(halves, to, from)
}

// back is the inverse of exchange: it returns this rank's part of each tensor.
func (r *ring) back(lists ...[]*tensor.Tensor) []*tensor.Tensor {
	if r.pieces == 2 {
		to := [2]int{r.number(r.me, 0) / 2, r.number(r.me, 1) / 2}
		from := [2]int{r.computes(2 * r.me), r.computes(2*r.me + 1)}
		lists = r.swap(lists, to, from)
	}
	whole := make([]*tensor.Tensor, len(lists))
	for i, list := range lists {
		whole[i] = tensor.Cat(2, list...)
	}
	return whole
}

// swap sends the first piece of each list to rank to[0] and the second to to[1], and returns
// the ones that come from from[0] and from[1]. Two that go the same way go in this order.
func (r *ring) swap(lists [][]*tensor.Tensor, to, from [2]int) [][]*tensor.Tensor {
	var packed [2]*tensor.Tensor
	for i := range packed {
		var list []*tensor.Tensor
		for _, l := range lists {
			list = append(list, l[i])
		}
		packed[i] = flatten(list)
	}
	n := packed[0].Numel()
	send, recv := make([]int, r.size), make([]int, r.size)
	for i := range 2 {
		send[to[i]] += n
		recv[from[i]] += n
	}
	if to[0] > to[1] {
		packed[0], packed[1] = packed[1], packed[0]
	}
	src := flatten(packed[:])
	dst := tensor.NewLike(src)
	r.call(dst, src, recv, send)
	first, second := 0, n
	if from[0] > from[1] {
		first, second = n, 0
	}
	out := make([][]*tensor.Tensor, len(lists))
	for i, l := range lists {
		k, shape := l[0].Numel(), l[0].Shape()
		out[i] = []*tensor.Tensor{tensor.Narrow(dst, 0, first, k).Reshape(shape...), tensor.Narrow(dst, 0, second, k).Reshape(shape...)}
		first, second = first+k, second+k
	}
	return out
}

// flatten joins tensors as one of one dimension.
func flatten(list []*tensor.Tensor) *tensor.Tensor {
	flat := make([]*tensor.Tensor, len(list))
	for i, t := range list {
		flat[i] = t.Reshape(t.Numel())
	}
	return tensor.Cat(0, flat...)
}

// turn hands pieces to the next rank and returns those that the rank before has, which are pieces of rank of.
func (r *ring) turn(list []*tensor.Tensor, of int) []*tensor.Tensor {
	if r.size == 1 {
		return list
	}
	shapes, n := make([][]int, len(list)), 0
	for i, t := range list {
		shapes[i] = slices.Clone(t.Shape())
		shapes[i][2] = r.positions[of] / r.pieces
		n += ints.Product(shapes[i])
	}
	src := flatten(list)
	dst := tensor.New(src.Device(), src.DType(), n)
	send, recv := make([]int, r.size), make([]int, r.size)
	send[(r.me+1)%r.size], recv[(r.me+r.size-1)%r.size] = src.Numel(), n
	r.call(dst, src, recv, send)
	out, at := make([]*tensor.Tensor, len(list)), 0
	for i, shape := range shapes {
		out[i] = tensor.Narrow(dst, 0, at, ints.Product(shape)).Reshape(shape...)
		at += ints.Product(shape)
	}
	return out
}

// owner returns whose pieces of keys are here at a step of the ring.
func (r *ring) owner(step int) int { return (r.me - step + 2*r.size) % r.size }

func (r *ring) call(dst, src *tensor.Tensor, recv, send []int) {
	r.m.Do(r.group, comm.Call{Kind: comm.AllToAllVKind, Dst: BufferOf(dst), Src: BufferOf(src), DstCounts: recv, SrcCounts: send, Cause: r.op})
	runtime.KeepAlive(dst)
	runtime.KeepAlive(src)
}

// pairs calls f with each pair of a piece of queries and one of the keys that come from rank
// src, of which the queries attend to all, or to those up to their own.
func (r *ring) pairs(src int, f func(i, j int, causal bool)) {
	if r.positions[r.me] == 0 || r.positions[src] == 0 {
		return
	}
	for i := range r.pieces {
		for j := range r.pieces {
			query, key := r.number(r.me, i), r.number(src, j)
			if !r.causal || key <= query {
				f(i, j, r.causal && key == query)
			}
		}
	}
}

// forward returns the attention of each piece, and the logarithms of its denominators.
func (r *ring) forward(q, k, v []*tensor.Tensor) (ys, lses []*tensor.Tensor) {
	ys, lses = make([]*tensor.Tensor, r.pieces), make([]*tensor.Tensor, r.pieces)
	if r.positions[r.me] == 0 { // there is no pair
		lead := q[0].Shape()[:3]
		ys[0] = tensor.Zeros(q[0].Device(), q[0].DType(), append(slices.Clone(lead), v[0].Dim(3))...)
		lses[0] = tensor.Zeros(q[0].Device(), q[0].DType(), lead...)
	}
	kv := slices.Concat(k, v)
	for step := range r.size {
		before := slices.Concat(ys, lses)
		if step > 0 { // what came round; k and v are the caller's
			before = append(before, kv...)
		}
		after := r.scoped(func() []*tensor.Tensor {
			r.pairs(r.owner(step), func(i, j int, causal bool) {
				y, lse := tensor.Attention(q[i], kv[j], kv[r.pieces+j], causal)
				if ys[i] != nil {
					y, lse = mergeAttention(ys[i], lses[i], y, lse)
				}
				ys[i], lses[i] = y, lse
			})
			if step < r.size-1 {
				kv = r.turn(kv, r.owner(step+1))
			}
			return slices.Concat(ys, lses, kv)
		})
		freeUnless(before, after)
	}
	return ys, lses
}

// freeUnless frees what is in before and not in after.
func freeUnless(before, after []*tensor.Tensor) {
	for _, t := range before {
		if t != nil && !slices.Contains(after, t) {
			t.Free()
		}
	}
}

// mergeAttention returns the attention to two sets of keys, given that to each.
func mergeAttention(y1, lse1, y2, lse2 *tensor.Tensor) (y, lse *tensor.Tensor) {
	top := tensor.Binary(kernel.OpMaximum, lse1, lse2)
	w1 := tensor.Unary(kernel.OpExp, tensor.Binary(kernel.OpSub, lse1, top))
	w2 := tensor.Unary(kernel.OpExp, tensor.Binary(kernel.OpSub, lse2, top))
	sum := tensor.Add(w1, w2)
	weighted := func(y, w *tensor.Tensor) *tensor.Tensor {
		return tensor.Mul(y, tensor.Binary(kernel.OpDiv, w, sum).Reshape(append(slices.Clone(w.Shape()), 1)...))
	}
	return tensor.Add(weighted(y1, w1), weighted(y2, w2)), tensor.Add(top, tensor.Unary(kernel.OpLog, sum))
}

// backward returns the gradients of the pieces. Those of keys and values go round with them,
// and are at home after a whole turn.
func (r *ring) backward(dys, q, k, v, ys, lses []*tensor.Tensor) (dq, dk, dv []*tensor.Tensor) {
	zeros := func(list []*tensor.Tensor) (z []*tensor.Tensor) {
		for _, t := range list {
			z = append(z, tensor.ZerosLike(t))
		}
		return z
	}
	dq = zeros(q)
	n := r.pieces
	all := slices.Concat(k, v, zeros(k), zeros(v))
	for step := range r.size {
		before := all
		if step == 0 {
			before = all[2*n:] // k and v are the caller's
		}
		after := r.scoped(func() []*tensor.Tensor {
			r.pairs(r.owner(step), func(i, j int, causal bool) {
				gq, gk, gv := tensor.AttentionGrad(dys[i], q[i], all[j], all[n+j], ys[i], lses[i], causal)
				tensor.AddTo(dq[i], gq)
				tensor.AddTo(all[2*n+j], gk)
				tensor.AddTo(all[3*n+j], gv)
			})
			if step == r.size-1 {
				all = slices.Concat(all[:2*n], r.turn(all[2*n:], r.me))
			} else {
				all = r.turn(all, r.owner(step+1))
			}
			return all
		})
		freeUnless(before, after)
	}
	return dq, all[2*n : 3*n], all[3*n:]
}
