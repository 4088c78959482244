package device_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/comm/device"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/testenv"
)

// Devices fold after a trial that succeeded on all ranks, and on none otherwise; every
// rank gives the same reason, nothing is left of the rooms, and the world goes on.
func TestTryFold(t *testing.T) {
	on := func(rank int, f func(p *peer)) func(r int, p *peer) {
		return func(r int, p *peer) {
			if r == rank {
				f(p)
			}
		}
	}
	for _, test := range []struct {
		name    string
		change  func(rank int, p *peer)
		problem string // of rank 2
		peers   bool
		want    string // how the reason begins
	}{
		{"works", func(int, *peer) {}, "", true, ""},
		{"no memory", on(1, func(p *peer) { p.allocErr = errors.New("out of memory") }), "", true, "rank 1: a trial failed: out of memory"},
		{"wrong bits", on(2, func(p *peer) { p.miscount = true }), "", true, "rank 2: a trial failed: sum of float32 of 3 ranks: element "},
		{"not wanted", func(int, *peer) {}, "GORUN_CUDA_FOLD is 0", true, "rank 2: GORUN_CUDA_FOLD is 0"},
		{"no windows", func(int, *peer) {}, "", false, "rank 0: devices exchange no memory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			noError(t, onPeers(3, test.change, func(world *comm.Comm, p *peer) error {
				ctx := t.Context()
				if test.peers {
					if reason, err := device.TryPeers(ctx, world, "", window); err != nil || reason != "" {
						return fmt.Errorf("got %q, %v", reason, err)
					}
				}
				problem := ""
				if world.Rank() == 2 {
					problem = test.problem
				}
				reason, err := device.TryFold(ctx, world, problem, window/4)
				if err != nil || (reason == "") != (test.want == "") || !strings.HasPrefix(reason, test.want) {
					return fmt.Errorf("got %q, %v, want %q", reason, err, test.want)
				}
				if test.want != "" && p.used > 0 {
					return fmt.Errorf("%d bytes of the device are left", p.used)
				}
				return reduces(ctx, world, &p.far, comm.Float32, comm.Sum, 50, test.want == "")
			}))
		})
	}
}

// Devices that read each other's memory, and those whose addresses the backend takes,
// fold to the bits of the same call on memory of the host: every type and operation,
// counts of one piece and of several, in groups, some of them of one rank.
func TestFolds(t *testing.T) {
	folds := func(world *comm.Comm, f *far) error {
		ctx := t.Context()
		if reason, err := device.TryFold(ctx, world, "", window/4); err != nil || reason != "" {
			return fmt.Errorf("TryFold: %q, %v", reason, err)
		}
		groups := []*comm.Comm{world}
		for _, color := range []int{world.Rank() % 2, world.Rank() / 3} {
			g, err := world.Split(ctx, color, -world.Rank())
			if err != nil {
				return err
			}
			groups = append(groups, g)
		}
		for i, g := range groups {
			counts := []int{0, 1, 5, 37, 200}
			if i > 0 || testing.Short() {
				counts = []int{5, 38}
			}
			for d := comm.Float32; d.Valid(); d++ {
				for op := comm.Sum; op <= comm.Xor; op++ {
					if op.Accepts(d) != nil {
						continue
					}
					for _, count := range counts {
						if err := reduces(ctx, g, f, d, op, count, true); err != nil {
							return fmt.Errorf("%d ranks: %w", g.Size(), err)
						}
					}
				}
			}
		}
		return nil
	}
	for _, n := range testenv.Fewer([]int{2, 3, 5}, 1) {
		t.Run(fmt.Sprintf("windows/%d", n), func(t *testing.T) {
			noError(t, onPeers(n, func(_ int, p *peer) { p.memory = make([]float32, 1<<13) }, func(world *comm.Comm, p *peer) error {
				if reason, err := device.TryPeers(t.Context(), world, "", window); err != nil || reason != "" {
					return fmt.Errorf("TryPeers: %q, %v", reason, err)
				}
				return folds(world, &p.far)
			}))
		})
		t.Run(fmt.Sprintf("addresses/%d", n), func(t *testing.T) {
			onAware(t, n, func(int, *aware) {}, func(world *comm.Comm, a *aware) error {
				if reason, err := device.TryDirect(t.Context(), world, "", a.room); err != nil || reason != "" {
					return fmt.Errorf("TryDirect: %q, %v", reason, err)
				}
				return folds(world, a.f)
			})
		})
	}
}

// onFolds runs f on n ranks whose devices read each other's memory and fold.
func onFolds(ctx context.Context, n int, f func(world *comm.Comm, p *peer) error) []error {
	return onPeers(n, func(_ int, p *peer) { p.memory = make([]float32, 1<<13) }, func(world *comm.Comm, p *peer) error {
		if reason, err := device.TryPeers(ctx, world, "", window); err != nil || reason != "" {
			return fmt.Errorf("TryPeers: %q, %v", reason, err)
		}
		if reason, err := device.TryFold(ctx, world, "", window/4); err != nil || reason != "" {
			return fmt.Errorf("TryFold: %q, %v", reason, err)
		}
		return f(world, p)
	})
}

// Calls of several communicators at once share the rooms and the windows: some find
// none and are staged.
func TestFoldsAtOnce(t *testing.T) {
	noError(t, onFolds(t.Context(), 3, func(world *comm.Comm, p *peer) error {
		ctx := t.Context()
		const groups, count = 5, 100
		pending := make([]*comm.Pending, groups)
		of, err := splits(ctx, world, groups)
		if err != nil {
			return err
		}
		for round := range 30 {
			for i, g := range of {
				x := p.memory[i*count : (i+1)*count]
				for k := range x {
					x[k] = float32(world.Rank() * (round*1000 + i*100 + k))
				}
				pending[i] = g.Start(ctx, comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum, Dst: comm.Of(x), Src: comm.Of(x)})
			}
			for i := range pending {
				if err := pending[i].Wait(); err != nil {
					return err
				}
				for k, v := range p.memory[i*count : (i+1)*count] {
					if want := float32(3 * (round*1000 + i*100 + k)); v != want {
						return fmt.Errorf("round %d, group %d: element %d is %v, want %v", round, i, k, v, want)
					}
				}
			}
		}
		return nil
	}))
}

// If one rank's buffer is in host memory, the call is staged on all ranks. Ranks whose calls
// differ get an error that says so and names the lines. A rank that fails, or does not come,
// ends the call on all.
func TestFoldsThatDoNotAgree(t *testing.T) {
	noError(t, onFolds(t.Context(), 3, func(world *comm.Comm, p *peer) error {
		x := p.memory[:50]
		if world.Rank() == 1 {
			x = make([]float32, 50)
		}
		for i := range x {
			x[i] = float32(world.Rank() + i)
		}
		p.folds.Store(0)
		if err := comm.AllReduce(t.Context(), world, x, comm.Sum); err != nil || x[49] != 150 || p.folds.Load() > 0 {
			return fmt.Errorf("got %v after %d folds, %v", x[49], p.folds.Load(), err)
		}
		return nil
	}))
	sum := func(x []float32) comm.Call {
		return comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum, Dst: comm.Of(x), Src: comm.Of(x)}
	}
	for _, test := range []struct {
		name string
		run  func(ctx context.Context, world *comm.Comm, p *peer) error
		want []string // in every rank's error
		is   error
	}{
		{"counts", func(ctx context.Context, world *comm.Comm, p *peer) error {
			return world.Do(ctx, sum(p.memory[:50+world.Rank()/2]))
		}, []string{"AllReduce sum float32[50] at device/fold_test.go", "AllReduce sum float32[51] at device/fold_test.go"},
			comm.ErrMismatch},
		{"counts of calls that were started", func(ctx context.Context, world *comm.Comm, p *peer) error {
			return world.Start(ctx, sum(p.memory[:50+world.Rank()/2])).Wait()
		}, []string{"AllReduce sum float32[50] at device/fold_test.go", "AllReduce sum float32[51] at device/fold_test.go"},
			comm.ErrMismatch},
		{"a call by its steps", func(ctx context.Context, world *comm.Comm, p *peer) error {
			if world.Rank() == 0 {
				return comm.AllToAll(ctx, world, p.memory[:60], p.memory[100:160])
			}
			return comm.AllReduce(ctx, world, p.memory[:60], comm.Sum)
		}, []string{"AllReduce sum float32[60]", "AllToAll float32[60]"}, comm.ErrMismatch},
		{"a fold fails", func(ctx context.Context, world *comm.Comm, p *peer) error {
			if world.Rank() == 2 {
				p.foldErr = errors.New("an illegal address")
			}
			return comm.AllReduce(ctx, world, p.memory[:100], comm.Sum)
		}, []string{"an illegal address"}, nil},
		{"one does not come", func(ctx context.Context, world *comm.Comm, p *peer) error {
			if world.Rank() == 2 {
				return errors.New("not this time")
			}
			return comm.AllReduce(ctx, world, p.memory[:100], comm.Sum)
		}, []string{"not this time"}, nil},
		{"one is late", func(ctx context.Context, world *comm.Comm, p *peer) error {
			if world.Rank() == 2 {
				time.Sleep(50 * time.Millisecond)
			} else {
				var cancel func()
				ctx, cancel = context.WithTimeout(ctx, 20*time.Millisecond)
				defer cancel()
			}
			return comm.AllReduce(ctx, world, p.memory[:100], comm.Sum)
		}, []string{context.DeadlineExceeded.Error()}, nil},
	} {
		for r, err := range onFolds(t.Context(), 3, func(world *comm.Comm, p *peer) error { return test.run(t.Context(), world, p) }) {
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) || test.is != nil && !errors.Is(err, test.is) {
					t.Errorf("%s: rank %d: %v, want %q", test.name, r, err, want)
				}
			}
		}
	}
}

// reduces makes reductions of all kinds on device memory and compares them with the same
// calls on host memory. It checks that the device folded, that nothing went through the
// host, and that each reduction counts as one call.
func reduces(ctx context.Context, c *comm.Comm, f *far, d comm.DType, op comm.Op, count int, folds bool) error {
	n, me := c.Size(), c.Rank()
	rng := rand.New(rand.NewPCG(uint64(me), uint64(count)))
	counts := make([]int, n)
	for q := range counts {
		counts[q] = (q + 1) % 3 * count // 0 among them
	}
	only := func(rank int) int {
		if me == rank {
			return count
		}
		return 0
	}
	total := 0
	for _, k := range counts {
		total += k
	}
	for _, t := range []struct {
		call     comm.Call
		dst, src int
	}{
		{comm.Call{Kind: comm.AllReduceKind}, count, count},
		{comm.Call{Kind: comm.AllReduceKind}, -1, count}, // in place
		{comm.Call{Kind: comm.ReduceKind}, only(0), count},
		{comm.Call{Kind: comm.ReduceKind, Root: n - 1}, only(n - 1), count},
		{comm.Call{Kind: comm.ReduceScatterKind}, count, n * count},
		{comm.Call{Kind: comm.ReduceScatterVKind, SrcCounts: counts}, counts[me], total},
	} {
		what := fmt.Sprintf("%v %v of %v[%d]", t.call.Kind, op, d, count)
		near := [2]comm.Buffer{blank(max(t.dst, 0), d), blank(t.src, d)}
		there := [2]comm.Buffer{{Ptr: unsafe.Pointer(&f.memory[0]), Count: max(t.dst, 0), DType: d},
			{Ptr: unsafe.Pointer(&f.memory[len(f.memory)/2]), Count: t.src, DType: d}}
		noise(rng, near[1])
		clear(there[0].Data())
		clear(there[1].Data())
		f.queued = append(f.queued, func() { copy(there[1].Data(), near[1].Data()) })
		if t.dst < 0 {
			there[0] = there[1]
		}
		f.copied.Store(0)
		f.folds.Store(0)
		call := t.call
		call.Op, call.Dst, call.Src = op, there[0], there[1]
		if err := commtest.Expect(c, fmt.Sprintf("%v×1 %d B", call.Kind, call.Bytes()), func() error { return c.Do(ctx, call) }); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		for _, do := range f.queued { // a call without elements left it
			do()
		}
		f.queued = nil
		folded, copied := f.folds.Load() > 0, f.copied.Load()
		sent := near[1]
		if t.dst < 0 {
			near[0] = near[1]
			sent = blank(t.src, d)
			copy(sent.Data(), near[1].Data())
		}
		call.Dst, call.Src = near[0], near[1]
		if err := c.Do(ctx, call); err != nil {
			return fmt.Errorf("%s on the host: %w", what, err)
		}
		if i, ok := differ(there[0], near[0]); ok {
			return fmt.Errorf("%s: element %d is %x on the device, want %x", what, i, there[0].Slice(i, i+1).Data(), near[0].Slice(i, i+1).Data())
		}
		if i, ok := differ(there[1], sent); ok && t.dst >= 0 {
			return fmt.Errorf("%s: element %d of what was handed in has changed", what, i)
		}
		large := folds && t.src > 0
		if large && copied > 0 || !folds && t.src > 0 && copied == 0 {
			return fmt.Errorf("%s: %d copies to or from the host, the device folds: %v", what, copied, folds)
		}
		mine := t.src >= n // every rank has a share of it, or it is known
		if t.call.Kind == comm.ReduceScatterVKind {
			mine = t.dst > 0
		}
		if mine && folded != (large && n > 1) || !large && folded {
			return fmt.Errorf("%s: the device folded: %v", what, folded)
		}
		if f.open.Load() != 0 {
			return fmt.Errorf("%s: copies were not closed", what)
		}
	}
	return nil
}

// blank returns memory of the host for n elements.
func blank(n int, d comm.DType) comm.Buffer {
	words := make([]uint64, n+1) // aligned for any
	return comm.Buffer{Ptr: unsafe.Pointer(&words[0]), Count: n, DType: d}
}

// noise fills b with random elements, some of them NaN or infinite.
func noise(rng *rand.Rand, b comm.Buffer) {
	data, size := b.Data(), b.DType.Size()
	for i := range data {
		data[i] = byte(rng.Uint32())
		switch {
		case b.DType == comm.Bool:
			data[i] &= 1
		case b.DType.Float() && i%size == size-1 && rng.IntN(16) > 0:
			data[i] &^= 0x40 // below 2
		}
	}
}

// differ returns the first element in which two buffers differ. All NaNs are equal.
func differ(a, b comm.Buffer) (i int, ok bool) {
	nan := func(b comm.Buffer) bool {
		switch b.DType {
		case comm.Float32:
			x := *(*float32)(b.Ptr)
			return x != x
		case comm.Float64:
			x := *(*float64)(b.Ptr)
			return x != x
		case comm.Float16:
			x := (*(*dtype.F16)(b.Ptr)).Float32()
			return x != x
		case comm.BFloat16:
			x := (*(*dtype.BF16)(b.Ptr)).Float32()
			return x != x
		}
		return false
	}
	for i := range a.Count {
		if x, y := a.Slice(i, i+1), b.Slice(i, i+1); !slices.Equal(x.Data(), y.Data()) && !(nan(x) && nan(y)) {
			return i, true
		}
	}
	return 0, false
}
