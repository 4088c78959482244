package runtime

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/forecast"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// A group is what a forecaster knows of a communicator.
type group struct {
	axes string // of the mesh
	forecast.Group
}

// newGroup describes some ranks, by world number.
func (w *forecaster) newGroup(axes, key string, ranks []int) *group {
	g := &group{axes, forecast.Group{Key: key, Size: len(ranks), Together: forecast.Together(w.request.Net.Units(), ranks)}}
	for _, r := range ranks {
		if _, runs := slices.BinarySearch(w.request.Run, r); runs {
			g.Here = append(g.Here, r)
		}
	}
	return g
}

// groupOf returns the communicator of an event; the lock is held. Of one that is not the world's, and
// that no mesh has made, the ranks are taken to be the first.
func (w *forecaster) groupOf(e *comm.Event) *group {
	if g := w.groups[e.Comm]; g != nil {
		return g
	}
	g := w.newGroup(e.Comm, e.Comm, ints.Range(e.Size))
	if e.Comm != "world" {
		g.Key, g.Here = fmt.Sprintf("%s of %d alone", e.Comm, w.rank.job.Rank), nil
	}
	w.groups[e.Comm] = g
	return g
}

// A line is a rank's timeline in the making.
type line struct {
	forecast.Timeline
	calls  map[forecast.Call]int // by index in Timeline
	groups map[*group]int
}

func newStep() *step {
	return &step{calls: map[forecast.Call]*forecast.Call{}, kernels: map[string]*forecast.Kernel{},
		line: line{calls: map[forecast.Call]int{}, groups: map[*group]int{}}}
}

// add adds a call, before which the rank has computed for some seconds.
func (l *line) add(key forecast.Call, e *comm.Event, g *group, seconds float64) {
	call, ok := l.calls[key]
	if !ok {
		call = len(l.Calls)
		l.calls[key], l.Calls = call, append(l.Calls, key)
	}
	at, ok := l.groups[g]
	if !ok {
		at = len(l.Groups)
		l.groups[g], l.Groups = at, append(l.Groups, g.Group)
	}
	l.Events = append(l.Events, forecast.Event{Compute: seconds, Call: call, Group: at, Bytes: e.Bytes, Peer: e.Peer})
}

// itself is the name under which the program itself is listed among the kernels.
const itself = "the program"

// work adds what the device has counted since it was last asked to a step, and returns how many
// seconds it takes.
func (w *forecaster) work(s *step) (seconds float64) {
	m := w.request.Machine
	add := func(name string, n, flops, bytes int, each float64) {
		k := s.kernels[name]
		if k == nil {
			k = &forecast.Kernel{Name: name}
			s.kernels[name] = k
		}
		k.Count += n
		k.FLOPs += n * flops
		k.Bytes += n * bytes
		k.Seconds += float64(n) * each
		seconds += float64(n) * each
	}
	calls := 0
	for k, n := range w.dev.TakeWork() {
		calls += n
		name, each := k.Kernel, 0.0
		if k.DType != 0 {
			name += " " + k.DType.String()
		}
		if m != nil {
			each = m.Kernel(k.Kernel, k.DType.String(), k.FLOPs, k.Bytes, k.Rows)
		}
		add(name, n, k.FLOPs, k.Bytes, each)
	}
	if m != nil && calls > 0 {
		add(itself, calls, 0, 0, m.Program)
	}
	return seconds
}

// Predicts reports whether times are predicted.
func (w *forecaster) Predicts() bool { return w.request.Machine != nil }

// Predict makes a call that is no part of a step, and returns how many seconds it takes this rank.
func (w *forecaster) Predict(call func() error) (seconds float64, err error) {
	s := newStep()
	w.mu.Lock()
	w.close()
	was := w.steps
	w.steps = []*step{s}
	w.mu.Unlock()
	err = call()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.close()
	w.steps = was
	for _, e := range s.line.Events {
		g := &s.line.Groups[e.Group]
		seconds += e.Compute + w.request.Net.Collective(s.line.Calls[e.Call].Kind, float64(e.Bytes), g.Size, g.Together)
	}
	seconds += s.line.Tail
	if n := len(w.predicted); n < len(w.request.Predicted) {
		seconds = w.request.Predicted[n]
	}
	w.predicted = append(w.predicted, seconds)
	return seconds, err
}

// report adds the work of a step, and its timeline, to what is said of a rank.
func (s *step) report(one *forecast.Rank, q *forecast.Request) {
	for _, k := range s.kernels {
		one.FLOPs += k.FLOPs
		one.Bytes += k.Bytes
		one.Kernels = append(one.Kernels, *k)
	}
	slices.SortFunc(one.Kernels, func(a, b forecast.Kernel) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), b.FLOPs-a.FLOPs, cmp.Compare(a.Name, b.Name))
	})
	if q.Machine != nil {
		one.Timeline = &s.line.Timeline
	}
}
