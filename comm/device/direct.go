package device

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/fold"
)

// moves reports whether a call of kind k moves the user's elements and computes nothing.
// Only such calls use device addresses. A reduction is staged, or built from such calls as
// folding does.
func moves(k backend.Kind) bool {
	p := k.Shape().Pattern
	return (p == backend.PatternMove || p == backend.PatternMessage) && k != backend.SplitKind
}

// The sizes and the time limit of the trial of a backend. MPI libraries send the short
// message at once, and the long one when the receiver asks for it.
const (
	trialShort = 64
	trialLong  = 1 << 20
	trialTime  = 30 * time.Second
)

// TryDirect finds out whether the backend takes addresses of the device given to UseStage.
// If it does, all calls of this world that only move elements use them. All ranks of the
// world c call it, before any call on device memory. They exchange some device memory, and use
// addresses only if it arrives on every rank; so all come to the same answer.
//
// problem says why this rank has no device, "" if it has one. alloc returns memory of the
// device. If the trial fails, that memory must stay as long as the process, since a
// library may still use it. reason says why addresses are not used, "" if they are.
func TryDirect(ctx context.Context, c *comm.Comm, problem string, alloc func(bytes int) (unsafe.Pointer, error)) (
	reason string, err error) {
	b, ok := c.Internals().Backend().(backend.DeviceBackend)
	if !ok {
		return "the ranks exchange memory of the host", nil
	}
	if problem == "" {
		problem = b.DeviceSupport()
	}
	if reason, err = firstProblem(ctx, c, problem, false); err != nil || reason != "" {
		return reason, err
	}
	// A communicator of its own, since it may not survive.
	trial, err := c.Split(ctx, 0, c.Rank())
	if err != nil {
		return "", err
	}
	s := inUse(c).Load()
	s.direct.Store(true)
	late := false
	if err := s.try(ctx, trial, alloc); err != nil {
		trial.Abort(err) // the others must not wait for this rank
		var aborted *backend.AbortError
		late = errors.As(err, &aborted) && aborted.Rank != c.WorldRank(c.Rank())
		problem = "a trial failed: " + err.Error()
	}
	reason, err = firstProblem(ctx, c, problem, late)
	s.direct.Store(err == nil && reason == "")
	return reason, err
}

// firstProblem returns on every rank the problem of the first rank that has one. A problem is
// late if another rank's problem has caused it; it counts after those that are not.
func firstProblem(ctx context.Context, c *comm.Comm, problem string, late bool) (string, error) {
	none := int64(2 * c.Size())
	first := []int64{none}
	switch {
	case problem != "" && late:
		first[0] = int64(c.Size() + c.Rank())
	case problem != "":
		first[0] = int64(c.Rank())
	}
	if err := comm.AllReduce(ctx, c, first, fold.Min); err != nil || first[0] == none {
		return "", err
	}
	who, text := int(first[0])%c.Size(), make([]byte, 512)
	copy(text, problem)
	if err := comm.Broadcast(ctx, c, text, who); err != nil {
		return "", err
	}
	text, _, _ = bytes.Cut(text, []byte{0})
	return fmt.Sprintf("rank %d: %s", who, text), nil
}

// try sends device memory to the next rank, and checks the message of the rank before.
func (s *staging) try(ctx context.Context, c *comm.Comm, alloc func(bytes int) (unsafe.Pointer, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, trialTime, fmt.Errorf("it took more than %v", trialTime))
	defer cancel()
	room, err := alloc(2 * trialLong)
	if err != nil {
		return err
	}
	from := backend.Buffer{Ptr: room, Count: trialLong, DType: dtype.Uint8}
	to := backend.Buffer{Ptr: unsafe.Add(room, trialLong), Count: trialLong, DType: dtype.Uint8}
	near := make([]byte, trialLong)
	rank, size := c.Rank(), c.Size()
	next, last := (rank+1)%size, (rank+size-1)%size
	for _, n := range []int{trialShort, trialLong} {
		fillTrial(near, rank, n)
		if err := s.copyNow(from, backend.Of(near)); err != nil {
			return err
		}
		call := backend.Call{Kind: backend.AllToAllVKind, Dst: to.Slice(0, n), Src: from.Slice(0, n), DstCounts: make([]int, size),
			SrcCounts: make([]int, size), Cause: "a trial of device memory"}
		call.DstCounts[last], call.SrcCounts[next] = n, n
		if err := c.Do(ctx, call); err != nil {
			return err
		}
		got := near[:n]
		if err := s.copyNow(backend.Of(got), to.Slice(0, n)); err != nil {
			return err
		}
		want := make([]byte, n)
		if fillTrial(want, last, n); !bytes.Equal(got, want) {
			return fmt.Errorf("of %d bytes of rank %d's device memory not all arrived", n, last)
		}
	}
	return nil
}

// fillTrial fills x with the first bytes of the message of n bytes that rank sends in a trial.
func fillTrial(x []byte, rank, n int) {
	for i := range x {
		x[i] = byte(i + i>>8 + 31*rank + n>>4 + 1)
	}
}

// byAddress waits for the earlier work of the device, then has the backend carry out a call by
// device addresses.
func (s *staging) byAddress(ctx context.Context, c *group, call *backend.Call) error {
	defer s.stage.Enter()()
	return s.copies(func(copies Copies) error {
		if err := copies.Wait(0); err != nil {
			return err
		}
		return c.Backend.(backend.DeviceBackend).DoDevice(ctx, call, func(dst, src backend.Buffer) error { return s.copy(copies, dst, src) })
	})
}

// copyNow copies between two buffers of any memory, after the earlier work of the device.
func (s *staging) copyNow(dst, src backend.Buffer) error {
	return s.copies(func(copies Copies) error { return s.copy(copies, dst, src) })
}

// copy queues the copy between two buffers, or makes it if both are memory of the host.
func (s *staging) copy(copies Copies, dst, src backend.Buffer) error {
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
