//go:build linux

package guardian

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/launcher/proc"
)

// keeper is the argument of a guardian's keeper. The next is the number of descriptors
// that are the guardian's.
const keeper = "keeper"

// keep is the keeper's main function. It starts the guardian, hands on its descriptors,
// which are those below top, and waits for its end. Then it kills what the guardian has
// left, if that was killed. So the ranks and what they have started end whichever two of
// launcher, keeper and guardian are killed.
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
		fmt.Fprintf(os.Stderr, "gorun: starting the guardian process: %v\n", err)
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
// keeper, in a process group of its own: signals of the terminal are the launcher's.
func startProcess(files []uintptr, args ...string) (pid int, err error) {
	return syscall.ForkExec("/proc/self/exe", append([]string{Name}, args...), &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: files,
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
}
