package comm

import (
	"context"
	"errors"
	"fmt"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/mem"
)

// OpenWindow makes a window in which this rank has a number of bytes. All ranks call it; lengths[r] is
// how many rank r has. Package comm/window is the user.
func (i Internals) OpenWindow(ctx context.Context, bytes int) (w backend.WindowMemory, lengths []int, err error) {
	c := i.c
	c.drain()
	c.account.mu.Lock()
	defer c.account.mu.Unlock()
	b, ok := c.backend.(backend.WindowBackend)
	if !ok { // on all ranks
		return nil, nil, fmt.Errorf("comm: a window: %s has no one-sided communication; build the program without the build tags gompi and "+
			"empi, so that it uses shared memory under gorun, or finds the MPI library when it starts: %w", i.Library(), errors.ErrUnsupported)
	}
	lengths = make([]int, c.size)
	if beyond(bytes) { // a library may try for minutes, then be killed; the sign tells all ranks
		bytes = -bytes
	}
	c.call = Call{Kind: AllGatherKind, Dst: Of(lengths), Src: Of([]int{bytes}), Cause: "a window"}
	if err := c.run(ctx, &c.call); err != nil {
		return nil, nil, err
	}
	for r, n := range lengths {
		if n < 0 {
			return nil, nil, c.failAlone(&c.call, fmt.Errorf("rank %d asks for %d bytes, more than its machine or control group has; "+
				"use more hosts or shorter windows", c.world[r], -n))
		}
	}
	if w, err = b.OpenWindow(ctx, lengths); err != nil {
		c.backend.Abort(err)
		return nil, nil, c.fail(&c.call, err)
	}
	return w, lengths, nil
}

// Quiet reports whether a Tally or Count may count a call on b that this rank makes alone, without Alone: the elements
// have a DType, and nobody records calls.
func (i Internals) Quiet(b Buffer) bool { return !b.OfStructs() && i.c.shared.recorder.Load() == nil }

// Count counts a quiet call of a kind. It may be called at any time from any goroutine.
func (i Internals) Count(kind Kind, bytes int) { i.c.account.alone.addShared(kind, bytes) }

// Alone carries out, by do, a call that this rank makes alone. It counts the call and adds it to
// recordings. Its error is an *Error, but does not end the communicator. It may be called at any
// time from any goroutine.
func (i Internals) Alone(call *Call, do func() error) error {
	c := i.c
	if c.none() {
		return noComm(call)
	}
	if err := call.CheckTypes(); err != nil {
		return c.failAlone(call, err)
	}
	c.account.alone.addShared(call.Kind, call.Bytes())
	var err error
	if r := c.shared.recorder.Load(); r != nil {
		err = r.alone(c, call, do)
	} else {
		err = do()
	}
	if err != nil {
		return c.failAlone(call, err)
	}
	return nil
}

// FailAlone makes err an *Error about a call that this rank makes alone, at the line where the
// program is.
func (i Internals) FailAlone(call *Call, err error) error { return i.c.failAlone(call, err) }

// beyond reports whether n bytes are more than this machine, or the control group of this
// process, has with all swap.
func beyond(n int) bool {
	const little = 1 << 30 // no system call for what any machine has
	if n <= little {
		return false
	}
	m, err := mem.ReadMachine("")
	return err == nil && n > m.Limit+m.Swap
}
