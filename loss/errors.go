package loss

import (
	"fmt"

	"github.com/gorun-spmd/gorun/internal/fault"
)

// An Error says that the operands or options of a loss do not fit together. It
// is computed from global facts, so every rank throws the same one.
type Error struct {
	Op     string // "CrossEntropy"
	Detail string // what differs, with numbers, and what to do
}

// Error gives all of it in one line.
func (e *Error) Error() string { return "loss: " + e.Op + ": " + e.Detail }

// refuse throws an *Error.
func refuse(op, detail string) { fault.Throw(&Error{Op: op, Detail: detail}) }

// A TargetError says that a target is not a class. Every rank of the mesh throws
// the same one, whichever rank holds the target, and the group stays usable.
type TargetError struct {
	Op       string
	Target   int64 // the value
	Position []int // of the target in the global tensor
	Classes  int
	Ignored  int64 // the value that would be ignored
}

// Error gives all of it in one line.
func (e *TargetError) Error() string {
	return fmt.Sprintf("loss: %s: target %d at %v is out of range [0, %d); give a class, or %d to ignore the position",
		e.Op, e.Target, e.Position, e.Classes, e.Ignored)
}
