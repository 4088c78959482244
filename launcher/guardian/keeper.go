//go:build linux

package guardian

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/launcher/exit"
	"github.com/gorun-spmd/gorun/launcher/proc"
)

// keeper is the first argument of a guardian's keeper. The second is the number of descriptors
// of the guardian.
const keeper = "keeper"

// keep is the keeper's main function. It starts the guardian, passes on the descriptors below
// top, and waits for the guardian's end. Then it kills the processes that a killed guardian has
// left. So the ranks and all processes below them end, whichever two of launcher, keeper and
// guardian are killed.
func keep(top string) (status int) {
	drainSignals()
	if err := proc.BecomeSubreaper(); err != nil {
		fmt.Fprintf(os.Stderr, "gorun: children of ranks may outlive the job: prctl: %v\n", err)
	}
	end, err := strconv.Atoi(top)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: started without a launcher; run gorun instead\n", Name)
		return 2
	}
	files := make([]uintptr, end)
	for fd := range files {
		files[fd] = uintptr(fd)
	}
	guardian, err := startProcess(files)
	for fd := socketFD; fd < end; fd++ {
		unix.Close(fd)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "gorun: starting the guardian process: %v\n", exit.Remedied(err))
		return 1
	}
	for pid := 0; pid != guardian; {
		pid, err = syscall.Wait4(-1, nil, 0, nil)
		if err != nil && err != syscall.EINTR {
			break
		}
	}
	Sweep(0)
	return 0
}

// startProcess starts this binary again as a guardian, or with arguments as its
// keeper. It starts in a process group of its own, so that the terminal's signals reach only the
// launcher.
func startProcess(files []uintptr, args ...string) (pid int, err error) {
	return syscall.ForkExec("/proc/self/exe", append([]string{Name}, args...), &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: files,
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
}
