package kernel

// A Law says when an operator may be applied to the parts of a tensor before they are
// combined by a sum, a maximum or a minimum.
type Law uint8

// The laws. Opaque is none: the parts are combined before the operator.
const (
	Opaque Law = iota

	Negates       // one argument: op of a sum is the sum of op; a maximum becomes a minimum
	Monotone      // one argument: op of the maximum is the maximum of op
	MonotoneAbove // one argument: Monotone from 0 on, where op is not NaN

	Adds       // a + b
	Subtracts  // a - b
	Multiplies // a · b
	Divides    // a / b
	Maximizes  // max(a, b)
	Minimizes  // min(a, b)
)
