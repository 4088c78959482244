//go:build !linux

package launcher

import (
	"fmt"
	"io"
	"os"
	goruntime "runtime"

	"github.com/gorun-spmd/gorun/launcher/options"
)

// mainOfChild says that this process is gorun itself: it starts none of its own here.
func mainOfChild([]string) (status int, ok bool) { return 0, false }

// launch starts the program as one process, whose goroutines are the ranks.
func launch(o *options.Options, stdout io.Writer) (status int, err error) {
	return startGoroutines(o, goruntime.GOOS, stdout, os.Stderr)
}

func topCommand([]string) int { return onLinuxOnly("top") }

func scaleCommand([]string) int { return onLinuxOnly("scale") }

func planCommand([]string, io.Writer) int { return onLinuxOnly("plan") }

func doctorCommand([]string, io.Writer) int { return onLinuxOnly("doctor") }

func onLinuxOnly(command string) int {
	return complain(fmt.Errorf("gorun %s reads what Linux tells of processes; there is none of that on %s", command, goruntime.GOOS), 1)
}
