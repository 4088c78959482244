package commtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/window"
	"github.com/gorun-spmd/gorun/internal/dtype"
)

// Windows returns the cases of package comm/window, for backends that have windows.
func Windows() []Case {
	return []Case{
		{"window: put and get", putAndGet[int64]},
		{"window: put and get of bytes", putAndGet[byte]},
		{"window: put and get of structs", putAndGetStructs},
		{"window: much", putMuch},
		{"window: int64", accumulates[int64]},
		{"window: int32", accumulates[int32]},
		{"window: int16", accumulates[int16]},
		{"window: int8", accumulates[int8]},
		{"window: uint64", accumulates[uint64]},
		{"window: uint32", accumulates[uint32]},
		{"window: uint16", accumulates[uint16]},
		{"window: uint8", accumulates[uint8]},
		{"window: int", accumulates[int]},
		{"window: float64", accumulates[float64]},
		{"window: float32", accumulates[float32]},
		{"window: float16", accumulates[dtype.F16]},
		{"window: bfloat16", accumulates[dtype.BF16]},
		{"window: complex64", accumulates[complex64]},
		{"window: bool", accumulates[bool]},
		{"window: fetch", fetches},
		{"window: swap", swaps},
		{"window: locks", locks},
		{"window: memory as a slice", sharedMemory},
		{"window: several at once", severalWindows},
		{"window: counter and queue", queues},
		{"window: misuse", windowMisuse},
		{"window: more than the machine has", windowBeyond},
		{"window: a lock is waited for in vain", lockInVain},
		{"window: counted", windowCounted},
	}
}

// drawn is a random number generator that is the same on all ranks.
func drawn(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 27)) }

// lengthOf is how many elements rank r has: none on some.
func lengthOf(r int) int { return []int{37, 0, 5, 120}[r%4] }

// putAndGet: ranks put into random parts of each other's memory, in turns between which all
// read everything. The model is all ranks' memory.
func putAndGet[T int64 | byte](ctx context.Context, world *comm.Comm) error {
	n, me := world.Size(), world.Rank()
	w, err := window.New[T](ctx, world, lengthOf(me))
	if err != nil {
		return err
	}
	model := make([][]T, n)
	for r := range model {
		model[r] = make([]T, lengthOf(r))
		if w.Len(r) != lengthOf(r) {
			return fmt.Errorf("rank %d has %d elements, want %d", r, w.Len(r), lengthOf(r))
		}
	}
	random := drawn(uint64(n))
	for turn := range 10 {
		for to := range model { // each rank's memory is divided among those that put into it
			cuts := []int{0, len(model[to])}
			for range n - 1 {
				cuts = append(cuts, random.IntN(len(model[to])+1))
			}
			slices.Sort(cuts)
			for from := range n {
				part := model[to][cuts[from]:cuts[from+1]]
				for i := range part {
					part[i] = T(random.IntN(100))
				}
				if from == me {
					if err := w.Put(to, cuts[from], part); err != nil {
						return err
					}
				}
			}
		}
		if err := w.Fence(ctx); err != nil {
			return err
		}
		for r, want := range model {
			at := random.IntN(len(want) + 1)
			got := make([]T, len(want)-at)
			if err := w.Get(r, at, got); err != nil {
				return err
			}
			if !slices.Equal(got, want[at:]) {
				return fmt.Errorf("turn %d: rank %d has %v from %d on, want %v", turn, r, got, at, want[at:])
			}
		}
		if !slices.Equal(w.Local(), model[me]) {
			return fmt.Errorf("turn %d: Local is %v, want %v", turn, w.Local(), model[me])
		}
		if err := w.Fence(ctx); err != nil {
			return err
		}
	}
	return w.Close(ctx)
}

func putAndGetStructs(ctx context.Context, world *comm.Comm) error {
	type particle struct {
		at   [3]float64
		kind int8
	}
	n, me := world.Size(), world.Rank()
	w, err := window.New[particle](ctx, world, n)
	if err != nil {
		return err
	}
	for r := range n {
		if err := w.Put(r, me, []particle{{at: [3]float64{float64(me), float64(r)}, kind: int8(me)}}); err != nil {
			return err
		}
	}
	if err := w.Fence(ctx); err != nil {
		return err
	}
	got := make([]particle, n)
	last := (me + 1) % n
	if err := w.Get(last, 0, got); err != nil {
		return err
	}
	for r, p := range got {
		if want := (particle{at: [3]float64{float64(r), float64(last)}, kind: int8(r)}); p != want {
			return fmt.Errorf("rank %d has %v from rank %d, want %v", last, p, r, want)
		}
	}
	if err := want(w.Accumulate(0, 0, got[:1], comm.Sum), nil, "has no atomic operations"); err != nil {
		return err
	}
	return w.Close(ctx)
}

// putMuch: several MiB to the next rank and back.
func putMuch(ctx context.Context, world *comm.Comm) error {
	const length = 1<<20 + 3
	n, me := world.Size(), world.Rank()
	w, err := window.New[int32](ctx, world, length)
	if err != nil {
		return err
	}
	src, dst := make([]int32, length), make([]int32, length)
	for i := range src {
		src[i] = int32(i + me)
	}
	if err := w.Put((me+1)%n, 0, src); err != nil {
		return err
	}
	if err := w.Flush((me + 1) % n); err != nil {
		return err
	}
	if err := w.Get((me+1)%n, 0, dst); err != nil {
		return err
	}
	if !slices.Equal(dst, src) {
		return errors.New("what Get returns is not what this rank has put")
	}
	if err := w.Fence(ctx); err != nil {
		return err
	}
	if from := (me + n - 1) % n; w.Local()[length-1] != int32(length-1+from) {
		return fmt.Errorf("the last element is %d, want %d", w.Local()[length-1], length-1+from)
	}
	return w.Close(ctx)
}

// windowBeyond: the last rank asks for more memory than a machine has; all ranks get the same
// error, and can go on.
func windowBeyond(ctx context.Context, world *comm.Comm) error {
	length, last := 1, world.Size()-1
	if world.Rank() == last {
		length = math.MaxInt / 4
	}
	_, err := window.New[byte](ctx, world, length)
	if want := fmt.Sprintf("rank %d asks for ", last); err == nil || !strings.Contains(err.Error(), want) {
		return fmt.Errorf("got %v, want %q", err, want)
	}
	return comm.Barrier(ctx, world)
}

// locks: under a lock ranks change two elements of one rank together, by Get and Put; who reads
// under a shared lock sees both or neither.
func locks(ctx context.Context, world *comm.Comm) error {
	const times = 12
	n, me := world.Size(), world.Rank()
	w, err := window.New[int64](ctx, world, 2)
	if err != nil {
		return err
	}
	pair := make([]int64, 2)
	for i := range times {
		to := (i + me) % n
		mode := window.Exclusive
		if i%2 == 1 {
			mode = window.Shared
		}
		if err := w.Lock(ctx, to, mode); err != nil {
			return err
		}
		if err := w.Get(to, 0, pair); err != nil {
			return err
		}
		if pair[0] != pair[1] {
			return fmt.Errorf("under a lock the elements are %v", pair)
		}
		if mode == window.Exclusive {
			if err := errors.Join(w.Put(to, 0, []int64{pair[0] + 1}), w.Put(to, 1, []int64{pair[1] + 1})); err != nil {
				return err
			}
		}
		if err := w.Unlock(to); err != nil {
			return err
		}
	}
	if err := w.Fence(ctx); err != nil {
		return err
	}
	sum, err := total(ctx, world, int(w.Local()[0]))
	if err != nil || sum != n*times/2 {
		return fmt.Errorf("the ranks have added %d under locks, want %d; %w", sum, n*times/2, err)
	}
	m, err := window.NewMutex(ctx, world)
	if err != nil {
		return err
	}
	w.Local()[0] = 0
	if err := w.Fence(ctx); err != nil {
		return err
	}
	for range 10 {
		if err := m.Lock(ctx); err != nil {
			return err
		}
		if err := w.Get(0, 0, pair[:1]); err != nil {
			return err
		}
		if err := errors.Join(w.Put(0, 0, []int64{pair[0] + 1}), w.Flush(0), m.Unlock()); err != nil {
			return err
		}
	}
	if err := w.Fence(ctx); err != nil {
		return err
	}
	if got := w.Local()[0]; me == 0 && got != int64(10*n) {
		return fmt.Errorf("the ranks have counted to %d under a mutex, want %d", got, 10*n)
	}
	return errors.Join(m.Close(ctx), w.Close(ctx))
}

// sharedMemory: where another rank's memory is a slice, it is the memory that Put changes.
func sharedMemory(ctx context.Context, world *comm.Comm) error {
	n, me := world.Size(), world.Rank()
	w, err := window.New[int32](ctx, world, 3)
	if err != nil {
		return err
	}
	next := (me + 1) % n
	if s, ok := w.Shared(next); ok {
		s[2] = int32(me)
	} else if err := w.Put(next, 2, []int32{int32(me)}); err != nil {
		return err
	}
	if err := w.Fence(ctx); err != nil {
		return err
	}
	if got, want := w.Local(), []int32{0, 0, int32((me + n - 1) % n)}; !slices.Equal(got, want) {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	if _, ok := w.Shared(n); ok {
		return fmt.Errorf("Shared(%d) of %d ranks is some memory", n, n)
	}
	return w.Close(ctx)
}

// severalWindows: on a world and its halves, beside collectives.
func severalWindows(ctx context.Context, world *comm.Comm) error {
	half, err := world.Split(ctx, world.Rank()%2, 0)
	if err != nil {
		return err
	}
	a, err := window.New[int64](ctx, world, 1)
	if err != nil {
		return err
	}
	b, err := window.New[int64](ctx, half, 1)
	if err != nil {
		return err
	}
	for range 10 {
		if _, err := a.FetchAndAdd(0, 0, 1); err != nil {
			return err
		}
		if _, err := b.FetchAndAdd(half.Size()-1, 0, 1); err != nil {
			return err
		}
		if _, err := total(ctx, world, 1); err != nil {
			return err
		}
	}
	if err := errors.Join(a.Fence(ctx), b.Fence(ctx)); err != nil {
		return err
	}
	if got := a.Local()[0]; world.Rank() == 0 && got != int64(10*world.Size()) {
		return fmt.Errorf("the world has counted %d", got)
	}
	if got := b.Local()[0]; half.Rank() == half.Size()-1 && got != int64(10*half.Size()) {
		return fmt.Errorf("the half has counted %d", got)
	}
	return errors.Join(b.Close(ctx), a.Close(ctx))
}

// queues: each number of a queue goes to one rank.
func queues(ctx context.Context, world *comm.Comm) error {
	for _, n := range []int{0, 1, 17} {
		seen := make([]int32, n)
		for i, err := range window.Queue(ctx, world, n) {
			if err != nil {
				return err
			}
			seen[i]++
		}
		if err := comm.AllReduce(ctx, world, seen, comm.Sum); err != nil {
			return err
		}
		for i, times := range seen {
			if times != 1 {
				return fmt.Errorf("job %d of %d was dealt out %d times", i, n, times)
			}
		}
	}
	last := world.Rank() == world.Size()-1
	for i, err := range window.Queue(ctx, world, 3+min(1, world.Rank())) {
		if world.Size() == 1 && err == nil {
			continue
		}
		const says = "of 3 to 4 on all; give all the same (at commtest/window.go:"
		if i != -1 || !errors.Is(err, comm.ErrMismatch) || !strings.Contains(err.Error(), says) {
			return fmt.Errorf("queues of several lengths: job %d, %w", i, err)
		}
	}
	// A rank that leaves ends the queue.
	const endless = 1 << 40
	for i, err := range window.Queue(ctx, world, endless) {
		if err != nil {
			return err
		}
		if i >= 9 && last {
			break
		}
	}
	c, err := window.NewCounter(ctx, world)
	if err != nil {
		return err
	}
	if _, err := c.Add(int64(world.Rank() + 1)); err != nil {
		return err
	}
	if err := comm.Barrier(ctx, world); err != nil {
		return err
	}
	if sum, err := c.Load(); err != nil || sum != int64(world.Size()*(world.Size()+1)/2) {
		return fmt.Errorf("the counter is %d, %w", sum, err)
	}
	return c.Close(ctx)
}
