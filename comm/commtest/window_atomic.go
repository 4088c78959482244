package commtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/window"
)

// accumulates: all ranks fold into all ranks' elements at once, by each operation, and get what
// one rank would. The values are such that the order does not matter.
func accumulates[T comm.Elem](ctx context.Context, world *comm.Comm) error {
	const length, times = 4, 2
	n, me, values := world.Size(), world.Rank(), codecOf[T]()
	dt := comm.Of([]T{}).DType
	for _, op := range []comm.Op{comm.Sum, comm.Prod, comm.Min, comm.Max, comm.And, comm.Or, comm.Xor} {
		if op.Accepts(dt) != nil {
			continue
		}
		w, err := window.New[T](ctx, world, length)
		if err != nil {
			return err
		}
		at := func(rank, i int) T { // few values, so that no type overflows
			if op == comm.Prod {
				return values.to(1)
			}
			return values.to(float64((rank + i) % 2))
		}
		model := make([]T, length)
		for i := range model {
			w.Local()[i] = at(i, i+1)
			model[i] = at(i, i+1)
		}
		if err := w.Fence(ctx); err != nil {
			return err
		}
		src := make([]T, length-1)
		for range times {
			for to := range n {
				for i := range src {
					src[i] = at(me, i)
				}
				if err := w.Accumulate(to, 1, src, op); err != nil {
					return err
				}
				if _, err := w.FetchAndOp((me+to)%n, 0, at(me, 0), op); err != nil {
					return err
				}
			}
		}
		if err := w.Fence(ctx); err != nil {
			return err
		}
		for range times {
			for from := range n {
				for i := range model {
					j := max(0, i-1)
					fold2(op, model[i:i+1], []T{at(from, j)})
				}
			}
		}
		for i, got := range w.Local() {
			if got != model[i] {
				return fmt.Errorf("%v: element %d is %v, want %v", op, i, got, model[i])
			}
		}
		if err := w.Close(ctx); err != nil {
			return err
		}
	}
	return nil
}

// fold2 folds b into a.
func fold2[T comm.Elem](op comm.Op, a, b []T) {
	x, y := comm.Of(a), comm.Of(b)
	call := comm.Call{Kind: comm.AllReduceKind, Op: op, Dst: x, Src: x}
	call.Fold([]unsafe.Pointer{x.Ptr}, []unsafe.Pointer{x.Ptr, y.Ptr}, 1)
}

// fetches: all ranks count on all ranks at once; no number is given twice.
func fetches(ctx context.Context, world *comm.Comm) error {
	const times = 60
	n, me := world.Size(), world.Rank()
	w, err := window.New[int64](ctx, world, 2)
	if err != nil {
		return err
	}
	got := make([]int64, 0, times)
	for i := range times {
		was, err := w.FetchAndAdd((i+me)%n, 1, 3)
		if err != nil {
			return err
		}
		got = append(got, was*int64(n)+int64((i+me)%n))
	}
	all, err := comm.AllGatherSlices(ctx, world, got)
	if err != nil {
		return err
	}
	sorted := slices.Sorted(slices.Values(slices.Concat(all...)))
	if len(slices.Compact(sorted)) != n*times {
		return errors.New("two calls of FetchAndAdd have returned the same")
	}
	sum := int64(0)
	for r := range n {
		v, err := w.Load(r, 1)
		if err != nil {
			return err
		}
		sum += v
	}
	if sum != int64(3*n*times) {
		return fmt.Errorf("the ranks have added %d, want %d", sum, 3*n*times)
	}
	// The same by CompareAndSwap, with elements of 1 byte on one rank.
	b, err := window.New[uint8](ctx, world, 5)
	if err != nil {
		return err
	}
	for range 8 {
		for {
			old, err := b.Load(0, 3)
			if err != nil {
				return err
			}
			was, err := b.CompareAndSwap(0, 3, old, old+1)
			if err != nil {
				return err
			}
			if was == old {
				break
			}
		}
	}
	if err := b.Fence(ctx); err != nil {
		return err
	}
	if me == 0 && !slices.Equal(b.Local(), []uint8{0, 0, 0, uint8(8 * n), 0}) {
		return fmt.Errorf("CompareAndSwap has left %v, want %d in the middle", b.Local(), 8*n)
	}
	return errors.Join(w.Close(ctx), b.Close(ctx))
}

// swaps: numbers that go round by Swap are none lost.
func swaps(ctx context.Context, world *comm.Comm) error {
	n, me := world.Size(), world.Rank()
	w, err := window.New[float64](ctx, world, 1)
	if err != nil {
		return err
	}
	w.Local()[0] = float64(me)
	if err := w.Fence(ctx); err != nil {
		return err
	}
	mine := float64(n + me)
	for i := range 20 {
		if mine, err = w.Swap((me+i)%n, 0, mine); err != nil {
			return err
		}
	}
	if err := w.Fence(ctx); err != nil {
		return err
	}
	all := make([]float64, 2*n)
	if err := comm.AllGather(ctx, world, all, []float64{mine, w.Local()[0]}); err != nil {
		return err
	}
	slices.Sort(all)
	for i, v := range all {
		if v != float64(i) {
			return fmt.Errorf("after swaps the ranks have %v", all)
		}
	}
	return w.Close(ctx)
}
