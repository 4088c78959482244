package simd

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/gorun-spmd/gorun/internal/activation"
)

// A unary is a function of one number, its definition, and how far in units of
// the last place the result may be off, beside a share of the absolute value 1.
type unary struct {
	name     string
	run      func(l Mode, dst, x []float32)
	want     func(x float64) float64
	ulps     float64
	absolute func(x float64) float64
}

func none(float64) float64 { return 0 }

// nearZero is what x + 3 loses where it is near 0.
func nearZero(x float64) float64 { return 1e-7 }

// phi is the normal distribution Φ, density its derivative φ.
func phi(x float64) float64     { return 0.5 * math.Erfc(-x/math.Sqrt2) }
func density(x float64) float64 { return math.Exp(-x*x/2) / math.Sqrt(2*math.Pi) }

var unaries = []unary{
	{"exp", Mode.exp, math.Exp, 1, none},
	{"log", Mode.log, math.Log, 1, none},
	{"tanh", Mode.tanh, math.Tanh, 2, none},
	{"sigmoid", Mode.sigmoid, activation.Sigmoid, 2.5, none},
	{"sqrt", Mode.sqrt, math.Sqrt, 0.5, none},
	{"rsqrt", Mode.rsqrt, func(x float64) float64 { return 1 / math.Sqrt(x) }, 1.5, none},
	{"abs", Mode.abs, math.Abs, 0, none},
	{"sign", Mode.sign, func(x float64) float64 { return float64(sign(float32(x))) }, 0, none},
	{"relu", Mode.relu, func(x float64) float64 { return max(x, 0) }, 0, none},
	{"gelu", Mode.gelu, func(x float64) float64 {
		if math.IsInf(x, -1) {
			return 0 // the limit
		}
		return x * phi(x)
	}, 2, func(x float64) float64 { return 1e-7 * max(1, math.Abs(x)) }},
	{"geluTanh", Mode.geluTanh, activation.GeluTanh, 3, func(x float64) float64 { return 1e-7 * max(1, math.Abs(x)) }},
	{"silu", Mode.silu, func(x float64) float64 { return x * activation.Sigmoid(x) }, 3,
		func(x float64) float64 { return math.Abs(x) * 0x1p-149 }},

	{"erf", Mode.erf, math.Erf, 2, none},
	{"expm1", Mode.expm1, math.Expm1, 2, none},
	{"log1p", Mode.log1p, math.Log1p, 2, none},
	{"erfSlope", slopeOf(Mode.erfGrad), func(x float64) float64 { return 2 / math.SqrtPi * math.Exp(-x*x) }, 2, none},
	{"expm1Slope", slopeOf(Mode.expm1Grad), func(y float64) float64 { return y + 1 }, 0.5, none},
	{"log1pSlope", slopeOf(Mode.log1pGrad), func(x float64) float64 { return 1 / (1 + x) }, 1.5, none},
	{"sin", Mode.sin, math.Sin, 2, none},
	{"cos", Mode.cos, math.Cos, 2, none},
	{"sinSlope", slopeOf(Mode.sinGrad), math.Cos, 2, none},
	{"cosSlope", slopeOf(Mode.cosGrad), func(x float64) float64 { return -math.Sin(x) }, 2, none},
	{"exp2", Mode.exp2, math.Exp2, 2, none},
	{"log2", Mode.log2, math.Log2, 2, none},
	{"log10", Mode.log10, math.Log10, 2, none},
	{"sinh", Mode.sinh, math.Sinh, 2, none},
	{"cosh", Mode.cosh, math.Cosh, 2, none},
	{"atan", Mode.atan, math.Atan, 2, none},
	{"tan", Mode.tan, math.Tan, 3, none},
	{"asin", Mode.asin, math.Asin, 3, none},
	{"acos", Mode.acos, math.Acos, 3, none},
	{"asinh", Mode.asinh, math.Asinh, 3, none},
	{"acosh", Mode.acosh, math.Acosh, 3, none},
	{"atanh", Mode.atanh, math.Atanh, 3, none},
	{"erfc", Mode.erfc, math.Erfc, 6, none},
	{"tanSlope", slopeOf(Mode.tanGrad), func(y float64) float64 { return 1 + y*y }, 0.5, none},
	{"asinSlope", slopeOf(Mode.asinGrad), func(x float64) float64 { return 1 / math.Sqrt((1-x)*(1+x)) }, 2, none},
	{"acosSlope", slopeOf(Mode.acosGrad), func(x float64) float64 { return -1 / math.Sqrt((1-x)*(1+x)) }, 2, none},
	{"asinhSlope", slopeOf(Mode.asinhGrad), func(x float64) float64 { return 1 / math.Sqrt(x*x+1) }, 2.5, none},
	{"acoshSlope", slopeOf(Mode.acoshGrad), func(x float64) float64 { return 1 / math.Sqrt((x-1)*(x+1)) }, 2.5, none},
	{"atanhSlope", slopeOf(Mode.atanhGrad), func(x float64) float64 { return 1 / ((1 - x) * (1 + x)) }, 2.5, none},
	{"erfcSlope", slopeOf(Mode.erfcGrad), func(x float64) float64 { return -2 / math.SqrtPi * math.Exp(-x*x) }, 2, none},
	{"round", Mode.round, math.RoundToEven, 0, none},
	{"floor", Mode.floor, math.Floor, 0, none},
	{"ceil", Mode.ceil, math.Ceil, 0, none},
	{"trunc", Mode.trunc, math.Trunc, 0, none},
	{"softplus", Mode.softplus, activation.Softplus, 3, none},
	{"logSigmoid", Mode.logSigmoid, func(x float64) float64 { return -activation.Softplus(-x) }, 3, none},
	{"mish", Mode.mish, activation.Mish, 5, func(x float64) float64 { return math.Abs(x) * 0x1p-149 }},
	{"hardsigmoid", Mode.hardsigmoid, activation.Hardsigmoid, 1, nearZero},
	{"hardswish", Mode.hardswish, func(x float64) float64 { return x * activation.Hardsigmoid(x) }, 2,
		func(x float64) float64 { return nearZero(x) * math.Abs(x) }},
	{"elu", Mode.elu, activation.ELU, 2, none},
	{"softplusSlope", slopeOf(Mode.softplusGrad), activation.Sigmoid, 2.5, none},
	{"logSigmoidSlope", slopeOf(Mode.logSigmoidGrad), func(x float64) float64 { return activation.Sigmoid(-x) }, 2.5, none},
	{"mishSlope", slopeOf(Mode.mishGrad), activation.MishSlope, 5, func(x float64) float64 {
		return 4e-7*min(1, math.Exp(x)*math.Abs(x)) + math.Abs(x)*0x1p-149
	}},
	{"hardsigmoidSlope", slopeOf(Mode.hardsigmoidGrad), activation.HardsigmoidSlope, 1, none},
	{"hardswishSlope", slopeOf(Mode.hardswishGrad), activation.HardswishSlope, 2, nearZero},
	{"eluSlope", slopeOf(Mode.eluGrad), activation.ELUSlope, 1, none},
	{"exp2Slope", slopeOf(Mode.exp2Grad), func(y float64) float64 { return y * math.Ln2 }, 1.5, none},
	{"log2Slope", slopeOf(Mode.log2Grad), func(x float64) float64 { return 1 / (x * math.Ln2) }, 2, none},
	{"log10Slope", slopeOf(Mode.log10Grad), func(x float64) float64 { return 1 / (x * math.Ln10) }, 2, none},
	{"sinhSlope", slopeOf(Mode.sinhGrad), math.Cosh, 2, none},
	{"coshSlope", slopeOf(Mode.coshGrad), math.Sinh, 2, none},
	{"atanSlope", slopeOf(Mode.atanGrad), func(x float64) float64 { return 1 / (1 + x*x) }, 2, none},
}

// slopeOf is a gradient where dy is 1.
func slopeOf(grad func(m Mode, dst, x, dy []float32)) func(m Mode, dst, x []float32) {
	return func(m Mode, dst, x []float32) {
		ones := make([]float32, len(x))
		m.fill(ones, 1)
		grad(m, dst, x, ones)
	}
}

func TestUnary(t *testing.T) {
	for _, l := range modes() {
		for _, f := range unaries {
			r := rand.New(rand.NewPCG(1, uint64(l.code())))
			x := special()
			for _, scale := range []float64{1e-30, 1e-3, 0.3, 1, 5, 40, 1e5} {
				x = append(x, normals(r, 3000, scale)...)
			}
			dst := make([]float32, len(x))
			f.run(l, dst, x)
			worst, at := 0.0, 0
			for i, v := range x {
				want := f.want(float64(v))
				d := ulps(dst[i], want)
				if math.Abs(float64(dst[i])-want) <= f.absolute(float64(v)) {
					d = 0
				}
				if d > worst {
					worst, at = d, i
				}
			}
			if worst > f.ulps {
				t.Errorf("%v %s(%g) = %g, want %g: off by %.2f ulp", l, f.name, x[at], dst[at], f.want(float64(x[at])), worst)
			}
			t.Logf("%v %s: at most %.2f ulp, at %g", l, f.name, worst, x[at])
		}
	}
}

// Every length gives what each element gives on its own, in place as well, and
// touches nothing outside.
func TestUnaryOfEveryLength(t *testing.T) {
	for _, l := range modes() {
		for _, f := range unaries {
			r := rand.New(rand.NewPCG(2, 2))
			for _, n := range lengths() {
				x, _ := guarded(r, n)
				dst, intact := guarded(r, n)
				f.run(l, dst, x)
				if !intact() {
					t.Fatalf("%v %s: %d elements: wrote outside", l, f.name, n)
				}
				one := make([]float32, 1)
				for i := 0; i < n; i += 1 + n/50 {
					if f.run(l, one, x[i:i+1]); !sameBits(one[0], dst[i]) {
						t.Fatalf("%v %s: element %d of %d is %g, alone %g", l, f.name, i, n, dst[i], one[0])
					}
				}
				f.run(l, x, x)
				for i := range x {
					if !sameBits(x[i], dst[i]) {
						t.Fatalf("%v %s: in place, element %d of %d is %g, want %g", l, f.name, i, n, x[i], dst[i])
					}
				}
			}
		}
	}
}

func sameBits(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// everywhere is every float32 exponent and sign, and a step through the fractions.
func everywhere() (x []float32) {
	step := uint64(40009)
	if testing.Short() {
		step *= 10
	}
	for b := uint64(0); b < 1<<32; b += step {
		x = append(x, math.Float32frombits(uint32(b)))
	}
	return x
}

// The instruction sets share one program, and the plain loops follow it, so all give the same bits.
func TestUnaryBitsAreThoseOfEveryInstructionSet(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	x := append(append(special(), normals(r, 20000, 10)...), everywhere()...)
	got, want := make([]float32, len(x)), make([]float32, len(x))
	grad := func(f func(m Mode, dst, x, dy []float32)) func(m Mode, dst, x []float32) {
		return func(m Mode, dst, x []float32) { f(m, dst, x, x) }
	}
	all := append(unaries[:len(unaries):len(unaries)], unary{name: "geluGrad", run: grad(Mode.geluGrad)},
		unary{name: "geluTanhGrad", run: grad(Mode.geluTanhGrad)}, unary{name: "siluGrad", run: grad(Mode.siluGrad)},
		unary{name: "tanhGrad", run: grad(Mode.tanhGrad)}, unary{name: "sigmoidGrad", run: grad(Mode.sigmoidGrad)})
	for _, f := range all {
		f.run(Mode{Level: Scalar}, want, x)
		for _, m := range modes() {
			f.run(m, got, x)
			for i := range x {
				if !sameBits(got[i], want[i]) {
					t.Fatalf("%s(%g): %v %g, scalar %g", f.name, x[i], m, got[i], want[i])
				}
			}
		}
	}
}

// TestFMA compares FMA with exact arithmetic, where a sum lies between two float32, overflows or is subnormal.
func TestFMA(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	between := 0
	for range 300_000 {
		a, b := fewBits(r, 24), fewBits(r, 24)
		c := fewBits(r, 24)
		if r.IntN(2) == 0 { // a distance from the product at which it decides how the sum is rounded
			c = float32(math.Ldexp(float64(a)*float64(b), r.IntN(60)-30))
		}
		exact := new(big.Float).SetPrec(2000).SetFloat64(float64(a) * float64(b))
		exact.Add(exact, big.NewFloat(float64(c)))
		want, _ := exact.Float32()
		if want == 0 {
			want = float32(float64(a)*float64(b) + float64(c)) // with its sign
		}
		if got := FMA(a, b, c); !sameBits(got, want) {
			t.Fatalf("FMA(%g, %g, %g) = %g, want %g", a, b, c, got, want)
		}
		if float32(float64(a)*float64(b)+float64(c)) != want {
			between++
		}
	}
	if between < 100 {
		t.Errorf("%d sums lay between two float32 once they were float64", between)
	}
	for _, x := range [][4]float32{{inf, 0, 1, nan}, {inf, 1, -inf, nan}, {nan, 1, 1, nan}, {1, 1, nan, nan}, {inf, -1, 1, -inf},
		{math.MaxFloat32, 2, -inf, -inf}, {math.MaxFloat32, 2, 0, inf}, {0, -1, 0, 0}, {1, 1, -1, 0}} {
		if got := FMA(x[0], x[1], x[2]); !sameBits(got, x[3]) {
			t.Errorf("FMA(%g, %g, %g) = %g, want %g", x[0], x[1], x[2], got, x[3])
		}
	}
}

// fewBits is a number of any size of which many of the most last bits may be 0.
func fewBits(r *rand.Rand, most int) float32 {
	bits := 1 + r.IntN(most)
	return float32(math.Ldexp(float64(int(r.IntN(1<<bits))-1<<(bits-1)), r.IntN(200)-130))
}

// Every float32 exponent and sign, and a step through the fractions.
func TestExpAndLogOverTheWholeRange(t *testing.T) {
	x := everywhere()
	dst := make([]float32, len(x))
	for _, f := range unaries {
		f.run(ordinary, dst, x)
		for i, v := range x {
			want := f.want(float64(v))
			if d := ulps(dst[i], want); d > f.ulps && !(math.Abs(float64(dst[i])-want) <= f.absolute(float64(v))) {
				t.Fatalf("%s(%g) = %g, want %g: off by %.2f ulp", f.name, v, dst[i], want, d)
			}
		}
	}
}

// A sine is the kernel's up to ±quartersTo and its definition beyond, and does not depend on the elements beside it.
func TestSineBesideALargeNumber(t *testing.T) {
	var x []float32
	for _, v := range everywhere() {
		if v >= -quartersTo && v <= quartersTo {
			x = append(x, v)
		}
	}
	x = append(x, quartersTo, -quartersTo)
	large := append([]float32(nil), x...)
	for i := 5; i < len(large); i += 1000 {
		large[i] = math.Float32frombits(math.Float32bits(quartersTo) + uint32(i*i))
	}
	dy, want, got := normals(rand.New(rand.NewPCG(4, 4)), len(x), 1), make([]float32, len(x)), make([]float32, len(x))
	for name, f := range map[string]func(m Mode, dst, x []float32){
		"sin": Mode.sin, "cos": Mode.cos, "tan": Mode.tan,
		"sinGrad": func(m Mode, dst, x []float32) { m.sinGrad(dst, x, dy) },
		"cosGrad": func(m Mode, dst, x []float32) { m.cosGrad(dst, x, dy) },
	} {
		f(Mode{Level: Scalar}, want, large)
		if name == "sin" && want[5] != float32(math.Sin(float64(large[5]))) {
			t.Errorf("sin(%g) = %g, want %g", large[5], want[5], math.Sin(float64(large[5])))
		}
		for _, m := range modes() {
			for _, arguments := range [][]float32{x, large} {
				f(m, got, arguments)
				for i, v := range arguments {
					if v == large[i] && !sameBits(got[i], want[i]) {
						t.Fatalf("%v %s(%g) = %g, scalar %g", m, name, v, got[i], want[i])
					}
				}
			}
		}
	}
}
