package layout

// A ReduceOp says how the addends of a Partial placement combine.
type ReduceOp uint8

// The reductions. Avg is the sum divided by the number of ranks of the mesh axis.
const (
	Sum ReduceOp = iota
	Avg
	Prod
	Min
	Max
	reduceOps
)

var reduceNames = [reduceOps]string{"sum", "avg", "prod", "min", "max"}

// String returns "sum", "avg", "prod", "min" or "max".
func (op ReduceOp) String() string {
	if op < reduceOps {
		return reduceNames[op]
	}
	return "invalid"
}

// ParseReduceOp is the inverse of String; ok is false for a name that is none.
func ParseReduceOp(name string) (op ReduceOp, ok bool) {
	for i, n := range reduceNames {
		if n == name {
			return ReduceOp(i), true
		}
	}
	return Sum, false
}

// Linear reports whether the reduction is a linear map of its addends, so that
// it may be exchanged with sums and with scaling: Sum and Avg.
func (op ReduceOp) Linear() bool { return op == Sum || op == Avg }

// commutes reports whether reducing one mesh axis with op and another with
// other gives the same result in either order.
func (op ReduceOp) commutes(other ReduceOp) bool {
	return op == other || op.Linear() && other.Linear()
}
