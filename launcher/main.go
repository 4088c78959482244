package launcher

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/gorun-spmd/gorun/launcher/exit"
	"github.com/gorun-spmd/gorun/launcher/machine"
	"github.com/gorun-spmd/gorun/launcher/options"
)

// Main is the command gorun. args is the command line with the command's name; the
// result is its exit status. The same function is the guardian's and its keeper's,
// which are known by their names.
func Main(args []string) int {
	if status, ok := mainOfChild(args); ok {
		return status
	}
	out := &page{file: os.Stdout}
	status := obey(args, out)
	switch {
	case status != 0 || out.err == nil:
		return status
	case errors.Is(out.err, syscall.EPIPE):
		return exit.Closed
	}
	return complain(fmt.Errorf("standard output: %w", errors.Unwrap(out.err)), 1)
}

// A page is a file for what gorun prints, which remembers the first failed write.
type page struct {
	file *os.File
	err  error
}

func (p *page) Write(text []byte) (n int, err error) {
	n, err = p.file.Write(text)
	p.err = cmp.Or(p.err, err)
	return n, err
}

// obey carries out a command line and returns the exit status.
func obey(args []string, stdout io.Writer) int {
	if len(args) < 2 {
		fmt.Fprint(os.Stderr, options.Usage)
		return 2
	}
	if len(args) == 2 && (args[1] == "--version" || args[1] == "-version") {
		fmt.Fprintln(stdout, "gorun", version())
		return 0
	}
	switch args[1] {
	case "top":
		return topCommand(args[2:])
	case "scale":
		return scaleCommand(args[2:])
	case "plan":
		return planCommand(args[2:], stdout)
	case RatesCommand:
		return complain(errRates, 2)
	case "report":
		return reportCommand(args[2:], stdout)
	case "doctor":
		return doctorCommand(args[2:], stdout)
	case "help":
		return help(args[2:], stdout)
	}
	o, err := options.Parse(args[1:], machine.Cores(), os.LookupEnv, os.Stderr)
	if errors.Is(err, options.ErrHelp) {
		fmt.Fprint(stdout, options.Usage)
		return 0
	}
	if err != nil {
		return complain(err, 2)
	}
	status, err := launch(o, stdout)
	if err != nil {
		return complain(err, 1)
	}
	return status
}

// help prints a page of help and returns gorun's exit status.
func help(topic []string, stdout io.Writer) int {
	switch {
	case len(topic) == 0:
		fmt.Fprint(stdout, options.Usage)
	case len(topic) == 1 && topic[0] == "hosts":
		fmt.Fprint(stdout, options.HostsUsage)
	default:
		fmt.Fprintln(os.Stderr, "gorun: there are two pages of help: gorun help, and gorun help hosts")
		return 2
	}
	return 0
}

// complain prints err and returns its exit status, or the given one if it has none.
func complain(err error, status int) int {
	var own *exit.Error
	if errors.As(err, &own) {
		status = own.Status
		if own.Err == nil {
			return status
		}
	}
	fmt.Fprintf(os.Stderr, "gorun: %v\n", err)
	return status
}
