package tensor

import (
	"bytes"
	"runtime"
	"testing"
	"unsafe"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Work that is split over goroutines gives the same bits as work that is not.
func TestResultsDoNotDependOnGOMAXPROCS(t *testing.T) {
	cpu := NewCPU(nil)
	const n, d = 300, 1100
	x, y := New(cpu, Float32, n, d), New(cpu, Float32, n, d)
	FillNormal(x, Key{Seed: 1}, 0, 1, nil, nil)
	FillNormal(y, Key{Seed: 2}, 0, 1, nil, nil)
	row, ids := Narrow(x, 0, 0, 1).Reshape(d), Arange(cpu, Int64, 0, n)
	q := New(cpu, Float32, 2, 3, 130, 16)
	FillNormal(q, Key{Seed: 3}, 0, 1, nil, nil)
	lse, coef := Zeros(cpu, Float32, n), Full(cpu, Float32, 0.5, n, 3)
	images, deep, weight := New(cpu, Float32, 4, 32, 40, 40), New(cpu, Float32, 64, 1, 3, 3), New(cpu, Float32, 32, 32, 3, 3)
	for i, x := range []*Tensor{images, deep, weight} {
		FillNormal(x, Key{Seed: uint64(4 + i)}, 0, 1, nil, nil)
	}
	same := kernel.Window{Size: 40, Count: 40, Kernel: 3, Stride: 1, Padding: 1, Dilation: 1}
	window, many := []kernel.Window{same, same}, images.Reshape(2, 64, 40, 40)
	for name, f := range map[string]func() *Tensor{
		"Conv":           func() *Tensor { return Conv(images, weight, 1, window) },
		"ConvInput":      func() *Tensor { return ConvInput(images, weight, 1, window) },
		"ConvWeight":     func() *Tensor { return ConvWeight(images, images, 1, window) },
		"ConvDeep":       func() *Tensor { return Conv(many, deep, 64, window) },
		"ConvDeepInput":  func() *Tensor { return ConvInput(many, deep, 64, window) },
		"ConvDeepWeight": func() *Tensor { return ConvWeight(many, many, 64, window) },
		"Add":            func() *Tensor { return Add(x, y) },
		"AddRow":         func() *Tensor { return Add(x, row) },
		"Mul":            func() *Tensor { return MulScalar(x, 3) },
		"Gelu":           func() *Tensor { return Gelu(x) },
		"GeluGrad":       func() *Tensor { return UnaryGrad(kernel.OpGelu, y, x, nil) },
		"SumRows":        func() *Tensor { return Sum(x, []int{0}, false) },
		"SumLast":        func() *Tensor { return Sum(x, []int{1}, false) },
		"SumInner":       func() *Tensor { return Sum(x.Reshape(3, 100, d), []int{1}, false) },
		"Softmax":        func() *Tensor { return Softmax(x, 1) },
		"SoftGrad":       func() *Tensor { return SoftmaxGrad(y, x, 1) },
		"Layer":          func() *Tensor { y, _ := LayerNorm(x, row, row, 1, 1e-5); return y },
		"RMS":            func() *Tensor { y, _ := RMSNorm(x, row, 1, 1e-5); return y },
		"Norm":           func() *Tensor { return Norm(x, 2, []int{1}, false) },
		"Normal":         func() *Tensor { z := NewLike(x); FillNormal(z, Key{Seed: 7}, 0, 1, nil, nil); return z },
		"TakeRows":       func() *Tensor { return TakeRows(x, ids, 0) },
		"Stats":          func() *Tensor { return CrossEntropyStats(x, ids, 0, row, true) },
		"XentGrad":       func() *Tensor { return CrossEntropyGrad(nil, x, ids, 0, lse, coef, row) },
		"Attend":         func() *Tensor { y, _ := Attention(q, q, q, true); return y },
		"AttendGrad": func() *Tensor {
			y, lse := Attention(q, q, q, true)
			dq, dk, dv := AttentionGrad(q, q, q, q, y, lse, true)
			return Cat(0, dq, dk, dv)
		},
		"Adam": func() *Tensor {
			p, m, v := Clone(x), ZerosLike(x), ZerosLike(x)
			DefaultAdamW().Step(p, y, m, v, 1)
			return p
		},
		"Cumprod":     func() *Tensor { return Cumprod(x, 1) },
		"CumprodGrad": func() *Tensor { return CumprodGrad(y, x, 1) },
		"SGD":         func() *Tensor { p := Clone(x); SGD{LR: 0.1}.Step(p, y, nil, true); return p },
		"MatMul":      func() *Tensor { return MatMul(x, y, true, false) },
	} {
		run := func(procs int) []byte {
			before := runtime.GOMAXPROCS(procs)
			defer runtime.GOMAXPROCS(before)
			z := f()
			defer runtime.KeepAlive(z) // an address is no reference
			return bytes.Clone(unsafe.Slice((*byte)(z.Ptr()), z.Bytes()))
		}
		if !bytes.Equal(run(1), run(4)) {
			t.Errorf("%s: 1 and 4 processors give different bits", name)
		}
	}
}
