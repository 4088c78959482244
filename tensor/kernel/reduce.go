package kernel

// A ReduceOp combines the elements of some dimensions.
type ReduceOp uint8

// The reductions, each with its value for no elements.
const (
	OpSum  ReduceOp = iota // 0
	OpProd                 // 1
	OpAmax                 // -Inf, or the least integer; NaN if an element is
	OpAmin                 // +Inf, or the largest integer; NaN if an element is
)

// A Reduction describes a ReduceOp.
type Reduction struct {
	Name  string
	Grows bool // the result of integers and Bool is Int64, since it may exceed their type
}

var reduceTable = [...]Reduction{
	OpSum:  {Name: "Sum", Grows: true},
	OpProd: {Name: "Prod", Grows: true},
	OpAmax: {Name: "Amax"},
	OpAmin: {Name: "Amin"},
}

// ReduceOps returns all reductions.
func ReduceOps() []ReduceOp { return allOps[ReduceOp](len(reduceTable)) }

// Row returns the description of op. It panics if op is none.
func (op ReduceOp) Row() *Reduction {
	if int(op) >= len(reduceTable) {
		Missing("the table of reductions", op)
	}
	return &reduceTable[op]
}

// String returns the name, "Sum".
func (op ReduceOp) String() string {
	if int(op) >= len(reduceTable) {
		return unknown(op)
	}
	return reduceTable[op].Name
}

// A RowOp is a number computed from a row.
type RowOp uint8

// The row functions. Their sums are taken in an order that depends on the length alone.
const (
	OpLogSumExp RowOp = iota // ln Σ exp(x); -Inf for no elements, +Inf where one is
	OpSquareDev              // Σ (x - mean)²
	OpNorm                   // (Σ |x|ᵖ)^(1/p); max |x| for p = +Inf, 0 for no elements
	OpPowSum                 // Σ |x|ᵖ; max |x| for p = +Inf: OpNorm without the root, for a part of a row
)

var rowTable = [...]string{OpLogSumExp: "LogSumExp", OpSquareDev: "SquareDev", OpNorm: "Norm", OpPowSum: "PowSum"}

// RowOps returns all row functions.
func RowOps() []RowOp { return allOps[RowOp](len(rowTable)) }

// String returns the name, "LogSumExp".
func (op RowOp) String() string {
	if int(op) >= len(rowTable) {
		return unknown(op)
	}
	return rowTable[op]
}

// A RandomOp is a distribution.
type RandomOp uint8

// The distributions, with two parameters a and b.
const (
	OpUniform   RandomOp = iota // [a, b), in 2²⁴ steps, rounded to the type
	OpNormal                    // mean a, standard deviation b
	OpBernoulli                 // 1 with probability a, else 0
)

var randomTable = [...]string{OpUniform: "FillUniform", OpNormal: "FillNormal", OpBernoulli: "FillBernoulli"}

// RandomOps returns all distributions.
func RandomOps() []RandomOp { return allOps[RandomOp](len(randomTable)) }

// String returns the name of the function, "FillNormal".
func (op RandomOp) String() string {
	if int(op) >= len(randomTable) {
		return unknown(op)
	}
	return randomTable[op]
}
