package comm

import (
	"fmt"

	"github.com/gorun-spmd/gorun/comm/backend"
)

// ErrAborted is what errors.Is finds in the error of a call that ended because
// a rank called Abort, or made a call that could not be carried out.
var ErrAborted = backend.ErrAborted

// ErrMismatch is what errors.Is finds when ranks made different calls.
var ErrMismatch = backend.ErrMismatch

// ErrEnded is what errors.Is finds when a rank that was needed has ended.
var ErrEnded = backend.ErrEnded

// ErrStopping is what errors.Is finds in the cause of a context that was cancelled
// because the user wants the job to end, and not because calls are to end. Calls
// under such a context go on, so that the ranks can save together. runtime.Main
// cancels its context so. Another function that cancels a context may do it too:
//
//	ctx, cancel := context.WithCancelCause(ctx)
//	cancel(fmt.Errorf("the machine is needed: %w", comm.ErrStopping))
var ErrStopping = backend.ErrStopping

// An Error is the failure of one call on one rank. The communicator cannot be
// used again.
type Error struct {
	Call string // "AllReduce sum float32[1024]"
	Site string // "train.go:31"; "" if unknown
	Comm string // the communicator's name
	Seq  uint64 // which call of the communicator, from 1; 0: one that this rank makes alone
	Rank int    // this rank's world number
	Err  error
}

// Error gives all of it in one line.
func (e *Error) Error() string {
	at, who := "", ""
	if e.Site != "" {
		at = " at " + e.Site
	}
	switch {
	case e.Comm == "":
	case e.Seq == 0:
		who = fmt.Sprintf(" (rank %d, %s)", e.Rank, e.Comm)
	default:
		who = fmt.Sprintf(" (rank %d, call %d of %s)", e.Rank, e.Seq, e.Comm)
	}
	return fmt.Sprintf("comm: %s%s%s: %v", e.Call, at, who, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// An AbortError says which Rank, by world number, ended a communicator, and with which Cause. On that rank Unwrap
// returns the error itself.
type AbortError = backend.AbortError

// An EndedError says that a Rank, by world number, ended while a call still needed it. Its Cause is "" if it ended
// without an error.
type EndedError = backend.EndedError

// A MismatchError says that two ranks made different calls, A and B, the lower rank first.
type MismatchError = backend.MismatchError
