package tensor

import (
	"cmp"
	"math"
	"math/cmplx"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// unaryWant is the definition of each unary operator, written apart.
var unaryWant = map[kernel.UnaryOp]func(x float64) float64{
	kernel.OpNeg:     func(x float64) float64 { return -x },
	kernel.OpAbs:     math.Abs,
	kernel.OpExp:     math.Exp,
	kernel.OpLog:     math.Log,
	kernel.OpSqrt:    math.Sqrt,
	kernel.OpRsqrt:   func(x float64) float64 { return 1 / math.Sqrt(x) },
	kernel.OpTanh:    func(x float64) float64 { return 1 - 2/(math.Exp(2*x)+1) },
	kernel.OpSigmoid: func(x float64) float64 { return (1 + math.Tanh(x/2)) / 2 },
	kernel.OpRelu:    func(x float64) float64 { return max(x, 0) },
	kernel.OpGelu:    func(x float64) float64 { return x * (1 + math.Erf(x/math.Sqrt2)) / 2 },
	kernel.OpGeluTanh: func(x float64) float64 {
		return x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))) / 2
	},
	kernel.OpSilu:   func(x float64) float64 { return x * (1 + math.Tanh(x/2)) / 2 },
	kernel.OpSquare: func(x float64) float64 { return x * x },
	kernel.OpSign:   func(x float64) float64 { return float64(cmp.Compare(x, 0)) },
	kernel.OpErf: func(x float64) float64 { // 2/√π·Σ (-1)ⁿ·x²ⁿ⁺¹/(n!·(2n+1))
		if math.Abs(x) > 1 {
			return 1 - math.Erfc(x)
		}
		term, sum := x, x
		for n := 1.0; n < 30; n++ {
			term *= -x * x / n
			sum += term / (2*n + 1)
		}
		return 2 / math.Sqrt(math.Pi) * sum
	},
	kernel.OpSin: func(x float64) float64 { return imag(cmplx.Exp(complex(0, x))) },
	kernel.OpCos: func(x float64) float64 { return real(cmplx.Exp(complex(0, x))) },
	kernel.OpLog1p: func(x float64) float64 { // the error of 1+x cancels in log(u)/(u-1)
		u := 1 + x
		if u == 1 || math.IsInf(u, 1) {
			return x
		}
		return math.Log(u) * (x / (u - 1))
	},
	kernel.OpExpm1: func(x float64) float64 { return math.Tanh(x/2) * (math.Exp(x) + 1) },
	kernel.OpTan:   func(x float64) float64 { return math.Sin(x) / math.Cos(x) },
	kernel.OpAsin:  func(x float64) float64 { return math.Atan2(x, math.Sqrt(1-x*x)) },
	kernel.OpAcos:  func(x float64) float64 { return math.Atan2(math.Sqrt(1-x*x), x) },
	kernel.OpAtan:  func(x float64) float64 { return math.Atan2(x, 1) },
	kernel.OpSinh:  func(x float64) float64 { return (math.Exp(x) - math.Exp(-x)) / 2 },
	kernel.OpCosh:  func(x float64) float64 { return (math.Exp(x) + math.Exp(-x)) / 2 },
	kernel.OpAsinh: func(x float64) float64 { return math.Copysign(math.Log(math.Abs(x)+math.Hypot(x, 1)), x) },
	kernel.OpAcosh: func(x float64) float64 { return math.Log(x + math.Sqrt(x-1)*math.Sqrt(x+1)) },
	kernel.OpAtanh: func(x float64) float64 { return math.Log((1+x)/(1-x)) / 2 },
	kernel.OpErfc:  func(x float64) float64 { return 1 - math.Erf(x) },
	kernel.OpErfinv: func(y float64) float64 {
		if !(math.Abs(y) <= 1) {
			return math.NaN()
		}
		lo, hi := -7.0, 7.0
		for range 100 {
			if mid := (lo + hi) / 2; math.Erf(mid) < y {
				lo = mid
			} else {
				hi = mid
			}
		}
		return (lo + hi) / 2
	},
	kernel.OpExp2:  func(x float64) float64 { return math.Pow(2, x) },
	kernel.OpLog2:  func(x float64) float64 { return math.Log(x) / math.Ln2 },
	kernel.OpLog10: func(x float64) float64 { return math.Log(x) / math.Ln10 },
	kernel.OpLgamma: func(x float64) float64 {
		if math.IsInf(x, 0) || x < 0 && x == math.Floor(x) {
			return math.Inf(1)
		}
		return math.Log(math.Abs(math.Gamma(x)))
	},
	kernel.OpDigamma: func(x float64) float64 {
		if x < 0 && x == math.Floor(x) {
			return math.NaN()
		}
		const steps = 4000
		sum := 0.0
		for k := range steps {
			sum += 1 / (x + float64(k))
		}
		x += steps
		return math.Log(x) - 1/(2*x) - 1/(12*x*x) - sum
	},
	kernel.OpI0: func(x float64) float64 { // the mean of exp(x·cos θ) over a half turn
		const steps = 64
		sum := math.Cosh(x)
		for k := 1; k < steps; k++ {
			sum += math.Exp(x * math.Cos(math.Pi*float64(k)/steps))
		}
		return sum / steps
	},
	kernel.OpFloor: func(x float64) float64 { return -math.Ceil(-x) },
	kernel.OpCeil:  func(x float64) float64 { return -math.Floor(-x) },
	kernel.OpRound: func(x float64) float64 {
		if math.IsInf(x, 0) {
			return x
		}
		return x - math.Remainder(x, 1)
	},
	kernel.OpTrunc: func(x float64) float64 {
		whole, _ := math.Modf(x)
		return whole
	},
	kernel.OpSoftplus:   logOf1PlusExp,
	kernel.OpLogSigmoid: func(x float64) float64 { return -logOf1PlusExp(-x) },
	kernel.OpMish: func(x float64) float64 {
		if x > 40 {
			return x
		}
		square := (1 + math.Exp(x)) * (1 + math.Exp(x))
		return x * (square - 1) / (square + 1)
	},
	kernel.OpHardsigmoid: func(x float64) float64 { return (min(max(x, -3), 3) + 3) / 6 },
	kernel.OpHardswish:   func(x float64) float64 { return x * (min(max(x, -3), 3) + 3) / 6 },
	kernel.OpELU:         func(x float64) float64 { return max(x, 0) + math.Expm1(min(x, 0)) },
}

// logOf1PlusExp is ln(1+eˣ).
func logOf1PlusExp(x float64) float64 {
	if x > 40 {
		return x
	}
	return math.Log1p(math.Exp(x))
}

// unaryOracle returns the definition of op from unaryWant.
func unaryOracle(t *testing.T, op kernel.UnaryOp) func(x float64) float64 {
	t.Helper()
	f := unaryWant[op]
	if f == nil {
		t.Fatalf("%v has a row in package kernel; unaryWant has none", op)
	}
	return f
}

// argumentOf returns an argument for which op is a number, far from its poles: x or what is made of it.
func argumentOf(op kernel.UnaryOp, x float64) float64 {
	switch op {
	case kernel.OpLog, kernel.OpLog1p, kernel.OpSqrt, kernel.OpRsqrt, kernel.OpLog2, kernel.OpLog10:
		return math.Abs(x) + 0.125
	case kernel.OpAcosh:
		return math.Abs(x) + 1.125
	case kernel.OpLgamma, kernel.OpDigamma:
		return math.Abs(x) + 0.25
	case kernel.OpTan, kernel.OpAsin, kernel.OpAcos, kernel.OpAtanh, kernel.OpErfinv:
		return 0.9 * math.Tanh(x)
	}
	return x
}

func TestUnary(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	for _, op := range kernel.UnaryOps() {
		for _, shape := range shapes {
			x := randomArray(rng, shape...)
			for i, v := range x.data {
				x.data[i] = argumentOf(op, v)
			}
			want := build(shape, func(i []int) float64 { return unaryOracle(t, op)(x.at(i...)) })
			for _, dt := range floats {
				in := x.tensor(cpu, dt)
				check(t, label(op, dt, shape), Unary(op, in), want, tolerance(dt))
				UnaryTo(in, op, in)
				check(t, label(op, dt, shape, " in place"), in, want, tolerance(dt))
			}
		}
	}
	for _, op := range []kernel.UnaryOp{kernel.OpNeg, kernel.OpAbs, kernel.OpRelu, kernel.OpSquare, kernel.OpSign} {
		x := intArray(rng, -9, 10, 3, 4)
		want := build(x.shape, func(i []int) float64 { return unaryOracle(t, op)(x.at(i...)) })
		for _, dt := range []DType{Int8, Int16, Int32, Int64} {
			check(t, label(op, dt), Unary(op, x.tensor(cpu, dt)), want, 0)
		}
	}
	wantThrow[*TypeError](t, func() { Exp(Zeros(cpu, Int32, 2)) }, "Exp", "int32[2]", "Cast")
	wantThrow[*TypeError](t, func() { Neg(Zeros(cpu, Bool, 2)) }, "Neg", "bool[2]")
}

func TestUnarySpecialValues(t *testing.T) {
	cpu := NewCPU(nil)
	inf, nan := math.Inf(1), math.NaN()
	x := array{[]int{6}, []float64{inf, -inf, nan, 0, 100, -100}}
	for _, op := range kernel.UnaryOps() {
		for _, dt := range floats {
			got := toArray(Unary(op, x.tensor(cpu, dt)))
			for i, v := range x.data {
				want := unaryOracle(t, op)(v)
				switch {
				case v == -inf && (op == kernel.OpGelu || op == kernel.OpGeluTanh):
					want = 0 // the limit; by the formula NaN, as Silu is
				case op == kernel.OpSign && v != v, op == kernel.OpRelu && v != v:
					want = nan
				}
				if dt == Float32 && math.Abs(want) > math.MaxFloat32 {
					want = math.Copysign(inf, want)
				}
				if !near(got.data[i], want, tolerance(dt)) {
					t.Errorf("%v %v(%v) = %v, want %v", dt, op, v, got.data[i], want)
				}
			}
		}
	}
}

// The slopes of the activations at the infinities: those of the Gelus are the limits, those
// of Silu NaN, as by the formula. At NaN all are NaN but that of Relu, as in PyTorch.
func TestActivationSlopesAtInfinity(t *testing.T) {
	cpu := NewCPU(nil)
	inf, nan := math.Inf(1), math.NaN()
	for op, want := range map[kernel.UnaryOp][]float64{kernel.OpGelu: {1, 0, nan}, kernel.OpGeluTanh: {1, 0, nan},
		kernel.OpSilu: {nan, nan, nan}, kernel.OpTanh: {0, 0, nan},
		kernel.OpSigmoid: {0, 0, nan}, kernel.OpRelu: {1, 0, 1}} {
		for _, dt := range floats {
			x := FromSlice(cpu, []float64{inf, -inf, nan}, 3)
			got := toArray(UnaryGrad(op, Full(cpu, dt, 1, 3), Cast(x, dt), Unary(op, Cast(x, dt))))
			for i := range want {
				if !near(got.data[i], want[i], 0) {
					t.Errorf("%v: the slope of %v at %v is %v, want %v", dt, op, toArray(x).data[i], got.data[i], want[i])
				}
			}
		}
	}
}

func TestUnaryGrad(t *testing.T) {
	rng := newRNG()
	cpu := NewCPU(nil)
	for _, op := range kernel.UnaryOps() {
		x := randomArray(rng, 3, 7)
		for i, v := range x.data {
			if math.Abs(v) < 0.1 { // off the kinks
				x.data[i] = 0.4
			}
			x.data[i] = argumentOf(op, x.data[i])
		}
		f := func(xs []*Tensor) *Tensor { return Unary(op, xs[0]) }
		g := func(dy *Tensor, xs []*Tensor) []*Tensor {
			in, out := xs[0], Unary(op, xs[0])
			if !op.NeedsInput() {
				in = nil
			}
			if !op.NeedsOutput() {
				out = nil
			}
			return []*Tensor{UnaryGrad(op, dy, in, out)}
		}
		checkGrad(t, op.String(), f, g, x)
		// float32 against float64
		dy := randomArray(rng, 3, 7)
		want := toArray(UnaryGrad(op, dy.tensor(cpu, Float64), x.tensor(cpu, Float64), Unary(op, x.tensor(cpu, Float64))))
		x32 := x.tensor(cpu, Float32)
		check(t, label(op, "Grad float32"), UnaryGrad(op, dy.tensor(cpu, Float32), x32, Unary(op, x32)), want, 1e-5)
	}
}

func TestClamp(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	for _, shape := range shapes {
		x := intArray(rng, -5, 6, shape...)
		want := build(shape, func(i []int) float64 { return min(max(x.at(i...), -2), 3) })
		for _, dt := range []DType{Float32, Float64, Int8, Int16, Int32, Int64} {
			check(t, label("Clamp", dt, shape), Clamp(x.tensor(cpu, dt), -2, 3), want, 0)
		}
	}
	if y := toArray(Clamp(Full(cpu, Float32, math.NaN(), 1), 0, 1)); y.data[0] == y.data[0] {
		t.Error("Clamp lost a NaN")
	}
	for _, dt := range []DType{Float32, Int64} {
		if y := toArray(Clamp(Cast(FromSlice(cpu, []int64{-3, 0, 3}, 3), dt), 1, -1)); !slices.Equal(y.data, []float64{-1, -1, -1}) {
			t.Errorf("Clamp of %v between 1 and -1 is %v", dt, y.data)
		}
	}
	if y := toArray(Clamp(Full(cpu, Int8, 7, 1), math.Inf(-1), 5)); y.data[0] != 5 {
		t.Errorf("Clamp of 7 below 5 is %v", y.data)
	}
	for _, c := range []struct {
		dt     DType
		x      []int64
		lo, hi float64
		want   []int64
	}{ // 2^53 + 1 is no float64
		{Int64, []int64{1<<53 + 1, -1<<53 - 1, 5, 1<<62 + 1}, -1 << 53, 1 << 53, []int64{1 << 53, -1 << 53, 5, 1 << 53}},
		{Int64, []int64{1<<62 + 1, math.MaxInt64, math.MinInt64}, math.Inf(-1), 1 << 62, []int64{1 << 62, 1 << 62, math.MinInt64}},
		{Int64, []int64{math.MaxInt64, math.MinInt64}, 0, 1 << 63, []int64{math.MaxInt64, 0}},
		{Int8, []int64{-128, 0, 127}, -1000, 1000, []int64{-128, 0, 127}},
		{Int8, []int64{-128, 0, 127}, 200, 300, []int64{127, 127, 127}},
		{Uint8, []int64{0, 7, 255}, -5, math.Inf(1), []int64{0, 7, 255}},
	} {
		if got := ToSlice[int64](Cast(Clamp(Cast(FromSlice(cpu, c.x, len(c.x)), c.dt), c.lo, c.hi), Int64)); !slices.Equal(got, c.want) {
			t.Errorf("Clamp of %v %v between %v and %v is %v, want %v", c.dt, c.x, c.lo, c.hi, got, c.want)
		}
	}
	checkGrad(t, "Clamp",
		func(xs []*Tensor) *Tensor { return Clamp(xs[0], -0.75, 1.25) },
		func(dy *Tensor, xs []*Tensor) []*Tensor { return []*Tensor{ClampGrad(dy, xs[0], -0.75, 1.25)} },
		randomArray(rng, 4, 5))
	checkGrad(t, "Leaky",
		func(xs []*Tensor) *Tensor { return Leaky(xs[0], xs[0], 0.1) },
		func(dy *Tensor, xs []*Tensor) []*Tensor { return []*Tensor{Leaky(dy, xs[0], 0.1)} },
		randomArray(rng, 4, 5))
}

// binaryWant is the definition of each binary operator.
func binaryWant(op kernel.BinaryOp, a, b float64, integer bool) float64 {
	switch op {
	case kernel.OpAdd:
		return a + b
	case kernel.OpSub:
		return a - b
	case kernel.OpMul:
		return a * b
	case kernel.OpDiv:
		if integer {
			if b == 0 {
				return 0
			}
			return math.Trunc(a / b)
		}
		return a / b
	case kernel.OpMaximum:
		return math.Max(a, b)
	case kernel.OpMinimum:
		return math.Min(a, b)
	case kernel.OpRemainder:
		if b == 0 && integer {
			return a
		}
		return a - b*math.Floor(a/b)
	case kernel.OpFloorDivide:
		if b == 0 && integer {
			return 0
		}
		return math.Floor(a / b)
	case kernel.OpFmod:
		if b == 0 && integer {
			return a
		}
		return a - b*math.Trunc(a/b)
	case kernel.OpAtan2:
		return 2 * math.Atan(a/(math.Hypot(a, b)+b))
	case kernel.OpBitwiseAnd:
		return float64(int(a) & int(b))
	case kernel.OpBitwiseOr:
		return float64(int(a) | int(b))
	case kernel.OpBitwiseXor:
		return float64(int(a) ^ int(b))
	case kernel.OpShiftLeft:
		return a * math.Exp2(b)
	case kernel.OpShiftRight:
		return math.Floor(a / math.Exp2(b))
	default: // OpPow
		if p := math.Pow(a, b); !integer || math.Abs(p) >= 1 && !math.IsInf(p, 0) {
			return p
		}
		return 0
	}
}

// broadcasts are pairs of shapes.
var broadcasts = [][2][]int{
	{{}, {}}, {{3, 4}, {3, 4}}, {{3, 4}, {4}}, {{4}, {3, 4}}, {{3, 1}, {1, 4}}, {{3, 1}, {4}}, {{2, 3, 4}, {3, 1}}, {{2, 3, 4}, {}},
	{{}, {5}}, {{1}, {1, 1}}, {{0, 3}, {3}}, {{0, 1}, {1, 3}}, {{2, 1, 4, 1}, {3, 1, 5}}, {{2, 3, 4}, {2, 1, 4}}, {{1, 300}, {7, 1}},
	{{1}, {0}},
	{{2, 3, 1, 1}, {1, 1, 4, 5}},
}

func TestBinary(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	for _, op := range kernel.BinaryOps() {
		for _, pair := range broadcasts {
			for _, dt := range numbers {
				if !op.Takes(dt) {
					wantThrow[*TypeError](t, func() { Binary(op, Zeros(cpu, dt, pair[0]...), Zeros(cpu, dt, pair[1]...)) }, op.String(), "Cast")
					wantThrow[*TypeError](t, func() { BinaryScalar(op, Zeros(cpu, dt, pair[0]...), 1) }, op.String(), "Cast")
					continue
				}
				integer := dt.Int()
				a, b := randomArray(rng, pair[0]...), randomArray(rng, pair[1]...)
				if integer {
					a, b = intArray(rng, 0, 4, pair[0]...), intArray(rng, 0, 4, pair[1]...)
				} else if op == kernel.OpPow {
					for i := range a.data {
						a.data[i] = math.Abs(a.data[i])
					}
				}
				if dt == Uint8 && op == kernel.OpSub {
					continue // wraps around
				}
				shape, ok := broadcastTogether(pair[0], pair[1])
				if !ok {
					t.Fatal(pair)
				}
				want := build(shape, func(i []int) float64 { return binaryWant(op, a.at(i...), b.at(i...), integer) })
				tol := tolerance(dt)
				x, y := a.tensor(cpu, dt), b.tensor(cpu, dt)
				check(t, label(op, dt, pair), Binary(op, x, y), want, tol)
				dst := New(cpu, dt, shape...)
				BinaryTo(dst, op, x, y)
				check(t, label(op, "To", dt, pair), dst, want, tol)
				if x.NDim() == len(shape) && sameShape(x, dst) {
					BinaryTo(x, op, x, y)
					check(t, label(op, "To", dt, pair, " in place"), x, want, tol)
				}
				if len(pair[1]) == 0 {
					v := b.data[0]
					check(t, label(op, "Scalar", dt, pair), BinaryScalar(op, a.tensor(cpu, dt), v), want, tol)
				}
				if len(pair[0]) == 0 {
					v := a.data[0]
					check(t, label("Scalar", op, dt, pair), ScalarBinary(op, v, y), want, tol)
				}
			}
		}
	}
	a := Zeros(cpu, Float32, 2, 3)
	wantThrow[*ShapeError](t, func() { Mul(a, Zeros(cpu, Float32, 2)) }, "Mul", "float32[2 3]", "float32[2]", "3", "2", "dimension 1")
	wantThrow[*TypeError](t, func() { Add(a, Zeros(cpu, Float64, 3)) }, "Add", "float32[2 3]", "float64[3]", "Cast")
	wantThrow[*UseError](t, func() { Add(a, Zeros(NewCPU(nil), Float32, 3)) }, "Add", "Copy one")
	wantThrow[*ShapeError](t, func() { BinaryTo(Zeros(cpu, Float32, 3), kernel.OpAdd, a, a) }, "destination")
}

func TestBinaryNegativeIntegers(t *testing.T) {
	cpu := NewCPU(nil)
	a := array{[]int{6}, []float64{-7, 7, -1, 1, 2, 0}}
	b := array{[]int{6}, []float64{2, -2, -3, -5, -1, 0}}
	for _, dt := range []DType{Int8, Int16, Int32, Int64} {
		x, y := a.tensor(cpu, dt), b.tensor(cpu, dt)
		check(t, label("Div", dt), Div(x, y), array{[]int{6}, []float64{-3, -3, 0, 0, -2, 0}}, 0)
		check(t, label("Pow", dt), Pow(x, y), array{[]int{6}, []float64{49, 0, -1, 1, 0, 1}}, 0)
		// The square of the largest number wraps around to 1.
		largest := Amin(Zeros(cpu, dt, 0), nil, false)
		check(t, label("Pow of the largest", dt), Pow(largest, Full(cpu, dt, -1)), newArray(), 0)
		check(t, label("Pow of the least but one", dt), Pow(Neg(largest), Full(cpu, dt, -3)), newArray(), 0)
		check(t, label("FloorDivide", dt), Binary(kernel.OpFloorDivide, x, y), array{[]int{6}, []float64{-4, -4, 0, -1, -2, 0}}, 0)
		check(t, label("Fmod", dt), Binary(kernel.OpFmod, x, y), array{[]int{6}, []float64{-1, 1, -1, 1, 0, 0}}, 0)
		check(t, label("BitwiseAnd", dt), Binary(kernel.OpBitwiseAnd, x, y), array{[]int{6}, []float64{0, 6, -3, 1, 2, 0}}, 0)
		check(t, label("BitwiseOr", dt), Binary(kernel.OpBitwiseOr, x, y), array{[]int{6}, []float64{-5, -1, -1, -5, -1, 0}}, 0)
		check(t, label("BitwiseXor", dt), Binary(kernel.OpBitwiseXor, x, y), array{[]int{6}, []float64{-5, -7, 2, -6, -3, 0}}, 0)
		check(t, label("ShiftLeft", dt), Binary(kernel.OpShiftLeft, x, y), array{[]int{6}, []float64{-28, 0, 0, 0, 0, 0}}, 0)
		check(t, label("ShiftRight", dt), Binary(kernel.OpShiftRight, x, y), array{[]int{6}, []float64{-2, 0, -1, 0, 0, 0}}, 0)
		bits := Full(cpu, dt, float64(8*dt.Size()))
		check(t, label("ShiftLeft by all bits", dt), Binary(kernel.OpShiftLeft, x, bits), newArray(6), 0)
		check(t, label("ShiftRight by all bits", dt), Binary(kernel.OpShiftRight, x, bits), array{[]int{6}, []float64{-1, 0, -1, 0, 0, 0}}, 0)
	}
}

func TestBinaryGrad(t *testing.T) {
	rng := newRNG()
	for _, op := range kernel.BinaryOps() {
		if !op.Takes(Float64) {
			continue
		}
		for _, pair := range [][2][]int{{{3, 4}, {3, 4}}, {{3, 4}, {4}}, {{3, 1}, {2, 1, 4}}, {{}, {2}}, {{0, 2}, {2}}} {
			a, b := randomArray(rng, pair[0]...), randomArray(rng, pair[1]...)
			for i, v := range a.data {
				if op == kernel.OpPow {
					a.data[i] = math.Abs(v) + 0.5
				}
				a.data[i] += 1e-3 // no ties
			}
			for i, v := range b.data {
				switch op {
				case kernel.OpDiv, kernel.OpRemainder, kernel.OpFloorDivide, kernel.OpFmod, kernel.OpAtan2:
					b.data[i] = math.Abs(v) + 0.5
				}
			}
			checkGrad(t, label(op, pair),
				func(xs []*Tensor) *Tensor { return Binary(op, xs[0], xs[1]) },
				func(dy *Tensor, xs []*Tensor) []*Tensor {
					da, db := BinaryGrad(op, dy, xs[0], xs[1], true, true)
					onlyA, none := BinaryGrad(op, dy, xs[0], xs[1], true, false)
					if none != nil || onlyA == nil {
						t.Errorf("%v: gradients that were not asked for", op)
					}
					return []*Tensor{da, db}
				}, a, b)
		}
	}
	cpu := NewCPU(nil)
	one := Full(cpu, Float64, 1, 2)
	da, db := BinaryGrad(kernel.OpMaximum, one, one, one, true, true)
	check(t, "Maximum of equals", da, array{[]int{2}, []float64{0.5, 0.5}}, 0)
	check(t, "Maximum of equals", db, array{[]int{2}, []float64{0.5, 0.5}}, 0)
	da, db = BinaryGrad(kernel.OpMinimum, one, one, Full(cpu, Float64, math.NaN(), 2), true, true)
	check(t, "Minimum of NaN", da, array{[]int{2}, []float64{1, 1}}, 0)
	check(t, "Minimum of NaN", db, array{[]int{2}, []float64{1, 1}}, 0)
	zero := Zeros(cpu, Float64, 2)
	_, db = BinaryGrad(kernel.OpPow, one, zero, MulScalar(one, -1), true, true)
	check(t, "0 to a negative power", db, array{[]int{2}, []float64{math.Inf(-1), math.Inf(-1)}}, 0)
	_, db = BinaryGrad(kernel.OpPow, one, zero, one, true, true)
	check(t, "0 to a power", db, array{[]int{2}, []float64{0, 0}}, 0)
}

func TestCompareAndWhere(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	want := map[kernel.CompareOp]func(a, b float64) bool{
		kernel.OpEq: func(a, b float64) bool { return a == b }, kernel.OpNe: func(a, b float64) bool { return a != b },
		kernel.OpLt: func(a, b float64) bool { return a < b }, kernel.OpLe: func(a, b float64) bool { return a <= b },
		kernel.OpGt: func(a, b float64) bool { return a > b }, kernel.OpGe: func(a, b float64) bool { return a >= b },
	}
	for _, pair := range broadcasts {
		shape, _ := broadcastTogether(pair[0], pair[1])
		for _, dt := range numbers {
			a, b := intArray(rng, 0, 4, pair[0]...), intArray(rng, 0, 4, pair[1]...)
			x, y := a.tensor(cpu, dt), b.tensor(cpu, dt)
			for _, op := range kernel.CompareOps() {
				bools := build(shape, func(i []int) float64 {
					if want[op](a.at(i...), b.at(i...)) {
						return 1
					}
					return 0
				})
				c := Compare(op, x, y)
				if c.DType() != Bool {
					t.Fatalf("%v has type %v", op, c.DType())
				}
				check(t, label(op, dt, pair), c, bools, 0)
				pick := build(shape, func(i []int) float64 {
					if bools.at(i...) != 0 {
						return a.at(i...)
					}
					return b.at(i...)
				})
				check(t, label("Where", op, dt, pair), Where(c, x, y), pick, 0)
			}
		}
	}
	for _, dt := range []DType{Int8, Int64, Bool} {
		x := Cast(FromSlice(cpu, []int64{0, 1}, 2), dt)
		for _, v := range []float64{0, 0.5, 1, -1, 300, math.Inf(-1), math.NaN()} {
			for _, op := range kernel.CompareOps() {
				bools := build(x.Shape(), func(i []int) float64 {
					if want[op](float64(i[0]), v) {
						return 1
					}
					return 0
				})
				check(t, label(op, dt, v), CompareScalar(op, x, v), bools, 0)
			}
		}
	}
	c := FromSlice(cpu, []bool{true, false, true}, 3)
	check(t, "Not", Not(c), array{[]int{3}, []float64{0, 1, 0}}, 0)
	x := randomArray(rng, 2, 3)
	check(t, "MaskedFill", MaskedFill(x.tensor(cpu, Float64), c, 9), build(x.shape, func(i []int) float64 {
		if i[1] != 1 {
			return 9
		}
		return x.at(i...)
	}), 0)
	for _, dt := range []DType{Float16, BFloat16, Bool} {
		h := Cast(FromSlice(cpu, []float32{1, 0, 1}, 3), dt)
		check(t, label("Where", dt), Where(c, h, Zeros(cpu, dt, 3)), array{[]int{3}, []float64{1, 0, 1}}, 0)
	}
	checkGrad(t, "Where",
		func(xs []*Tensor) *Tensor { return Where(To(c, xs[0].Device()), xs[0], xs[1]) },
		func(dy *Tensor, xs []*Tensor) []*Tensor {
			da, db := WhereGrad(dy, To(c, dy.Device()), xs[0].Shape(), xs[1].Shape())
			return []*Tensor{da, db}
		}, randomArray(rng, 2, 3), randomArray(rng, 1))
}

func TestAccumulate(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	for _, shape := range shapes {
		a, b := randomArray(rng, shape...), randomArray(rng, shape...)
		for _, dt := range floats {
			x := a.tensor(cpu, dt)
			AddTo(x, b.tensor(cpu, dt))
			check(t, label("AddTo", dt, shape), x, build(shape, func(i []int) float64 { return a.at(i...) + b.at(i...) }), tolerance(dt))
			AddScaledTo(x, -0.5, b.tensor(cpu, dt))
			ScaleTo(x, 2)
			check(t, label("AddScaledTo", dt, shape), x, build(shape, func(i []int) float64 { return 2*a.at(i...) + b.at(i...) }), tolerance(dt))
		}
	}
}

func TestCast(t *testing.T) {
	cpu := NewCPU(nil)
	all := append([]DType{Float16, BFloat16}, numbers...)
	for _, from := range all {
		for _, to := range all {
			x := array{[]int{4}, []float64{0, 1, 2.75, 100}}
			in := x.tensor(cpu, from)
			want := toArray(in)
			for i, v := range want.data {
				switch {
				case to.Int():
					want.data[i] = math.Trunc(v)
				}
			}
			check(t, label("Cast ", from, " to ", to), Cast(in, to), want, 0)
		}
		check(t, label("Cast ", from, " to bool"), Cast(array{[]int{3}, []float64{0, 1, 2}}.tensor(cpu, from), Bool),
			array{[]int{3}, []float64{0, 1, 1}}, 0)
	}
}

func TestNamedFunctions(t *testing.T) {
	cpu := NewCPU(nil)
	x, y := FromSlice(cpu, []float64{0.25, 2}, 2), FromSlice(cpu, []float64{1, 0.5}, 2)
	for op, f := range map[kernel.UnaryOp]func(*Tensor) *Tensor{kernel.OpNeg: Neg, kernel.OpAbs: Abs, kernel.OpExp: Exp, kernel.OpLog: Log,
		kernel.OpSqrt: Sqrt, kernel.OpRsqrt: Rsqrt,
		kernel.OpTanh: Tanh, kernel.OpSigmoid: Sigmoid, kernel.OpRelu: Relu, kernel.OpGelu: Gelu, kernel.OpGeluTanh: GeluTanh,
		kernel.OpSilu: Silu, kernel.OpSquare: Square, kernel.OpSign: Sign} {
		check(t, op.String(), f(x), toArray(Unary(op, x)), 0)
	}
	for op, f := range map[kernel.BinaryOp]func(a, b *Tensor) *Tensor{kernel.OpAdd: Add, kernel.OpSub: Sub, kernel.OpMul: Mul,
		kernel.OpDiv: Div, kernel.OpMaximum: Maximum, kernel.OpMinimum: Minimum, kernel.OpPow: Pow} {
		check(t, op.String(), f(x, y), toArray(Binary(op, x, y)), 0)
	}
	check(t, "AddScalar", AddScalar(x, 1), array{[]int{2}, []float64{1.25, 3}}, 0)
	check(t, "MulScalar", MulScalar(x, 3), array{[]int{2}, []float64{0.75, 6}}, 0)
	check(t, "AddScalar of uint8", AddScalar(Full(cpu, Uint8, 5, 1), -2), array{[]int{1}, []float64{3}}, 0)
	Fill(x, 7)
	check(t, "Fill", x, array{[]int{2}, []float64{7, 7}}, 0)
}

// A zero keeps its sign where the type has one.
func TestFillWithMinusZero(t *testing.T) {
	cpu := NewCPU(nil)
	for _, dt := range append([]DType{Float16, BFloat16, Bool}, numbers...) {
		x := Full(cpu, dt, 1, 3)
		Fill(x, math.Copysign(0, -1))
		for _, v := range toArray(x).data {
			if v != 0 || math.Signbit(v) != dt.Float() {
				t.Errorf("%v: %v", dt, x)
			}
		}
	}
}

// Zeros have their signs in every type, whether the elements are compared in pairs, with
// one number or among each other.
func TestMaximumOfZeros(t *testing.T) {
	cpu := NewCPU(nil)
	minus := math.Copysign(0, -1)
	for _, dt := range floats {
		a := Cast(FromSlice(cpu, []float64{0, minus, minus, 0}, 2, 2), dt)
		b := Cast(FromSlice(cpu, []float64{minus, 0, minus, 0}, 2, 2), dt)
		for name, c := range map[string]struct {
			got  *Tensor
			want []float64
		}{
			"Maximum":            {Maximum(a, b), []float64{0, 0, minus, 0}},
			"Minimum":            {Minimum(a, b), []float64{minus, minus, minus, 0}},
			"Maximum of 0":       {BinaryScalar(kernel.OpMaximum, b, 0), []float64{0, 0, 0, 0}},
			"Minimum of -0":      {BinaryScalar(kernel.OpMinimum, b, minus), []float64{minus, minus, minus, minus}},
			"largest of rows":    {Amax(a, []int{1}, false), []float64{0, 0}},
			"smallest of rows":   {Amin(a, []int{1}, false), []float64{minus, minus}},
			"largest of columns": {Amax(b, []int{0}, false), []float64{minus, 0}},
			"Relu":               {Relu(b), []float64{minus, 0, minus, 0}},
		} {
			for i, v := range toArray(c.got).data {
				if math.Float64bits(v) != math.Float64bits(c.want[i]) {
					t.Errorf("%v %s: element %d is %v, want %v", dt, name, i, v, c.want[i])
				}
			}
		}
	}
}
