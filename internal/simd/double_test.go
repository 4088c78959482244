package simd

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// digits are the bits that references are computed with. 1 + x of the smallest x loses some 1100 of them.
const digits = 1400

func number(x float64) *big.Float { return new(big.Float).SetPrec(digits).SetFloat64(x) }

func newNumber() *big.Float { return number(0) }

// bigExp is eˣ: the series of x/2ᵏ, squared k times.
func bigExp(x *big.Float) *big.Float {
	k := max(0, x.MantExp(nil)+20)
	r := newNumber().SetMantExp(x, -k)
	sum, term := number(1), number(1)
	for i := 1; term.Sign() != 0 && term.MantExp(nil) > -digits; i++ {
		term.Mul(term, r)
		term.Quo(term, number(float64(i)))
		sum.Add(sum, term)
	}
	for range k {
		sum.Mul(sum, sum)
	}
	return sum
}

// bigLog is ln x for x > 0, by Newton's steps from what float64 gives.
func bigLog(x *big.Float) *big.Float {
	e := x.MantExp(nil)
	f, _ := newNumber().SetMantExp(x, -e).Float64()
	y := number(math.Log(f) + float64(e)*math.Ln2)
	for range 6 {
		p := bigExp(y)
		step := newNumber().Quo(newNumber().Sub(x, p), newNumber().Add(x, p))
		y.Add(y, step.Mul(step, number(2)))
	}
	return y
}

func one() *big.Float { return number(1) }

func bigSigmoid(x float64) *big.Float {
	return newNumber().Quo(one(), newNumber().Add(one(), bigExp(number(-x))))
}

func bigSoftplus(x float64) *big.Float { return bigLog(newNumber().Add(one(), bigExp(number(x)))) }

func bigExpm1(x *big.Float) *big.Float { return newNumber().Sub(bigExp(x), one()) }

// A doubleFunction is a function of one float64, its definition for finite arguments other than poles, how far it may be off in units
// of the last place, how far its arguments go, and its values at -Inf, -0, 0 and Inf.
type doubleFunction struct {
	name   string
	run    func(m Mode, dst, x []float64)
	exact  func(x float64) *big.Float // nil: NaN
	ulps   float64
	limits [4]float64
}

var minusZero = math.Copysign(0, -1)

var doubleFunctions = []doubleFunction{
	{"exp", Mode.expDouble, func(x float64) *big.Float { return bigExp(number(x)) }, 1, [4]float64{0, 1, 1, math.Inf(1)}},
	{"log", Mode.logDouble, func(x float64) *big.Float {
		if x < 0 {
			return nil
		}
		return bigLog(number(x))
	}, 1, [4]float64{math.NaN(), math.Inf(-1), math.Inf(-1), math.Inf(1)}},
	{"tanh", Mode.tanhDouble, func(x float64) *big.Float {
		m := bigExpm1(number(2 * x))
		return newNumber().Quo(m, newNumber().Add(m, number(2)))
	}, 1, [4]float64{-1, minusZero, 0, 1}},
	{"sigmoid", Mode.sigmoidDouble, bigSigmoid, 2, [4]float64{0, 0.5, 0.5, 1}},
	{"expm1", Mode.expm1Double, func(x float64) *big.Float { return bigExpm1(number(x)) }, 2, [4]float64{-1, minusZero, 0, math.Inf(1)}},
	{"log1p", Mode.log1pDouble, func(x float64) *big.Float {
		if x < -1 {
			return nil
		}
		return bigLog(newNumber().Add(one(), number(x)))
	}, 2, [4]float64{math.NaN(), minusZero, 0, math.Inf(1)}},
	{"softplus", Mode.softplusDouble, bigSoftplus, 3, [4]float64{0, math.Ln2, math.Ln2, math.Inf(1)}},
	{"logSigmoid", Mode.logSigmoidDouble, func(x float64) *big.Float { return newNumber().Neg(bigSoftplus(-x)) }, 3,
		[4]float64{math.Inf(-1), -math.Ln2, -math.Ln2, 0}},
	{"silu", Mode.siluDouble, func(x float64) *big.Float { return newNumber().Mul(number(x), bigSigmoid(x)) }, 3,
		[4]float64{math.NaN(), minusZero, 0, math.Inf(1)}},
}

// doubles are values at which functions of one number tend to go wrong, and random ones.
func doubles(r *rand.Rand, each int) []float64 {
	x := []float64{1, -1, 0x1p-1022, 0x1p-1023, 0x1p-1074, -0x1p-1074, math.MaxFloat64, -math.MaxFloat64, 709.7, 709.782712893384,
		709.7827128933841, 710, 711, -708.3, -708.4, -745.1, -745.13321910194122, -745.1332191019413, -746, -747, 1e-10, -1e-10, 0x1p-54,
		-0x1p-54, 22, -22, 37, -37, 40, -40, math.Nextafter(-1, 0), math.Nextafter(1, 0), math.Nextafter(1, 2), math.Sqrt2, math.Sqrt2 / 2}
	for _, scale := range []float64{1e-300, 1e-30, 1e-8, 1e-3, 0.3, 1, 5, 40, 300, 1e5} {
		for range each {
			x = append(x, r.NormFloat64()*scale)
		}
	}
	for v := 0.7; v < 1.5; v += 0.8 / float64(each) {
		x = append(x, v)
	}
	return x
}

// TestDouble compares functions of float64 with exact arithmetic.
func TestDouble(t *testing.T) {
	each := 60
	if testing.Short() {
		each = 5
	}
	x := doubles(rand.New(rand.NewPCG(1, 1)), each)
	got := make([]float64, len(x))
	for _, f := range doubleFunctions {
		f.run(ordinary, got, x)
		worst, at := 0.0, 0
		for i, v := range x {
			if math.Abs(v) > 1e4 && f.name != "log" && f.name != "log1p" || f.name == "log1p" && v == -1 {
				continue // the limit, of which TestDoubleLimits has some
			}
			if f.name == "silu" && v < -700 {
				continue // the sigmoid is subnormal
			}
			if d := ulpsDouble(got[i], f.exact(v)); d > worst {
				worst, at = d, i
			}
		}
		if worst > f.ulps {
			t.Errorf("%s(%g) = %g: off by %.2f ulp", f.name, x[at], got[at], worst)
		}
		t.Logf("%s: at most %.3f ulp, at %g", f.name, worst, x[at])
	}
}

// ulpsDouble is the distance from a rounded to the exact value in units of the last place of a float64 of that size.
func ulpsDouble(got float64, want *big.Float) float64 {
	if want == nil || math.IsNaN(got) {
		if want == nil && math.IsNaN(got) {
			return 0
		}
		return math.Inf(1)
	}
	if rounded, _ := want.Float64(); math.IsInf(rounded, 0) || math.IsInf(got, 0) {
		if rounded == got {
			return 0
		}
		return math.Inf(1)
	}
	d, _ := newNumber().SetMantExp(newNumber().Sub(number(got), want), -max(want.MantExp(nil)-53, -1074)).Float64()
	return math.Abs(d)
}

// TestDoubleLimits has the values at the infinities and zeros, and NaN of NaN.
func TestDoubleLimits(t *testing.T) {
	for _, m := range modes() {
		for _, f := range doubleFunctions {
			got := []float64{math.Inf(-1), minusZero, 0, math.Inf(1), math.NaN()}
			f.run(m, got, got)
			for i, want := range append(f.limits[:], math.NaN()) {
				if !sameDoubles(got[i], want) {
					t.Errorf("%v %s of argument %d: %g, want %g", m, f.name, i, got[i], want)
				}
			}
		}
	}
}

func sameDoubles(a, b float64) bool {
	return math.Float64bits(a) == math.Float64bits(b) || a != a && b != b
}

// doubleRuns are the functions of float64 that have kernels, of three arguments.
func doubleRuns() map[string]func(m Mode, dst, x, y []float64) {
	all := map[string]func(m Mode, dst, x, y []float64){
		"softplusGrad": Mode.softplusGradDouble, "siluGrad": Mode.siluGradDouble, "tanhGrad": Mode.tanhGradDouble,
		"sigmoidGrad": Mode.sigmoidGradDouble,
		"clamp":       func(m Mode, dst, x, y []float64) { m.clampDouble(dst, x, -0.5, 0.7) },
		"clampGrad":   func(m Mode, dst, x, y []float64) { m.clampGradDouble(dst, x, y, -0.5, 0.7) },
		"compare": func(m Mode, dst, x, y []float64) {
			found, sum := make([]bool, len(x)), make([]float64, len(x))
			for op := range LessOrEqual + 1 {
				m.compareDouble(op, found, x, y)
				for i := range sum {
					if sum[i] *= 2; found[i] {
						sum[i]++
					}
				}
			}
			copy(dst, sum)
		},
	}
	for _, f := range doubleFunctions {
		all[f.name] = func(m Mode, dst, x, y []float64) { f.run(m, dst, x) }
	}
	return all
}

// recordedDoubles are the bits that functions of float64 compute of fixed arguments, hashed; they were recorded with AVX2.
var recordedDoubles = map[string]uint64{
	"softplus": 0xf8ca9f5ac4edce4d, "sigmoidGrad": 0x2af01639471e7b8f, "tanhGrad": 0x87096b1f13c49c32, "compare": 0xbf87714c2e4f32d8,
	"exp": 0xb1d80949ce5d2506, "tanh": 0x20b3e810c1fb5137, "sigmoid": 0x72bdb9279a8b6798, "silu": 0x19313fea831cb03b,
	"siluGrad": 0x2d3a6ca2435b022a, "log": 0xde70e1359cea7ae5, "expm1": 0x9454da7c01c638c, "log1p": 0xb98145f7e721e58c,
	"logSigmoid": 0x473d0e9f8a369e8, "softplusGrad": 0xe26d1014e3b2f3fc, "clamp": 0x80e05fdf0bfcd321, "clampGrad": 0xc0480daa39ec6d52,
}

// TestDoubleBits holds that functions of float64 give the recorded bits with every instruction set, in place too.
func TestDoubleBits(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	x := append(doubles(r, 2000), math.Inf(1), math.Inf(-1), math.NaN(), 0, minusZero)
	for b := uint64(0); b < 1<<63; b += 1<<63/20011 + 1 {
		x = append(x, math.Float64frombits(b), -math.Float64frombits(b))
	}
	y := make([]float64, len(x))
	for i := range y {
		if y[i] = x[len(x)-1-i]; i%7 == 0 {
			y[i] = x[i]
		}
	}
	got, want := make([]float64, len(x)), make([]float64, len(x))
	for name, run := range doubleRuns() {
		run(Mode{Level: Scalar}, want, x, y)
		for _, m := range modes() {
			run(m, got, x, y)
			m.Done()
			for i := range x {
				if !sameDoubles(got[i], want[i]) {
					t.Fatalf("%s(%g, %g): %v %g, scalar %g", name, x[i], y[i], m, got[i], want[i])
				}
			}
			copy(got, x)
			run(Mode{Level: m.Level}, got, got, y)
			for i := range x {
				if !sameDoubles(got[i], want[i]) {
					t.Fatalf("%s(%g, %g) in place: %v %g, scalar %g", name, x[i], y[i], m, got[i], want[i])
				}
			}
		}
		if hash := doubleBits(want); hash != recordedDoubles[name] {
			t.Errorf("%s: the bits are %#x, recorded are %#x", name, hash, recordedDoubles[name])
		}
	}
}

func doubleBits(s []float64) uint64 {
	h := fnv.New64a()
	for _, v := range s {
		if v != v {
			v = math.NaN()
		}
		fmt.Fprintf(h, "%016x", math.Float64bits(v))
	}
	return h.Sum64()
}

// TestDoubleOfEveryLength holds that every length gives what each element gives on its own, and touches nothing outside.
func TestDoubleOfEveryLength(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	const guard = 12345
	for name, run := range doubleRuns() {
		for _, m := range modes() {
			for _, n := range lengths() {
				x, y, dst := make([]float64, n), make([]float64, n), make([]float64, n+40)
				for i := range x {
					x[i], y[i] = r.NormFloat64(), r.NormFloat64()
				}
				for i := range dst {
					dst[i] = guard
				}
				run(m, dst[20:20+n], x, y)
				m.Done()
				for i, v := range dst {
					if (i < 20 || i >= 20+n) && v != guard {
						t.Fatalf("%v %s: %d elements: wrote outside", m, name, n)
					}
				}
				for i := 0; i < n; i += 1 + n/50 {
					single := make([]float64, 1)
					if run(m, single, x[i:i+1], y[i:i+1]); !sameDoubles(single[0], dst[20+i]) {
						t.Fatalf("%v %s: element %d of %d is %g, alone %g", m, name, i, n, dst[20+i], single[0])
					}
				}
			}
		}
	}
}
