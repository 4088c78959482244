package comm

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/gorun-spmd/gorun/comm/backend"
)

// Internals is what a communicator has for packages that build on comm or carry out its calls:
// dtensor, comm/device, a Backend's tests. Programs do not need it.
type Internals struct{ c *Comm }

// Internals returns c's methods for other packages.
func (c *Comm) Internals() Internals { return Internals{c} }

// Failed returns the first error of a call on c, after which c cannot be used; nil if there was none, or
// if a call is in progress.
func (i Internals) Failed() error {
	if !i.c.account.mu.TryLock() {
		return nil
	}
	defer i.c.account.mu.Unlock()
	return i.c.err
}

// Attr returns what this rank keeps under key for all communicators split from
// one world, making it by make if there is nothing yet. Keys are compared as
// map keys; use an unexported type of your package. If goroutines race to
// make a value the first one stays.
func (i Internals) Attr(key any, make func() any) any { return i.c.shared.attrs.Get(key, make) }

// Common is Attr for what does not depend on the rank: ranks that are goroutines of one process all
// get what the first of them has made.
func (i Internals) Common(key any, make func() any) any { return i.c.shared.common.Get(key, make) }

// CheckKey is the attribute of the world communicator, a bool, that says whether
// packages over comm check by communication what one rank cannot see, such as that
// data which ranks say is the same is so. It is true if the environment has
// GORUN_CHECK=1. A program that wants it otherwise sets the attribute first.
const CheckKey checkKey = 0

type checkKey int

// Checks returns the attribute CheckKey.
func (i Internals) Checks() bool {
	return i.Attr(CheckKey, func() any { return os.Getenv("GORUN_CHECK") == "1" }).(bool)
}

// Started counts the calls of this rank that were started and have not ended, on all communicators
// split from one world. While it is not 0, code that computes for long should call runtime.Gosched
// now and then: on one processor the calls move only then.
func (i Internals) Started() *atomic.Int64 { return &i.c.shared.started }

// Apart has collectives of this rank on the communicator refused, which aborts it, because ranks do other
// things at a time: reason says which. nil: they are made again.
func (i Internals) Apart(reason error) {
	i.c.account.mu.Lock()
	defer i.c.account.mu.Unlock()
	i.c.apart = reason
}

// World returns the world numbers of the communicator's ranks. It must not be modified.
func (i Internals) World() []int { return i.c.world }

// Backend returns what carries out the communicator's calls, without what Wrap adds.
func (i Internals) Backend() Backend { return i.c.backend }

// Library returns what the backend calls itself.
func (i Internals) Library() string {
	if l, ok := i.c.backend.(interface{ Library() string }); ok {
		return l.Library()
	}
	return fmt.Sprintf("%T", i.c.backend)
}

// Holder returns what knows the memory of this rank's device, nil if there is none.
func (i Internals) Holder() backend.DeviceHolder {
	c := i.c
	c.account.mu.Lock()
	defer c.account.mu.Unlock()
	h, _ := c.carrier().(backend.DeviceHolder)
	return h
}

// Wrap has the calls of the communicator, and of all communicators of its world, carried out by
// what wrap makes of the backend of each. world[r] is the world number of rank r of the backend.
// Such a Backend is asked for Do alone. Package comm/device is the user: see device.UseStage.
func (i Internals) Wrap(wrap func(b Backend, world []int) Backend) { i.c.shared.wrap.Store(&wrap) }

// carrier returns the backend, or what Wrap has put around it.
func (c *Comm) carrier() Backend {
	if c.shared.wrap.Load() == nil {
		return c.backend
	}
	return c.wrapper()
}

// wrapper is carrier after a Wrap. It is apart so that carrier is inlined.
func (c *Comm) wrapper() Backend {
	if wrap := c.shared.wrap.Load(); c.wrap != wrap {
		c.wrap, c.wrapped = wrap, (*wrap)(c.backend, c.world)
	}
	return c.wrapped
}

// Split is Comm.Split where each rank knows what all give: rank r gives place(r).
func (i Internals) Split(ctx context.Context, place func(rank int) (color, key int)) (*Comm, error) {
	color, key := place(i.c.rank)
	return i.c.splitByColor(ctx, color, key, place)
}

// OneHost reports whether the backend knows that all ranks are processes of one host.
func (i Internals) OneHost() bool {
	b, ok := i.c.backend.(backend.HostBackend)
	return ok && b.OneHost()
}

// SupportsRows reports whether the communicator carries out calls with DstRows and SrcRows. It does
// where ranks read each other's memory, and does not where buffers are handed to a
// library or lie in the memory of a device: there the caller must pack.
func (i Internals) SupportsRows() bool {
	b, ok := i.c.backend.(backend.RowBackend)
	return ok && b.SupportsRows() && i.c.shared.wrap.Load() == nil
}
