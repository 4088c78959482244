package exit

import (
	"errors"
	"fmt"
	"math"
	"syscall"

	"github.com/gorun-spmd/gorun/internal/cgroup"
)

// The exit statuses of gorun that are not a rank's own.
const (
	Lost          = 1                          // the guardian was killed, or a host does not answer any more
	Hung          = 123                        // the ranks wait for each other, or nothing moves
	TimedOut      = 124                        // --timeout has passed; as in timeout(1)
	NotExecutable = 126                        // a program cannot be run; as in shells
	NotFound      = 127                        // there is no such program; as in shells
	Closed        = 128 + int(syscall.SIGPIPE) // nobody reads gorun's output any more; as if SIGPIPE had ended gorun
)

// Crashed is the exit status of a Go program that panics, in whatever goroutine.
const Crashed = 2

// An Error ends gorun with an exit status of its own.
type Error struct {
	Status int
	Err    error // nil if gorun has printed the error already
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// With returns err as an Error that ends gorun with status.
func With(status int, err error) error { return &Error{Status: status, Err: err} }

// Missing returns the error of a program that does not exist.
func Missing(err error) error { return With(NotFound, err) }

// Unusable returns the error of a program that cannot be run.
func Unusable(format string, args ...any) error {
	return With(NotExecutable, fmt.Errorf(format, args...))
}

// Remedied adds advice to an error that comes from a limit on this process.
func Remedied(err error) error {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return fmt.Errorf("%w; raise the limit on open files (ulimit -n) or start fewer ranks", err)
	case errors.Is(err, syscall.EFBIG):
		return fmt.Errorf("%w; raise the limit on the size of files (ulimit -f)", err)
	case errors.Is(err, syscall.EAGAIN):
		return fmt.Errorf("%w; %s", err, TooManyTasks())
	}
	return err
}

// TooManyTasks says which limit keeps a process or a thread from being made, and what to do.
func TooManyTasks() string { return tooManyTasks("") }

func tooManyTasks(root string) string {
	most, by := cgroup.Tasks(root)
	if most == math.MaxInt {
		return "raise the limit on processes and threads (ulimit -u, or the container's), or start fewer ranks"
	}
	return fmt.Sprintf("the limit on processes and threads is %d (%s): raise it, or start fewer ranks", most, by)
}

// RankTasks is how many processes and threads a rank of package runtime has at least, by a margin: on two cores it has 6 or 7.
const RankTasks = 5

// CheckTasks refuses ranks, each with a number of processes and threads, that the limit on these leaves no room for: a Go program
// prints pages of stacks when it cannot make a thread. root is that of package cgroup.
func CheckTasks(root string, ranks, each int) error {
	const own = 12 // the guardian and its keeper
	need, left := own+each*ranks, cgroup.TasksLeft(root)
	if need <= left {
		return nil
	}
	return fmt.Errorf("%d ranks need %d processes and threads at least, and %d can be made; %s", ranks, need, left, tooManyTasks(root))
}

// FewTasks reports whether that limit is so low that it may have ended what starts the ranks.
func FewTasks(ranks int) bool {
	most, _ := cgroup.Tasks("")
	return most < 64+8*ranks // a process of Go's has some 6 threads
}
