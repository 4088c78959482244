package layout

import "slices"

// A ReduceOp says how the addends of a Partial placement combine.
type ReduceOp uint8

// The reductions. Avg is the sum divided by the number of ranks of the mesh axis. Nodes is the
// sum, of which each rank holds a half of a half …, in their order: it is made in pairs, of pairs,
// and so does not depend on the number of ranks. See Rule.Nodes.
const (
	Sum ReduceOp = iota
	Avg
	Prod
	Min
	Max
	Nodes
	reduceOps
)

var reduceNames = [reduceOps]string{"sum", "avg", "prod", "min", "max", "nodes"}

// String returns "sum", "avg", "prod", "min", "max" or "nodes".
func (op ReduceOp) String() string {
	if op < reduceOps {
		return reduceNames[op]
	}
	return "invalid"
}

// parseReduceOp is the inverse of String; ok is false for a name that is none.
func parseReduceOp(name string) (op ReduceOp, ok bool) {
	i := slices.Index(reduceNames[:], name)
	return ReduceOp(max(i, 0)), i >= 0
}

// linear reports whether the reduction is a linear map of its addends, so that
// it may be exchanged with sums and with scaling: Sum and Avg.
func (op ReduceOp) linear() bool { return op == Sum || op == Avg }

// commutes reports whether reducing one mesh axis with op and another with
// other gives the same result in either order.
func (op ReduceOp) commutes(other ReduceOp) bool {
	return op == other || op.linear() && other.linear()
}
