package launcher

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/launcher/options"
	"github.com/gorun-spmd/gorun/launcher/report"
)

const reportUsage = `usage: gorun report TRACE [PAGE]

Makes of a trace, which gorun --trace has written, the page that gorun --report
writes: one HTML file with the curves of metrics and memory, a time line of the
ranks, who sent how much to whom, where the time went, and how parameters are
divided. PAGE is its name, TRACE with .html for its ending if it is left out.
`

// reportCommand is the command gorun report.
func reportCommand(args []string, stdout io.Writer) int {
	f := flag.NewFlagSet("gorun report", flag.ContinueOnError)
	if status, done := options.ParseCommand(f, args, 2, reportUsage, stdout, os.Stderr); done {
		return status
	}
	trace := f.Arg(0)
	if trace == "" {
		fmt.Fprintf(os.Stderr, "gorun report: which trace?\n%s", reportUsage)
		return 2
	}
	page := cmp.Or(f.Arg(1), strings.TrimSuffix(trace, filepath.Ext(trace))+".html")
	r, err := readReport(trace, filepath.Base(trace))
	if err == nil {
		err = writeFile(page, r.Write)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "gorun report: %v\n", err)
		return 1
	}
	for _, line := range r.Summary() {
		fmt.Fprintln(stdout, line)
	}
	fmt.Fprintf(stdout, "%s is the report; a browser opens it\n", page)
	return 0
}

// readReport makes the report of a file that holds a trace.
func readReport(trace, title string) (*report.Report, error) {
	f, err := os.Open(trace)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	parts, err := control.ReadTraceJSON(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", trace, err)
	}
	return report.New(title, parts), nil
}

// pageOfTrace makes the page of --report of the trace that the ranks of o have written
// themselves, and says so. It returns the job's status and err, or the status that a missing page
// asks for.
func pageOfTrace(status int, err error, o *options.Options, say func(string, ...any)) (int, error) {
	if o.Report == "" || err != nil {
		return status, err
	}
	if o.OwnTrace() {
		defer os.Remove(o.Trace)
	}
	r, problem := readReport(o.Trace, o.Title())
	if problem == nil {
		problem = writeFile(o.Report, r.Write)
	}
	switch {
	case errors.Is(problem, os.ErrNotExist) || problem != nil && status != 0:
		say("--report: there is no page: the ranks have left no whole trace on this machine")
	case problem != nil:
		say("--report: %v", problem)
	default:
		say("%s is the report; a browser opens it", o.Report)
		for _, line := range r.Summary() {
			say("%s", line)
		}
		return status, nil
	}
	return cmp.Or(status, 1), nil
}

// writeFile writes a file by write.
func writeFile(path string, write func(w io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
