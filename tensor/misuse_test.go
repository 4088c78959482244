package tensor

import (
	"errors"
	"math"
	"testing"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Every misuse throws a typed error that names the operator, before any work.
func TestMisuse(t *testing.T) {
	cpu, other := NewCPU(nil), NewCPU(nil)
	x, ids := Zeros(cpu, Float32, 2, 3), Zeros(cpu, Int64, 2)
	f64, ints, away := Zeros(cpu, Float64, 2, 3), Zeros(cpu, Int32, 2, 3), Zeros(other, Float32, 2, 3)
	rows := Rows{Index: ids, Values: x}
	for name, f := range map[string]func(){
		"Copy":              func() { Copy(x, f64) },
		"MaskedFill":        func() { MaskedFill(x, Zeros(cpu, Bool, 2), 0) },
		"Where":             func() { Where(x, x, x) },
		"Not":               func() { Not(x) },
		"Any":               func() { Any(x, nil, false) },
		"All":               func() { All(x, nil, false) },
		"Mul":               func() { MulScalar(ints, 0.5) },
		"Add":               func() { AddScalar(ints, math.Inf(1)) },
		"Maximum":           func() { BinaryScalar(kernel.OpMaximum, ids, 1<<63) },
		"Clamp":             func() { Clamp(Zeros(cpu, Bool, 1), 0, 1) },
		"ClampGrad":         func() { ClampGrad(x, f64, 0, 1) },
		"Leaky":             func() { Leaky(x, f64, 0.1) },
		"GeluGrad":          func() { UnaryGrad(kernel.OpGelu, x, f64, nil) },
		"Lt":                func() { Compare(kernel.OpLt, x, away) },
		"AddTo":             func() { AddTo(x, Zeros(cpu, Float32, 3)) },
		"AddScaledTo":       func() { AddScaledTo(ints, 1, ints) },
		"ScaleTo":           func() { ScaleTo(Zeros(cpu, Bool, 1), 2) },
		"SumGrad":           func() { SumGrad(x, []int{2, 3}, []int{1}, true) },
		"Var":               func() { Var(ints, nil, 1, false) },
		"LogSumExp":         func() { LogSumExp(ints, nil, false) },
		"Cumsum":            func() { Cumsum(x, 5) },
		"TopK":              func() { TopK(x, 9, 0) },
		"Softmax":           func() { Softmax(ints, 0) },
		"SoftmaxGrad":       func() { SoftmaxGrad(x, f64, 0) },
		"LogSoftmax":        func() { LogSoftmax(x, 2) },
		"LayerNormGrad":     func() { LayerNormGrad(x, x, nil, ids, 1, false, false) },
		"RMSNormGrad":       func() { RMSNormGrad(x, x, nil, x, 1, false) },
		"RMSNorm":           func() { RMSNorm(x, f64, 1, 0) },
		"AttentionGrad":     func() { q := Zeros(cpu, Float32, 1, 1, 2, 2); AttentionGrad(q, q, q, q, q, q, false) },
		"Linear":            func() { Linear(x, Zeros(cpu, Float32, 3), nil) },
		"MatMulGrad":        func() { MatMulGrad(x, x, x, false, true, true, true) },
		"IndexSelect":       func() { IndexSelect(x, 0, Zeros(cpu, Int64, 1, 1)) },
		"IndexAddTo":        func() { IndexAddTo(x, 0, ids, Zeros(cpu, Float32, 3, 3)) },
		"ScatterTo":         func() { ScatterTo(x, 0, Zeros(cpu, Int64, 2, 2), Zeros(cpu, Float32, 1, 2)) },
		"ScatterAddTo":      func() { ScatterAddTo(Zeros(cpu, Bool, 1), 0, ids, ids) },
		"ScatterReduceTo":   func() { ScatterReduceTo(x, 0, ints, Zeros(cpu, Float32, 2, 2), kernel.OpProd, false) },
		"OneHot":            func() { OneHot(x, 0, 3, Float32) },
		"CheckIndex":        func() { CheckIndex(x, 3) },
		"TakeRowsTo":        func() { TakeRowsTo(x, x, Zeros(cpu, Int64, 3), 0, true) },
		"Unique":            func() { Unique(ids, 0, 1<<40) },
		"SumRows":           func() { Unique(ids, 0, 2).SumRows(Zeros(cpu, Float32, 3, 3)) },
		"DenseRows":         func() { addRowsTo("DenseRows", f64, rows, 1) },
		"RowPowSums":        func() { RowPowSums(x, ids, -1) },
		"ScaleRowsTo":       func() { ScaleRowsTo(x, ids, Zeros(cpu, Float32, 3)) },
		"CrossEntropyStats": func() { CrossEntropyStats(x, x, 0, nil, false) },
		"CrossEntropyGrad":  func() { CrossEntropyGrad(nil, x, ids, 0, Zeros(cpu, Float32, 2), Zeros(cpu, Float32, 2), nil) },
		"SGD":               func() { SGD{}.Step(x, f64, nil, true) },
		"Adam":              func() { Adam{}.StepRows(x, Rows{Index: ids, Values: f64}, x, x, 1) },
		"Adagrad":           func() { Adagrad{}.StepRows(x, rows, x, nil) },
		"SumSquares":        func() { SumSquares(ints) },
		"ColumnSquares":     func() { ColumnSquares(x.Reshape(x.Numel())) },
		"FillUniform":       func() { FillUniform(x, Key{}, 0, 1, []int{2, 3}, []int{0}) },
		"PackBox":           func() { PackBox(f64.Reshape(6), 0, x, []int{0, 0}, []int{2, 3}) },
		"UnpackBox":         func() { UnpackBox(x, []int{0}, x.Reshape(6), 0, []int{2}) },
		"CopyBox":           func() { CopyBox(x, []int{0, 0}, away, []int{0, 0}, []int{1, 1}) },
		"Stack":             func() { Stack(0, x, x.Reshape(6)) },
		"Chunk":             func() { Chunk(x, 0, 0) },
		"Dim":               func() { x.Dim(2) },
	} {
		err := try(f)
		var shape *ShapeError
		var dtype *TypeError
		var use *UseError
		if !errors.As(err, &shape) && !errors.As(err, &dtype) && !errors.As(err, &use) {
			t.Errorf("%s: threw %T %v", name, err, err)
			continue
		}
		wantThrowPrefix(t, name, err)
	}
}

func wantThrowPrefix(t *testing.T, op string, err error) {
	t.Helper()
	if want := "tensor: " + op + ": "; len(err.Error()) <= len(want) || err.Error()[:len(want)] != want {
		t.Errorf("error %q does not begin with %q", err, want)
	}
}
