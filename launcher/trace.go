//go:build linux

package launcher

import (
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/launcher/exit"
	"github.com/gorun-spmd/gorun/launcher/report"
	"github.com/gorun-spmd/gorun/launcher/supervisor"
)

// openTraces makes the files in which the ranks keep their parts.
func (a *attempt) openTraces() error {
	if a.opts.Trace == "" && a.opts.Report == "" && a.opts.Dashboard == "" {
		return nil
	}
	for r := range a.plan.ranks {
		f, err := control.CreateTrace(r, len(a.plan.ranks))
		if err != nil {
			return exit.Remedied(err)
		}
		a.traces = append(a.traces, f)
	}
	a.dashboard.show(a)
	return nil
}

// traceFD is the descriptor of a rank's own part, 0 if there is none.
func (a *attempt) traceFD() int {
	if a.traces == nil {
		return 0
	}
	return 3 + len(a.segment.Files())
}

// numbered is where this attempt's part of a file goes: out.json, of the first restart
// out.1.json, and so on.
func (a *attempt) numbered(path string) string {
	if a.number == 0 || path == "" {
		return path
	}
	ext := filepath.Ext(path)
	return strings.TrimSuffix(path, ext) + "." + strconv.Itoa(a.number) + ext
}

// traceFlag is the flag for which traces are kept.
func (a *attempt) traceFlag() string {
	if a.opts.Trace != "" {
		return "--trace"
	}
	return "--report"
}

// writeTrace puts the ranks' parts together, however they have ended, and says so. It
// returns the exit status that lost output asks for: 0 if there was none.
func (a *attempt) writeTrace(o *supervisor.Outcome) int {
	if a.traces == nil || a.opts.Trace == "" && a.opts.Report == "" {
		return 0
	}
	var parts []*control.TracePart
	calls, dropped := 0, uint64(0)
	for r, f := range a.traces {
		p, err := control.ReadTrace(f)
		if err != nil {
			a.console.Say("%s: rank %d: %v", a.traceFlag(), r, err)
			return 1
		}
		if p.Began == 0 {
			continue
		}
		p.Rank = r // whatever the rank has written there
		if o.Ends[r].Bad() {
			a.addUnended(p, o.Ends[r].At)
		}
		calls += len(p.Records)
		dropped += p.Dropped()
		parts = append(parts, p)
	}
	if len(parts) == 0 {
		a.console.Say("--trace: no rank has kept one; programs do that use package runtime")
		return 0
	}
	r := report.New(a.opts.Title(), parts)
	status := 0
	if path := a.numbered(a.opts.Trace); path != "" {
		if err := writeFile(path, func(w io.Writer) error { return control.WriteTrace(w, parts) }); err != nil {
			a.console.Say("--trace: %v", err)
			status = 1
		} else {
			lost := ""
			if dropped > 0 {
				lost = fmt.Sprintf("; the first %d found no room", dropped)
			}
			a.console.Say("%s has %s of %s%s; ui.perfetto.dev opens it", path, ints.Counted(calls, "event"), ints.Counted(len(parts), "rank"), lost)
		}
	}
	if path := a.numbered(a.opts.Report); path != "" {
		if err := writeFile(path, r.Write); err != nil {
			a.console.Say("--report: %v", err)
			status = 1
		} else {
			a.console.Say("%s is the report; a browser opens it", path)
		}
	}
	for _, line := range r.Summary() {
		a.console.Say("%s", line)
	}
	return status
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
	a.dashboard.show(nil) // before their files are closed
	for _, f := range a.traces {
		f.Close()
	}
	a.traces = nil
}
