package commtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// particle is an element of a program's own, with padding.
type particle struct {
	ID       int64
	Position [3]float32
	Fixed    bool
}

func particleOf(rank, i int) particle {
	return particle{ID: int64(rank)<<32 | int64(i), Position: [3]float32{1: float32(rank), 2: float32(i)}, Fixed: i%2 == 1}
}

// particles returns n elements of a rank, from element first on.
func particles(rank, first, n int) []particle {
	s := make([]particle, n)
	for i := range s {
		s[i] = particleOf(rank, first+i)
	}
	return s
}

// structs: every call that moves elements moves structs and arrays too, and their counts are
// in elements.
func structs(ctx context.Context, c *comm.Comm) error {
	for _, count := range []int{0, 1, 3, 100, 12_000} {
		if err := errors.Join(structMoves(ctx, c, count), structReductions(ctx, c, count)); err != nil {
			return fmt.Errorf("of %d: %w", count, err)
		}
	}
	n := c.Size()
	all := make([][2]int16, n)
	if err := comm.AllGather(ctx, c, all, [][2]int16{{int16(c.Rank()), -1}}); err != nil {
		return err
	}
	for r, v := range all {
		if v != [2]int16{int16(r), -1} {
			return fmt.Errorf("AllGather of arrays: [%d] is %v", r, v)
		}
	}
	return nil
}

// structMoves makes each call that moves elements with parts of about count structs.
func structMoves(ctx context.Context, c *comm.Comm, count int) error {
	n, me, root := c.Size(), c.Rank(), c.Size()-1
	counts := uneven(n, count)
	var even, joined, shares []particle // all ranks' elements; root's for this rank
	for r := range n {
		even = append(even, particles(r, 0, count)...)
		joined = append(joined, particles(r, 0, counts[r])...)
	}
	before := ints.Sum(counts[:me])
	shares = particles(root, before, counts[me])
	mine, ragged := particles(me, 0, count), particles(me, 0, counts[me])
	at := func(yes bool, s []particle) []particle {
		if yes {
			return s
		}
		return nil
	}
	check := func(name string, err error, got, want []particle) error {
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("%s of structs is not what its documentation says", name)
		}
		return ran(err, "%s", name)
	}
	got := func(n int) []particle { return make([]particle, n) }

	a, b := got(n*count), got(ints.Sum(counts))
	err := errors.Join(
		check("AllGather", comm.AllGather(ctx, c, a, mine), a, even),
		check("AllGatherV", comm.AllGatherV(ctx, c, b, ragged, counts), b, joined))
	a, b = got(n*count), got(ints.Sum(counts))
	err = errors.Join(err,
		check("Gather", comm.Gather(ctx, c, a, mine, root), at(me == root, a), at(me == root, even)),
		check("GatherV", comm.GatherV(ctx, c, b, ragged, counts, root), at(me == root, b), at(me == root, joined)))
	a, b = got(count), got(counts[me])
	err = errors.Join(err,
		check("Scatter", comm.Scatter(ctx, c, a, at(me == root, particles(root, 0, n*count)), root), a, particles(root, me*count, count)),
		check("ScatterV", comm.ScatterV(ctx, c, b, at(me == root, particles(root, 0, ints.Sum(counts))), counts, root), b, shares))

	var exchanged, swapped []particle
	from, to := make([]int, n), make([]int, n)
	for r := range n {
		exchanged = append(exchanged, particles(r, me*count, count)...)
		from[r], to[r] = sends(r, me, count), sends(me, r, count)
		first := 0
		for q := range me {
			first += sends(r, q, count)
		}
		swapped = append(swapped, particles(r, first, from[r])...)
	}
	a, b = got(n*count), got(ints.Sum(from))
	err = errors.Join(err,
		check("AllToAll", comm.AllToAll(ctx, c, a, particles(me, 0, n*count)), a, exchanged),
		check("AllToAllV", comm.AllToAllV(ctx, c, b, from, particles(me, 0, ints.Sum(to)), to), b, swapped))

	a = slices.Clone(mine)
	err = errors.Join(err, check("Broadcast", comm.Broadcast(ctx, c, a, root), a, particles(root, 0, count)))
	switch {
	case n == 1:
	case me == 0:
		err = errors.Join(err, comm.Send(ctx, c, mine, root))
	case me == root:
		a = got(count)
		err = errors.Join(err, check("Recv", comm.Recv(ctx, c, a, 0), a, particles(0, 0, count)))
	}
	parts, gathered := comm.AllGatherSlices(ctx, c, ragged)
	return errors.Join(err, check("AllGatherSlices", gathered, slices.Concat(parts...), joined))
}

// structReductions reduces structs by a Func.
func structReductions(ctx context.Context, c *comm.Comm, count int) error {
	then, err := comm.NewFunc("then", compose)
	if err != nil {
		return err
	}
	n, me, root := c.Size(), c.Rank(), c.Size()-1
	at := func(r, i int) affine { return affine{int64(1 + (r+i)%3), int64(i - r)} }
	src := make([]affine, n*count)
	for i := range src {
		src[i] = at(me, i)
	}
	for _, try := range []struct {
		name  string
		f     func(dst []affine) error
		first int // the element of the sources that dst begins with
		ranks int // how many are folded
	}{
		{"ReduceFunc", func(dst []affine) error { return comm.ReduceFunc(ctx, c, dst, src[:count], then, root) }, 0, n},
		{"ReduceScatterFunc", func(dst []affine) error { return comm.ReduceScatterFunc(ctx, c, dst, src, then) }, me * count, n},
		{"ScanFunc", func(dst []affine) error { return comm.ScanFunc(ctx, c, dst, src[:count], then) }, 0, me + 1},
		{"ExscanFunc", func(dst []affine) error { return comm.ExscanFunc(ctx, c, dst, src[:count], then) }, 0, me},
	} {
		dst := make([]affine, count)
		if err := try.f(dst); err != nil {
			return err
		}
		if try.name == "ReduceFunc" && me != root || try.ranks == 0 {
			continue
		}
		for i, got := range dst {
			if want := composed(try.ranks, func(r int) affine { return at(r, try.first+i) }); got != want {
				return fmt.Errorf("%s: [%d] is %v, want %v", try.name, i, got, want)
			}
		}
	}
	return nil
}

// refusedElements: elements with pointers, a Func on another type and structs that differ
// between ranks are errors that name the types, on every rank.
func refusedElements(ctx context.Context, world *comm.Comm) error {
	type note struct {
		ID   int
		Text string
	}
	first, err := comm.NewFunc("first", func(a, _ particle) particle { return a })
	if err != nil {
		return err
	}
	type other [2]int64
	for _, try := range []struct {
		call func(c *comm.Comm) error
		want []string
	}{
		{func(c *comm.Comm) error { return comm.Broadcast(ctx, c, []note{{}}, 0) }, []string{"commtest.note holds a pointer (Text.string)"}},
		{func(c *comm.Comm) error { return comm.Broadcast(ctx, c, []string{""}, 0) }, []string{"string holds a pointer"}},
		{func(c *comm.Comm) error { return comm.Broadcast(ctx, c, []struct{}{{}}, 0) }, []string{"struct {} has no bytes"}},
		{func(c *comm.Comm) error { return comm.AllReduceFunc(ctx, c, []other{{}}, first) }, []string{"commtest.other", "commtest.particle"}},
		{func(c *comm.Comm) error { return comm.GatherV(ctx, c, make([]particle, 3), nil, []int{1}, 0) }, []string{"dstCounts", "particle"}},
		{func(c *comm.Comm) error {
			return c.Do(ctx, comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum, Dst: comm.Of([]particle{}), Src: comm.Of([]particle{})})
		}, []string{"sum is not defined on commtest.particle"}},
	} {
		c, err := dup(ctx, world)
		if err != nil {
			return err
		}
		if try.want[0] == "dstCounts" && c.Size() == 1 {
			continue
		}
		err = try.call(c)
		for _, text := range try.want {
			if err == nil || !strings.Contains(err.Error(), text) && !(text == "dstCounts" || c.Rank() > 0) {
				return fmt.Errorf("got %v, want an error with %q", err, text)
			}
		}
	}
	if world.Size() == 1 {
		return nil
	}
	return breaking(ctx, world, func(c *comm.Comm) error {
		var err error
		if c.Rank() == 0 {
			err = comm.Broadcast(ctx, c, make([][4]int64, 3), 0)
		} else {
			err = comm.Broadcast(ctx, c, make([]particle, 4), 0) // as many bytes
		}
		if err == nil {
			err = comm.Barrier(ctx, c)
		}
		return want(err, comm.ErrMismatch)
	})
}

// locations: MinLoc and MaxLoc find the first of the extreme values, and NaN.
func locations(ctx context.Context, c *comm.Comm) error {
	n, me := c.Size(), c.Rank()
	low, high := comm.MinLoc[float64](), comm.MaxLoc[float64]()
	for _, count := range []int{1, 5, 3000} {
		for _, try := range []struct {
			f    *comm.Func
			sign float64
		}{{low, -1}, {high, 1}} {
			buf := make([]comm.Loc[float64], count)
			for i := range buf {
				buf[i] = comm.Loc[float64]{Value: try.sign * float64((me+i)%n/2), Index: int64(me)}
			}
			if me == n/2 {
				buf[0].Value = math.NaN()
			}
			if err := comm.AllReduceFunc(ctx, c, buf, try.f); err != nil {
				return err
			}
			if buf[0].Value == buf[0].Value || buf[0].Index != int64(n/2) {
				return fmt.Errorf("of values with NaN on rank %d: got %v", n/2, buf[0])
			}
			for i, got := range buf[1:] {
				best := 0
				for r := range n {
					if (r+i+1)%n/2 > (best+i+1)%n/2 {
						best = r
					}
				}
				if want := (comm.Loc[float64]{Value: try.sign * float64((best+i+1)%n/2), Index: int64(best)}); got != want {
					return fmt.Errorf("[%d] of %d is %v, want %v", i+1, count, got, want)
				}
			}
		}
	}
	return nil
}
