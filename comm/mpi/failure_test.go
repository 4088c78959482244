//go:build linux && !nolibs

package mpi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
)

// lastEnds: the last rank ends while the others wait for it, or for one that does.
func lastEnds(ctx context.Context, r *Rank) error {
	n := r.Size()
	world := comm.NewWorld(r)
	half, err := world.Split(ctx, world.Rank()%2, 0)
	if err != nil || world.Rank() == n-1 {
		return err
	}
	on := world
	if half.Size() > 1 && world.Rank()%2 == (n-1)%2 {
		on = half
	}
	err = comm.Barrier(ctx, on)
	if !errors.Is(err, comm.ErrEnded) || !strings.Contains(err.Error(), fmt.Sprintf("rank %d ended", n-1)) {
		return fmt.Errorf("got %v, want that rank %d ended", err, n-1)
	}
	return errors.Join(errExpected, err)
}

// lastListensLate: the last rank says that it ends and does not listen for a while. The others stay
// until it does: the message of an end that is still in the library leaves with its sender.
func lastListensLate(ctx context.Context, r *Rank) error {
	const late = 300 * time.Millisecond
	if err := comm.Barrier(ctx, comm.NewWorld(r)); err != nil {
		return err
	}
	if r.Rank() == r.Size()-1 {
		r.job.mu.Lock()
		r.job.announceEnd(nil)
		r.job.mu.Unlock()
		time.Sleep(late)
		return nil
	}
	began := time.Now()
	r.job.finished = func() {
		if stayed := time.Since(began); stayed < late/2 {
			fmt.Printf("rank %d left after %v, the last rank listened after %v\n", r.Rank(), stayed, late)
			os.Exit(1)
		}
	}
	return nil
}

// unreceived: rank 0 sends the last rank more messages than it receives, the last of them on another communicator.
func unreceived(ctx context.Context, r *Rank) error {
	world := comm.NewWorld(r)
	apart, err := world.Split(ctx, 0, -world.Rank())
	if err != nil {
		return err
	}
	last := world.Size() - 1
	if world.Rank() == 0 {
		for range 3 {
			if err := comm.Send(ctx, world, []int32{1}, last); err != nil {
				return err
			}
		}
		return comm.Send(ctx, apart, []int64{2, 3}, 0)
	}
	if world.Rank() == last {
		return comm.Recv(ctx, world, make([]int32, 1), 0)
	}
	return nil
}

// firstFails: rank 0 fails; the others learn of it in their call.
func firstFails(ctx context.Context, r *Rank) error {
	if r.Rank() == 0 {
		return errors.New("out of patience")
	}
	return comm.Barrier(ctx, comm.NewWorld(r))
}

// firstFailsOthersBusy: rank 0 fails; the others are busy for longer than it waits.
func firstFailsOthersBusy(_ context.Context, r *Rank) error {
	if r.Rank() == 0 {
		return errors.New("out of patience")
	}
	time.Sleep(childLimit)
	return nil
}

// lastIsKilled: the last rank is killed in the middle of a call of the others.
func lastIsKilled(ctx context.Context, r *Rank) error {
	if r.Rank() == r.Size()-1 {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return comm.Barrier(ctx, comm.NewWorld(r))
}

// guarded is memory whose first n bytes are for the library. What lies beyond is checked.
type guarded struct {
	all []byte
	n   int
}

const beyond, canary = 16 << 10, 0x55

func newGuarded(n int) guarded {
	g := guarded{bytes.Repeat([]byte{canary}, n+beyond), n}
	clear(g.all[:n])
	return g
}

// memory is the first n bytes as elements.
func memory[T comm.Elem](g guarded) []T {
	var x T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(g.all))), g.n/int(unsafe.Sizeof(x)))
}

func (g guarded) intact() error {
	for i, b := range g.all[g.n:] {
		if b != canary {
			return fmt.Errorf("the library wrote beyond a buffer of %d bytes, at %d", g.n, g.n+i)
		}
	}
	return nil
}

// truncated: a message that is too long for its buffer is an error, reaches the other rank,
// and leaves the memory beyond the buffer as it was.
func truncated(ctx context.Context, r *Rank) error {
	var last error
	for i, test := range []struct {
		sizes [2]int // in bytes, on the two ranks
		call  func(world *comm.Comm, g guarded) error
	}{
		{[2]int{32, 16}, sendBytes(ctx)},
		{[2]int{12000, 4000}, sendBytes(ctx)},
		{[2]int{100_000, 0}, sendBytes(ctx)},
		// Over Open MPI some of these go in one message and some in two.
		{[2]int{32, 16}, broadcastFloats(ctx)},
		{[2]int{6000, 3600}, broadcastFloats(ctx)},
		{[2]int{6000, 4800}, broadcastFloats(ctx)},
		{[2]int{12000, 4000}, broadcastFloats(ctx)},
		{[2]int{12000, 8}, broadcastFloats(ctx)},
		{[2]int{100_000, 90_000}, broadcastFloats(ctx)},
	} {
		world, err := variant(r, func(v *Rank) { v.checks = checkNone })
		if err != nil {
			return err
		}
		g := newGuarded(test.sizes[r.Rank()])
		if r.Rank() == 0 {
			copy(g.all, bytes.Repeat([]byte{0xAA}, g.n))
		}
		if err = test.call(world, g); err == nil && r.Rank() == 0 {
			err = comm.Barrier(ctx, world)
		}
		if e := g.intact(); e != nil {
			return fmt.Errorf("case %d: %w", i, e)
		}
		var refused *Error
		lengths := fmt.Sprintf("sends %d bytes to rank 1, which expects %d;", test.sizes[0], test.sizes[1])
		switch {
		case r.Rank() == 0 && (!errors.Is(err, comm.ErrAborted) || !strings.Contains(err.Error(), "rank 1 aborted: ")):
			return fmt.Errorf("case %d: rank 0 got %v", i, err)
		case r.Rank() == 1 && r.job.lengths && (!errors.Is(err, comm.ErrMismatch) || !strings.Contains(err.Error(), " rank 0 sends ") ||
			test.sizes[0] > 10_000 && !strings.Contains(err.Error(), lengths)):
			return fmt.Errorf("case %d: rank 1 got %v, want %q", i, err, lengths)
		case r.Rank() == 1 && !r.job.lengths && (!errors.As(err, &refused) || !strings.HasPrefix(refused.Func, "MPI_") || refused.Code == 0 ||
			refused.Class == 0 || !strings.Contains(strings.ToLower(refused.Text), "truncate")):
			return fmt.Errorf("case %d: rank 1 got %v, %+v", i, err, refused)
		}
		last = err
	}
	return errors.Join(errExpected, last)
}

func sendBytes(ctx context.Context) func(*comm.Comm, guarded) error {
	return func(world *comm.Comm, g guarded) error {
		if world.Rank() == 0 {
			return comm.Send(ctx, world, memory[uint8](g), 1)
		}
		return comm.Recv(ctx, world, memory[uint8](g), 0)
	}
}

func broadcastFloats(ctx context.Context) func(*comm.Comm, guarded) error {
	return func(world *comm.Comm, g guarded) error { return comm.Broadcast(ctx, world, memory[float32](g), 0) }
}

// camps: of six ranks three neighbours make a longer call than the other three, so that the
// ones in the middle have no neighbour who differs. All get an error, and no memory beyond
// a buffer changes.
func camps(ctx context.Context, r *Rank) error {
	n, long := r.Size(), r.Rank() < 3
	var last error
	for i, call := range []func(world *comm.Comm, g guarded) error{
		func(world *comm.Comm, g guarded) error { return comm.Broadcast(ctx, world, memory[float32](g), 1) },
		func(world *comm.Comm, g guarded) error {
			var src []float32
			if world.Rank() == 1 {
				src = make([]float32, g.n/4*n)
			}
			return comm.Scatter(ctx, world, memory[float32](g), src, 1)
		},
		func(world *comm.Comm, g guarded) error {
			return comm.AllToAll(ctx, world, memory[float32](g), make([]float32, g.n/4))
		},
		func(world *comm.Comm, g guarded) error {
			return comm.AllGather(ctx, world, memory[float32](g), make([]float32, g.n/4/n))
		},
		func(world *comm.Comm, g guarded) error {
			return comm.AllReduce(ctx, world, memory[float32](g), comm.Sum)
		},
	} {
		for _, checks := range []checking{checkNeighbours, checkNone} {
			if checks == checkNone && !r.job.lengths { // anything may come of it, a hang too
				continue
			}
			world, err := variant(r, func(v *Rank) { v.checks = checks })
			if err != nil {
				return err
			}
			g := newGuarded(6000)
			if long {
				g = newGuarded(60_000)
			}
			err = call(world, g)
			if e := g.intact(); e != nil {
				return fmt.Errorf("call %d, compared %v: %w", i, checks, e)
			}
			if !errors.Is(err, comm.ErrMismatch) && !errors.Is(err, comm.ErrAborted) {
				return fmt.Errorf("call %d, compared %v: got %v", i, checks, err)
			}
			last = err
		}
	}
	return errors.Join(errExpected, last)
}

// bug: a bug after the library was loaded. One rank has it: launchers mix the traces of
// two, in the middle of lines.
func bug(ctx context.Context, r *Rank) error {
	if r.Rank() == 0 {
		return comm.Barrier(ctx, comm.NewWorld(r))
	}
	var nowhere *Rank
	fmt.Println(nowhere.me)
	return nil
}

func TestARankEnds(t *testing.T) {
	eachLauncher(t, func(t *testing.T, l launcher) {
		for _, n := range l.sizes(2, 3, 7) {
			for _, debug := range []string{"", "0", "1"} {
				t.Run(fmt.Sprintf("n=%d debug=%s", n, debug), func(t *testing.T) { l.pass(t, n, "end", debugVariable+"="+debug) })
			}
		}
	})
}

func TestNoRankLeavesBeforeAllKnow(t *testing.T) {
	eachLauncher(t, func(t *testing.T, l launcher) {
		for _, n := range l.sizes(2, 3) {
			t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) { l.pass(t, n, "end late") })
		}
	})
}

// The receiver of messages that it has not received says so when all is over.
func TestUnreceivedMessagesAreTold(t *testing.T) {
	eachLauncher(t, func(t *testing.T, l launcher) {
		for _, n := range l.sizes(2, 3) {
			for _, debug := range []string{"", "0"} {
				out, err := l.run(t, n, "unreceived", debugVariable+"="+debug, fmt.Sprintf("MPI_TEST_SIZE=%d", n))
				want := fmt.Sprintf("rank %d: comm: rank 0 has sent rank %d 3 messages that it did not receive; give ", n-1, n-1)
				if err == nil || strings.Count(out, "did not receive") != 1 || !strings.Contains(out, want) {
					t.Errorf("%d ranks, debug=%s: %v, output:\n%s\nwant %q", n, debug, err, out, want)
				}
			}
		}
	})
}

// A failing rank ends the job, with its own words and not with a hang.
func TestFailures(t *testing.T) {
	eachLauncher(t, func(t *testing.T, l launcher) {
		for _, test := range []struct {
			task string
			want []string
		}{
			{"fail", []string{"rank 0: out of patience", "rank 0 aborted: out of patience"}},
			{"busy", []string{"rank 0: out of patience"}},
			{"killed", nil},
			{"bug", []string{"invalid memory address or nil pointer dereference", "failure_test.go:"}},
		} {
			t.Run(test.task, func(t *testing.T) {
				began := time.Now()
				out, err := l.run(t, 2, test.task, "MPI_TEST_SIZE=2")
				if err == nil {
					t.Errorf("the launcher ended well")
				}
				for _, want := range test.want {
					if !strings.Contains(out, want) {
						t.Errorf("no %q", want)
					}
				}
				if took := time.Since(began); took > childLimit/2 {
					t.Errorf("it took %v", took)
				}
				if t.Failed() {
					t.Logf("%v, output:\n%s", err, out)
				}
			})
		}
	})
}

// unknownKind: a call of a kind that the package does not know.
func unknownKind(ctx context.Context, r *Rank) error {
	half, err := r.Split(ctx, []int{0, 1})
	if err != nil {
		return err
	}
	return commtest.UnknownKind(ctx, half)
}

func TestErrors(t *testing.T) {
	eachLauncher(t, func(t *testing.T, l launcher) {
		l.pass(t, 2, "truncated")
		l.pass(t, 6, "camps")
		l.pass(t, 2, "unknown kind")
	})
}

func TestHowAProcessEnded(t *testing.T) {
	for command, want := range map[string]struct {
		text   string
		status int
	}{
		"exit 3":     {"has ended with exit status 3 without saying why", 3},
		"exit 0":     {"has ended with exit status 0 without saying why", 0},
		"kill -9 $$": {"was killed by SIGKILL (killed)", 0},
	} {
		cmd := exec.Command("sh", "-c", command)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadAll(out) // until it has ended
		text, status := howEnded(cmd.Process.Pid)
		for i := 0; i < 100 && text == "has ended without saying why"; i++ { // it still is
			time.Sleep(10 * time.Millisecond)
			text, status = howEnded(cmd.Process.Pid)
		}
		if text != want.text || status != want.status {
			t.Errorf("%s: got %q, %d, want %q, %d", command, text, status, want.text, want.status)
		}
		_ = cmd.Wait()
	}
}
