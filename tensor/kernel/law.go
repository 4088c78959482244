package kernel

// A Law says what an operator does to the parts of a tensor that are still to be combined:
// to be added up, or of which the largest or the smallest is to be taken.
type Law uint8

// The laws. Opaque is none: the parts are combined before the operator.
const (
	Opaque Law = iota

	Negates       // one argument: op of a sum is the sum of op; a maximum becomes a minimum
	Monotone      // one argument: op of the maximum is the maximum of op
	MonotoneAbove // one argument: Monotone where op is not NaN, which is from 0 on

	Adds       // a + b
	Subtracts  // a - b
	Multiplies // a · b
	Divides    // a / b
	Maximizes  // max(a, b)
	Minimizes  // min(a, b)
)
