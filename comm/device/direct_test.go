package device_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/device"
	"github.com/gorun-spmd/gorun/comm/mem"
)

// aware is a backend that takes the addresses of a far device.
type aware struct {
	comm.Backend
	f       *far
	support string
	spoils  bool  // what arrives is wrong
	fails   error // calls do
	handed  *int
}

func (a *aware) DeviceSupport() string { return a.support }

func (a *aware) Split(ctx context.Context, members []int) (comm.Backend, error) {
	b, err := a.Backend.Split(ctx, members)
	if err != nil || b == nil {
		return b, err
	}
	part := *a
	part.Backend = b
	return &part, nil
}

func (a *aware) Do(ctx context.Context, call *comm.Call) error {
	if a.f.holds(call.Dst) || a.f.holds(call.Src) {
		return fmt.Errorf("%v has device memory", call)
	}
	return a.Backend.Do(ctx, call)
}

func (a *aware) DoDevice(ctx context.Context, call *comm.Call, copy func(dst, src comm.Buffer) error) error {
	switch {
	case a.f.entered.Load() == 0:
		return errors.New("the device is not that of the thread")
	case a.fails != nil:
		return a.fails
	}
	*a.handed++
	if call.Kind == comm.AllGatherKind { // as a backend that leaves this rank's part to the device
		if err := copy(call.Dst.Slice(a.Rank()*call.Src.Count, (a.Rank()+1)*call.Src.Count), call.Src); err != nil {
			return err
		}
	}
	err := a.Backend.Do(ctx, call)
	if a.spoils && call.Dst.Count > 0 {
		call.Dst.Data()[call.Dst.Bytes()-1]++
	}
	return err
}

func (f *far) holds(b comm.Buffer) bool { return b.Count > 0 && f.Holds(b.Ptr) }

// onAware runs f on n ranks whose backends change makes.
func onAware(t *testing.T, n int, change func(rank int, a *aware), f func(world *comm.Comm, a *aware) error) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, n)
	for r, b := range mem.Open(n) {
		a := &aware{Backend: b, f: &far{memory: make([]float32, 3<<20)}, handed: new(int)}
		change(r, a)
		wg.Go(func() {
			defer b.End("its test ended")
			world := comm.NewWorld(a)
			device.UseStage(world, a.f)
			if errs[r] = f(world, a); errs[r] != nil {
				world.Abort(errs[r])
			}
		})
	}
	wg.Wait()
	for r, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

func (a *aware) room(bytes int) (unsafe.Pointer, error) {
	if bytes > 4*len(a.f.memory) {
		return nil, fmt.Errorf("%d bytes of device memory are wanted", bytes)
	}
	return unsafe.Pointer(&a.f.memory[0]), nil
}

// Addresses go to the backend after a trial that succeeded on all ranks, and on none
// otherwise; every rank gives the same reason, and the world goes on.
func TestTryDirect(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(rank int, a *aware)
		want   string // part of the reason
	}{
		{"works", func(int, *aware) {}, ""},
		{"one library says no", func(r int, a *aware) {
			if r == 1 {
				a.support = "libmpi is not CUDA-aware"
			}
		}, "rank 1: libmpi is not CUDA-aware"},
		{"wrong bytes on one rank", func(r int, a *aware) { a.spoils = r == 2 },
			"rank 2: a trial failed: of 64 bytes of rank 1's device memory not all arrived"},
		{"a call fails on one rank", func(r int, a *aware) {
			if r == 0 {
				a.fails = errors.New("an invalid address")
			}
		}, "rank 0: a trial failed: "},
	} {
		for _, n := range []int{3, 4} {
			t.Run(fmt.Sprintf("%s, %d ranks", test.name, n), func(t *testing.T) {
				onAware(t, n, test.change, func(world *comm.Comm, a *aware) error {
					ctx := t.Context()
					reason, err := device.TryDirect(ctx, world, "", a.room)
					if err != nil || (reason == "") != (test.want == "") || !strings.HasPrefix(reason, test.want) {
						return fmt.Errorf("got %q, %v, want %q", reason, err, test.want)
					}
					return gathers(ctx, world, a, test.want == "")
				})
			})
		}
	}
}

// A rank without a device takes part in the agreement.
func TestTryDirectWithoutADevice(t *testing.T) {
	onAware(t, 3, func(int, *aware) {}, func(world *comm.Comm, a *aware) error {
		problem := ""
		if world.Rank() == 2 {
			problem = "no GPU here"
		}
		reason, err := device.TryDirect(t.Context(), world, problem, a.room)
		if err != nil || reason != "rank 2: no GPU here" {
			return fmt.Errorf("got %q, %v", reason, err)
		}
		return gathers(t.Context(), world, a, false)
	})
}

// gathers checks the results of calls on device memory, and whether they
// went through the host.
func gathers(ctx context.Context, world *comm.Comm, a *aware, direct bool) error {
	n, me := world.Size(), world.Rank()
	f := a.f
	a.spoils, *a.handed = false, 0
	f.copied.Store(0)
	src, all := f.memory[:5], f.memory[100:100+5*n]
	f.queued = append(f.queued, func() { // it has not been done when the call begins
		for i := range src {
			src[i] = float32(10*me + i)
		}
	})
	if err := comm.AllGather(ctx, world, all, src); err != nil {
		return err
	}
	var want []float32
	for r := range n {
		for i := range 5 {
			want = append(want, float32(10*r+i))
		}
	}
	if !slices.Equal(all, want) {
		return fmt.Errorf("got %v, want %v", all, want)
	}
	if (*a.handed == 1) != direct || (f.copied.Load() == 0) != direct {
		return fmt.Errorf("%d calls were handed over and %d copies made, direct: %v", *a.handed, f.copied.Load(), direct)
	}
	sent := f.memory[200:203]
	f.queued = append(f.queued, func() { sent[1] = float32(me + 1) })
	if err := comm.Broadcast(ctx, world, sent, 1); err != nil {
		return err
	}
	if sent[1] != 2 {
		return fmt.Errorf("rank 1 sent %v before what was queued had been done", sent[1])
	}
	if err := comm.AllReduce(ctx, world, src, comm.Sum); err != nil { // always by way of the host
		return err
	}
	if src[1] != float32(10*n*(n-1)/2+n) || f.copied.Load() == 0 {
		return fmt.Errorf("a sum is %v, after %d copies", src[1], f.copied.Load())
	}
	if f.open.Load() != 0 || f.entered.Load() != 0 {
		return fmt.Errorf("%d copies were not closed, the device was not left %d times", f.open.Load(), f.entered.Load())
	}
	return nil
}
