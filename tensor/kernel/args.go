package kernel

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/philox"
)

// MaxDims is the largest number of dimensions of a tensor.
const MaxDims = 8

// A Loop is the iteration space of an element-wise operator whose arguments
// broadcast: Size[:N], outermost first, with a stride in elements of each argument for
// each dimension. The destination is contiguous. Dimensions of size 1 are left out, and
// neighbouring dimensions that can be walked as one are merged, so the last dimension
// has stride 0 or 1 for a contiguous argument. A stride is negative where a copy goes through its source from the end on.
type Loop struct {
	N       int
	Size    [MaxDims]int
	A, B, C [MaxDims]int
}

// Numel returns the number of elements.
func (l *Loop) Numel() int { return ints.Product(l.Size[:l.N]) }

// A Gemm is a product of contiguous matrices: C [M, N] = A [M, K]·B [K, N], added
// to C with Accumulate. With TransA the memory of A is [K, M], with TransB that of
// B is [N, K].
type Gemm struct {
	TransA, TransB bool
	Accumulate     bool
	Wide           bool // A and B are of a narrow type, C is float32
	M, N, K        int
}

// A Number is the other operand of a BinaryScalar: op(x, Value), or op(Value, x) if it
// comes First.
type Number struct {
	Value float64
	First bool
}

// A Slope has the operands of a unary operator's gradient: dy, the argument x and the
// result y. The operator's row says which of x and y the gradient reads.
type Slope struct{ DY, X, Y unsafe.Pointer }

// A Matrix is the shape of contiguous rows.
type Matrix struct{ Rows, Cols int }

// Numel returns the number of elements.
func (m Matrix) Numel() int { return m.Rows * m.Cols }

// An Axis is a dimension of N elements of a contiguous tensor [Outer, N, Inner].
type Axis struct{ Outer, N, Inner int }

// Numel returns the number of elements.
func (a Axis) Numel() int { return a.Outer * a.N * a.Inner }

// An Index is a list of N indices of type DType, Int32 or Int64.
type Index struct {
	DType dtype.DType
	At    unsafe.Pointer
	N     int
}

// From returns indices at to at+n.
func (x Index) From(at, n int) Index {
	x.At, x.N = unsafe.Add(x.At, at*x.DType.Size()), n
	return x
}

// A Pick names elements of a tensor of Numel elements by indices along one dimension, whose
// neighbours are Step elements apart: element Σ i·A + Index[i]·Step for index i of Loop.
type Pick struct {
	Index Index
	Loop  Loop
	Step  int
	Numel int
}

// A Table is the shape of a table of rows, or of a part of one that starts at row Lo.
type Table struct{ Lo, Rows, Dim int }

// Distinct is the memory that Unique fills as tensor.Uniq describes. Index and Start are
// int64 and have room for the number of ids and one more; Slot, which may be nil, and Order
// are int32.
type Distinct struct{ Index, Start, Slot, Order unsafe.Pointer }

// Segments are N lists of rows to be added up, Order[Start[s]:Start[s+1]], none longer than
// Most. Order has Rows elements, each below Of, the number of rows there are.
type Segments struct {
	Order, Start      unsafe.Pointer // int32 and int64
	N, Rows, Most, Of int
}

// An AttentionSize is the geometry of attention: Heads is batch times heads.
type AttentionSize struct {
	Heads, T, S, D, E int
	Room              int     // how many keys a head of K and V has room for: S, but in AttentionOver
	Scale             float64 // 1/√D
	Causal            bool
}

// AttentionTile is how many queries the CPU computes at once; a tile of weights is [AttentionTile, S]. Gradients of keys and values are
// added up tile by tile.
const AttentionTile = 64

// An Attention has the operands of attention, contiguous: Q [Heads, T, D], K [Heads, Room, D],
// V [Heads, Room, E], of which the first S keys count, Y [Heads, T, E] and LSE [Heads, T].
type Attention struct {
	AttentionSize
	DType           dtype.DType
	Y, LSE, Q, K, V unsafe.Pointer
}

// An AttentionGrad has the operands of the gradient of attention: DY is the gradient of Y;
// DQ, DK and DV are computed.
type AttentionGrad struct {
	Attention
	DQ, DK, DV, DY unsafe.Pointer
}

// A Norm is layer normalisation, or RMSNorm without Centre, of rows X to Y. Stats gets
// (mean, rstd) of each row, or rstd, as float64. Weight and Bias have a number for each
// column, and may be nil.
type Norm struct {
	Matrix
	DType                     dtype.DType
	Centre                    bool
	Eps                       float64
	Y, Stats, X, Weight, Bias unsafe.Pointer
}

// A NormGrad is the gradient of a Norm: DX is computed from DY, and the gradients of the
// weight and the bias are added to DWeight and DBias, which may be nil.
type NormGrad struct {
	Norm
	DX, DWeight, DBias, DY unsafe.Pointer
}

// An SGD is the configuration of stochastic gradient descent, as torch.optim.SGD.
type SGD struct {
	LR          float64
	Momentum    float64
	Dampening   float64
	WeightDecay float64
	Nesterov    bool
}

// An AdamStep holds the constants of one step, computed in float64.
type AdamStep struct {
	Beta1, Beta2 float64
	StepSize     float64 // LR/(1 - Beta1ᵗ)
	RootBias2    float64 // √(1 - Beta2ᵗ)
	Eps          float64
	Decay        float64 // what the parameter is multiplied by first
	L2           float64 // the share of the parameter that is added to the gradient
}

// An Adam is one step of Adam on Rows rows of Cols numbers each: all of Param, M and V, or
// those that Index, int64, names. Grad has the rows one after another.
type Adam struct {
	Matrix
	DType                    dtype.DType
	Param, Grad, M, V, Index unsafe.Pointer
	Step                     AdamStep
}

// An Adagrad is one step of row-wise Adagrad on the Rows rows of Table that Index, int64,
// names. State has one number for each row of Table.
type Adagrad struct {
	Matrix
	DType                     dtype.DType
	Table, Grad, State, Index unsafe.Pointer
	Mean                      unsafe.Pointer // float64 [Rows], of g² over rows of which Table has parts; nil: over the rows of Grad
	LR, Eps                   float64
}

// The columns of the statistics of CrossEntropyStats.
const (
	StatMax    = iota // the largest logit; -Inf for no classes, unspecified if one is NaN
	StatSumExp        // Σ exp(x - max); NaN if a logit is NaN or +Inf
	StatTarget        // the logit of the target; 0 if its class is not in this part
	StatSum           // Σ w·(x - max), counted from 0 if max is -Inf; 0 unless asked for
	Stats             // the number of columns
)

// RandomNumbers are numbers of one distribution, those of the global elements from First
// on. The numbers of OpUniform are clamped to [Least, Most].
type RandomNumbers struct {
	Op          RandomOp
	DType       dtype.DType
	Key         philox.Key
	First       uint64
	A, B        float64 // the parameters of the distribution
	Least, Most float64
}

// ClassLogits are the logits [Rows, Classes] of the classes from Lo on, with the target of
// each row and the weight of each class.
type ClassLogits struct {
	DType         dtype.DType
	Logits        unsafe.Pointer
	Target        Index
	Weight        unsafe.Pointer // may be nil
	Rows, Classes int
	Lo            int
}

// From returns rows at to at+n, whose logits lie at logits and are of type dt.
func (l ClassLogits) From(at, n int, dt dtype.DType, logits unsafe.Pointer) ClassLogits {
	l.Rows, l.DType, l.Logits = n, dt, logits
	l.Target = l.Target.From(at, n)
	return l
}
