package standin_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/mem"
	"github.com/gorun-spmd/gorun/comm/standin"
)

// run runs f on some ranks of a job and returns their errors, in order.
func run(c standin.Config, use func(r *standin.Rank), f func(ctx context.Context, world *comm.Comm) error) []error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if c.For == nil {
		c.For = func(rank int) int { return c.Run[0] }
	}
	ends := standin.Open(c)
	errs := make([]error, len(ends))
	var all sync.WaitGroup
	for i, end := range ends {
		if use != nil {
			use(end)
		}
		all.Go(func() {
			world := comm.NewWorld(end)
			if errs[i] = f(ctx, world); errs[i] != nil {
				world.Abort(errs[i])
				end.End(errs[i].Error())
				return
			}
			end.End("")
		})
	}
	all.Wait()
	return errs
}

func must(t *testing.T, errs []error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// every makes each kind of collective once and returns what this rank got.
func every(ctx context.Context, c *comm.Comm) (got []int64, err error) {
	me, n := int64(c.Rank()), c.Size()
	do := func(dst []int64, call func() error) {
		if err == nil {
			err = call()
			got = append(got, dst...)
		}
	}
	own := []int64{me + 1, 10 * me}
	all := make([]int64, 2*n)
	parts := make([]int64, 2*n)
	counts := make([]int, n)
	ragged := 0
	for r := range n {
		parts[2*r], parts[2*r+1] = me, int64(r)
		counts[r] = r % 3
		ragged += counts[r]
	}
	long := make([]int64, ragged)
	mine := make([]int64, counts[c.Rank()])
	for i := range mine {
		mine[i] = me
	}
	for i := range long {
		long[i] = me + int64(i)
	}
	do(own, func() error { return comm.AllReduce(ctx, c, own, comm.Sum) })
	do(nil, func() error { return comm.Barrier(ctx, c) })
	do(all, func() error { return comm.AllGather(ctx, c, all, own) })
	gathered := make([]int64, ragged)
	do(gathered, func() error { return comm.AllGatherV(ctx, c, gathered, mine, counts) })
	crossed := make([]int64, 2*n)
	do(crossed, func() error { return comm.AllToAll(ctx, c, crossed, parts) })
	part := make([]int64, counts[c.Rank()])
	do(part, func() error { return comm.ReduceScatterV(ctx, c, part, long, counts, comm.Max) })
	two := make([]int64, 2)
	do(two, func() error { return comm.ReduceScatter(ctx, c, two, parts, comm.Sum) })
	do(two, func() error { return comm.Scan(ctx, c, two, own, comm.Sum) })
	do(two, func() error { return comm.Exscan(ctx, c, two, own, comm.Min) })
	do(own, func() error { return comm.Broadcast(ctx, c, own, n-1) })
	do(two, func() error { return comm.Scatter(ctx, c, two, parts, 0) })
	do(nil, func() error { return comm.Reduce(ctx, c, two, own, comm.Sum, 0) })
	if c.Rank() == 0 {
		got = append(got, two...)
	}
	do(nil, func() error { return comm.Gather(ctx, c, all, own, n-1) })
	if c.Rank() == n-1 {
		got = append(got, all...)
	}
	if n > 1 {
		back := make([]int64, 2)
		do(back, func() error { return comm.SendRecv(ctx, c, back, (c.Rank()+n-1)%n, own, (c.Rank()+1)%n) })
	}
	return got, err
}

// both makes every collective on the world and on the groups of two Splits.
func both(ctx context.Context, world *comm.Comm) ([]int64, error) {
	got, err := every(ctx, world)
	for _, place := range []func(r int) (int, int){
		func(r int) (int, int) { return r % 2, r },
		func(r int) (int, int) { return r / 2, -r },
	} {
		if err != nil {
			return nil, err
		}
		group, e := world.Internals().Split(ctx, place)
		if e != nil {
			return nil, e
		}
		more, e := every(ctx, group)
		got, err = append(got, more...), e
	}
	return got, err
}

// Where all ranks run, every call gives what it gives between goroutines.
func TestAllRun(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 8} {
		want := make([][]int64, n)
		var all sync.WaitGroup
		for r, end := range mem.Open(n) {
			all.Go(func() { want[r], _ = both(t.Context(), comm.NewWorld(end)) })
		}
		all.Wait()
		ranks := make([]int, n)
		for r := range ranks {
			ranks[r] = r
		}
		must(t, run(standin.Config{Size: n, Run: ranks}, nil, func(ctx context.Context, world *comm.Comm) error {
			got, err := both(ctx, world)
			if err == nil && (!slices.Equal(got, want[world.Rank()]) || len(got) == 0) {
				return fmt.Errorf("%d ranks, rank %d: got %v, want %v", n, world.Rank(), got, want[world.Rank()])
			}
			return err
		}))
	}
}

// Ranks that do not run are counted, and send what those send that stand in for them.
func TestStandIns(t *testing.T) {
	c := standin.Config{Size: 4096, Run: []int{0, 1, 4095}, For: func(int) int { return 1 }}
	must(t, run(c, nil, func(ctx context.Context, world *comm.Comm) error {
		sum := []int64{1, int64(world.Rank())}
		if err := comm.AllReduce(ctx, world, sum, comm.Sum); err != nil {
			return err
		}
		if want := []int64{4096, 4094 + 4095}; !slices.Equal(sum, want) {
			return fmt.Errorf("sum %v, want %v", sum, want)
		}
		all := make([]int, 4096)
		if err := comm.AllGather(ctx, world, all, []int{world.Rank()}); err != nil {
			return err
		}
		if all[0] != 0 || all[17] != 1 || all[4095] != 4095 {
			return fmt.Errorf("gathered %v", all)
		}
		group, err := world.Internals().Split(ctx, func(r int) (int, int) { return r / 64, r })
		if err != nil {
			return err
		}
		one := []int32{1}
		if err := comm.AllReduce(ctx, group, one, comm.Sum); err != nil || one[0] != 64 || group.Size() != 64 {
			return fmt.Errorf("a group of %d ranks has %d: %v", group.Size(), one[0], err)
		}
		if world.Rank() < 4095 {
			return comm.Send(ctx, world, one, 100) // it does not run
		}
		return nil
	}))
}

// What a rank alone can know that does not run is refused.
func TestUnknown(t *testing.T) {
	for want, f := range map[string]func(ctx context.Context, world *comm.Comm) error{
		"Broadcast needs elements that rank 5 alone has, which does not run; have it run: gorun plan --ranks 5": func(ctx context.Context,
			world *comm.Comm) error {
			return comm.Broadcast(ctx, world, []int{1}, 5)
		},
		"the ranks that do not run may be in any group": func(ctx context.Context, world *comm.Comm) error {
			_, err := world.Split(ctx, world.Rank()%2, 0)
			return err
		},
		"has no one-sided communication": func(ctx context.Context, world *comm.Comm) error {
			_, _, err := world.Internals().OpenWindow(ctx, 8)
			return err
		},
	} {
		for _, err := range run(standin.Config{Size: 8, Run: []int{0, 3, 7}}, nil, f) {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
	}
}

// Elements that are not there do not move, whatever their number.
func TestNumberless(t *testing.T) {
	x := []float32{1}
	p := unsafe.Pointer(&x[0])
	use := func(r *standin.Rank) {
		r.Use(func(q unsafe.Pointer, bytes int) (int, bool) { return bytes, q == p }, nil)
	}
	must(t, run(standin.Config{Size: 4096, Run: []int{0, 4095}}, use, func(ctx context.Context, world *comm.Comm) error {
		huge := comm.Buffer{Ptr: p, Count: 1 << 40, DType: comm.Float32}
		if err := world.Do(ctx, comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum, Dst: huge, Src: huge}); err != nil {
			return err
		}
		all := huge
		all.Count *= 4096
		return world.Do(ctx, comm.Call{Kind: comm.AllToAllKind, Dst: all, Src: all})
	}))
}

// Of bytes that are elements here and there, those move.
func TestNumberlessParts(t *testing.T) {
	srcs := [][]int64{{0, -1, 1}, nil, {2, -1, 3}} // by rank; the -1 are no elements
	use := func(r *standin.Rank) {
		p := unsafe.Pointer(&srcs[r.Rank()][0])
		r.Use(func(q unsafe.Pointer, bytes int) (int, bool) {
			switch at := int(uintptr(q) - uintptr(p)); {
			case at < 0 || at >= 16:
				return bytes, false
			case at < 8:
				return min(bytes, 8-at), false
			default:
				return min(bytes, 16-at), true
			}
		}, nil)
	}
	config := standin.Config{Size: 3, Run: []int{0, 2}, For: func(int) int { return 2 }}
	must(t, run(config, use, func(ctx context.Context, world *comm.Comm) error {
		got := slices.Repeat([]int64{5}, 9)
		dst := comm.Buffer{Ptr: unsafe.Pointer(&got[0]), Count: 72, DType: comm.Uint8}
		err := world.Do(ctx, comm.Call{Kind: comm.AllGatherVKind, Dst: dst, DstCounts: []int{24, 24, 24},
			Src: comm.Buffer{Ptr: unsafe.Pointer(&srcs[world.Rank()][0]), Count: 24, DType: comm.Uint8}})
		if want := []int64{0, 5, 1, 2, 5, 3, 2, 5, 3}; err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("got %v, want %v", got, want)
		}
		return err
	}))
}

// A rank that does not run sends zeros where the one that stands in for it has fewer elements.
func TestShorterStandIn(t *testing.T) {
	config := standin.Config{Size: 3, Run: []int{2}, For: func(int) int { return 2 }}
	must(t, run(config, func(*standin.Rank) {}, func(ctx context.Context, world *comm.Comm) error {
		got := []int64{5, 5, 5, 5, 5}
		err := comm.AllGatherV(ctx, world, got, []int64{1}, []int{3, 1, 1})
		if want := []int64{1, 0, 0, 1, 1}; err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("got %v, want %v", got, want)
		}
		return err
	}))
}

// An error names two ranks, their calls and their lines.
func TestMismatch(t *testing.T) {
	const last = 4095
	for _, c := range []struct {
		name string
		want [2]string
		f    func(ctx context.Context, world *comm.Comm) error
	}{
		{"another call", [2]string{"rank 0 called AllReduce sum int64[1] at standin/standin_test.go:",
			"rank 4095 called Barrier at standin/standin_test.go:"},
			func(ctx context.Context, world *comm.Comm) error {
				if world.Rank() != last {
					if err := comm.AllReduce(ctx, world, []int64{1}, comm.Sum); err != nil {
						return err
					}
				}
				return comm.Barrier(ctx, world)
			}},
		{"another length", [2]string{"rank 0 called AllReduce sum int64[8] at standin/standin_test.go:",
			"rank 4095 called AllReduce sum int64[5] at "},
			func(ctx context.Context, world *comm.Comm) error {
				n := 8
				if world.Rank() == last {
					n = 5 // of a shard that is shorter than the others
				}
				return comm.AllReduce(ctx, world, make([]int64, n), comm.Sum)
			}},
		{"another call on a shorter shard", [2]string{"rank 0 called AllGather int64[1] at standin/standin_test.go:",
			"rank 4095 called AllReduce sum int64[1] at standin/standin_test.go:"},
			func(ctx context.Context, world *comm.Comm) error {
				const rows = 10*(last+1) - 3
				if each := 10; min(each, rows-world.Rank()*each) == each {
					return comm.AllGather(ctx, world, make([]int64, world.Size()), []int64{1})
				}
				return comm.AllReduce(ctx, world, []int64{1}, comm.Sum)
			}},
		{"no more calls", [2]string{"comm: AllReduce sum int64[1] at standin/standin_test.go:",
			"rank 4095 ended: without an error, and its last call was Barrier at standin/standin_test.go:"},
			func(ctx context.Context, world *comm.Comm) error {
				if err := comm.Barrier(ctx, world); err != nil || world.Rank() == last {
					return err
				}
				return comm.AllReduce(ctx, world, []int64{1}, comm.Sum)
			}},
	} {
		errs := run(standin.Config{Size: last + 1, Run: []int{0, 7, last}}, nil, c.f)
		for _, want := range c.want {
			if errs[0] == nil || !strings.Contains(errs[0].Error(), want) {
				t.Errorf("%s: got %v, want %q", c.name, errs[0], want)
			}
		}
	}
}

// A call that one rank leaves out is found where the ranks are in different steps, even if all
// calls look the same.
func TestStep(t *testing.T) {
	steps := map[int]*int{0: new(int), 63: new(int)}
	use := func(r *standin.Rank) { r.Use(nil, func() int { return *steps[r.Rank()] }) }
	errs := run(standin.Config{Size: 64, Run: []int{0, 63}}, use, func(ctx context.Context, world *comm.Comm) error {
		for *steps[world.Rank()] = range 3 {
			for i := range 2 {
				if world.Rank() == 63 && *steps[63] == 1 && i == 0 {
					continue
				}
				if err := comm.AllReduce(ctx, world, []int64{1}, comm.Sum); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if !errors.Is(errs[0], comm.ErrMismatch) || !strings.Contains(errs[0].Error(), "in step 1") ||
		!strings.Contains(errs[0].Error(), "in step 2") {
		t.Errorf("got %v", errs[0])
	}
}

// Ranks that wait for each other fail.
func TestDeadlock(t *testing.T) {
	ends := standin.Open(standin.Config{Size: 100, Run: []int{0, 99}, For: func(int) int { return 0 }})
	defer standin.Watch(ends)()
	errs := make([]error, 2)
	var all sync.WaitGroup
	for i, end := range ends {
		all.Go(func() {
			world := comm.NewWorld(end)
			errs[i] = comm.Recv(t.Context(), world, []int{0}, 99-world.Rank())
		})
	}
	all.Wait()
	var deadlock *mem.DeadlockError
	if !errors.As(errs[0], &deadlock) || !slices.Contains(deadlock.Circle, 99) || !strings.Contains(errs[0].Error(), "standin_test.go:") {
		t.Errorf("got %v", errs[0])
	}
}
