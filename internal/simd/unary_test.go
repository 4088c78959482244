package simd

import (
	"math"
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

// The two assembly levels share one program, so they give the same bits.
func TestUnaryBitsAreThoseOfEveryInstructionSet(t *testing.T) {
	if best < AVX512 {
		t.Skip("one instruction set only")
	}
	r := rand.New(rand.NewPCG(3, 3))
	x := append(special(), normals(r, 20000, 10)...)
	a, b := make([]float32, len(x)), make([]float32, len(x))
	for _, f := range unaries {
		f.run(Mode{Level: AVX2}, a, x)
		f.run(Mode{Level: AVX512}, b, x)
		for i := range x {
			if !sameBits(a[i], b[i]) {
				t.Fatalf("%s(%g): AVX2 %g, AVX-512 %g", f.name, x[i], a[i], b[i])
			}
		}
	}
}

// Every float32 exponent and sign, and a step through the fractions.
func TestExpAndLogOverTheWholeRange(t *testing.T) {
	step := uint32(40009)
	if testing.Short() {
		step *= 10
	}
	var x []float32
	for b := uint64(0); b < 1<<32; b += uint64(step) {
		x = append(x, math.Float32frombits(uint32(b)))
	}
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
