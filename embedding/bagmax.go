package embedding

import (
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/tensor"
)

// float are the element types that tables are computed with.
type float interface{ float32 | float64 }

// pick returns the float32 or the float64 form of a function.
func pick[F any](dt tensor.DType, f32, f64 F) F {
	if dt == tensor.Float64 {
		return f64
	}
	return f32
}

// A best is the largest value so far of one element of a bag, and where it came
// from: the position of its id plus one, 0 for nowhere.
type best[T float] struct {
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
type bestKey[T float] struct{}

// largest returns the maxima of the bags, [count, d], over all ranks that share
// their ids: the one collective of this mode, where rows are sharded.
func largest[T float](b *bags) *tensor.Tensor {
	d := b.table.Dim(1)
	table, rows := b.table, b.rows.elems
	if table.DType() == tensor.BFloat16 { // the used rows alone are widened
		table, rows = b.taken(), nil
	}
	elems := tensor.Read[T](table)
	all := make([]best[T], b.count*d)
	for i := range b.used {
		row, bag := i, int(b.bag.elems[i])
		if rows != nil {
			row = int(rows[i])
		}
		out := all[bag*d : (bag+1)*d]
		for j, v := range elems[row*d : (row+1)*d] {
			out[j] = out[j].with(best[T]{v, int32(b.at.elems[i]) + 1})
		}
	}
	runtime.KeepAlive(table)
	if g := b.group(b.masked...); g != nil {
		f := g.Attr(bestKey[T]{}, func() any {
			f, err := comm.NewFunc("largest of a bag", best[T].with)
			if err != nil {
				panic(err) // best holds numbers only
			}
			return f
		}).(*comm.Func)
		buf := comm.Raw(all)
		b.mesh.Do(g, comm.Call{Kind: comm.AllReduceKind, Op: comm.Custom, Func: f, Dst: buf, Src: buf, Cause: b.op + ": maxima"})
	}
	// Which used id gave each element, if this rank has its row.
	at := b.at.elems[:b.used]
	values := make([]T, len(all))
	b.won = make([]int32, len(all))
	for i, e := range all {
		values[i], b.won[i] = e.Value, -1
		if k, ok := slices.BinarySearch(at, int64(e.From)-1); ok {
			b.won[i] = int32(k)
		}
	}
	return tensor.FromSlice(b.table.Device(), values, b.count, d)
}

// largestGrad returns the gradients of the used rows, [k, d]: each element of a
// bag's gradient goes to the row that gave it.
func largestGrad[T float](b *bags, dy *tensor.Tensor) *tensor.Tensor {
	d := dy.Dim(1)
	g := tensor.ToSlice[T](dy)
	values := make([]T, b.used*d)
	for i, k := range b.won {
		if k >= 0 {
			values[int(k)*d+i%d] = g[i]
		}
	}
	return tensor.FromSlice(dy.Device(), values, b.used, d)
}
