// Package progress shows how far a training run is: a bar that is redrawn in
// place on a terminal, a plain line now and then anywhere else.
//
//	m := progress.New(os.Stderr, progress.Options{Steps: 400})
//	for step := range 400 {
//		…
//		m.Update(progress.Status{Step: step + 1, Loss: loss, Done: (step + 1) * tokensPerStep})
//	}
//	m.Finish()
package progress

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

const (
	redrawEvery = 100 * time.Millisecond // of a bar
	lineEvery   = 5 * time.Second        // of plain lines, or
	lineShare   = 0.05                   // after this share of the run, but not
	lineAtMost  = time.Second            // more often than this
)

// Options say when a run ends. At least one of them should be given; without,
// there is no bar and no time left.
type Options struct {
	Steps int           // after how many the run ends; 0: it does not end by them
	Limit time.Duration // the run ends after this time; 0 means no such end
	Unit  string        // of what a step works on; "" means tokens

	// Columns returns the width of the terminal that shows the output if New cannot find
	// it out, as behind a launcher. nil: New finds it out.
	Columns func() int
}

// A Status is the progress of a run.
type Status struct {
	Step int     // steps done
	Loss float64 // of the last step
	Done int     // tokens, or what Unit says, trained on since the start
}

// A Meter shows the progress of one run. It is for one goroutine.
type Meter struct {
	w       io.Writer
	columns func() int // width of the terminal; nil if w is not one
	options Options

	start time.Time
	last  Status
	first mark   // when the first step was done
	marks []mark // the newest updates, oldest first, for the rate at hand

	shown      Status    // the last status that was written out
	shownAt    time.Time // when
	shownShare float64   // and the share that was done
}

// A mark is a time and the progress at that time.
type mark struct {
	at         time.Time
	step, done int
}

// marksKept is how many of the last steps the estimate of the time left uses.
const marksKept = 32

// New returns a Meter that writes to w, with a bar if w is a terminal or
// o.Columns says that it ends up on one. Its clock starts now.
func New(w io.Writer, o Options) *Meter {
	if o.Unit == "" {
		o.Unit = "tokens"
	}
	if o.Columns != nil {
		return newMeter(w, o, o.Columns)
	}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return newMeter(w, o, nil)
	}
	return newMeter(w, o, func() int {
		columns, _, err := term.GetSize(int(f.Fd()))
		if err != nil || columns <= 0 {
			return 80
		}
		return columns
	})
}

func newMeter(w io.Writer, o Options, columns func() int) *Meter {
	now := time.Now()
	return &Meter{w: w, columns: columns, options: o, start: now, marks: []mark{{at: now}}}
}

// Update tells the Meter where the run stands. It writes only when it is time.
func (m *Meter) Update(s Status) {
	now := time.Now()
	m.last = s
	at := mark{now, s.Step, s.Done}
	if m.first.at.IsZero() {
		m.first = at
	}
	m.marks = append(m.marks, at)
	if len(m.marks) > marksKept {
		m.marks = append(m.marks[:0], m.marks[1:]...)
	}
	if m.due(now) {
		m.show(now)
	}
}

// due reports whether it is time to show a new status.
func (m *Meter) due(now time.Time) bool {
	since := now.Sub(m.shownAt)
	switch {
	case m.shownAt.IsZero():
		return true
	case m.columns != nil:
		return since >= redrawEvery
	}
	return since >= lineEvery || since >= lineAtMost && m.share(now)-m.shownShare >= lineShare
}

// Println writes a line of text, above the bar if there is one.
func (m *Meter) Println(text string) {
	if m.columns == nil || m.shownAt.IsZero() {
		fmt.Fprintln(m.w, text)
		return
	}
	fmt.Fprintf(m.w, "\r\x1b[K%s\n", text)
	m.show(time.Now())
}

// Finish shows the last status, if it is not shown already, and ends the bar's
// line. Without an Update it does nothing.
func (m *Meter) Finish() {
	if m.shownAt.IsZero() {
		return
	}
	if m.columns != nil {
		m.show(time.Now())
		fmt.Fprintln(m.w)
	} else if m.shown != m.last {
		m.show(time.Now())
	}
}

// show writes the status out: over the last one on a terminal, else as a line.
func (m *Meter) show(now time.Time) {
	m.shown, m.shownAt, m.shownShare = m.last, now, m.share(now)
	if m.columns == nil {
		fmt.Fprintln(m.w, m.line(now))
		return
	}
	fmt.Fprintf(m.w, "\r%s\x1b[K", m.bar(now, m.columns()))
}

// Rate returns the tokens per second of the whole run up to the last Update. The
// first step, in which caches and pools fill, does not count if there are more.
func (m *Meter) Rate() float64 {
	newest := m.marks[len(m.marks)-1]
	if newest.step > m.first.step && newest.at.After(m.first.at) {
		return m.first.rate(newest)
	}
	return mark{at: m.start}.rate(newest)
}

// rate returns the tokens per second from a to b, 0 if no time has passed.
func (a mark) rate(b mark) float64 {
	seconds := b.at.Sub(a.at).Seconds()
	if seconds <= 0 {
		return 0
	}
	return float64(b.done-a.done) / seconds
}

// share returns how much of the run is done, from 0 to 1: by steps or by time,
// whichever ends it first.
func (m *Meter) share(now time.Time) float64 {
	done := 0.0
	if m.options.Steps > 0 {
		done = float64(m.last.Step) / float64(m.options.Steps)
	}
	if m.options.Limit > 0 {
		done = max(done, now.Sub(m.start).Seconds()/m.options.Limit.Seconds())
	}
	return min(done, 1)
}

// left estimates how long the run will still take; ok is false if there are no steps to
// estimate it from.
func (m *Meter) left(now time.Time) (d time.Duration, ok bool) {
	oldest, newest := m.marks[0], m.marks[len(m.marks)-1]
	if oldest.at.Equal(m.start) && newest.step > 1 { // an earlier run, from which this one goes on, may have made the first steps
		oldest = m.first
	}
	if steps := newest.step - oldest.step; m.options.Steps > 0 && steps > 0 {
		remaining := float64(max(0, m.options.Steps-newest.step))
		d = time.Duration(float64(newest.at.Sub(oldest.at)) * remaining / float64(steps))
		ok = true
	}
	if m.options.Limit > 0 {
		remaining := max(0, m.options.Limit-now.Sub(m.start))
		if !ok || remaining < d {
			d, ok = remaining, true
		}
	}
	return d, ok
}
