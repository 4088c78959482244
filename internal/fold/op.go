package fold

import (
	"fmt"

	"github.com/gorun-spmd/gorun/internal/dtype"
)

// An Op is a reduction. Package comm documents each.
type Op uint8

// The operations.
const (
	NoOp Op = iota
	Sum
	Avg
	Prod
	Min
	Max
	And
	Or
	Xor
	Custom // the Call's Func
	ops
)

var opNames = [ops]string{"none", "sum", "avg", "prod", "min", "max", "and", "or", "xor", "custom"}

// String returns the name in lower case, "sum" for instance.
func (o Op) String() string {
	if o < ops {
		return opNames[o]
	}
	return "invalid"
}

// accepted has in entry o the bit 1<<d for each type d on whose elements o is defined.
var accepted = func() (of [Xor + 1]uint32) {
	for o := range of {
		for d := range dtype.DType(32) {
			if Op(o).refusal(d) == nil {
				of[o] |= 1 << d
			}
		}
	}
	return of
}()

// Accepts returns nil if o is defined on elements of type d, else why not and what to do.
func (o Op) Accepts(d dtype.DType) error {
	if o <= Xor && accepted[o]>>d&1 != 0 {
		return nil
	}
	return o.refusal(d)
}

// refusal is what Accepts returns, found by its rules.
func (o Op) refusal(d dtype.DType) error {
	switch {
	case d.Size() == 0:
		return fmt.Errorf("invalid element type %d; make the buffer with comm.Of", d)
	case o == NoOp || o > Xor:
		return fmt.Errorf("no operation %d; use comm.Sum, Avg, Prod, Min, Max, And, Or, Xor or a Func", o)
	case (o == And || o == Or || o == Xor) && (d.Float() || d.Complex()):
		return fmt.Errorf("%v is not defined on %v; use an integer type or bool", o, d)
	case (o == Min || o == Max) && d.Complex():
		return fmt.Errorf("%v is not defined on %v, which has no order; use a Func that compares what you mean", o, d)
	case d == dtype.Bool && (o == Sum || o == Avg || o == Prod):
		return fmt.Errorf("%v is not defined on bool; use comm.Or, comm.And, comm.Xor, or cast to an integer type", o)
	case o == Avg && !d.Float() && !d.Complex():
		return fmt.Errorf("avg is not defined on %v, where it would be rounded; use comm.Sum and divide, or cast to float32", d)
	}
	return nil
}
