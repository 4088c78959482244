package commtest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/invariant"
)

// affine is x → a·x+b: composing them is associative but not commutative.
type affine struct{ a, b int64 }

// composed returns what ranks 0, 1, … of n hold for one element, folded by compose.
func composed(n int, at func(r int) affine) affine {
	f := at(0)
	for r := 1; r < n; r++ {
		f = compose(f, at(r))
	}
	return f
}

func compose(f, g affine) affine { return affine{f.a * g.a, g.a*f.b + g.b} }

// customParts reduces by an operation of the test's own to one rank, to each rank its
// part, even and uneven, and to each rank what the ranks up to it have.
func customParts(ctx context.Context, c *comm.Comm) error {
	then, err := comm.NewFunc("then", compose)
	if err != nil {
		return err
	}
	n, me := c.Size(), c.Rank()
	const unit = 16 // bytes of an affine
	at := func(r, i int) affine { return affine{int64(1 + (r+i)%3), int64(i - r)} }
	for _, count := range []int{0, 1, 90, 4000} {
		counts := uneven(n, count)
		inBytes := make([]int, n)
		for r, k := range counts {
			inBytes[r] = k * unit
		}
		for _, try := range []struct {
			call         comm.Call
			src, dst, lo int // elements, and the first of the result
			ranks        int // that are folded
		}{
			{comm.Call{Kind: comm.ReduceKind, Root: n - 1}, count, count, 0, n},
			{comm.Call{Kind: comm.ReduceScatterKind}, n * count, count, me * count, n},
			{comm.Call{Kind: comm.ReduceScatterVKind, SrcCounts: inBytes}, ints.Sum(counts), counts[me], ints.Sum(counts[:me]), n},
			{comm.Call{Kind: comm.ScanKind}, count, count, 0, me + 1},
			{comm.Call{Kind: comm.ExscanKind}, count, count, 0, me},
		} {
			src, dst := make([]affine, try.src), make([]affine, try.dst)
			for i := range src {
				src[i] = at(me, i)
			}
			call := try.call
			call.Op, call.Func, call.Src, call.Dst = comm.Custom, then, comm.Raw(src), comm.Raw(dst)
			if err := c.Do(ctx, call); err != nil {
				return err
			}
			if call.Kind == comm.ReduceKind && me != n-1 {
				continue
			}
			for i, got := range dst {
				var want affine // on rank 0 Exscan leaves dst as it was
				if try.ranks > 0 {
					want = composed(try.ranks, func(r int) affine { return at(r, try.lo+i) })
				}
				if got != want {
					return fmt.Errorf("%v: [%d] of %d is %v, want %v", call.Kind, i, try.dst, got, want)
				}
			}
		}
	}
	return nil
}

func customOperations(ctx context.Context, c *comm.Comm) error {
	then, err := comm.NewFunc("then", compose)
	if err != nil {
		return err
	}
	at := func(r, i int) affine { return affine{int64(1 + (r+i)%3), int64(i - r)} }
	for _, n := range []int{0, 1, 5, 300, 20_000} {
		buf := make([]affine, n)
		for i := range buf {
			buf[i] = at(c.Rank(), i)
		}
		if err := comm.AllReduceFunc(ctx, c, buf, then); err != nil {
			return err
		}
		for i, got := range buf {
			if want := composed(c.Size(), func(r int) affine { return at(r, i) }); got != want {
				return fmt.Errorf("[%d] of %d is %v, want %v", i, n, got, want)
			}
		}
	}
	for name, makeFunc := range map[string]func() error{
		"pointer": func() error { _, err := comm.NewFunc("", func(a, _ *int) *int { return a }); return err },
		"string": func() error {
			_, err := comm.NewFunc("", func(a, _ struct{ x [2]string }) struct{ x [2]string } { return a })
			return err
		},
		"nothing": func() error { _, err := comm.NewFunc("", func(a, _ struct{}) struct{} { return a }); return err },
	} {
		if makeFunc() == nil {
			return fmt.Errorf("NewFunc accepted a %s", name)
		}
	}
	return nil
}

// propagatesNaN: minimum and maximum are NaN if any rank's value is.
func propagatesNaN(ctx context.Context, c *comm.Comm) error {
	for _, op := range []comm.Op{comm.Min, comm.Max, comm.Sum} {
		for bad := range c.Size() {
			buf := make([]float32, 40)
			for i := range buf {
				buf[i] = float32(i - c.Rank())
			}
			if c.Rank() == bad {
				buf[bad] = float32(math.NaN())
			}
			if err := comm.AllReduce(ctx, c, buf, op); err != nil {
				return err
			}
			for i, x := range buf {
				if (x != x) != (i == bad) {
					return fmt.Errorf("%v with NaN from rank %d: [%d] is %v", op, bad, i, x)
				}
			}
		}
	}
	return nil
}

// outOfPlace is an AllReduce whose Dst is not its Src, on some ranks only.
func outOfPlace(ctx context.Context, c *comm.Comm) error {
	for _, n := range []int{3, 700, 9000} {
		for w := range places {
			a := arena{c: c, where: w}
			src, err := take[int32](&a, n)
			if err != nil {
				return err
			}
			dst := src
			if c.Rank() != 1 {
				if dst, err = take[int32](&a, n); err != nil {
					return err
				}
			}
			for i := range src {
				src[i] = int32(i * (c.Rank() + 1))
			}
			if err := c.Do(ctx, comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum, Dst: comm.Of(dst), Src: comm.Of(src)}); err != nil {
				return err
			}
			for i := range dst {
				if want := int32(i * c.Size() * (c.Size() + 1) / 2); dst[i] != want {
					return fmt.Errorf("%v: dst[%d] is %d, want %d", w, i, dst[i], want)
				}
				if want := int32(i * (c.Rank() + 1)); c.Rank() != 1 && src[i] != want {
					return fmt.Errorf("%v: src[%d] has become %d, was %d", w, i, src[i], want)
				}
			}
			a.free()
		}
	}
	return nil
}

// letters sends around the ring, in both directions, several at a time.
func letters(ctx context.Context, c *comm.Comm) error {
	n, me := c.Size(), c.Rank()
	if n == 1 {
		return nil
	}
	next, before := (me+1)%n, (me+n-1)%n
	for w := range places {
		for _, count := range []int{0, 1, 8, 9, 2000, 150_000} {
			a := arena{c: c, where: w}
			src, dst, err := takeTwo[int32](&a, count)
			if err != nil {
				return err
			}
			for k := range 3 {
				for i := range src {
					src[i] = int32(i + me<<20 + k)
				}
				send := func() error { return comm.Send(ctx, c, src, next) }
				recv := func() error { return comm.Recv(ctx, c, dst, before) }
				if me%2 == 1 || me == n-1 { // somebody must receive first
					send, recv = recv, send
				}
				if err := send(); err != nil {
					return err
				}
				if err := recv(); err != nil {
					return err
				}
				for i := range dst {
					if want := int32(i + before<<20 + k); dst[i] != want {
						return fmt.Errorf("%v: %d elements, message %d: [%d] is %#x, want %#x", w, count, k, i, dst[i], want)
					}
				}
			}
			a.free()
		}
	}
	return nil
}

// randomSequences goes through the collectives in an order and with sizes drawn
// by a fixed seed, the same on all ranks, on the world and on halves of it: each
// call finds what the one before it left behind.
func randomSequences(ctx context.Context, c *comm.Comm) error {
	half, err := c.Split(ctx, c.Rank()%2, 0)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(uint64(c.Size()), 7))
	counts := []int{0, 1, 4, 8, 9, 100, 1023, 1024, 1025, 3000, 20_000}
	if invariant.Enabled { // slow under the race detector
		counts = counts[:9]
	}
	for k := range 40 {
		on := []*comm.Comm{c, half}[rng.IntN(2)]
		t := newTyped[float32](ctx, on, place(rng.IntN(int(places))))
		t.salt = k * 1000
		count := counts[rng.IntN(len(counts))]
		run := []func(int) error{
			func(n int) error { return t.reductions(n, comm.Sum) },
			func(n int) error { return t.reductions(n, comm.Avg) },
			t.gathers, t.scatters, t.exchanges,
		}[rng.IntN(5)]
		err := run(count)
		t.free()
		if err != nil {
			return fmt.Errorf("step %d, on %s, %v: %w", k, on.Name(), t.where, err)
		}
	}
	return nil
}

// aligned reports whether p is a multiple of 64.
func aligned(p unsafe.Pointer) bool { return uintptr(p)%64 == 0 }

// recordedNumbers: the ranks' sides of a collective have one Event.Number, whatever
// messages some of them exchanged before a recording began.
func recordedNumbers(ctx context.Context, world *comm.Comm) error {
	c, err := dup(ctx, world)
	if err != nil {
		return err
	}
	for range 3 {
		switch {
		case c.Size() > 1 && c.Rank() == 0:
			err = comm.Send(ctx, c, []int32{1}, 1)
		case c.Rank() == 1:
			err = comm.Recv(ctx, c, make([]int32, 1), 0)
		}
		if err != nil {
			return err
		}
	}
	recording := c.Record()
	if err := comm.Barrier(ctx, c); err != nil {
		return err
	}
	events := recording.Stop()
	if len(events) != 1 {
		return fmt.Errorf("%d calls were recorded, want 1", len(events))
	}
	numbers := make([]int64, c.Size())
	if err := comm.AllGather(ctx, c, numbers, []int64{int64(events[0].Number)}); err != nil {
		return err
	}
	for r, n := range numbers {
		if n != 1 {
			return fmt.Errorf("the first Barrier has number %d on rank %d, want 1", n, r)
		}
	}
	return nil
}
