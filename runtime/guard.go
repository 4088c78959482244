package runtime

import (
	"fmt"
	"os"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/launcher/watchdog"
)

// Nobody watches the ranks that another launcher has started, so they do it themselves. package
// comm/mpi notices processes that end. Rank 0 looks for ranks that wait for each other, and for
// a time without movement, as gorun does for its own.

// hangInterval is the time between two of rank 0's looks.
const hangInterval = watchdog.Interval / 2

// maxStacks is of how many ranks the stacks are printed, and stacksTime how long that may take.
const (
	maxStacks  = 4
	stacksTime = 200 * time.Millisecond
)

// leastBeats is how often a rank that waits has looked between two looks of rank 0's, unless
// it is kept from running.
const leastBeats = 20

// A guarded world is one whose ranks can be seen.
type guarded interface {
	Segment() *control.Segment
	Ask(rank int, number uint64)
	AskStacks(rank int)
}

// guard begins to watch the ranks of r's world, if they can be seen.
func (r *rank) guard() error {
	limit, given, err := hangLimit(os.Getenv(job.HangTimeoutVar), r.token != "")
	if err != nil {
		return err
	}
	g, ok := r.mpi.(guarded)
	if !ok || g.Segment() == nil {
		return nil
	}
	r.seen = g.Segment()
	if r.job.Rank == 0 {
		go r.watchHangs(g, limit, given)
	}
	return nil
}

// hangLimit returns how long nothing may move, 0 for ever, and whether the user has said so. gorun has a limit by itself.
func hangLimit(text string, gorun bool) (limit time.Duration, given bool, err error) {
	switch {
	case text == "" && gorun:
		return job.HangTimeout, false, nil
	case text == "":
		return 0, false, nil
	}
	limit, err = time.ParseDuration(text)
	if err != nil || limit < 0 {
		return 0, false, fmt.Errorf("runtime: %s=%q: give a time, such as 5m, or 0 for none", job.HangTimeoutVar, text)
	}
	return limit, true, nil
}

// lostRank says that the process of a rank of this host has ended. gorun says so itself. It is told of an exit status, which MPICH's
// launcher loses now and then, with the word of the rank's shell. One of 128 and more is that of a rank that had to end.
func (r *rank) lostRank(err *comm.EndedError, status int) {
	switch {
	case r.token == "":
		fmt.Fprintf(os.Stderr, "rank %d on %s: %v\n", r.job.Rank, r.host, err)
	case 0 < status && status < 128 && r.launch.Launcher == "pmi":
		r.tellOf(err.Rank, job.Word{Kind: job.Gone, Status: status})
	}
}

// watchHangs looks for ranks that wait for each other, and for limit without movement, which counts as gorun's
// --hang-timeout does. It ends the job.
func (r *rank) watchHangs(g guarded, limit time.Duration, given bool) {
	v := newView(r.seen)
	w := &watchdog.Watchdog{Limit: limit, Always: given, Circles: true, See: v.see, Busy: v.busy, Ask: g.Ask, OnlyWaits: r.seen.OnlyWaits}
	if r.token == "" {
		w.Setting = job.HangTimeoutVar
	}
	for now := range time.Tick(hangInterval) {
		h := w.Look(now, r.job.Size)
		if h == nil {
			continue
		}
		fmt.Fprintf(os.Stderr, "rank %d on %s: the job hangs: %s\n%s", r.job.Rank, r.host, h.Why(), h.Table(r.seen, now))
		for _, laggard := range h.Laggards[:min(maxStacks, len(h.Laggards))] {
			g.AskStacks(laggard)
		}
		time.Sleep(stacksTime)
		r.world.Abort(fmt.Errorf("the job hangs: %s", h.Why()))
		return
	}
}

// A view is what rank 0 sees in one look and saw in the one before.
type view struct {
	segment       *control.Segment
	waiting       []control.Waiting
	beats, before []uint64
}

func newView(s *control.Segment) *view {
	n := s.Ranks()
	return &view{segment: s, waiting: make([]control.Waiting, n), beats: make([]uint64, n), before: make([]uint64, n)}
}

// see is a Watchdog's See, which asks for the ranks in ascending order.
func (v *view) see(rank int) watchdog.Sighting {
	if rank == 0 {
		v.refresh()
	}
	s := watchdog.Sighting{Waiting: v.waiting[rank], Calls: v.segment.Calls(rank), Moves: v.segment.Moves(rank)}
	s.Last, _ = v.segment.LastCall(rank)
	s.Step, _ = v.segment.Step(rank)
	s.Saved = v.segment.Saved(rank)
	state := v.segment.State(rank)
	s.Joined, s.Ended = state != control.Starting, state > control.Running
	return s
}

// A collective is one of a communicator.
type collective struct{ comm, number uint64 }

// refresh looks at all ranks. A rank that has exchanged its notes of a collective does not know who
// has not come; a neighbour of that rank does.
func (v *view) refresh() {
	v.beats, v.before = v.before, v.beats
	missing := map[collective]int{}
	for r := range v.waiting {
		v.waiting[r], v.beats[r] = v.segment.Waiting(r), v.segment.Beats(r)
		for _, w := range v.waiting[r].Waits {
			if of, ok := collectiveOf(&w); ok && w.On >= 0 {
				missing[of] = w.On
			}
		}
	}
	if len(missing) == 0 {
		return
	}
	for r := range v.waiting {
		for i := range v.waiting[r].Waits {
			w := &v.waiting[r].Waits[i]
			if of, ok := collectiveOf(w); ok && w.On == control.Nobody {
				if on, known := missing[of]; known && on != r {
					w.On = on
				}
			}
		}
	}
}

// collectiveOf returns the collective that a rank waits in; ok is false if it waits in another call.
func collectiveOf(w *control.Wait) (of collective, ok bool) {
	kind := comm.Kind(w.What & 0xff)
	return collective{w.Comm, w.Seq}, w.Seq > 0 && !kind.PointToPoint()
}

// busy reports whether one of ranks that wait may be kept from running.
func (v *view) busy(ranks []int) bool {
	for _, r := range ranks {
		if v.beats[r]-v.before[r] < leastBeats {
			return true
		}
	}
	return false
}
