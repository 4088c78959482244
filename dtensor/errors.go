package dtensor

import (
	"fmt"
	"strings"

	"github.com/gorun-spmd/gorun/internal/fault"
)

// A LayoutError says that the operands of an operator, or their layouts, do
// not fit together. It is computed from global facts alone, so every rank of
// the mesh throws the same one at the same call and the group stays usable.
type LayoutError struct {
	Op       string    // the operator, "MatMul" for instance
	Operands []Operand // what it was given, in order
	Problem  string    // what differs, with numbers
	Remedy   string    // what to do; may be empty
	Err      error     // the cause, if there is one
}

// An Operand names one operand of a LayoutError with its layout.
type Operand struct {
	Name   string // "a", "weight"
	Layout string // "[4, 8] S(0),R"
}

// Error implements error.
func (e *LayoutError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "dtensor: %s: ", e.Op)
	for i, o := range e.Operands {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %s", o.Name, o.Layout)
	}
	if len(e.Operands) > 0 {
		b.WriteString(": ")
	}
	b.WriteString(e.Problem)
	if e.Remedy != "" {
		b.WriteString("; ")
		b.WriteString(e.Remedy)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *LayoutError) Unwrap() error { return e.Err }

// operand describes t under a name, for an error.
func operand(name string, t *Tensor) Operand {
	return Operand{Name: name, Layout: t.layoutString()}
}

// misfit is the *LayoutError of what package layout says of an operator's
// operands. The names of that package's functions tell the caller nothing.
func misfit(op string, err error, operands ...Operand) *LayoutError {
	problem := err.Error()
	if rest, ok := strings.CutPrefix(problem, "layout: "); ok {
		_, rest, _ = strings.Cut(rest, ": ")
		problem = strings.TrimPrefix(rest, op+": ")
	}
	return &LayoutError{Op: op, Operands: operands, Problem: problem, Err: err}
}

// refuse throws a *LayoutError.
func refuse(op, problem, remedy string, operands ...Operand) {
	fault.Throw(&LayoutError{Op: op, Operands: operands, Problem: problem, Remedy: remedy})
}

// Throw ends the innermost ValueAndGrad, Accumulate or Try that runs on this
// rank, also from inside the backward function of a Record. That call returns an
// error which holds err, so errors.Is and errors.As find it, and the line of the
// program that called Throw. Outside of all three, runtime.Main reports err as the
// rank's failure. err must not be nil.
//
// Throw tells the other ranks nothing. If all ranks throw at the same place, the
// mesh stays usable. If only one does, let its function return the error: that
// ends the job, and the calls that the others make meanwhile fail with an error
// that names this rank and err. A rank that goes on alone makes other calls than
// its peers. To end the peers' calls at once, wherever the error goes, abort first:
//
//	mesh.Comm().Abort(err)
//	dtensor.Throw(err)
func Throw(err error) { fault.Throw(err) }

// Check throws err, as Throw does, unless it is nil:
//
//	value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
//		x, err := batches.Next()
//		dtensor.Check(err)
//		return model.loss(x)
//	}, params...)
func Check(err error) {
	if err != nil {
		fault.Throw(err)
	}
}
