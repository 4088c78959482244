package device_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/comm/device"
	"github.com/gorun-spmd/gorun/comm/mem"
)

// A hall is where far devices find each other's windows.
type hall struct {
	mu      sync.Mutex
	windows map[[device.HandleBytes]byte][]byte
	mapped  int
}

// A peer is a far device whose windows others can map.
type peer struct {
	far
	hall      *hall
	rank      int
	own       []byte
	theirs    [][]byte
	shareErr  error // Share fails
	mapErr    error // Map fails
	spoils    bool  // what is mapped is not what was shared
	withinErr error // copies within the device fail
	mu        sync.Mutex
	read      atomic.Int32 // copies from mapped windows
}

func (p *peer) Share(bytes int) (unsafe.Pointer, [device.HandleBytes]byte, error) {
	if p.shareErr != nil {
		return nil, [device.HandleBytes]byte{}, p.shareErr
	}
	p.own = make([]byte, bytes)
	h := [device.HandleBytes]byte{1, byte(p.rank)}
	p.hall.mu.Lock()
	defer p.hall.mu.Unlock()
	p.hall.windows[h] = p.own
	return unsafe.Pointer(&p.own[0]), h, nil
}

func (p *peer) Unshare(unsafe.Pointer, int) {
	p.hall.mu.Lock()
	defer p.hall.mu.Unlock()
	if p.hall.mapped > 0 {
		panic("a window was given back while it was mapped")
	}
	p.own = nil
}

func (p *peer) Map(handle [device.HandleBytes]byte) (unsafe.Pointer, error) {
	if p.mapErr != nil {
		return nil, p.mapErr
	}
	p.hall.mu.Lock()
	defer p.hall.mu.Unlock()
	w := p.hall.windows[handle]
	if p.spoils {
		w = make([]byte, len(w))
	}
	p.theirs = append(p.theirs, w)
	p.hall.mapped++
	return unsafe.Pointer(&w[0]), nil
}

func (p *peer) Unmap(unsafe.Pointer) {
	p.hall.mu.Lock()
	defer p.hall.mu.Unlock()
	p.hall.mapped--
}

func (p *peer) Open(lanes int) (device.Copies, error) {
	p.mu.Lock() // calls of several communicators begin
	defer p.mu.Unlock()
	c, err := p.far.Open(lanes)
	return &peerCopies{c.(*farCopies), p}, err
}

type peerCopies struct {
	*farCopies
	p *peer
}

func within(s []byte, p unsafe.Pointer, bytes int) bool {
	at := uintptr(p) - uintptr(unsafe.Pointer(unsafe.SliceData(s)))
	return at <= uintptr(len(s)) && at+uintptr(bytes) <= uintptr(len(s))
}

func (c *peerCopies) FromHost(lane int, dst, src unsafe.Pointer, bytes int) error {
	if within(c.p.own, dst, bytes) {
		return c.queue(lane, dst, src, bytes)
	}
	return c.farCopies.FromHost(lane, dst, src, bytes)
}

func (c *peerCopies) ToHost(lane int, dst, src unsafe.Pointer, bytes int) error {
	if within(c.p.own, src, bytes) {
		return c.queue(lane, dst, src, bytes)
	}
	return c.farCopies.ToHost(lane, dst, src, bytes)
}

func (c *peerCopies) Within(lane int, dst, src unsafe.Pointer, bytes int) error {
	mapped := slices.ContainsFunc(c.p.theirs, func(w []byte) bool { return within(w, src, bytes) })
	if mapped {
		c.p.read.Add(1)
	}
	switch {
	case c.p.withinErr != nil:
		return c.p.withinErr
	case !c.p.Holds(dst) && !within(c.p.own, dst, bytes), !c.p.Holds(src) && !within(c.p.own, src, bytes) && !mapped:
		return fmt.Errorf("Within from %p to %p", src, dst)
	}
	return c.queue(lane, dst, src, bytes)
}

func (c *peerCopies) Fold(lane int, op comm.Op, dst comm.Buffer, src unsafe.Pointer, ranks int) error {
	return c.fold(lane, op, dst, src, ranks, c.p.Holds(dst.Ptr) || within(c.p.own, dst.Ptr, dst.Bytes()))
}

// host is a backend of ranks of one host.
type host struct{ backend.SharedBackend }

func (host) OneHost() bool { return true }

func (h host) SendRecv(ctx context.Context, send, recv *comm.Call) error {
	return h.SharedBackend.(backend.SendRecvBackend).SendRecv(ctx, send, recv)
}

func (h host) Split(ctx context.Context, members []int) (comm.Backend, error) {
	b, err := h.SharedBackend.Split(ctx, members)
	if err != nil || b == nil {
		return b, err
	}
	return host{b.(backend.SharedBackend)}, nil
}

// onPeers runs f on n ranks whose devices change makes, and returns their errors.
func onPeers(n int, change func(rank int, p *peer), f func(world *comm.Comm, p *peer) error) []error {
	var wg sync.WaitGroup
	errs := make([]error, n)
	hall := &hall{windows: map[[device.HandleBytes]byte][]byte{}}
	for r, b := range mem.Open(n) {
		p := &peer{far: far{memory: make([]float32, 1<<12)}, hall: hall, rank: r}
		change(r, p)
		wg.Go(func() {
			defer b.End("its test ended")
			world := comm.NewWorld(host{b})
			device.UseStage(world, p)
			if errs[r] = f(world, p); errs[r] != nil {
				world.Abort(errs[r])
			}
		})
	}
	wg.Wait()
	return errs
}

func noError(t *testing.T, errs []error) {
	t.Helper()
	for r, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
