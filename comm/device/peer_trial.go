package device

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/dtype"
)

// TryPeers finds out whether the ranks' devices can read each other's memory. If they can,
// all calls of this world that only move elements, except Send and Recv, use windows: a rank
// copies its data into window bytes of its device's memory, which the other ranks have mapped.
// All ranks of the world c call it, before any call on device memory. Every
// rank reads every window, and windows are used only if all were read right.
//
// problem says why this rank has no such device, "" if it may have one. reason says why
// windows are not used, "" if they are.
func TryPeers(ctx context.Context, c *comm.Comm, problem string, window int) (reason string, err error) {
	if !c.Internals().OneHost() || c.Size() == 1 {
		return "there are no other processes of this host", nil
	}
	s := inUse(c).Load()
	if problem == "" && s == nil {
		problem = "it has no device"
	}
	var stage PeerStage
	if problem == "" {
		var ok bool
		if stage, ok = s.stage.(PeerStage); !ok {
			problem = "its device does not share memory"
		}
	}
	if reason, err = firstProblem(ctx, c, problem, false); err != nil || reason != "" {
		return reason, err
	}
	t := trial{c: c, s: s, stage: stage, windows: &windows{of: make([]unsafe.Pointer, c.Size())}}
	t.half = max(window/(2*slotCount), c.Size()*dtype.Float64.Size()) // an element for each rank
	for _, step := range []func(ctx context.Context) (problem, err error){t.exchange, t.write, t.look} {
		wrong, err := step(ctx)
		if err != nil {
			return "", err
		}
		problem := ""
		if wrong != nil {
			problem = "a trial failed: " + wrong.Error()
		}
		if reason, err = firstProblem(ctx, c, problem, false); err != nil {
			return "", err
		}
		if reason != "" {
			return reason, t.undo(ctx)
		}
	}
	s.windows.Store(t.windows)
	return "", nil
}

// A trial makes the windows and checks that all ranks can read them.
type trial struct {
	*windows
	c     *comm.Comm
	s     *staging
	stage PeerStage
}

// own returns where the address of this rank's window is kept.
func (t *trial) own() *unsafe.Pointer { return &t.of[t.c.Rank()] }

// bytes returns the size of a window.
func (t *trial) bytes() int { return 2 * slotCount * t.half }

// exchange shares this rank's window, tells the others its handle and maps theirs.
func (t *trial) exchange(ctx context.Context) (problem, err error) {
	var handle [HandleBytes]byte
	*t.own(), handle, problem = t.stage.Share(t.bytes())
	all := make([]byte, HandleBytes*t.c.Size())
	if err := comm.AllGather(ctx, t.c, all, handle[:]); err != nil {
		return nil, err
	}
	for r := range t.c.Size() {
		theirs := [HandleBytes]byte(all[r*HandleBytes:])
		if r == t.c.Rank() || problem != nil || theirs == [HandleBytes]byte{} { // that rank has a problem
			continue
		}
		if t.of[r], problem = t.stage.Map(theirs); problem != nil {
			problem = fmt.Errorf("to map memory of rank %d's device: %w", r, problem)
		}
	}
	return problem, nil
}

// tried returns how many bytes are compared at each end of a window.
func (t *trial) tried() int { return min(trialLong, t.bytes()/4) }

// write fills both ends of this rank's window.
func (t *trial) write(context.Context) (problem, err error) {
	x := make([]byte, t.tried())
	return t.s.copies(func(c Copies) error {
		for end, at := range []int{0, t.bytes() - len(x)} {
			fillTrial(x, 2*t.c.Rank()+end, len(x))
			if err := c.FromHost(0, unsafe.Add(*t.own(), at), unsafe.Pointer(&x[0]), len(x)); err != nil {
				return err
			}
			err := c.Wait(0)
			runtime.KeepAlive(x) // it was read meanwhile
			if err != nil {
				return err
			}
		}
		return nil
	}), nil
}

// look reads the others' windows through the middle of this rank's own.
func (t *trial) look(context.Context) (problem, err error) {
	x, want := make([]byte, t.tried()), make([]byte, t.tried())
	return t.s.copies(func(c Copies) error {
		room := unsafe.Add(*t.own(), len(x))
		for r, window := range t.of {
			for end, at := range []int{0, t.bytes() - len(x)} {
				if r == t.c.Rank() {
					continue
				}
				if err := c.Within(0, room, unsafe.Add(window, at), len(x)); err != nil {
					return fmt.Errorf("to read memory of rank %d's device: %w", r, err)
				}
				if err := c.ToHost(0, unsafe.Pointer(&x[0]), room, len(x)); err != nil {
					return err
				}
				if err := c.Wait(0); err != nil {
					return fmt.Errorf("to read memory of rank %d's device: %w", r, err)
				}
				if fillTrial(want, 2*r+end, len(x)); !bytes.Equal(x, want) {
					return fmt.Errorf("of %d bytes of rank %d's device memory not all were read right", len(x), r)
				}
			}
		}
		return nil
	}), nil
}

// undo unmaps the others' windows, and frees this rank's when all ranks have unmapped theirs.
func (t *trial) undo(ctx context.Context) error {
	for r, p := range t.of {
		if r != t.c.Rank() && p != nil {
			t.stage.Unmap(p)
		}
	}
	if err := comm.Barrier(ctx, t.c); err != nil {
		return err
	}
	if p := *t.own(); p != nil {
		t.stage.Unshare(p, t.bytes())
	}
	return nil
}
