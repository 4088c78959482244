package tensor

import (
	"slices"
	"strings"
	"testing"

	cpukernels "github.com/gorun-spmd/gorun/tensor/cpu"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// halfCase is an operator with its arguments' shapes.
type halfCase struct {
	name   string
	shapes [][]int
	f      func(x []*Tensor) []*Tensor
}

// halfCases are all element-wise operators, reductions and functions of rows, and their
// gradients.
func halfCases() (cases []halfCase) {
	add := func(name string, f func(x []*Tensor) []*Tensor, shapes ...[]int) {
		cases = append(cases, halfCase{name, shapes, f})
	}
	one := func(name string, f func(x *Tensor) *Tensor, shape ...int) {
		add(name, func(x []*Tensor) []*Tensor { return []*Tensor{f(x[0])} }, shape)
	}
	pair := func(f func(dy, x, y *Tensor) *Tensor) func(x []*Tensor) []*Tensor {
		return func(x []*Tensor) []*Tensor { return []*Tensor{f(x[0], x[1], x[2])} }
	}
	large := []int{cpukernels.Piece + 70}
	for _, op := range kernel.UnaryOps() {
		for _, shape := range [][]int{{3, 5}, {0}, nil, large} {
			one(op.String(), func(x *Tensor) *Tensor { return Unary(op, x) }, shape...)
			one(op.String()+"To", func(x *Tensor) *Tensor { x = Clone(x); UnaryTo(x, op, x); return x }, shape...)
			add(op.String()+"Grad", pair(func(dy, x, y *Tensor) *Tensor { return UnaryGrad(op, dy, x, y) }), shape, shape, shape)
		}
	}
	one("Clamp", func(x *Tensor) *Tensor { return Clamp(x, -0.3, 0.7) }, 4, 5)
	add("ClampGrad", func(x []*Tensor) []*Tensor { return []*Tensor{ClampGrad(x[0], x[1], -0.3, 0.7)} }, []int{4, 5}, []int{4, 5})
	add("Leaky", func(x []*Tensor) []*Tensor { return []*Tensor{Leaky(x[0], x[1], 0.1)} }, []int{4, 5}, []int{4, 5})
	add("AddScaledTo", func(x []*Tensor) []*Tensor { y := Clone(x[0]); AddScaledTo(y, 0.3, x[1]); return []*Tensor{y} }, []int{4, 5},
		[]int{4, 5})
	for _, op := range kernel.BinaryOps() {
		if !op.Takes(Float32) {
			continue
		}
		for _, s := range [][2][]int{{{4, 3}, {3}}, {{3, 1}, {2, 1, 4}}, {{2, 0}, {1, 1}}, {{5}, nil}, {{2, 3}, {2, 3}}} {
			y, _ := broadcastTogether(s[0], s[1])
			add(op.String(), func(x []*Tensor) []*Tensor { return []*Tensor{Binary(op, x[0], x[1])} }, s[:]...)
			add(op.String()+"To", func(x []*Tensor) []*Tensor {
				y := Zeros(x[0].dev, x[0].dtype, y...)
				BinaryTo(y, op, x[0], x[1])
				return []*Tensor{y}
			}, s[:]...)
			add(op.String()+"Grad", func(x []*Tensor) []*Tensor {
				da, db := BinaryGrad(op, x[0], x[1], x[2], true, true)
				return []*Tensor{da, db}
			}, y, s[0], s[1])
		}
	}
	for _, op := range kernel.CompareOps() {
		add(op.String(), func(x []*Tensor) []*Tensor { return []*Tensor{Compare(op, x[0], x[1]), CompareScalar(op, x[0], 0.25)} }, []int{4, 3},
			[]int{3})
	}
	add("Where", func(x []*Tensor) []*Tensor {
		c := Compare(kernel.OpLt, x[0], x[1])
		da, db := WhereGrad(x[2], c, []int{4, 3}, []int{4, 3})
		return []*Tensor{Where(c, x[0], x[1]), MaskedFill(x[0], c, 0.5), da, db}
	}, []int{4, 3}, []int{4, 3}, []int{4, 3})
	for _, dims := range [][]int{nil, {1}, {0, 2}} {
		for _, op := range kernel.ReduceOps() {
			one(op.String(), func(x *Tensor) *Tensor { return Reduce(op, x, dims, true) }, 3, 4, 2)
			add(op.String()+"Grad", func(x []*Tensor) []*Tensor {
				dy := Amax(x[0], dims, true) // is not rounded
				switch op {
				case kernel.OpProd:
					return []*Tensor{ProdGrad(dy, x[0], dims, true)}
				case kernel.OpSum:
					return []*Tensor{MeanGrad(dy, x[0].Shape(), dims, true)}
				}
				return []*Tensor{AmaxGrad(dy, x[0], Reduce(op, x[0], dims, true), dims, true)}
			}, []int{3, 4, 2})
		}
		one("Mean", func(x *Tensor) *Tensor { return Mean(x, dims, false) }, 3, 4, 2)
		one("Var", func(x *Tensor) *Tensor { return Var(x, dims, 1, false) }, 3, 4, 2)
		one("LogSumExp", func(x *Tensor) *Tensor { return LogSumExp(x, dims, false) }, 3, 4, 2)
		one("Norm", func(x *Tensor) *Tensor { return Norm(x, 3, dims, false) }, 3, 4, 2)
		one("VarGrad", func(x *Tensor) *Tensor { return VarGrad(Amax(x, dims, true), x, dims, 1, true) }, 3, 4, 2)
		one("LogSumExpGrad", func(x *Tensor) *Tensor { y := Amax(x, dims, true); return LogSumExpGrad(y, x, y, dims, true) }, 3, 4, 2)
		one("NormGrad", func(x *Tensor) *Tensor { y := Amax(x, dims, true); return NormGrad(y, x, y, 2, dims, true) }, 3, 4, 2)
	}
	one("Cumsum", func(x *Tensor) *Tensor { return Cumsum(x, 1) }, 3, 4, 2)
	for _, dim := range []int{0, -1} {
		one("Softmax", func(x *Tensor) *Tensor { return Softmax(x, dim) }, 3, 4)
		one("LogSoftmax", func(x *Tensor) *Tensor { return LogSoftmax(x, dim) }, 3, 4)
		add("SoftmaxGrad", func(x []*Tensor) []*Tensor {
			return []*Tensor{SoftmaxGrad(x[0], x[1], dim), LogSoftmaxGrad(x[0], x[1], dim)}
		}, []int{3, 4}, []int{3, 4})
	}
	add("norms", func(x []*Tensor) []*Tensor {
		y, stats := LayerNorm(x[0], x[1], x[2], 1, 1e-5)
		z, roots := RMSNorm(x[0], x[1], 1, 1e-5)
		dx, dw, db := LayerNormGrad(x[3], x[0], x[1], stats, 1, true, true)
		du, dv := RMSNormGrad(x[3], x[0], x[1], roots, 1, true)
		return []*Tensor{y, z, dx, dw, db, du, dv}
	}, []int{3, 4}, []int{4}, []int{4}, []int{3, 4})
	return cases
}

// What is computed of bfloat16 is what is computed of the float32 values, rounded once.
func TestNarrowIsRoundedOnce(t *testing.T) {
	eachNarrow(t, testNarrowIsRoundedOnce)
}

func testNarrowIsRoundedOnce(t *testing.T, dt DType) {
	cpu, rng := NewCPU(nil), newRNG()
	for _, c := range halfCases() {
		var halves, wides []*Tensor
		for _, shape := range c.shapes {
			half, wide := halfArray(randomArray(rng, shape...), cpu, dt)
			halves, wides = append(halves, half), append(wides, wide)
		}
		got, want := c.f(halves), c.f(wides)
		for i := range want {
			switch w := want[i]; {
			case w.dtype == Bool:
				if !sameBits(got[i], w) {
					t.Errorf("%s %v: %v, want %v", c.name, c.shapes, got[i], w)
				}
			case strings.HasPrefix(c.name, "Sum") || strings.HasPrefix(c.name, "Mean"): // in another order
				nearHalf(t, c.name, got[i], w, 0x1p-12)
			// of a rounded result
			case strings.HasSuffix(c.name, "Grad") && strings.Contains("SumGrad AmaxGrad AminGrad ProdGrad VarGrad LogSumExpGrad NormGrad", c.name):
				nearHalf(t, c.name, got[i], w, 2)
			case got[i].dtype != dt || !slices.Equal(got[i].Shape(), w.Shape()) || !sameNumbers(got[i], Cast(w, dt)):
				t.Errorf("%s %v: %v, want %v", c.name, c.shapes, got[i], w)
			}
		}
	}
}

// Rows of bfloat16 tables are changed as those of the float32 values are, and rounded
// once a step; what optimizers remember is float32. More rows than are widened at once.
func TestNarrowRows(t *testing.T) {
	eachNarrow(t, testNarrowRows)
}

func testNarrowRows(t *testing.T, dt DType) {
	cpu, rng := NewCPU(nil), newRNG()
	for _, c := range [][3]int{{6, 3, 4}, {700, 300, 500}, {5, 0, 2}, {4, 3, 0}} {
		rows, dim, n := c[0], c[1], c[2]
		table, wide := halfArray(randomArray(rng, rows, dim), cpu, dt)
		values, wideValues := halfArray(randomArray(rng, n, dim), cpu, dt)
		list := make([]int64, n)
		for i, r := range rng.Perm(rows)[:n] {
			list[i] = int64(r)
		}
		index := FromSlice(cpu, list, n)
		grad, wideGrad := Rows{index, values}, Rows{index, wideValues}
		m, v, sums := Full(cpu, Float32, 0.25, rows, dim), Full(cpu, Float32, 0.5, rows, dim), Full(cpu, Float32, 0.75, rows)
		wideM, wideV, wideSums := Clone(m), Clone(v), Clone(sums)
		factor := randomArray(rng, n).tensor(cpu, Float32)
		for _, step := range []struct {
			name  string
			apply func(table *Tensor, grad Rows, m, v, sums *Tensor)
		}{
			{"SGD", func(table *Tensor, grad Rows, _, _, _ *Tensor) { SGD{LR: 0.3}.StepRows(table, grad) }},
			{"Adagrad", func(table *Tensor, grad Rows, _, _, sums *Tensor) {
				Adagrad{LR: 0.3, Eps: 1e-8}.StepRows(table, grad, sums, nil)
			}},
			{"Adam", func(table *Tensor, grad Rows, m, v, _ *Tensor) { DefaultAdamW().StepRows(table, grad, m, v, 3) }},
			{"ScaleRowsTo", func(table *Tensor, grad Rows, _, _, _ *Tensor) { ScaleRowsTo(table, grad.Index, factor) }},
		} {
			step.apply(table, grad, m, v, sums)
			step.apply(wide, wideGrad, wideM, wideV, wideSums)
			if want := Cast(wide, dt); !sameBits(table, want) {
				t.Errorf("%s, %v: %v, want %v", step.name, c, table, want)
			}
			if !sameBits(m, wideM) || !sameBits(v, wideV) || !sameBits(sums, wideSums) {
				t.Errorf("%s, %v: the state differs", step.name, c)
			}
			wide = Cast(table, Float32) // rounded
		}
		if got, want := RowPowSums(table, index, 3), RowPowSums(wide, index, 3); !sameBits(got, want) {
			t.Errorf("%v: sums of powers %v, want %v", c, got, want)
		}
	}
	x, ids := Zeros(cpu, dt, 2, 3), Zeros(cpu, Int64, 1)
	rows := Rows{ids, Zeros(cpu, dt, 1, 3)}
	wantThrow[*TypeError](t, func() { Adagrad{}.StepRows(x, rows, Zeros(cpu, dt, 2), nil) }, "Adagrad", "wants float32; Cast")
	wantThrow[*TypeError](t, func() { Adam{}.StepRows(x, rows, x, x, 1) }, "Adam", "wants float32; Cast")
	wantThrow[*TypeError](t, func() { ScaleRowsTo(x, ids, Zeros(cpu, dt, 1)) }, "ScaleRowsTo", "wants float32; Cast")
}

// What is added 300 times is added up in float32, where bfloat16 would stop at 256.
func TestBFloat16IndexAdd(t *testing.T) {
	cpu := NewCPU(nil)
	index, ones := Zeros(cpu, Int64, 300), Full(cpu, BFloat16, 1, 300, 2)
	want := []float64{300, 300, 0, 0}
	for name, got := range map[string]*Tensor{
		"IndexAddTo":   IndexSelectGrad(ones, 0, index, 2, 2),
		"ScatterAddTo": GatherGrad(ones, 0, Expand(index.Reshape(300, 1), 300, 2), 2, 2),
		"DenseRows":    DenseRows(Coalesce(index, ones, 0, 2), 2),
	} {
		if !slices.Equal(ToSlice[float64](Cast(got, Float64)), want) || got.DType() != BFloat16 {
			t.Errorf("%s: %v", name, got)
		}
	}
	wantThrow[*TypeError](t, func() { IndexAddTo(ones, 0, index, Cast(ones, Float32)) }, "IndexAddTo", "Cast one")
	wantThrow[*TypeError](t, func() { ScatterAddTo(ones, 0, Zeros(cpu, Int64, 1, 1), Cast(ones, Float32)) }, "ScatterAddTo", "Cast one")
}

// A step on a bfloat16 parameter is that on the float32 values, rounded once, with float32
// state; more elements than are widened at once.
func TestNarrowSteps(t *testing.T) {
	eachNarrow(t, testNarrowSteps)
}

func testNarrowSteps(t *testing.T, dt DType) {
	cpu, rng := NewCPU(nil), newRNG()
	for _, n := range []int{0, 5, cpukernels.Piece + 70} {
		p, _ := halfArray(randomArray(rng, n), cpu, dt)
		m, v := Zeros(cpu, Float32, n), Zeros(cpu, Float32, n)
		for step := 1; step <= 3; step++ {
			g, wideG := halfArray(randomArray(rng, n), cpu, dt)
			for _, apply := range []func(p, g, m, v *Tensor){
				func(p, g, _, _ *Tensor) { SGD{LR: 0.3, WeightDecay: 0.1}.Step(p, g, nil, step == 1) },
				func(p, g, m, _ *Tensor) { SGD{LR: 0.3, Momentum: 0.9, Nesterov: true}.Step(p, g, m, step == 1) },
				func(p, g, m, v *Tensor) { DefaultAdamW().Step(p, g, m, v, step) },
			} {
				wide, wideM, wideV := Cast(p, Float32), Clone(m), Clone(v)
				apply(wide, wideG, wideM, wideV)
				apply(p, g, m, v)
				if want := Cast(wide, dt); !sameBits(p, want) || !sameBits(m, wideM) || !sameBits(v, wideV) {
					t.Fatalf("step %d of %d: %v, want %v", step, n, p, want)
				}
			}
		}
	}
	x := Zeros(cpu, dt, 2)
	wantThrow[*TypeError](t, func() { SGD{Momentum: 0.5}.Step(x, Clone(x), Clone(x), true) }, "SGD", "wants float32; Cast")
	wantThrow[*TypeError](t, func() { Adam{}.Step(x, Clone(x), Clone(x), Clone(x), 1) }, "Adam", "wants float32; Cast")
}
