package comm

import "github.com/gorun-spmd/gorun/internal/fold"

// An Op is a reduction. It folds the ranks' values in rank order, from the
// left, so the same call gives the same bits on every rank and in every run.
type Op = fold.Op

// The operations. Float16 and BFloat16 fold in float32 and round once.
//
//	Sum, Prod     numbers
//	Avg           floating-point and complex numbers: Sum divided by the number of ranks
//	Min, Max      integers and floating-point numbers; NaN if any value is NaN, and either of
//	              zeros with different signs; on Bool they are And and Or
//	And, Or, Xor  bitwise on integers, logical on Bool
//
// An operation on other types is an error. MinLoc and MaxLoc also say which value it was; for
// any other operation make a Func.
const (
	NoOp   = fold.NoOp
	Sum    = fold.Sum
	Avg    = fold.Avg
	Prod   = fold.Prod
	Min    = fold.Min
	Max    = fold.Max
	And    = fold.And
	Or     = fold.Or
	Xor    = fold.Xor
	Custom = fold.Custom // the Call's Func
)
