package embedding

import (
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/index"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A pooling makes one row of each bag of ids. It works on the used ids: those that are
// no padding and whose rows this rank has, in order.
type pooling struct {
	mode   Mode
	dev    tensor.Device
	bags   int
	used   int               // k
	at     index.List[int64] // by used id: its position among the ids, ascending
	row    index.List[int64] // by used id: its row of the table
	bag    index.List[int64] // by used id: its bag
	sizes  []int             // by bag: the ids that are no padding, used or not
	single bool              // each bag has one id, which is used
	scale  *tensor.Tensor    // factors of the rows of the used ids, [k, 1]; nil: ones
	won    []int32           // Max: the used id that gave each element, -1: none here
}

// newPooling divides ids into bags: bag b is ids[starts[b]:starts[b+1]]. The table has
// the rows lo to lo+n; padding is an id, or -1.
func newPooling[T int32 | int64](dev tensor.Device, mode Mode, ids []T, starts []int, lo, n, padding int) *pooling {
	p := &pooling{mode: mode, dev: dev, bags: len(starts) - 1, sizes: make([]int, len(starts)-1), single: true,
		at: index.New[int64](dev, len(ids)), row: index.New[int64](dev, len(ids)), bag: index.New[int64](dev, len(ids))}
	for b := range p.sizes {
		before := p.used
		for i := starts[b]; i < starts[b+1]; i++ {
			if int(ids[i]) == padding {
				continue
			}
			p.sizes[b]++
			if row := int(ids[i]) - lo; row >= 0 && row < n {
				p.at.Elems[p.used], p.row.Elems[p.used], p.bag.Elems[p.used] = int64(i), int64(row), int64(b)
				p.used++
			}
		}
		p.single = p.single && p.sizes[b] == 1 && p.used == before+1
	}
	return p
}

// tensor returns the numbers of a list for the used ids, [k].
func (p *pooling) tensor(l index.List[int64]) *tensor.Tensor { return l.Tensor(p.dev, p.used) }

// setScale makes factors [n] of all ids those of the rows, nil for ones; with Mode Mean
// the factors are one over the sizes of the bags.
func (p *pooling) setScale(factors *tensor.Tensor, dt tensor.DType) {
	switch {
	case factors != nil:
		p.scale = tensor.Cast(tensor.IndexSelect(factors, 0, p.tensor(p.at)), dt).Reshape(p.used, 1)
	case p.mode == Mean && !p.single:
		p.scale = dtype.Pick(dt, evenShares[float32], evenShares[float64])(p, dt)
	}
}

// evenShares returns for each used id one over the size of its bag, [k, 1].
func evenShares[T dtype.Float](p *pooling, dt tensor.DType) *tensor.Tensor {
	f := tensor.New(p.dev, dt, p.used, 1)
	tensor.Edit(f, func(share []T) {
		for i := range share {
			share[i] = T(1 / float64(p.sizes[p.bag.Elems[i]]))
		}
	})
	return f
}

// rows returns the rows of the used ids, [k, D].
func (p *pooling) rows(table *tensor.Tensor) *tensor.Tensor {
	return tensor.TakeRows(table, p.tensor(p.row), 0)
}

// forward returns this rank's part of the bags, [bags, D]. others are the ranks
// with which maxima are taken; nil: none.
func (p *pooling) forward(table *tensor.Tensor, others *maxima) *tensor.Tensor {
	dt := table.DType()
	if p.mode == Max && (others != nil || !p.single) {
		return tensor.Cast(dtype.Pick(dt, largest[float32], largest[float64])(p, table, others), dt)
	}
	values := p.rows(table)
	if p.single && p.scale == nil {
		return values
	}
	values = tensor.Widen(values)
	if p.scale != nil {
		tensor.BinaryTo(values, kernel.OpMul, values, p.scale)
	}
	return tensor.Cast(p.sum(values), dt)
}

// sum adds up the rows [k, D] of each bag.
func (p *pooling) sum(values *tensor.Tensor) *tensor.Tensor {
	if p.single {
		return values
	}
	starts, m := index.New[int64](p.dev, p.bags+1), 0 // of the bags that have a used id
	slot := index.New[int64](p.dev, p.bags)
	for i := range slot.Elems {
		slot.Elems[i] = -1
	}
	bagOf := p.bag.Elems[:p.used]
	for i, bag := range bagOf {
		if i == 0 || bag != bagOf[i-1] {
			slot.Elems[bag], starts.Elems[m] = int64(m), int64(i)
			m++
		}
	}
	starts.Elems[m] = int64(p.used)
	segments := tensor.Uniq{Index: tensor.Arange(p.dev, tensor.Int64, 0, m), Start: starts.Tensor(p.dev, m+1),
		Slot: p.tensor(p.bag), Order: tensor.Arange(p.dev, tensor.Int32, 0, p.used)}
	return tensor.TakeRows(segments.SumRows(values).Values, slot.Tensor(p.dev, p.bags), 0)
}

// spread returns for the gradients dy of the bags, [bags, D], that of each used id's row
// before its factor, [k, D].
func (p *pooling) spread(dy *tensor.Tensor) *tensor.Tensor {
	switch {
	case p.won != nil:
		return dtype.Pick(dy.DType(), largestGrad[float32], largestGrad[float64])(p, dy)
	case p.single:
		return dy
	}
	return tensor.TakeRows(dy, p.tensor(p.bag), 0)
}

// backward returns the gradients of the rows of the used ids, [k, D], from spread's.
func (p *pooling) backward(values *tensor.Tensor) *tensor.Tensor {
	if p.scale != nil {
		return tensor.Mul(values, p.scale)
	}
	return values
}

// maxima are the ranks that have other rows of the same bags.
type maxima struct {
	group *comm.Comm
	mesh  *dtensor.Mesh
	cause string
}

// largest returns the maxima of the bags, [bags, D]: of equal elements the first, and
// NaN before all numbers. An empty bag gives zeros.
func largest[T dtype.Float](p *pooling, table *tensor.Tensor, others *maxima) *tensor.Tensor {
	d, rows := table.Dim(1), p.row.Elems
	if table.DType().Narrow() { // the used rows alone are widened
		table, rows = tensor.Widen(p.rows(table)), nil
	}
	elems := tensor.Read[T](table)
	values := make([]T, p.bags*d)
	p.won = slices.Repeat([]int32{-1}, len(values))
	for i, bag := range p.bag.Elems[:p.used] {
		row := i
		if rows != nil {
			row = int(rows[i])
		}
		out, won := values[int(bag)*d:int(bag+1)*d], p.won[int(bag)*d:int(bag+1)*d]
		for j, x := range elems[row*d : (row+1)*d] {
			if best := out[j]; won[j] < 0 || x > best || x != x && best == best {
				out[j], won[j] = x, int32(i)
			}
		}
	}
	runtime.KeepAlive(table)
	if others != nil {
		largestOfAll(p, values, others)
	}
	return tensor.FromSlice(p.dev, values, p.bags, d)
}

// A best is the largest value so far of one element of a bag, and where it came
// from: the position of its id plus one, 0 for nowhere.
type best[T dtype.Float] struct {
	Value T
	From  int32
}

// with returns the larger of two, the one from the earlier id if they are equal.
// NaN is larger than all.
func (a best[T]) with(b best[T]) best[T] {
	switch {
	case a.From == 0:
		return b
	case b.From == 0:
		return a
	case a.Value != a.Value || b.Value != b.Value:
		if a.Value != a.Value && (b.Value == b.Value || a.From < b.From) {
			return a
		}
		return b
	case a.Value > b.Value || a.Value == b.Value && a.From < b.From:
		return a
	}
	return b
}

// bestKey is the attribute under which the reduction of bests is kept.
type bestKey[T dtype.Float] struct{}

// largestOfAll replaces the maxima of this rank's rows by those of all ranks, in one
// collective, and notes which of them this rank gave.
func largestOfAll[T dtype.Float](p *pooling, values []T, others *maxima) {
	all, at := make([]best[T], len(values)), p.at.Elems[:p.used]
	for i, k := range p.won {
		if k >= 0 {
			all[i] = best[T]{values[i], int32(at[k]) + 1}
		}
	}
	f := others.group.Internals().Attr(bestKey[T]{}, func() any {
		f, err := comm.NewFunc("largest of a bag", best[T].with)
		if err != nil {
			panic(err) // best holds numbers only
		}
		return f
	}).(*comm.Func)
	buf := comm.Raw(all)
	others.mesh.Do(others.group, comm.Call{Kind: comm.AllReduceKind, Op: comm.Custom, Func: f, Dst: buf, Src: buf, Cause: others.cause})
	for i, e := range all {
		values[i], p.won[i] = e.Value, -1
		if k, ok := slices.BinarySearch(at, int64(e.From)-1); ok {
			p.won[i] = int32(k)
		}
	}
}

// largestGrad returns the gradients of the used ids' rows, [k, D]: each element of a
// bag's gradient goes to the row that gave it.
func largestGrad[T dtype.Float](p *pooling, dy *tensor.Tensor) *tensor.Tensor {
	d := dy.Dim(1)
	values := make([]T, p.used*d)
	for i, g := range tensor.Read[T](dy) {
		if k := p.won[i]; k >= 0 {
			values[int(k)*d+i%d] = g
		}
	}
	runtime.KeepAlive(dy)
	return tensor.FromSlice(p.dev, values, p.used, d)
}
