//go:build linux

package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/job"
	kept "github.com/gorun-spmd/gorun/internal/snapshot"
	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/tensor"
)

// A hostSet is the memories of some hosts.
type hostSet []*os.File

func newHosts(t *testing.T, n int) (all hostSet) {
	for range n {
		all = append(all, snapshotMemory(t))
	}
	return all
}

// without is the hosts that are left when one is lost.
func (h hostSet) without(lost int) (left hostSet) {
	for i, f := range h {
		if i != lost {
			left = append(left, f)
		}
	}
	return left
}

// errCut is how writing to another host ends.
var errCut = errors.New("the host is cut off")

// cut is a memory of another host that takes so many bytes, and no more.
type cut struct {
	*os.File
	left *atomic.Int64
}

func (c cut) WriteAt(b []byte, at int64) (int, error) {
	left := c.left.Add(-int64(len(b)))
	if left >= 0 {
		return c.File.WriteAt(b, at)
	}
	n := max(0, len(b)+int(left))
	_, _ = c.File.WriteAt(b[:n], at)
	return n, errCut
}

// with gives ctx the memories, of hosts that have neighbouring ranks. What is sent to another host is
// cut off after some bytes, unless cutAfter is nil.
func (h hostSet) with(ctx context.Context, world *comm.Comm, attempt int, cutAfter *atomic.Int64) context.Context {
	s := &job.Snapshots{Attempt: attempt}
	for r := range world.Size() {
		s.HostOf = append(s.HostOf, r*len(h)/world.Size())
	}
	for _, f := range h {
		if cutAfter != nil {
			s.Hosts = append(s.Hosts, cut{f, cutAfter})
		} else {
			s.Hosts = append(s.Hosts, f)
		}
	}
	s.File = h[s.HostOf[world.Rank()]]
	return job.WithSnapshots(ctx, s)
}

// keepOn saves the values under s as the snapshots of two steps on the hosts.
func (h hostSet) keepOn(t *testing.T, s setting, attempt, step int) {
	t.Helper()
	onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		ctx = h.with(ctx, world, attempt, nil)
		state := stateOf(full(m, s, tensor.Float32, false))
		state.AddValue("step", &step)
		snaps, err := OpenSnapshots(ctx, world, state)
		if err != nil {
			return err
		}
		return errors.Join(snaps.Save(ctx, step-1), snaps.Save(ctx, step), snaps.arrived())
	})
}

// loadOn loads the last snapshot on the hosts, and on idle ones that have no ranks. It has to be of step want.
func (h hostSet) loadOn(t *testing.T, s setting, want int, idle ...*os.File) {
	t.Helper()
	onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		all := full(m, s, tensor.Float32, true)
		state := stateOf(all)
		stored := -1
		state.AddValue("step", &stored)
		ctx = h.with(ctx, world, 1, nil)
		for _, f := range idle {
			job.SnapshotsOf(ctx).Idle = append(job.SnapshotsOf(ctx).Idle, f)
		}
		snaps, err := OpenSnapshots(ctx, world, state)
		if err != nil {
			return err
		}
		step, ok, err := snaps.Resume(ctx)
		if err != nil || !ok || step != want || snaps.Damage() != nil {
			return fmt.Errorf("step %d, %v, %w, damage %w; want %d", step, ok, err, snaps.Damage(), want)
		}
		return same(all)
	})
}

// On two and three hosts, whichever is lost, what is left has the last snapshot, for as many ranks
// or others, on hosts of which each has a rank.
func TestSnapshotsAfterTheLossOfAHost(t *testing.T) {
	each := 3
	if testenv.Race {
		each = 9
	}
	for n := 2; n <= 3; n++ {
		for i, from := range settings() {
			if from.ranks < n {
				continue
			}
			h := newHosts(t, n)
			h.keepOn(t, from, 0, 10)
			for lost := -1; lost < n; lost++ {
				left := h.without(lost)
				for j, to := range settings() {
					if (i+j+lost)%each == 0 && to.ranks >= len(left) { // a third, in turn
						t.Run(fmt.Sprint(from.name, " on ", n, " hosts without ", lost, " to ", to.name), func(t *testing.T) {
							left.loadOn(t, to, 10)
						})
					}
				}
			}
		}
	}
}

// Hosts on which fewer ranks leave none still give what they have. One of them may be lost.
func TestSnapshotsOfHostsWithoutRanks(t *testing.T) {
	h, from := newHosts(t, 3), settings()[5]
	h.keepOn(t, from, 0, 10)
	lost := snapshotMemory(t)
	lost.Close() // reading it is an error
	for i, to := range settings() {
		t.Run(to.name, func(t *testing.T) {
			h[:1].loadOn(t, to, 10, h[1:]...)
			h[:1].loadOn(t, to, 10, []*os.File{lost, h[2]}...)
			if i%3 == 0 && to.ranks > 1 {
				h[1:].loadOn(t, to, 10, h[0])
			}
		})
	}
}

// Two lost hosts of three have some rank's part on none that is left.
func TestSnapshotsAfterTheLossOfTwoHosts(t *testing.T) {
	h, s := newHosts(t, 3), settings()[5]
	h.keepOn(t, s, 0, 10)
	onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		snaps, err := OpenSnapshots(h[:1].with(ctx, world, 1, nil), world, stateOf(full(m, s, tensor.Float32, true)))
		if err != nil {
			return err
		}
		if step, ok := snaps.Last(); ok {
			return fmt.Errorf("there is a snapshot of step %d", step)
		}
		return nil
	})
}

// A host is lost while the copies of a snapshot are on their way, after each number of bytes: the
// snapshot counts if all copies have arrived, and else the one before. The error of a copy is that
// of the next Save, on all ranks.
func TestACopyThatIsCutOff(t *testing.T) {
	s := settings()[5]
	whole := false
	for bytes := int64(0); !whole; bytes += 251 {
		h := newHosts(t, 2)
		h.keepOn(t, s, 0, 10)
		var left atomic.Int64
		left.Store(bytes)
		onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
			ten, eleven := 10, 11
			state := stateOf(full(m, s, tensor.Float32, false))
			state.AddValue("step", &ten)
			snaps, err := OpenSnapshots(h.with(ctx, world, 1, &left), world, state)
			if err != nil {
				return err
			}
			if _, _, err := snaps.Resume(ctx); err != nil {
				return err
			}
			ten = eleven
			if err := snaps.Save(ctx, 11); err != nil {
				return err
			}
			for snaps.Busy() {
				time.Sleep(time.Millisecond)
			}
			if err := comm.Barrier(ctx, world); err != nil {
				return err
			}
			if left.Load() >= 0 {
				if world.Rank() == 0 {
					whole = true
				}
				return snaps.arrived()
			}
			if err := snaps.Save(ctx, 12); err == nil || !strings.Contains(err.Error(), errCut.Error()) {
				return fmt.Errorf("after %d bytes: %w", bytes, err)
			}
			return nil
		})
		if whole {
			break
		}
		want := 10
		entries, err := kept.Entries(h[0])
		if err != nil {
			t.Fatal(err)
		}
		copies := 0
		for _, e := range entries {
			if e.Step == 11 && e.Rank >= s.ranks/2 {
				copies++
			}
		}
		if copies == s.ranks-s.ranks/2 { // those of host 1 are all on host 0
			want = 11
		}
		h[:1].loadOn(t, settings()[2], want)
	}
}

// slow is a memory of another host that takes nothing until it is released.
type slow struct {
	*os.File
	release chan struct{}
}

func (s slow) WriteAt(b []byte, at int64) (int, error) {
	<-s.release
	return s.File.WriteAt(b, at)
}

// Save does not wait for the copy on another host, and the next one does.
func TestSaveDoesNotWaitForTheOtherHost(t *testing.T) {
	h, s := newHosts(t, 2), settings()[5]
	release := make(chan struct{})
	onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		ctx = h.with(ctx, world, 0, nil)
		for i, f := range h {
			job.SnapshotsOf(ctx).Hosts[i] = slow{f, release}
		}
		snaps, err := OpenSnapshots(ctx, world, stateOf(full(m, s, tensor.Float32, false)))
		if err != nil {
			return err
		}
		if err := snaps.Save(ctx, 1); err != nil {
			return err
		}
		if !snaps.Busy() {
			return errors.New("the copy has arrived before anything was taken")
		}
		if err := comm.Barrier(ctx, world); err != nil {
			return err
		}
		if world.Rank() == 0 {
			time.AfterFunc(20*time.Millisecond, func() { close(release) })
		}
		return errors.Join(snaps.Save(ctx, 2), snaps.arrived())
	})
	for i, f := range h { // each has its own parts and the other's
		if all, err := kept.Complete(f); err != nil || len(all) != 2 {
			t.Errorf("host %d: %d snapshots, %v", i, len(all), err)
		}
	}
}

// After two snapshots of a later attempt, of fewer ranks, a host has no more than these take.
func TestWhatAnAttemptHasLeftIsGivenBack(t *testing.T) {
	blocks := func(h hostSet) (all int64) {
		for _, f := range h {
			info, err := f.Stat()
			if err != nil {
				t.Fatal(err)
			}
			all += info.Sys().(*syscall.Stat_t).Blocks
		}
		return all
	}
	h, only := newHosts(t, 2), newHosts(t, 2)
	only.keepOn(t, settings()[2], 0, 20)
	h.keepOn(t, settings()[5], 0, 10)
	h.keepOn(t, settings()[2], 1, 20)
	if got, want := blocks(h), blocks(only); got != want {
		t.Errorf("%d blocks, want %d", got, want)
	}
}

// Memory for other hosts' parts counts.
func TestSnapshotsForAnotherHostThatDoNotFit(t *testing.T) {
	h := newHosts(t, 2)
	onRanks(t, 2, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		ctx = h.with(ctx, world, 0, nil)
		var asked int
		job.SnapshotsOf(ctx).Fits = func(bytes int) error {
			if asked = bytes; world.Rank() == 1 {
				return errors.New("node2 has 3 left")
			}
			return nil
		}
		var state State
		state.AddTensor("x", dtensor.Zeros(m, tensor.Float32, []int{8}, settings()[2].placed([]int{8})...))
		_, err := OpenSnapshots(ctx, world, &state)
		if want := 2 * 8 * 4; asked != want || err == nil || !strings.Contains(err.Error(), "need 64 bytes on this host: node2 has 3 left") {
			return fmt.Errorf("asked for %d bytes, want %d; the error is %w", asked, want, err)
		}
		return nil
	})
}
