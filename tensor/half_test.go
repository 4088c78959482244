package tensor

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/internal/simd"
	cpukernels "github.com/gorun-spmd/gorun/tensor/cpu"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// eachNarrow runs a test for each narrow type.
func eachNarrow(t *testing.T, f func(t *testing.T, dt DType)) {
	for _, dt := range []DType{BFloat16, Float16} {
		t.Run(dt.String(), func(t *testing.T) { f(t, dt) })
	}
}

// halfArray returns random numbers of a narrow type and the same as float32.
func halfArray(a array, dev Device, dt DType) (half, wide *Tensor) {
	half = Cast(a.tensor(dev, Float32), dt)
	return half, Cast(half, Float32)
}

// halfUnit is the largest relative error of a rounding to a narrow type.
func halfUnit(dt DType) float64 {
	if dt == Float16 {
		return 0x1p-11
	}
	return 0x1p-8
}

// The product of bfloat16 is that of the float32 values, rounded once; into float32
// it is not rounded. An accumulated one is added before it is rounded. On a CPU with AVX-512
// BF16 it is near that of the float32 values.
func TestNarrowMatMul(t *testing.T) {
	eachNarrow(t, testNarrowMatMul)
}

func testNarrowMatMul(t *testing.T, dt DType) {
	cpu, rng := NewCPU(nil), newRNG()
	for _, c := range matmulCases {
		for trans := range 4 {
			transA, transB := trans&1 != 0, trans&2 != 0
			sa, sb := c.shapes(transA, transB)
			a, wideA := halfArray(randomArray(rng, sa...), cpu, dt)
			b, wideB := halfArray(randomArray(rng, sb...), cpu, dt)
			name := fmt.Sprint(sa, sb, transA, transB)
			got, want := MatMul(a, b, transA, transB), MatMul(wideA, wideB, transA, transB)
			sum := Full(cpu, Float32, 0.75, want.Shape()...)
			MatMulTo(sum, wideA, wideB, transA, transB, true)
			if dt == BFloat16 && simd.BestBF16() >= simd.AVX512BF16 { // pairs are added: the order differs, and so may the last bits
				pairs, added := New(cpu, Float32, want.Shape()...), Full(cpu, Float32, 0.75, want.Shape()...)
				MatMulTo(pairs, a, b, transA, transB, false)
				MatMulTo(added, a, b, transA, transB, true)
				terms, k := MatMul(Abs(wideA), Abs(wideB), transA, transB), sa[len(sa)-1]
				if transA {
					k = sa[len(sa)-2]
				}
				for i, most := range Data[float32](terms) {
					bound := float64(2*k+6) * 0x1p-24 * float64(most+1)
					for _, of := range [][2]*Tensor{{pairs, want}, {added, sum}} {
						if x, y := Data[float32](of[0])[i], Data[float32](of[1])[i]; !(math.Abs(float64(x)-float64(y)) <= bound) {
							t.Errorf("%s: element %d is %v, want %v ± %v", name, i, x, y, bound)
						}
					}
				}
				want, sum = pairs, added
			}
			if !sameBits(got, Cast(want, dt)) {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
			into := Full(cpu, dt, 0.75, want.Shape()...)
			if MatMulTo(into, a, b, transA, transB, true); !sameBits(into, Cast(sum, dt)) {
				t.Errorf("%s, added: %v, want %v", name, into, sum)
			}
			wide := Full(cpu, Float32, 0.75, want.Shape()...)
			if MatMulTo(wide, a, b, transA, transB, true); !sameBits(wide, sum) {
				t.Errorf("%s, added to float32: %v, want %v", name, wide, sum)
			}
			if MatMulTo(wide, a, b, transA, transB, false); !sameBits(wide, want) {
				t.Errorf("%s, to float32: %v, want %v", name, wide, want)
			}
		}
	}
	a := Zeros(cpu, dt, 2, 2)
	wantThrow[*TypeError](t, func() { MatMul(a, Zeros(cpu, Float32, 2, 2), false, false) }, "MatMul", "Cast")
	wantThrow[*TypeError](t, func() { MatMulTo(Zeros(cpu, Float64, 2, 2), a, Clone(a), false, false, false) }, "MatMulTo", "Cast")
	wantThrow[*TypeError](t, func() {
		MatMulTo(Zeros(cpu, dt, 2, 2), Zeros(cpu, Float32, 2, 2), Zeros(cpu, Float32, 2, 2), false, false, false)
	}, "MatMulTo", "Cast")
	wantThrow[*UseError](t, func() { MatMulTo(a, a, Clone(a), false, false, false) }, "argument too")
}

// The gradients are products, rounded, and where an argument was repeated their sum.
func TestNarrowMatMulGrad(t *testing.T) {
	eachNarrow(t, testNarrowMatMulGrad)
}

func testNarrowMatMulGrad(t *testing.T, dt DType) {
	cpu, rng := NewCPU(nil), newRNG()
	for _, c := range matmulCases {
		for trans := range 4 {
			transA, transB := trans&1 != 0, trans&2 != 0
			sa, sb := c.shapes(transA, transB)
			a, wideA := halfArray(randomArray(rng, sa...), cpu, dt)
			b, wideB := halfArray(randomArray(rng, sb...), cpu, dt)
			dy, wideDY := halfArray(randomArray(rng, MatMul(a, b, transA, transB).Shape()...), cpu, dt)
			da, db := MatMulGrad(dy, a, b, transA, transB, true, true)
			wantA, wantB := MatMulGrad(wideDY, wideA, wideB, transA, transB, true, true)
			for i, g := range []struct{ got, want *Tensor }{{da, wantA}, {db, wantB}} {
				if g.got.DType() != dt {
					t.Fatalf("gradient %d is %v", i, g.got)
				}
				nearHalf(t, fmt.Sprint("gradient ", i, " of ", sa, sb, transA, transB), g.got, g.want, map[DType]float64{BFloat16: 4, Float16: 8}[dt])
			}
		}
	}
}

// nearHalf compares bfloat16 with float32, within half a unit of the last place, and
// that of the given absolute value where numbers cancel.
func nearHalf(t *testing.T, name string, got, want *Tensor, cancels float64) {
	t.Helper()
	g, w := ToSlice[float64](Cast(got, Float64)), ToSlice[float64](Cast(want, Float64))
	if !slices.Equal(got.Shape(), want.Shape()) {
		t.Fatalf("%s: %v, want %v", name, got, want)
	}
	for i := range w {
		if !(math.Abs(g[i]-w[i]) <= halfUnit(got.dtype)*(math.Abs(w[i])+cancels)) {
			t.Fatalf("%s: element %d is %v, want %v", name, i, g[i], w[i])
		}
	}
}

// Attention of bfloat16 is that of the float32 values, rounded once, with lse in float32,
// and its gradients those of the rounded result; more heads than are widened at once.
func TestNarrowAttention(t *testing.T) {
	eachNarrow(t, testNarrowAttention)
}

func testNarrowAttention(t *testing.T, dt DType) {
	cpu, rng := NewCPU(nil), newRNG()
	for _, c := range [][6]int{{1, 1, 1, 1, 1, 1}, {2, 2, 4, 4, 3, 3}, {1, 2, 130, 130, 6, 2}, {1, 1, 70, 3, 2, 5}, {0, 2, 3, 3, 2, 2},
		{1, 2, 0, 3, 2, 2},
		{1, 17, 2, 2, kernel.HeadsPiece / 128, kernel.HeadsPiece / 128}} {
		b, h, n, s, d, e := c[0], c[1], c[2], c[3], c[4], c[5]
		q, wideQ := halfArray(randomArray(rng, b, h, n, d), cpu, dt)
		k, wideK := halfArray(randomArray(rng, b, h, s, d), cpu, dt)
		v, wideV := halfArray(randomArray(rng, b, h, s, e), cpu, dt)
		dy, wideDY := halfArray(randomArray(rng, b, h, n, e), cpu, dt)
		for _, causal := range []bool{false, true} {
			name := label("Attention", c, causal)
			y, lse := Attention(q, k, v, causal)
			wideY, wideLSE := Attention(wideQ, wideK, wideV, causal)
			if !sameBits(y, Cast(wideY, dt)) || !sameBits(lse, wideLSE) {
				t.Errorf("%s: %v and %v, want %v and %v", name, y, lse, wideY, wideLSE)
			}
			if h < 10 { // it is slow
				nearHalf(t, name, y, attentionWant(toArray(wideQ), toArray(wideK), toArray(wideV), causal).tensor(cpu, Float64), 0x1p-12)
			}
			dq, dk, dv := AttentionGrad(dy, q, k, v, y, lse, causal)
			roundedQ, roundedK, roundedV := AttentionGrad(wideDY, wideQ, wideK, wideV, Cast(y, Float32), lse, causal)
			exactQ, exactK, exactV := AttentionGrad(wideDY, wideQ, wideK, wideV, wideY, lse, causal)
			moved := largest(Sum(Abs(Mul(wideDY, wideY)), []int{3}, false)) / 2 // what rounding y makes of Σ dy·y, in 1/256
			cancels := []float64{moved * largest(wideK), moved * largest(wideQ) * float64(n), 0}
			for i, g := range [][3]*Tensor{{dq, roundedQ, exactQ}, {dk, roundedK, exactK}, {dv, roundedV, exactV}} {
				if !sameBits(g[0], Cast(g[1], dt)) {
					t.Errorf("%s: gradient %d is %v, want %v", name, i, g[0], g[1])
				}
				nearHalf(t, fmt.Sprint(name, ", gradient ", i), g[0], g[2], cancels[i]+0x1p-12)
			}
		}
	}
	x, lse := Zeros(cpu, dt, 1, 1, 2, 2), Zeros(cpu, dt, 1, 1, 2)
	wantThrow[*TypeError](t, func() { AttentionGrad(x, x, x, x, x, lse, false) }, "AttentionGrad", "wants float32; Cast")
	wantThrow[*TypeError](t, func() { Attention(x, Cast(x, Float32), x, false) }, "Attention", "Cast one")
	x = Zeros(cpu, Int32, 1, 1, 2, 2)
	wantThrow[*TypeError](t, func() { Attention(x, x, x, false) }, "Attention", "Cast first")
}

// largest returns the largest absolute value, 0 of none.
func largest(x *Tensor) (most float64) {
	for _, v := range ToSlice[float32](x) {
		most = max(most, math.Abs(float64(v)))
	}
	return most
}

func TestNarrowLinear(t *testing.T) {
	eachNarrow(t, testNarrowLinear)
}

func testNarrowLinear(t *testing.T, dt DType) {
	cpu, rng := NewCPU(nil), newRNG()
	w, wideW := halfArray(randomArray(rng, 5, 3), cpu, dt)
	bias, wideBias := halfArray(randomArray(rng, 5), cpu, dt)
	for _, shape := range [][]int{{3}, {2, 3}, {2, 4, 3}, {0, 3}} {
		x, wideX := halfArray(randomArray(rng, shape...), cpu, dt)
		y := Linear(x, w, bias)
		if want := Cast(Linear(wideX, wideW, wideBias), dt); !sameBits(y, want) || !slices.Equal(y.Shape(), want.Shape()) {
			t.Errorf("%v: %v, want %v", shape, y, want)
		}
		if y, want := Linear(x, w, nil), Cast(Linear(wideX, wideW, nil), dt); !sameBits(y, want) {
			t.Errorf("%v without bias: %v, want %v", shape, y, want)
		}
		dy, wideDY := halfArray(randomArray(rng, y.Shape()...), cpu, dt)
		dx, dw, db := LinearGrad(dy, x, w, true, true, true)
		wantX, wantW, wantB := LinearGrad(wideDY, wideX, wideW, true, true, true)
		if !sameBits(dx, Cast(wantX, dt)) || !sameBits(dw, Cast(wantW, dt)) || !sameBits(db, Cast(wantB, dt)) {
			t.Errorf("%v: gradients %v, %v and %v, want %v, %v and %v", shape, dx, dw, db, wantX, wantW, wantB)
		}
	}
	wantThrow[*TypeError](t, func() { Linear(Zeros(cpu, dt, 2, 3), w, wideBias) }, "Linear", "Cast")
	wantThrow[*ShapeError](t, func() { Linear(Zeros(cpu, dt, 2, 3), w, Zeros(cpu, dt, 2)) }, "bias", "5 outputs")
}

// A sum of bfloat16 is that of the float32 values, rounded once: what is added in
// bfloat16 would stop growing at 256, what is added in float16 at 2048.
func TestNarrowSum(t *testing.T) {
	eachNarrow(t, testNarrowSum)
}

func testNarrowSum(t *testing.T, dt DType) {
	cpu, rng := NewCPU(nil), newRNG()
	for n, want := range map[int]map[DType]float64{3000: {BFloat16: 3008, Float16: 3000}, 5001: {BFloat16: 4992, Float16: 5000}} {
		if got := Sum(Full(cpu, dt, 1, n), nil, false).Item(); got != want[dt] { // n rounded to 8 or 11 bits
			t.Errorf("%d ones are %v, want %v", n, got, want[dt])
		}
	}
	for _, c := range []struct {
		shape, dims []int
		keepdim     bool
	}{{[]int{7}, nil, false}, {[]int{3, 5, 4}, []int{1}, false}, {[]int{3, 5, 4}, []int{0, 2}, true}, {[]int{3, 5, 4}, []int{2}, false},
		{[]int{3, 5, 4}, []int{0, 1}, false}, {[]int{2, 0, 3}, []int{1}, false}, {[]int{0, 3}, []int{1}, false}, {nil, nil, false}} {
		x, wide := halfArray(randomArray(rng, c.shape...), cpu, dt)
		got, want := Sum(x, c.dims, c.keepdim), Sum(wide, c.dims, c.keepdim)
		if got.DType() != dt || got == x {
			t.Errorf("the sum of %v is %v", x, got)
		}
		nearHalf(t, fmt.Sprint(c), got, want, 0x1p-12)
	}
	// Many small numbers between large ones that cancel.
	for _, inner := range []int{1, 3} {
		const large, many = cpukernels.SumPiece, 4*cpukernels.SumPiece + 5
		x := New(cpu, dt, 2, large+many+large, inner)
		for o := range 2 {
			at := o * (large + many + large) * inner
			for _, part := range []struct {
				n int
				v float64
			}{{large, 256}, {many, 1.0 / 128}, {large, -256}} {
				Fill(Narrow(x.Reshape(x.Numel()), 0, at, part.n*inner), part.v)
				at += part.n * inner
			}
		}
		want := Full(cpu, Float32, many/128.0, 2, inner)
		nearHalf(t, fmt.Sprint("sum of many, ", inner), Sum(x, []int{1}, false), want, 0)
	}
	wantThrow[*TypeError](t, func() { Mean(Zeros(cpu, Int32, 2), nil, false) }, "Mean")
}

func TestNarrowArithmetic(t *testing.T) {
	eachNarrow(t, testNarrowArithmetic)
}

func testNarrowArithmetic(t *testing.T, dt DType) {
	cpu, rng := NewCPU(nil), newRNG()
	for _, n := range []int{0, 1, cpukernels.HalfChunk + 3, cpukernels.ParallelFrom + 70} {
		a, wideA := halfArray(randomArray(rng, n), cpu, dt)
		b, wideB := halfArray(randomArray(rng, n), cpu, dt)
		for _, op := range kernel.BinaryOps() {
			if !op.Takes(dt) || n > 10000 && op == kernel.OpPow { // which is slow
				continue
			}
			if got, want := Binary(op, a, b), Cast(Binary(op, wideA, wideB), dt); !sameNumbers(got, want) {
				t.Errorf("%v of %d: %v, want %v", op, n, got, want)
			}
			if got, want := BinaryScalar(op, a, 0.3), Cast(BinaryScalar(op, wideA, 0.3), dt); !sameNumbers(got, want) {
				t.Errorf("%v of %d and a number: %v, want %v", op, n, got, want)
			}
			if got, want := ScalarBinary(op, 0.3, a), Cast(ScalarBinary(op, 0.3, wideA), dt); !sameNumbers(got, want) {
				t.Errorf("%v of a number and %d: %v, want %v", op, n, got, want)
			}
		}
		sum := Clone(a)
		AddTo(sum, b)
		ScaleTo(sum, 0.3)
		if want := Cast(MulScalar(Cast(Cast(Add(wideA, wideB), dt), Float32), 0.3), dt); !sameNumbers(sum, want) {
			t.Errorf("of %d: %v, want %v", n, sum, want)
		}
	}
	wantThrow[*TypeError](t, func() { AddTo(Zeros(cpu, Bool, 2), Zeros(cpu, Bool, 2)) }, "AddTo", "Cast first")
}

// sameNumbers is sameBits, for which all NaN are the same.
func sameNumbers(a, b *Tensor) bool {
	x, y := ToSlice[float32](Cast(a, Float32)), ToSlice[float32](Cast(b, Float32))
	return a.dtype == b.dtype && slices.EqualFunc(x, y, func(x, y float32) bool {
		return math.Float32bits(x) == math.Float32bits(y) || x != x && y != y
	})
}

// The largest of bfloat16 are those of the float32 values, NaN and equal ones among
// them, with their bits.
func TestNarrowTopK(t *testing.T) {
	eachNarrow(t, testNarrowTopK)
}

func testNarrowTopK(t *testing.T, dt DType) {
	cpu, rng := NewCPU(nil), newRNG()
	for _, n := range []int{1, 7, 600} {
		half, wide := halfArray(randomArray(rng, 5, n), cpu, dt)
		if n == 7 {
			Fill(Narrow(half.Reshape(35), 0, 9, 2), math.NaN())
			Fill(Narrow(half.Reshape(35), 0, 16, 3), 4)
			wide = Cast(half, Float32)
		}
		for _, k := range []int{0, 1, n/2 + 1, n} {
			v, i := TopK(half, k, -1)
			want, at := TopK(wide, k, -1)
			if !sameBits(v, Cast(want, dt)) || !sameBits(i, at) {
				t.Errorf("%d of %d: %v at %v, want %v at %v", k, n, v, i, want, at)
			}
			if g, want := GatherGrad(v, -1, i, 5, n), GatherGrad(want, -1, at, 5, n); !sameBits(g, Cast(want, dt)) {
				t.Errorf("%d of %d: the gradient is %v, want %v", k, n, g, want)
			}
		}
	}
}

// Refresh takes over what half does not have from wide, NaN too, and leaves the rest.
func TestRefresh(t *testing.T) {
	eachNarrow(t, func(t *testing.T, dt DType) {
		for _, n := range []int{0, 1, 5, 1024, 5000} {
			half, was := halfArray(randomArray(newRNG(), n), NewCPU(nil), dt)
			wide := MulScalar(was, 1+halfUnit(dt)/4) // rounds to was
			kept := ToSlice[float32](wide)
			for i := 2; i < n; i += 7 {
				Fill(Narrow(half, 0, i, 1), []float64{math.NaN(), 1, -2}[i%3])
			}
			Refresh(wide, half)
			set := ToSlice[float32](Cast(half, Float32))
			for i, got := range ToSlice[float32](wide) {
				want := kept[i]
				if i >= 2 && i%7 == 2 {
					want = set[i]
				}
				if math.Float32bits(got) != math.Float32bits(want) {
					t.Fatalf("%d of %d is %v, want %v", i, n, got, want)
				}
			}
		}
	})
}
