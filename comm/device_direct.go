package comm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"
)

// A DeviceBackend is a Backend that may pass on addresses of a device, whose memory
// the process cannot touch.
type DeviceBackend interface {
	Backend
	// DeviceSupport returns why it cannot, "" if it should be able to.
	DeviceSupport() string
	// DoDevice is Do for calls that move elements without computing, Split and Barrier
	// excepted, whose buffers may lie in the device's memory. copy begins to copy between
	// two buffers of this rank, of equal length, which ends after DoDevice.
	DoDevice(ctx context.Context, call *Call, copy func(dst, src Buffer) error) error
}

// moves reports whether a call of kind k moves elements of the user and computes
// nothing. Reductions are made of such calls, see folding, or folded by this process.
func (k Kind) moves() bool {
	return k != BarrierKind && k != SplitKind && !k.Reduces()
}

// The trial of a backend: how many bytes it moves at once, some of the sort that
// libraries send at once and some that the receiver asks for, and how long it may take.
const (
	trialShort = 64
	trialLong  = 1 << 20
	trialTime  = 30 * time.Second
)

// TryDirect finds out whether the backend takes addresses of the device given to
// UseStage, and has all calls of this world that only move elements use them if so. All
// ranks of the world c call it, before any call on device memory; they come to the
// same: the ranks exchange some device memory, and it must arrive on every one.
//
// problem says why this rank has no device, "" if it has. alloc returns memory of the
// device; if the trial fails that memory must stay as long as the process, since a
// library may still use it. reason is why addresses are not used, "" if they are.
func (c *Comm) TryDirect(ctx context.Context, problem string, alloc func(bytes int) (unsafe.Pointer, error)) (reason string, err error) {
	b, ok := c.backend.(DeviceBackend)
	if !ok {
		return "the ranks exchange memory of the host", nil
	}
	if problem == "" {
		problem = b.DeviceSupport()
	}
	if reason, err = c.firstProblem(ctx, problem, false); err != nil || reason != "" {
		return reason, err
	}
	// A communicator of its own, since it may not survive.
	trial, err := c.Split(ctx, 0, c.rank)
	if err != nil {
		return "", err
	}
	s := c.shared.staging.Load()
	s.direct.Store(true)
	late := false
	if err := s.try(ctx, trial, alloc); err != nil {
		trial.Abort(err) // the others must not wait for this rank
		var aborted *AbortError
		late = errors.As(err, &aborted) && aborted.Rank != c.world[c.rank]
		problem = "a trial failed: " + err.Error()
	}
	reason, err = c.firstProblem(ctx, problem, late)
	s.direct.Store(err == nil && reason == "")
	return reason, err
}

// firstProblem returns that of the first rank that has one, on every rank; late ones,
// which another rank's has caused, count after the others.
func (c *Comm) firstProblem(ctx context.Context, problem string, late bool) (string, error) {
	none := int64(2 * c.size)
	first := []int64{none}
	switch {
	case problem != "" && late:
		first[0] = int64(c.size + c.rank)
	case problem != "":
		first[0] = int64(c.rank)
	}
	if err := AllReduce(ctx, c, first, Min); err != nil || first[0] == none {
		return "", err
	}
	who, text := int(first[0])%c.size, make([]byte, 512)
	copy(text, problem)
	if err := Broadcast(ctx, c, text, who); err != nil {
		return "", err
	}
	text, _, _ = bytes.Cut(text, []byte{0})
	return fmt.Sprintf("rank %d: %s", who, text), nil
}

// try sends device memory to the next rank, and looks at what has come from the one
// before.
func (s *staging) try(ctx context.Context, c *Comm, alloc func(bytes int) (unsafe.Pointer, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, trialTime, fmt.Errorf("it took more than %v", trialTime))
	defer cancel()
	room, err := alloc(2 * trialLong)
	if err != nil {
		return err
	}
	from, to := Buffer{room, trialLong, Uint8}, Buffer{unsafe.Add(room, trialLong), trialLong, Uint8}
	near := make([]byte, trialLong)
	next, last := (c.rank+1)%c.size, (c.rank+c.size-1)%c.size
	for _, n := range []int{trialShort, trialLong} {
		pattern(near, c.rank, n)
		if err := s.copyNow(from, Of(near)); err != nil {
			return err
		}
		call := Call{Kind: AllToAllVKind, Dst: to.Slice(0, n), Src: from.Slice(0, n), DstCounts: make([]int, c.size), SrcCounts: make([]int, c.size),
			Cause: "a trial of device memory"}
		call.DstCounts[last], call.SrcCounts[next] = n, n
		if err := c.Do(ctx, call); err != nil {
			return err
		}
		got := near[:n]
		if err := s.copyNow(Of(got), to.Slice(0, n)); err != nil {
			return err
		}
		want := make([]byte, n)
		if pattern(want, last, n); !bytes.Equal(got, want) {
			return fmt.Errorf("of %d bytes of rank %d's device memory not all arrived", n, last)
		}
	}
	return nil
}

// pattern fills x with what rank sends n bytes of.
func pattern(x []byte, rank, n int) {
	for i := range x {
		x[i] = byte(i + i>>8 + 31*rank + n>>4 + 1)
	}
}

// hand has the backend carry out a call by the addresses of the device, when the
// device has done what it was given to do before.
func (s *staging) hand(ctx context.Context, c *Comm, call *Call) error {
	defer s.stage.Enter()()
	return s.copies(func(copies Copies) error {
		if err := copies.Wait(0); err != nil {
			return err
		}
		return c.backend.(DeviceBackend).DoDevice(ctx, call, func(dst, src Buffer) error { return s.copy(copies, dst, src) })
	})
}

// copyNow copies between two buffers of any memory, after what the device was given to
// do before.
func (s *staging) copyNow(dst, src Buffer) error {
	return s.copies(func(copies Copies) error { return s.copy(copies, dst, src) })
}

// copy queues the copy between two buffers, or makes it if both are memory of the host.
func (s *staging) copy(copies Copies, dst, src Buffer) error {
	if src.Count == 0 {
		return nil
	}
	switch to, from := s.stage.Holds(dst.Ptr), s.stage.Holds(src.Ptr); {
	case to && from:
		return copies.Within(0, dst.Ptr, src.Ptr, src.Bytes())
	case to:
		return copies.FromHost(0, dst.Ptr, src.Ptr, src.Bytes())
	case from:
		return copies.ToHost(0, dst.Ptr, src.Ptr, src.Bytes())
	}
	copy(dst.Data(), src.Data())
	return nil
}
