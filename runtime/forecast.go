package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/standin"
	"github.com/gorun-spmd/gorun/internal/forecast"
	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/internal/observe"
	"github.com/gorun-spmd/gorun/internal/stack"
	"github.com/gorun-spmd/gorun/tensor/meta"
)

// What tells where a step of the program begins. If one does that is further down, those above it
// do not count.
const (
	byUpdate   = 1 + iota // an optimizer changes a parameter
	byStopping            // Stopping
	bySetStep             // SetStep
)

// A forecaster keeps what one rank does that runs for a forecast. The methods that the program's
// calls come to do nothing if it is nil.
type forecaster struct {
	request *forecast.Request
	end     *standin.Rank
	dev     *meta.Device
	rank    *rank

	mu     sync.Mutex
	by     int // of the constants above
	steps  []*step
	groups map[string]*group // by name of the communicator
	meshes []*forecast.Mesh
	number atomic.Int64 // of the step
	finder finder       // of what is wanted of the steps
	stop   bool         // it has told the program to

	predicted []float64 // what Predict has returned
}

// A finder is what a forecaster does with the steps that the program makes: a counter or a clock. The forecaster's lock is held,
// but in watch and settle.
type finder interface {
	watch()                 // before the program begins
	settle()                // before a step begins
	lap()                   // ends the step in progress, if there is one, and begins one
	restart()               // what has begun were no steps
	begun() int             // steps, with the one in progress
	called(e *comm.Event)   // a call has been made
	enough() bool           // there were steps enough
	ends(by, time int) bool // a program whose steps are told by by, before update number time
	report(ranks []*forecaster) *forecast.Report
}

// A step is what a rank does from one mark to the next.
type step struct {
	calls   map[forecast.Call]*forecast.Call // by what is the same of those that are alike
	kernels map[string]*forecast.Kernel      // by name
	line    line
}

// runForecast runs f on the ranks of a request, each a goroutine, and reports what a step of them
// does. It returns the exit status.
func (r *rank) runForecast(text string, f func(context.Context, *comm.Comm) error) int {
	q := new(forecast.Request)
	if err := json.Unmarshal([]byte(text), q); err != nil || len(q.Run) == 0 || q.Size < 1 {
		fmt.Fprintf(os.Stderr, "runtime: %s=%q is not what gorun plan asks: %v\n", job.PlanVar, text, err)
		return 1
	}
	closeOnExec(q.FD)
	report := os.NewFile(uintptr(q.FD), "forecast")
	defer report.Close()
	return r.reportForecast(q, report, f)
}

// reportForecast is runForecast for a request that has been read. It writes the forecast.Report to out.
func (r *rank) reportForecast(q *forecast.Request, out io.Writer, f func(context.Context, *comm.Comm) error) (status int) {
	ends := standin.Open(standin.Config{Size: q.Size, Run: q.Run, For: q.For})
	defer standin.Watch(ends)()
	shared := new(goroutineRanks)
	ranks := make([]*forecaster, len(ends))
	var all sync.WaitGroup
	var failed atomic.Int32
	for i, end := range ends {
		one := newRank(job.Job{Rank: q.Run[i], Size: q.Size, LocalRank: q.Run[i], LocalSize: q.Size}, r.launch)
		one.goroutines = shared
		w := &forecaster{request: q, end: end, rank: one, groups: map[string]*group{}}
		if w.finder = (counter{w}); q.Itself {
			w.finder = &clock{w: w}
		}
		w.dev = meta.New(meta.Config{Read: w.read, Updated: w.updated})
		end.Use(w.dev.Numberless, func() int { return int(w.number.Load()) })
		one.forecast, ranks[i] = w, w
		all.Go(func() {
			status := one.run(f)
			cause := ""
			if status != 0 {
				failed.CompareAndSwap(0, int32(status))
				cause = fmt.Sprintf("exit status %d", status)
			}
			end.End(cause)
		})
	}
	all.Wait()
	if status = int(failed.Load()); status != 0 {
		return status
	}
	if err := json.NewEncoder(out).Encode(ranks[0].finder.report(ranks)); err != nil {
		fmt.Fprintf(os.Stderr, "runtime: the report for gorun plan: %v\n", err)
		return 1
	}
	return 0
}

// watch has the communicators and package dtensor tell w what the rank does.
func (w *forecaster) watch() {
	world := w.rank.world
	world.Internals().Attr(forecast.Key{}, func() any { return w })
	w.finder.watch()
	world.Observe(w.called)
}

// Span, Metric and Layout keep nothing: nothing is computed, and has a value.
func (w *forecaster) Span(observe.Kind, string, []uintptr, time.Time) {}
func (w *forecaster) Metric(string, float64)                          {}
func (w *forecaster) Layout(*observe.Layout)                          {}

// called hears of a call.
func (w *forecaster) called(e *comm.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finder.called(e)
}

// A counter is the finder of what steps compute, send and keep; times are predicted.
type counter struct{ w *forecaster }

func (c counter) watch() {
	c.w.rank.world.Internals().Attr(observe.Key{}, func() any { return observe.Observer(c.w) }) // else gradients have no lines
}

// settle frees what the step before has left behind, which is not the memory of the next.
func (c counter) settle() { goruntime.GC() }

func (c counter) lap() {
	c.w.close()
	c.w.steps = append(c.w.steps, newStep())
	c.w.number.Store(int64(len(c.w.steps)))
}

func (c counter) restart()   { c.w.steps = nil }
func (c counter) begun() int { return len(c.w.steps) }

func (c counter) called(e *comm.Event) {
	w := c.w
	if e.Waits || len(w.steps) == 0 {
		return
	}
	s := w.steps[len(w.steps)-1]
	g := w.groupOf(e)
	key := forecast.Call{Kind: e.Kind.String(), Group: g.axes, Size: e.Size, Cause: e.Cause, Line: e.Site(), Async: e.Async}
	alike := s.calls[key]
	if alike == nil {
		made := key
		alike = &made
		s.calls[key] = alike
	}
	alike.Count++
	alike.Bytes += e.Bytes
	if w.request.Machine != nil {
		s.line.add(key, e, g, w.work(s))
	}
}

// Mesh keeps a mesh.
func (w *forecaster) Mesh(names []string, sizes, ranks []int) *forecast.Mesh {
	whole := len(ranks) == w.request.Size
	for i, r := range ranks {
		whole = whole && i == r
	}
	m := &forecast.Mesh{Names: names, Sizes: sizes, Whole: whole, Breaks: make([][]int, len(sizes))}
	w.meshes = append(w.meshes, m)
	return m
}

// Group keeps what a communicator is called, and its ranks.
func (w *forecaster) Group(name, axes string, ranks []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if name != "world" {
		w.groups[name] = w.newGroup(axes, fmt.Sprintf("%s of %d", name, ranks[0]), ranks)
	}
}

// mark says that a step begins.
func (w *forecaster) mark(by int) {
	if w == nil {
		return
	}
	w.finder.settle()
	w.mu.Lock()
	defer w.mu.Unlock()
	if by < w.by {
		return
	}
	if by > w.by {
		w.by = by
		w.finder.restart()
	}
	w.finder.lap()
}

// close ends the step in progress, if there is one; the lock is held.
func (w *forecaster) close() {
	if len(w.steps) == 0 {
		w.dev.TakeWork()
		return
	}
	s := w.steps[len(w.steps)-1]
	s.line.Tail += w.work(s)
}

// enough reports whether the program has made the steps that are wanted.
func (w *forecaster) enough() bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop = w.stop || w.finder.enough()
	return w.stop
}

func (c counter) enough() bool {
	made := len(c.w.steps)
	if c.w.by == byStopping {
		made-- // the step that has just begun
	}
	return made >= c.w.request.Steps
}

// errEnough ends a program that does not ask Stopping.
var errEnough = errors.New("gorun plan has seen enough steps")

// updated marks the steps of a program that says nothing of them, and ends it.
func (w *forecaster) updated(time int) error {
	w.mu.Lock()
	by, begun := w.by, w.finder.begun()
	w.mu.Unlock()
	if by <= byUpdate && time > begun {
		w.mark(byUpdate)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.finder.ends(by, time) {
		return errEnough
	}
	return nil
}

func (c counter) ends(by, time int) bool { return time > c.w.request.Steps+1 }

// over reports whether the program has ended with err as it was told to, or by itself.
func (w *forecaster) over(err error) bool {
	return w != nil && (err == nil || errors.Is(err, errEnough) || w.stop && errors.Is(err, context.Canceled))
}

// read says what the program reads where there are no numbers. Libraries may read, since what they
// do does not depend on it, and so may package train's loop, which prints losses.
func (w *forecaster) read(op string, pcs []uintptr) (float64, error) {
	line := stack.Line(pcs, "")
	if v, ok := w.request.Values[line]; ok {
		return v, nil
	}
	frames := goruntime.CallersFrames(pcs)
	reader := true // the frames so far are of functions that read
	for {
		f, more := frames.Next()
		name := f.Function[strings.LastIndexByte(f.Function, '/')+1:]
		switch {
		case name == "train.(*Run).Do":
			return 0, nil
		case !reader:
		case strings.HasPrefix(name, "tensor.") || name == "dtensor.(*Tensor).Item":
			if strings.HasSuffix(name, ".Item") {
				op = "Item" // which the program has called, not ToSlice
			}
		case stack.Library(f):
			return 0, nil
		default:
			reader = false
		}
		if !more {
			return 0, fmt.Errorf("gorun plan: %s reads numbers at %s, and a plan has none: what follows may depend on them; give them all a value "+
				"with gorun plan --value %s=1, or print them in the loop of package train", op, line, line)
		}
	}
}

// report puts together what the ranks have done.
func (c counter) report(ranks []*forecaster) *forecast.Report {
	q := c.w.request
	counts := map[int]int{}
	for r := range q.Size {
		counts[q.For(r)]++
	}
	goruntime.GC()
	var heap goruntime.MemStats
	goruntime.ReadMemStats(&heap)
	out := &forecast.Report{Size: q.Size, Meshes: ranks[0].meshes}
	for _, w := range ranks {
		for i, seconds := range w.predicted {
			if i == len(out.Predicted) {
				out.Predicted = append(out.Predicted, 0)
			}
			out.Predicted[i] = max(out.Predicted[i], seconds)
		}
		u := w.dev.Usage()
		one := &forecast.Rank{Rank: w.rank.job.Rank, Count: counts[w.rank.job.Rank], Steps: len(w.steps)}
		one.Memory = forecast.Memory{Parameters: u.Roles[meta.Parameter], Gradients: u.Roles[meta.Gradient], State: u.Roles[meta.State],
			Peak: u.Peak, Line: stack.Line(u.Stack, ""), Host: int(heap.HeapAlloc) / len(ranks)}
		m := &one.Memory
		m.Activations = m.Peak - m.Parameters - m.Gradients - m.State
		if len(w.steps) > 0 {
			s := w.steps[min(1, len(w.steps)-1)]
			s.report(one, w.request)
			for _, c := range s.calls {
				one.Calls = append(one.Calls, *c)
			}
			slices.SortFunc(one.Calls, func(a, b forecast.Call) int {
				return cmp.Or(b.Bytes-a.Bytes, b.Count-a.Count, cmp.Compare(a.Kind+a.Group+a.Line+a.Cause, b.Kind+b.Group+b.Line+b.Cause))
			})
		}
		out.Ranks = append(out.Ranks, one)
	}
	if len(q.Run) < q.Size {
		out.Notes = append(out.Notes, fmt.Sprintf("%d of %d ranks run and stand in for the others; data of a batch, such as its distinct ids, "+
			"are theirs", len(q.Run), q.Size))
	}
	return out
}
