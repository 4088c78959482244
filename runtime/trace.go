package runtime

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/internal/writable"
)

// A tracer keeps this rank's part of the job's trace. gorun reads the parts of ranks
// that it has started itself. Under another launcher the ranks put them together at the
// end, and rank 0 writes the file; of a job that fails each rank writes its own part
// beside it, as soon as it fails itself, hears of it or gets a signal to end.
type tracer struct {
	log   *control.TraceLog
	start time.Time // a moment, and by control.Clock
	clock int64

	// What follows is for another launcher.
	path      string
	own       string        // where this rank's part goes
	clocks    []clockSample // rank 0: by rank, at the start
	recording *comm.Recording

	mu    sync.Mutex
	saved bool // the part is there
	over  bool // all parts were put together

	observed observed
}

// A busy rank listens every listenInterval; for so many times one that is about to
// fall lets the others do so.
const (
	listenInterval = 100 * time.Millisecond
	listenTimes    = 10
)

// newTracer returns the tracer that r's launcher asks for, nil if none. path is the
// value of job.TraceVar.
func newTracer(r *rank, path string) (t *tracer, err error) {
	t = &tracer{}
	switch {
	case r.job.TraceFD != 0:
		file := os.NewFile(uintptr(r.job.TraceFD), "trace")
		defer file.Close()
		t.log, err = control.OpenTrace(file)
	case path != "" && r.segment == nil:
		t.path, t.own = path, fmt.Sprintf("%s.rank%d", path, r.job.Rank)
		if r.job.Rank == 0 { // better now than after hours
			if err := writable.Check(path); err != nil {
				return nil, fmt.Errorf("runtime: %s: %w; name a file in a folder that is there and can be written to", job.TraceVar, err)
			}
		}
		t.log, err = control.NewTrace(r.job.Rank, r.job.Size)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if t.path != "" {
		if t.clocks, err = sampleClocks(r.world); err != nil {
			return nil, err
		}
	}
	t.start, t.clock = readClocks()
	t.recording = r.world.Observe(t.event)
	t.observe(r)
	if t.path != "" && r.mpi != nil {
		go t.listen(r)
	}
	return t, nil
}

// listen writes this rank's part when another rank fails: the launcher may end this
// one before it makes a call and learns of it.
func (t *tracer) listen(r *rank) {
	for range time.Tick(listenInterval) {
		if r.mpi.Failure() != nil {
			_ = t.save() // there is nobody to tell
			return
		}
	}
}

// save writes this rank's part, if it is this rank that has to.
func (t *tracer) save() error {
	if t == nil || t.path == "" {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return nil
	}
	t.saved = true
	fresh := t.own + ".new" // the part that is there stays whole
	if err := t.write(fresh, []*control.TracePart{t.log.Part()}); err != nil {
		return err
	}
	return os.Rename(fresh, t.own)
}

// fall saves the part of a rank that panics, and lets the others save theirs: its
// launcher ends them when it is gone.
func (t *tracer) fall(r *rank) {
	if t == nil || t.path == "" {
		return
	}
	_ = t.save() // the panic comes first
	if r.mpi != nil {
		time.Sleep(listenTimes * listenInterval)
	}
}

// readClocks reads Go's clock and control.Clock at one moment: of several readings the one in which least time passed, as
// other programs may run between the two.
func readClocks() (start time.Time, clock int64) {
	least := int64(math.MaxInt64)
	for range clockRounds {
		before, now := control.Clock(), time.Now()
		if took := control.Clock() - before; took < least {
			least, start, clock = took, now, before+took/2
		}
	}
	return start, clock
}

// at returns a moment by control.Clock. All that a trace keeps goes through it, so that a call is in the step in which it was made.
func (t *tracer) at(moment time.Time) int64 { return t.clock + int64(moment.Sub(t.start)) }

// event keeps a call.
func (t *tracer) event(e *comm.Event) {
	start := t.at(e.Start)
	r := control.TraceRecord{
		Start: start, End: start + int64(e.Time), Call: e.Seq, Number: e.Number, Bytes: int64(e.Bytes), Count: int64(e.Count),
		Name: t.log.Text(e.Kind.String()), Comm: t.log.Text(e.Comm), Cause: t.log.Text(e.Cause), Site: t.log.Text(e.Site()),
		Size: int32(e.Size), Peer: int32(e.Peer), Shape: shapeOf(e), Async: e.Async, Fails: e.Err != nil,
	}
	if e.Kind.Reduces() {
		r.Op = t.log.Text(e.Op.String())
	}
	if e.Elem != "" {
		r.DType = t.log.Text(e.Elem)
	}
	t.log.Add(r)
}

// shapeOf says where the data of a call goes.
func shapeOf(e *comm.Event) control.TraceShape {
	if e.Waits {
		return control.TraceWait
	}
	switch e.Kind {
	case comm.SendKind:
		return control.TraceSend
	case comm.RecvKind:
		return control.TraceRecv
	}
	switch e.Kind.Shape().Root {
	case backend.RootShares, backend.RootSends:
		return control.TraceFromRoot
	case backend.RootReceives:
		return control.TraceToRoot
	}
	return control.TraceAll
}

// step keeps that a step begins.
func (t *tracer) step(n int) {
	if t != nil && n >= 0 {
		t.log.Add(control.TraceRecord{Start: t.at(time.Now()), Number: uint64(n), Peer: -1, Shape: control.TraceStep})
		t.sample(control.SampleStep, "", float64(n))
	}
}

// end says that the program has ended, with err, and under another launcher sees to
// the file.
func (t *tracer) end(r *rank, err error) error {
	if t == nil {
		return nil
	}
	t.sampleMemory()
	t.log.End()
	if t.path == "" {
		return nil
	}
	t.recording.Stop()
	if err != nil {
		return t.save()
	}
	parts, err := t.gather(r.world)
	if err != nil {
		return errors.Join(err, t.save())
	}
	t.together()
	if r.job.Rank != 0 {
		return nil
	}
	return t.write(t.path, parts)
}

// together says that all parts are together, so that nobody needs this rank's.
func (t *tracer) together() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if t.saved {
		_ = os.Remove(t.own) // at worst there is a part too many
	}
}

func (t *tracer) write(path string, parts []*control.TracePart) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("runtime: %s: %w", job.TraceVar, err)
	}
	if err := errors.Join(control.WriteTrace(f, parts), f.Close()); err != nil {
		return fmt.Errorf("runtime: %s: %w", job.TraceVar, err)
	}
	return nil
}

// gather brings all ranks' parts to rank 0, their times made its own.
func (t *tracer) gather(world *comm.Comm) ([]*control.TracePart, error) {
	now, err := sampleClocks(world)
	if err != nil {
		return nil, err
	}
	var own bytes.Buffer
	if err := gob.NewEncoder(&own).Encode(t.log.Part()); err != nil {
		return nil, fmt.Errorf("runtime: %s: %w", job.TraceVar, err)
	}
	encoded, err := comm.GatherSlices(context.Background(), world, own.Bytes(), 0)
	if err != nil {
		return nil, err
	}
	parts := make([]*control.TracePart, len(encoded))
	for r, b := range encoded {
		parts[r] = new(control.TracePart)
		if err := gob.NewDecoder(bytes.NewReader(b)).Decode(parts[r]); err != nil {
			return nil, fmt.Errorf("runtime: %s: part of rank %d: %w", job.TraceVar, r, err)
		}
		parts[r].Align(t.clocks[r].at, t.clocks[r].behind, now[r].at, now[r].behind)
	}
	return parts, nil
}

// A clockSample is how far a rank's clock was behind rank 0's, at a time by the rank's.
type clockSample struct{ at, behind int64 }

// clockRounds is how often each rank's clock is asked for: the fastest answer counts.
const clockRounds = 16

// sampleClocks compares each rank's clock with rank 0's: as Cristian's algorithm does,
// by half of the time that question and answer take (F. Cristian, Probabilistic clock
// synchronization, Distributed Computing 3, 1989). All ranks call it; rank 0 has the
// result.
func sampleClocks(world *comm.Comm) ([]clockSample, error) {
	ctx := context.Background()
	word := make([]int64, 1)
	if world.Rank() != 0 {
		for range clockRounds {
			if err := comm.Recv(ctx, world, word, 0); err != nil {
				return nil, err
			}
			word[0] = control.Clock()
			if err := comm.Send(ctx, world, word, 0); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
	samples := make([]clockSample, world.Size())
	for r := 1; r < world.Size(); r++ {
		fastest := int64(-1)
		for range clockRounds {
			asked := control.Clock()
			if err := comm.Send(ctx, world, word, r); err != nil {
				return nil, err
			}
			if err := comm.Recv(ctx, world, word, r); err != nil {
				return nil, err
			}
			if took := control.Clock() - asked; fastest < 0 || took < fastest {
				fastest = took
				samples[r] = clockSample{word[0], asked + took/2 - word[0]}
			}
		}
	}
	return samples, nil
}
