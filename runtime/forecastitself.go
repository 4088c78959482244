package runtime

import (
	"math"
	goruntime "runtime"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/forecast"
)

// A clock is the finder of what a step of the program takes beside kernels and calls. One rank runs alone, on a device that
// computes with integers alone and counts no work, and makes steps one after the other. The time of its thread on processors
// counts, as other programs may run meanwhile.
type clock struct {
	w      *forecaster
	steps  int       // begun
	first  time.Time // when the first began
	thread time.Duration
	began  time.Time     // of this step
	calls  time.Duration // that calls took in it, with waiting
	read   time.Duration // what it takes to read the time

	// Of the steps but the first, in which much happens for the first time.
	laps        int
	least       time.Duration    // of the thread, beside kernels and calls
	kernels     int              // of a step
	from, until [2]time.Duration // the thread and the process, of all steps
}

// A clock has seen enough after so many steps and so much time, or after so much more time.
const (
	fewSteps  = 10
	shortTime = 300 * time.Millisecond
	longTime  = 3 * time.Second
)

func (c *clock) enough() bool {
	took := time.Since(c.first)
	return c.steps > 0 && c.laps > 0 && (c.laps >= fewSteps && took > shortTime || took > longTime)
}

func (c *clock) ends(by, time int) bool { return by <= byUpdate && c.enough() }

func (c *clock) watch()     {}
func (c *clock) settle()    {}
func (c *clock) restart()   { c.steps = 0 }
func (c *clock) begun() int { return c.steps }

func (c *clock) lap() {
	now, wall := [2]time.Duration{threadTime(), processTime()}, time.Since(c.began)
	kernels, computed, took := c.w.dev.TakeTime()
	switch c.steps {
	case 0:
		goruntime.LockOSThread() // until the rank ends
		c.w.dev.Time(threadTime)
		const reads = 1000
		start := threadTime()
		for range reads {
			threadTime()
		}
		*c = clock{w: c.w, first: time.Now(), read: (threadTime() - start) / reads, least: math.MaxInt64}
	case 1:
		c.from = now
	default:
		c.laps++
		c.kernels, c.until = kernels, now
		thread := now[0] - c.thread
		calls := max(0, c.calls-(wall-thread)) // the thread's time in calls: it has waited in them
		c.least = min(c.least, thread-took-time.Duration(computed)*c.read-calls)
	}
	c.steps++
	c.calls = 0
	c.began, c.thread = time.Now(), threadTime()
}

// called leaves what a call took out of the step, if the rank has waited for it.
func (c *clock) called(e *comm.Event) {
	if c.steps > 0 && (e.Waits || !e.Async) {
		c.calls += e.Time
	}
}

// report says what the steps have shown, if there were any. What the rank's thread takes is that of the fastest, and what other
// threads take is the mean.
func (c *clock) report([]*forecaster) *forecast.Report {
	out := &forecast.Report{Size: c.w.request.Size}
	if c.laps > 0 {
		others := c.until[1] - c.from[1] - (c.until[0] - c.from[0])
		out.Itself = &forecast.Itself{Seconds: max(0, c.least.Seconds()),
			Others: max(0, others.Seconds()/float64(c.laps)), Kernels: c.kernels}
	}
	return out
}
