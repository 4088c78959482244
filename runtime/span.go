package runtime

import (
	"context"
	"encoding/json"
	"os"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/observe"
	"github.com/gorun-spmd/gorun/internal/stack"
)

// Span begins a part of the program, which ends when the function is called that Span returns.
// It is in the job's trace and in its report, under its name; time in spans that are named
// input is counted as the time that the program takes to get its data. Spans may nest. Without
// gorun --trace, --report or --dashboard it does nothing, and so where Main has not made ctx.
//
//	end := runtime.Span(ctx, "input")
//	batch := source.Next()
//	end()
func Span(ctx context.Context, name string) (end func()) {
	r := from(ctx)
	if r == nil || r.trace == nil {
		return func() {}
	}
	start := time.Now()
	var pcs [stack.Depth]uintptr
	n := goruntime.Callers(2, pcs[:])
	return func() { r.trace.Span(observe.Program, name, pcs[:n], start) }
}

// Metric tells the value that a metric has at the present step (see SetStep), for the job's
// report: "loss", "tokens/s". One rank tells it if all have the same. Without gorun --trace,
// --report or --dashboard it does nothing, and so where Main has not made ctx.
func Metric(ctx context.Context, name string, value float64) {
	if r := from(ctx); r != nil && r.trace != nil {
		r.trace.Metric(name, value)
	}
}

// observed is what a tracer keeps of what it observes besides calls.
type observed struct {
	rank *rank

	mu    sync.Mutex
	sites map[[stack.Depth]uintptr]string
	told  map[string]*thinned // metrics by name; memory and steps by the names of their kinds
	room  int                 // bytes of texts that layouts may still take
}

const (
	memoryInterval = 200 * time.Millisecond
	layoutBytes    = 1 << 20

	// A series takes thinAfter samples as they come, then as many of every second, of every
	// fourth, and so on, so that a long run keeps its beginning.
	thinAfter = 1 << 11
)

// observe has the packages that compute tell t what they do, until the rank ends.
func (t *tracer) observe(r *rank) {
	t.observed = observed{rank: r, sites: map[[stack.Depth]uintptr]string{}, told: map[string]*thinned{}, room: layoutBytes}
	r.world.Internals().Attr(observe.Key{}, func() any { return t })
	t.sampleMemory()
	go func() {
		for range time.Tick(memoryInterval) {
			t.sampleMemory()
		}
	}()
}

var spanShapes = [...]control.TraceShape{
	observe.Operator: control.TraceOperator, observe.Gradient: control.TraceGradient, observe.Program: control.TraceSpan,
}

// Span keeps a span.
func (t *tracer) Span(kind observe.Kind, name string, pcs []uintptr, start time.Time) {
	end := time.Now()
	if pcs == nil {
		var here [stack.Depth]uintptr
		pcs = here[:goruntime.Callers(2, here[:])]
	}
	t.log.Add(control.TraceRecord{
		Start: t.at(start), End: t.at(end), Peer: -1, Shape: spanShapes[kind],
		Name: t.log.Text(name), Site: t.log.Text(t.observed.site(pcs)),
	})
}

// site is the line of a stack. It keeps the text: to make it takes longer than many operators.
func (o *observed) site(pcs []uintptr) string {
	var key [stack.Depth]uintptr
	copy(key[:], pcs)
	o.mu.Lock()
	defer o.mu.Unlock()
	text, ok := o.sites[key]
	if !ok {
		text = stack.Line(key[:min(len(pcs), stack.Depth)], "")
		o.sites[key] = text
	}
	return text
}

// Metric keeps the value of a metric.
func (t *tracer) Metric(name string, value float64) { t.sample(control.SampleMetric, name, value) }

// Layout keeps how a parameter is divided.
func (t *tracer) Layout(l *observe.Layout) {
	text, err := json.Marshal(l)
	if err != nil { // JSON has all that is in it
		return
	}
	t.observed.mu.Lock()
	defer t.observed.mu.Unlock()
	if t.observed.room -= len(text); t.observed.room >= 0 {
		t.log.Sample(control.TraceSample{At: t.at(time.Now()), Step: -1, Name: t.log.Text(string(text)), Kind: control.SampleLayout})
	}
}

// A thinned series is one of which fewer and fewer samples are kept.
type thinned struct{ kept, every, passed int }

// sample keeps a sample, unless its series is thinned.
func (t *tracer) sample(kind control.SampleKind, name string, value float64) {
	key := string(rune('0'+kind)) + name
	o := &t.observed
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.told[key]
	if s == nil {
		s = &thinned{every: 1}
		o.told[key] = s
	}
	if s.passed++; s.passed < s.every {
		return
	}
	s.passed = 0
	if s.kept++; s.kept == thinAfter {
		s.kept, s.every = 0, 2*s.every
	}
	t.log.Sample(control.TraceSample{At: t.at(time.Now()), Step: o.rank.step.Load(), Value: value, Name: t.log.Text(name), Kind: kind})
}

// sampleMemory keeps how much memory this process has, what it shares with others included.
// Of ranks that are goroutines the first tells it.
func (t *tracer) sampleMemory() {
	if r := t.observed.rank; r.goroutines != nil && r.job.Rank != 0 {
		return
	}
	if bytes := resident(); bytes > 0 {
		t.sample(control.SampleMemory, "", float64(bytes))
	}
}

// resident returns the bytes of memory that this process has; 0 where the system does not say.
func resident() int {
	text, _ := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.Atoi(fields[1])
	return pages * os.Getpagesize()
}
