package kernel

import (
	"math"

	"github.com/gorun-spmd/gorun/internal/dtype"
)

// A BinaryOp is an element-wise function of two arguments.
type BinaryOp uint8

// The binary operators.
const (
	OpAdd         BinaryOp = iota // a + b
	OpSub                         // a - b
	OpMul                         // a · b
	OpDiv                         // a / b; integers truncate, and throw nothing: x/0 is 0
	OpMaximum                     // max(a, b); NaN if one is, and -0 is below 0
	OpMinimum                     // min(a, b); NaN if one is, and -0 is below 0
	OpPow                         // aᵇ
	OpRemainder                   // a - b·⌊a/b⌋, exact, with the sign of b; NaN where b is 0, of integers a
	OpFloorDivide                 // ⌊a/b⌋ of the exact quotient; a/b where b is 0, of integers 0
	OpFmod                        // a - b·trunc(a/b), exact, with the sign of a; NaN where b is 0, of integers a
	OpAtan2                       // the angle of the point (b, a) in radians, from -π to π
	OpBitwiseAnd                  // the bits that a and b have
	OpBitwiseOr                   // the bits that a or b has
	OpBitwiseXor                  // the bits that one of a and b has
	OpShiftLeft                   // a·2ᵇ; 0 where b is negative, or no less than the number of bits
	OpShiftRight                  // ⌊a/2ᵇ⌋; 0, or -1 of a negative a, where b is negative or no less than the number of bits
)

// A Binary describes a binary operator.
type Binary struct {
	Name string
	Law  Law

	// Value is the definition, and Integer that for integers, modulo 2⁶⁴; nil if the operator
	// does not take them.
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
	OpFloorDivide: {Name: "FloorDivide", Value: floorDivide, Integer: floorDivideInt},
	OpFmod: {
		Name:  "Fmod",
		Value: math.Mod,
		Integer: func(a, b int64) int64 {
			if b == 0 {
				return a
			}
			return a % b
		},
	},
	OpAtan2:      {Name: "Atan2", Value: math.Atan2},
	OpBitwiseAnd: {Name: "BitwiseAnd", Integer: func(a, b int64) int64 { return a & b }},
	OpBitwiseOr:  {Name: "BitwiseOr", Integer: func(a, b int64) int64 { return a | b }},
	OpBitwiseXor: {Name: "BitwiseXor", Integer: func(a, b int64) int64 { return a ^ b }},
	OpShiftLeft: {Name: "ShiftLeft", Integer: func(a, b int64) int64 {
		if b < 0 {
			return 0
		}
		return a << b
	}},
	OpShiftRight: {Name: "ShiftRight", Integer: func(a, b int64) int64 { return a >> uint64(b) }},
}

// floorDivide returns ⌊a/b⌋. The quotient of what is left when the rest is taken away is whole, except for its rounding.
func floorDivide(a, b float64) float64 {
	if b == 0 {
		return a / b
	}
	rest := math.Mod(a, b)
	q := math.RoundToEven((a - rest) / b)
	switch {
	case rest != 0 && (b < 0) != (rest < 0):
		return q - 1
	case q == 0:
		return math.Copysign(0, a/b)
	}
	return q
}

// floorDivideInt returns ⌊a/b⌋, and 0 where b is 0.
func floorDivideInt(a, b int64) int64 {
	if b == 0 {
		return 0
	}
	q := a / b
	if rest := a % b; rest != 0 && (rest < 0) != (b < 0) {
		q--
	}
	return q
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

// Takes reports whether the operator is defined for elements of a type.
func (op BinaryOp) Takes(dt dtype.DType) bool {
	return dt.Float() && op.Row().Value != nil || dt.Int() && op.Row().Integer != nil
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
