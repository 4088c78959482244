//go:build linux

package launcher

import (
	"errors"
	"fmt"
	"sync"

	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/launcher/exit"
	"github.com/gorun-spmd/gorun/launcher/options"
	"github.com/gorun-spmd/gorun/launcher/report"
)

// A dashboard serves the report of the attempt that runs. A nil one does nothing.
type dashboard struct {
	live *report.Live

	mu      sync.Mutex
	attempt *attempt // nil between two
}

// liveRecords is how many records of all ranks together the page shows while the job runs.
const liveRecords = 1 << 15

// startDashboard serves the page of --dashboard, and says where; nil if there is none.
func startDashboard(o *options.Options, say func(string, ...any)) (*dashboard, error) {
	if o.Dashboard == "" {
		return nil, nil
	}
	d := &dashboard{}
	var err error
	if d.live, err = report.Serve(o.Dashboard, d.report); err != nil {
		return nil, exit.With(2, fmt.Errorf("--dashboard %s: %w", o.Dashboard, err))
	}
	say("the dashboard is at %s while the job runs", d.live.URL)
	return d, nil
}

func (d *dashboard) close() {
	if d != nil {
		_ = d.live.Close()
	}
}

// show has the page show a; nil: none.
func (d *dashboard) show(a *attempt) {
	if d != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.attempt = a
	}
}

// report makes the report of what the ranks have left so far.
func (d *dashboard) report() (*report.Report, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.attempt == nil {
		return nil, errors.New("no rank runs now")
	}
	var parts []*control.TracePart
	for r, f := range d.attempt.traces {
		p, err := control.ReadTraceEnd(f, max(64, liveRecords/len(d.attempt.traces)))
		if err != nil {
			return nil, err
		}
		if p.Rank = r; p.Began > 0 {
			parts = append(parts, p)
		}
	}
	if len(parts) == 0 {
		return nil, errors.New("no rank has begun yet, or the program does not use package runtime")
	}
	return report.New(d.attempt.opts.Title(), parts), nil
}
