package commtest

import (
	"context"
	"fmt"
	"math"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/invariant"
)

// counts are elements a rank: none, one, few, around the sizes at which
// backends change their ways, and enough for several staging windows.
var (
	smallCounts = [...]int{0, 1, 2, 9, 129}
	largeCounts = [...]int{1024, 1025, 5003, 70001}
)

// Collectives returns the cases that compare every collective with the loop of
// its documentation.
func Collectives() []Case {
	cases := []Case{
		{"every kind", everyKind},
		{"every kind is checked", checked},
		{"float32", typed[float32]},
		{"float64", typed[float64]},
		{"float16", typed[dtype.F16]},
		{"bfloat16", typed[dtype.BF16]},
		{"int8", typed[int8]},
		{"int16", typed[int16]},
		{"int32", typed[int32]},
		{"int64", typed[int64]},
		{"uint8", typed[uint8]},
		{"bool", typed[bool]},
		{"uint16", briefly[uint16]},
		{"uint32", briefly[uint32]},
		{"uint64", briefly[uint64]},
		{"int", briefly[int]},
		{"uint", briefly[uint]},
		{"complex64", briefly[complex64]},
		{"complex128", briefly[complex128]},
		{"a named type", briefly[named]},
		{"structs", structs},
		{"in place", inPlace},
		{"slices of unknown lengths", ofUnknownLengths},
		{"MinLoc and MaxLoc", locations},
		{"float32 on a split", onASplit[float32]},
		{"float64 on a split", onASplit[float64]},
		{"float16 on a split", onASplit[dtype.F16]},
		{"bfloat16 on a split", onASplit[dtype.BF16]},
		{"int8 on a split", onASplit[int8]},
		{"int16 on a split", onASplit[int16]},
		{"int32 on a split", onASplit[int32]},
		{"int64 on a split", onASplit[int64]},
		{"uint8 on a split", onASplit[uint8]},
		{"bool on a split", onASplit[bool]},
		{"custom operations", customOperations},
		{"custom operations on parts", customParts},
		{"NaN", propagatesNaN},
		{"Send and Recv", letters},
		{"out of place", outOfPlace},
		{"random sequences", randomSequences},
		{"parts as columns", columnParts},
		{"recorded numbers", recordedNumbers},
		{"a context of a job that stops", stopping},
	}
	for _, n := range largeCounts {
		for w := range places {
			cases = append(cases, Case{fmt.Sprintf("large %d %v", n, w), func(ctx context.Context, world *comm.Comm) error {
				if invariant.Enabled && n*world.Size() > 100_000 {
					return nil // too slow under the race detector
				}
				t := newTyped[float32](ctx, world, w)
				defer t.free()
				if err := t.all(n, comm.Sum); err != nil {
					return err
				}
				if n > 10_000 {
					return nil
				}
				return newTyped[dtype.BF16](ctx, world, w).all(n, comm.Avg)
			}})
		}
	}
	return cases
}

// typed runs every collective on elements of type T, with every operation that
// it has.
func typed[T comm.Elem](ctx context.Context, world *comm.Comm) error {
	if invariant.Enabled && world.Size() > 3 { // slow under the race detector
		return typedOf[T](ctx, world, 0, 9)
	}
	return typedOf[T](ctx, world, smallCounts[:]...)
}

// briefly is typed for types that backends treat as others of their size.
func briefly[T comm.Elem](ctx context.Context, world *comm.Comm) error {
	return typedOf[T](ctx, world, 9)
}

func typedOf[T comm.Elem](ctx context.Context, world *comm.Comm, counts ...int) error {
	t := newTyped[T](ctx, world, onHeap)
	for _, n := range counts {
		for op := comm.Sum; op <= comm.Xor; op++ {
			if op.Accepts(typeOf[T]()) == nil {
				if err := t.reductions(n, op); err != nil {
					return err
				}
			}
		}
		if err := t.moves(n); err != nil {
			return err
		}
	}
	return nil
}

// typeOf returns the DType of T.
func typeOf[T comm.Elem]() comm.DType { return comm.Of[T](nil).DType }

type typedTest[T comm.Elem] struct {
	codec[T]
	arena
	ctx  context.Context
	salt int
}

func newTyped[T comm.Elem](ctx context.Context, c *comm.Comm, w place) *typedTest[T] {
	return &typedTest[T]{codec: codecOf[T](), arena: arena{c: c, where: w}, ctx: ctx}
}

func (t *typedTest[T]) all(n int, op comm.Op) error {
	if err := t.reductions(n, op); err != nil {
		return err
	}
	return t.moves(n)
}

// buffers returns a filled source of n elements and an empty destination of m.
func (t *typedTest[T]) buffers(m, n int) (dst, src []T, err error) {
	if dst, err = take[T](&t.arena, m); err != nil {
		return nil, nil, err
	}
	if src, err = take[T](&t.arena, n); err != nil {
		return nil, nil, err
	}
	t.salt++
	for i := range src {
		src[i] = t.to(t.value(t.c.Rank(), i, t.salt))
	}
	return dst, src, nil
}

// uneven gives rank r of n a count around count: some more, some less, some none.
func uneven(n, count int) []int {
	counts := make([]int, n)
	for r := range counts {
		if r%3 != 2 {
			counts[r] = count/(r%3+1) + r
		}
	}
	return counts
}

// ran names a call and gives back its error.
func ran(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// reductions checks the reductions of count elements.
func (t *typedTest[T]) reductions(count int, op comm.Op) error {
	defer t.free()
	c, n, me := t.c, t.c.Size(), t.c.Rank()
	folded := func(j int) float64 {
		return t.fold(op, n, func(r int) float64 { return t.value(r, j, t.salt) })
	}
	what := func(name string) string { return fmt.Sprintf("%s %v of %d", name, op, count) }

	_, buf, err := t.buffers(0, count)
	if err != nil {
		return err
	}
	if err := comm.AllReduce(t.ctx, c, buf, op); err != nil {
		return ran(err, "AllReduce")
	}
	if err := t.check(what("AllReduce"), buf, folded); err != nil {
		return err
	}
	for _, root := range t.roots(count) {
		dst, src, err := t.buffers(count, count)
		if err != nil {
			return err
		}
		if root != me {
			dst = nil
		}
		if err := comm.Reduce(t.ctx, c, dst, src, op, root); err != nil {
			return ran(err, "Reduce")
		}
		if err := t.check(what("Reduce"), dst, folded); err != nil {
			return err
		}
	}
	dst, src, err := t.buffers(count, n*count)
	if err != nil {
		return err
	}
	if err := comm.ReduceScatter(t.ctx, c, dst, src, op); err != nil {
		return ran(err, "ReduceScatter")
	}
	if err := t.check(what("ReduceScatter"), dst, func(i int) float64 { return folded(me*count + i) }); err != nil {
		return err
	}
	if err := t.scans(count, op); err != nil {
		return err
	}
	counts := uneven(n, count)
	if dst, src, err = t.buffers(counts[me], ints.Sum(counts)); err != nil {
		return err
	}
	if err := comm.ReduceScatterV(t.ctx, c, dst, src, counts, op); err != nil {
		return ran(err, "ReduceScatterV")
	}
	return t.check(what("ReduceScatterV"), dst, func(i int) float64 { return folded(ints.Sum(counts[:me]) + i) })
}

// scans checks Scan and Exscan of count elements.
func (t *typedTest[T]) scans(count int, op comm.Op) error {
	me := t.c.Rank()
	for _, scan := range []struct {
		name  string
		f     func(context.Context, *comm.Comm, []T, []T, comm.Op) error
		ranks int
	}{{"Scan", comm.Scan[T], me + 1}, {"Exscan", comm.Exscan[T], me}} {
		dst, src, err := t.buffers(count, count)
		if err != nil {
			return err
		}
		for i := range dst {
			dst[i] = t.to(1)
		}
		if err := scan.f(t.ctx, t.c, dst, src, op); err != nil {
			return ran(err, scan.name)
		}
		if err := t.check(fmt.Sprintf("%s %v of %d", scan.name, op, count), dst, func(j int) float64 {
			if scan.ranks == 0 { // it was left as it was
				return 1
			}
			return t.fold(op, scan.ranks, func(r int) float64 { return t.value(r, j, t.salt) })
		}); err != nil {
			return err
		}
	}
	return nil
}

// moves checks the collectives that only move data.
func (t *typedTest[T]) moves(count int) error {
	for _, f := range []func(int) error{t.gathers, t.scatters, t.exchanges} {
		err := f(count)
		t.free()
		if err != nil {
			return err
		}
	}
	return ran(comm.Barrier(t.ctx, t.c), "Barrier")
}

// roots are those worth trying for a count.
func (t *typedTest[T]) roots(count int) []int {
	if count > 2000 {
		return []int{t.c.Size() - 1}
	}
	if t.c.Size() == 1 {
		return []int{0}
	}
	return []int{0, t.c.Size() - 1}
}

// joined is element j of the ranks' sources, of counts elements, one after the other.
func (t *typedTest[T]) joined(counts []int) func(j int) float64 {
	return func(j int) float64 {
		for r, n := range counts {
			if j < n {
				return t.value(r, j, t.salt)
			}
			j -= n
		}
		return math.NaN()
	}
}

func repeat(n, count int) []int {
	counts := make([]int, n)
	for r := range counts {
		counts[r] = count
	}
	return counts
}

func (t *typedTest[T]) gathers(count int) error {
	c, n, me := t.c, t.c.Size(), t.c.Rank()
	for _, counts := range [][]int{repeat(n, count), uneven(n, count)} {
		dst, src, err := t.buffers(ints.Sum(counts), counts[me])
		if err != nil {
			return err
		}
		if err := comm.AllGatherV(t.ctx, c, dst, src, counts); err != nil {
			return ran(err, "AllGatherV")
		}
		if err := t.check(fmt.Sprint("AllGatherV ", counts), dst, t.joined(counts)); err != nil {
			return err
		}
		for _, root := range t.roots(count) {
			if dst, src, err = t.buffers(ints.Sum(counts), counts[me]); err != nil {
				return err
			}
			given := counts
			if root != me {
				dst, given = nil, nil
			}
			if err := comm.GatherV(t.ctx, c, dst, src, given, root); err != nil {
				return ran(err, "GatherV")
			}
			if err := t.check(fmt.Sprint("GatherV ", counts), dst, t.joined(counts)); err != nil {
				return err
			}
		}
	}
	dst, src, err := t.buffers(n*count, count)
	if err != nil {
		return err
	}
	if err := comm.AllGather(t.ctx, c, dst, src); err != nil {
		return ran(err, "AllGather")
	}
	if err := t.check("AllGather", dst, t.joined(repeat(n, count))); err != nil {
		return err
	}
	for _, root := range t.roots(count) {
		if dst, src, err = t.buffers(n*count, count); err != nil {
			return err
		}
		if root != me {
			dst = nil
		}
		if err := comm.Gather(t.ctx, c, dst, src, root); err != nil {
			return ran(err, "Gather")
		}
		if err := t.check("Gather", dst, t.joined(repeat(n, count))); err != nil {
			return err
		}
	}
	return nil
}

func (t *typedTest[T]) scatters(count int) error {
	c, n, me := t.c, t.c.Size(), t.c.Rank()
	for _, root := range t.roots(count) {
		dst, src, err := t.buffers(count, n*count)
		if err != nil {
			return err
		}
		if root != me {
			src = nil
		}
		if err := comm.Scatter(t.ctx, c, dst, src, root); err != nil {
			return ran(err, "Scatter")
		}
		if err := t.check("Scatter", dst, func(i int) float64 { return t.value(root, me*count+i, t.salt) }); err != nil {
			return err
		}
		counts := uneven(n, count)
		if dst, src, err = t.buffers(counts[me], ints.Sum(counts)); err != nil {
			return err
		}
		given := counts
		if root != me {
			src, given = nil, nil
		}
		if err := comm.ScatterV(t.ctx, c, dst, src, given, root); err != nil {
			return ran(err, "ScatterV")
		}
		if err := t.check("ScatterV", dst, func(i int) float64 { return t.value(root, ints.Sum(counts[:me])+i, t.salt) }); err != nil {
			return err
		}
		_, buf, err := t.buffers(0, count)
		if err != nil {
			return err
		}
		if err := comm.Broadcast(t.ctx, c, buf, root); err != nil {
			return ran(err, "Broadcast")
		}
		if err := t.check("Broadcast", buf, func(i int) float64 { return t.value(root, i, t.salt) }); err != nil {
			return err
		}
	}
	return nil
}

// sends is how many elements rank p sends rank q in the uneven exchange.
func sends(p, q, count int) int {
	if (p+2*q)%4 == 3 {
		return 0
	}
	return count/(p+1) + q
}

func (t *typedTest[T]) exchanges(count int) error {
	c, n, me := t.c, t.c.Size(), t.c.Rank()
	dst, src, err := t.buffers(n*count, n*count)
	if err != nil {
		return err
	}
	if err := comm.AllToAll(t.ctx, c, dst, src); err != nil {
		return ran(err, "AllToAll")
	}
	if err := t.check("AllToAll", dst, func(i int) float64 { return t.value(i/count, me*count+i%count, t.salt) }); err != nil {
		return err
	}
	from, to := make([]int, n), make([]int, n)
	for q := range n {
		from[q], to[q] = sends(q, me, count), sends(me, q, count)
	}
	if dst, src, err = t.buffers(ints.Sum(from), ints.Sum(to)); err != nil {
		return err
	}
	if err := comm.AllToAllV(t.ctx, c, dst, from, src, to); err != nil {
		return ran(err, "AllToAllV")
	}
	return t.check("AllToAllV", dst, func(i int) float64 {
		q := 0
		for i >= from[q] {
			i -= from[q]
			q++
		}
		before := 0
		for r := range me {
			before += sends(q, r, count)
		}
		return t.value(q, before+i, t.salt)
	})
}
