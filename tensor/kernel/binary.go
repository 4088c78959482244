package kernel

import "math"

// A BinaryOp is an element-wise function of two arguments.
type BinaryOp uint8

// The binary operators.
const (
	OpAdd       BinaryOp = iota // a + b
	OpSub                       // a - b
	OpMul                       // a · b
	OpDiv                       // a / b; integers truncate, and throw nothing: x/0 is 0
	OpMaximum                   // max(a, b); NaN if one is, and -0 is below 0
	OpMinimum                   // min(a, b); NaN if one is, and -0 is below 0
	OpPow                       // aᵇ
	OpRemainder                 // a - b·⌊a/b⌋, exact, with the sign of b; NaN where b is 0, of integers a
)

// A Binary describes a binary operator.
type Binary struct {
	Name string
	Law  Law

	// Value is the definition, and Integer that for integers, modulo 2⁶⁴.
	Value   func(a, b float64) float64
	Integer func(a, b int64) int64
}

var binaryTable = [...]Binary{
	OpAdd: {
		Name: "Add", Law: Adds,
		Value:   func(a, b float64) float64 { return a + b },
		Integer: func(a, b int64) int64 { return a + b },
	},
	OpSub: {
		Name: "Sub", Law: Subtracts,
		Value:   func(a, b float64) float64 { return a - b },
		Integer: func(a, b int64) int64 { return a - b },
	},
	OpMul: {
		Name: "Mul", Law: Multiplies,
		Value:   func(a, b float64) float64 { return a * b },
		Integer: func(a, b int64) int64 { return a * b },
	},
	OpDiv: {
		Name: "Div", Law: Divides,
		Value: func(a, b float64) float64 { return a / b },
		Integer: func(a, b int64) int64 {
			if b == 0 {
				return 0
			}
			return a / b
		},
	},
	OpMaximum: {
		Name: "Maximum", Law: Maximizes,
		Value:   func(a, b float64) float64 { return max(a, b) },
		Integer: func(a, b int64) int64 { return max(a, b) },
	},
	OpMinimum: {
		Name: "Minimum", Law: Minimizes,
		Value:   func(a, b float64) float64 { return min(a, b) },
		Integer: func(a, b int64) int64 { return min(a, b) },
	},
	OpPow: {Name: "Pow", Value: math.Pow, Integer: powInt},
	OpRemainder: {
		Name:  "Remainder",
		Value: func(a, b float64) float64 { return towards(b, math.Mod(a, b)) },
		Integer: func(a, b int64) int64 {
			if b == 0 {
				return a
			}
			return towards(b, a%b)
		},
	},
}

// powInt returns aᵇ by squaring, and 0 for a negative b unless a is 1 or -1.
func powInt(a, b int64) int64 {
	if b < 0 {
		if a != 1 && a != -1 {
			return 0
		}
		b = -b
	}
	r := int64(1)
	for n := uint64(b); n > 0; a *= a {
		if n&1 != 0 {
			r *= a
		}
		if n >>= 1; n == 0 {
			break
		}
	}
	return r
}

// towards returns a rest of a division by b, and b more where their signs differ.
func towards[T int64 | float64](b, rest T) T {
	if rest != 0 && (rest < 0) != (b < 0) {
		return rest + b
	}
	return rest
}

// BinaryOps returns all binary operators.
func BinaryOps() []BinaryOp { return allOps[BinaryOp](len(binaryTable)) }

// Row returns the description of op. It panics if op is none.
func (op BinaryOp) Row() *Binary {
	if int(op) >= len(binaryTable) {
		Missing("the table of binary operators", op)
	}
	return &binaryTable[op]
}

// String returns the name of the function, "Add".
func (op BinaryOp) String() string {
	if int(op) >= len(binaryTable) {
		return unknown(op)
	}
	return binaryTable[op].Name
}

// A CompareOp is a comparison of two numbers.
type CompareOp uint8

// The comparisons. All but OpNe are false if an argument is NaN.
const (
	OpEq CompareOp = iota // a == b
	OpNe                  // a != b
	OpLt                  // a < b
	OpLe                  // a <= b
	OpGt                  // a > b
	OpGe                  // a >= b
)

var compareTable = [...]string{OpEq: "Eq", OpNe: "Ne", OpLt: "Lt", OpLe: "Le", OpGt: "Gt", OpGe: "Ge"}

// CompareOps returns all comparisons.
func CompareOps() []CompareOp { return allOps[CompareOp](len(compareTable)) }

// String returns the name, "Lt".
func (op CompareOp) String() string {
	if int(op) >= len(compareTable) {
		return unknown(op)
	}
	return compareTable[op]
}
