package launcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/job"
)

// checkTrace returns an error if the file of --trace cannot be written, before the
// ranks have worked for it, and makes its name absolute. It leaves no file where there
// was none.
func (o *options) checkTrace() error {
	if o.trace == "" {
		return nil
	}
	path, err := absolute(o.trace)
	if err != nil {
		return fmt.Errorf("--trace: %w", err)
	}
	if o.dryRun {
		o.trace = path
		return nil
	}
	_, missing := os.Lstat(path)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|unix.O_NONBLOCK, 0o666) // a pipe that nobody reads is refused
	if err != nil {
		return &statusError{1, fmt.Errorf("--trace %s: %v", o.trace, errors.Unwrap(err))}
	}
	o.trace = path
	err = f.Close()
	if missing != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// handOverTrace has ranks that another launcher starts write the trace themselves.
func (o *options) handOverTrace() {
	if o.trace == "" {
		return
	}
	for i := range o.apps {
		o.apps[i].vars = append(o.apps[i].vars, job.TraceVar+"="+o.trace)
	}
}

// reportTrace says what has become of the trace of ranks that another launcher has
// started, and of which rank 0 has written it.
func (h *handover) reportTrace(status int) {
	path := h.opts.trace
	if path == "" {
		return
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.Size() > 0:
		h.console.say("the trace is in %s; ui.perfetto.dev opens it", path)
	case status != 0:
		h.console.say("--trace: all ranks put one together when they end well; else each that can leaves its own part, rank R as %s.rankR", path)
	case h.remote:
		h.console.say("--trace: rank 0 has written %s on its own host, if its program uses package runtime", path)
	default:
		h.console.say("--trace: no rank has kept one; programs that do use package runtime")
	}
}

// openTraces makes the files in which the ranks keep their parts.
func (a *attempt) openTraces() error {
	if a.opts.trace == "" {
		return nil
	}
	for r := range a.plan.ranks {
		f, err := control.CreateTrace(r, len(a.plan.ranks))
		if err != nil {
			return remedied(err)
		}
		a.traces = append(a.traces, f)
	}
	return nil
}

// traceFD is the descriptor of a rank's own part, 0 if there is none.
func (a *attempt) traceFD() int {
	if a.traces == nil {
		return 0
	}
	return 3 + len(a.segment.Files())
}

// tracePath is where the trace of this attempt goes: out.json, of the first restart
// out.1.json, and so on.
func (a *attempt) tracePath() string {
	if a.number == 0 {
		return a.opts.trace
	}
	ext := filepath.Ext(a.opts.trace)
	return strings.TrimSuffix(a.opts.trace, ext) + "." + strconv.Itoa(a.number) + ext
}

// writeTrace puts the ranks' parts together, however they have ended, and says so. It
// returns the exit status that lost output asks for: 0 if there was none.
func (a *attempt) writeTrace(o *outcome) int {
	if a.traces == nil {
		return 0
	}
	var parts []*control.TracePart
	calls, dropped := 0, uint64(0)
	for r, f := range a.traces {
		p, err := control.ReadTrace(f)
		if err != nil {
			a.console.say("--trace: rank %d: %v", r, err)
			return 1
		}
		if p.Began == 0 {
			continue
		}
		p.Rank = r // whatever the rank has written there
		if o.ends[r].bad() {
			a.addUnended(p, o.ends[r].at)
		}
		calls += len(p.Records)
		dropped += p.Dropped()
		parts = append(parts, p)
	}
	if len(parts) == 0 {
		a.console.say("--trace: no rank has kept one; programs do that use package runtime")
		return 0
	}
	f, err := os.Create(a.tracePath())
	if err == nil {
		err = errors.Join(control.WriteTrace(f, parts), f.Close())
	}
	if err != nil {
		a.console.say("--trace: %v", err)
		return 1
	}
	lost := ""
	if dropped > 0 {
		lost = fmt.Sprintf("; the first %d found no room", dropped)
	}
	a.console.say("%s has %s of %s%s; ui.perfetto.dev opens it", a.tracePath(), count(calls, "event"), count(len(parts), "rank"), lost)
	return 0
}

// addUnended adds to a rank's part the calls that it was in when it ended, as far as
// they had lasted a moment.
func (a *attempt) addUnended(p *control.TracePart, at time.Time) {
	sinceWall := time.Now().UnixNano() - control.Clock()
	ended := at.UnixNano() - sinceWall
	for _, w := range a.segment.Waiting(p.Rank).Waits {
		since := w.Since.UnixNano() - sinceWall
		if since < p.Began || since > ended {
			continue
		}
		name, _, _ := strings.Cut(w.Text, " ")
		p.Records = append(p.Records, control.TraceRecord{
			Start: since, End: ended, Call: w.Seq, Name: p.AddText(name), Cause: p.AddText(w.Text + ", not ended"), Site: p.AddText(w.Site),
			Peer: int32(w.On), Async: !w.Attended, Fails: true,
		})
		p.Written++
	}
}

// closeTraces gives the files back.
func (a *attempt) closeTraces() {
	for _, f := range a.traces {
		f.Close()
	}
	a.traces = nil
}
