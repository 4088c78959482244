//go:build linux

package handover

import (
	"os"

	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/launcher/options"
)

// ranksWriteTrace has ranks that another launcher starts write the trace themselves.
func ranksWriteTrace(o *options.Options) {
	if o.Trace == "" {
		return
	}
	for i := range o.Apps {
		o.Apps[i].Vars = append(o.Apps[i].Vars, job.TraceVar+"="+o.Trace)
	}
}

// reportTrace says what has become of the trace of ranks that another launcher has
// started, and of which rank 0 has written it.
func (h *Handover) reportTrace(status int) {
	path := h.opts.Trace
	if path == "" || h.opts.OwnTrace() {
		return
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.Size() > 0:
		h.console.Say("the trace is in %s; ui.perfetto.dev opens it", path)
	case status != 0:
		h.console.Say("--trace: all ranks put one together when they end well; else each that can leaves its own part, rank R as %s.rankR", path)
	case h.remote:
		h.console.Say("--trace: rank 0 has written %s on its own host, if its program uses package runtime", path)
	default:
		h.console.Say("--trace: no rank has kept one; programs that do use package runtime")
	}
}
