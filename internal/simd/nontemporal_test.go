package simd

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

// alignedAt returns n floats that begin shift floats after a cache line.
func alignedAt(n, shift int) []float32 {
	s := make([]float32, n+32)
	for i := range s {
		if uintptr(unsafe.Pointer(&s[i]))%64 == 0 {
			return s[i+shift:][:n:n]
		}
	}
	panic("no cache line begins here")
}

// runs returns the functions that have kernels, by name, each with arguments of n numbers.
func runs(n int) map[string]func(m Mode, dst []float32) {
	r := rand.New(rand.NewPCG(8, 8))
	x, y, w := normals(r, n, 1), normals(r, n, 1), normals(r, n, 1)
	for i := range x {
		x[i] = max(x[i], -x[i]) // for Log and Sqrt
	}
	within, above := make([]float32, n), make([]float32, n) // for Atanh and Acosh
	for i := range x {
		within[i], above[i] = y[i]/(1+abs(y[i])), 1+x[i]
	}
	number := func(f func(m Mode) float64) func(m Mode, d []float32) {
		return func(m Mode, d []float32) { d[0] = float32(f(m)) }
	}
	return map[string]func(m Mode, d []float32){
		"Add":            func(m Mode, d []float32) { m.Add(d, x, y) },
		"Sub":            func(m Mode, d []float32) { m.Sub(d, x, y) },
		"Mul":            func(m Mode, d []float32) { m.Mul(d, x, y) },
		"Div":            func(m Mode, d []float32) { m.Div(d, x, y) },
		"Max":            func(m Mode, d []float32) { m.Max(d, x, y) },
		"Min":            func(m Mode, d []float32) { m.Min(d, x, y) },
		"AddScalar":      func(m Mode, d []float32) { m.AddScalar(d, x, 3) },
		"Scale":          func(m Mode, d []float32) { m.Scale(d, x, 3) },
		"copy":           func(m Mode, d []float32) { m.copy(bytes(d), bytes(x), copyKernel, copyVec) },
		"copyNear":       func(m Mode, d []float32) { m.copy(bytes(d), bytes(x), copyNearKernel, copyNearVec) },
		"exp":            func(m Mode, d []float32) { m.exp(d, x) },
		"log":            func(m Mode, d []float32) { m.log(d, x) },
		"tanh":           func(m Mode, d []float32) { m.tanh(d, x) },
		"sigmoid":        func(m Mode, d []float32) { m.sigmoid(d, x) },
		"sqrt":           func(m Mode, d []float32) { m.sqrt(d, x) },
		"rsqrt":          func(m Mode, d []float32) { m.rsqrt(d, x) },
		"abs":            func(m Mode, d []float32) { m.abs(d, y) },
		"sign":           func(m Mode, d []float32) { m.sign(d, y) },
		"clamp":          func(m Mode, d []float32) { m.clamp(d, y, -0.5, 0.5) },
		"clampGrad":      func(m Mode, d []float32) { m.clampGrad(d, y, x, -0.5, 0.5) },
		"absGrad":        func(m Mode, d []float32) { m.absGrad(d, y, x) },
		"sqrtGrad":       func(m Mode, d []float32) { m.sqrtGrad(d, y, x) },
		"rsqrtGrad":      func(m Mode, d []float32) { m.rsqrtGrad(d, y, x) },
		"squareGrad":     func(m Mode, d []float32) { m.squareGrad(d, y, x) },
		"relu":           func(m Mode, d []float32) { m.relu(d, y) },
		"reluGrad":       func(m Mode, d []float32) { m.reluGrad(d, y, x) },
		"gelu":           func(m Mode, d []float32) { m.gelu(d, y) },
		"geluGrad":       func(m Mode, d []float32) { m.geluGrad(d, y, x) },
		"geluTanh":       func(m Mode, d []float32) { m.geluTanh(d, y) },
		"geluTanhGrad":   func(m Mode, d []float32) { m.geluTanhGrad(d, y, x) },
		"silu":           func(m Mode, d []float32) { m.silu(d, y) },
		"siluGrad":       func(m Mode, d []float32) { m.siluGrad(d, y, x) },
		"tanhGrad":       func(m Mode, d []float32) { m.tanhGrad(d, y, x) },
		"sigmoidGrad":    func(m Mode, d []float32) { m.sigmoidGrad(d, y, x) },
		"ScaledExp":      func(m Mode, d []float32) { m.ScaledExp(d, y, 1, 2) },
		"SoftmaxGrad":    func(m Mode, d []float32) { m.SoftmaxGradRow(d, x, y) },
		"LogSoftmaxGrad": func(m Mode, d []float32) { m.LogSoftmaxGradRow(d, y, x) },
		"Normalize":      func(m Mode, d []float32) { m.Normalize(d, x, 1, 2, y, nil) },
		"NormalizeGrad":  func(m Mode, d []float32) { m.normalizeGrad(d, x, y, w, units{1, 2, 3}, 4, 5) },
		"add2":           func(m Mode, d []float32) { m.add2(d, make([]float32, n), x, y) },
		"addTo":          func(m Mode, d []float32) { m.addTo(d, x) },
		"axpy":           func(m Mode, d []float32) { m.axpy(d, x, 3) },
		"dot":            func(m Mode, d []float32) { d[0] = float32(m.dot(x, y)) },
		"sum":            number(func(m Mode) float64 { return m.sum(x) }),
		"sumShifted":     number(func(m Mode) float64 { return m.sumShifted(x, nil, 1) }),
		"sumWeighted":    number(func(m Mode) float64 { return m.sumShifted(x, y, 1) }),
		"sumSquares":     number(func(m Mode) float64 { return m.sumSquares(x, 1) }),
		"maxValue":       number(func(m Mode) float64 { return float64(m.maxValue(x)) }),
		"minValue":       number(func(m Mode) float64 { return float64(m.minValue(x)) }),
		"softmax":        func(m Mode, d []float32) { m.SoftmaxRow(d, y) },
		"fill":           func(m Mode, d []float32) { m.fill(d, 3) },

		"erf":             func(m Mode, d []float32) { m.erf(d, y) },
		"erfGrad":         func(m Mode, d []float32) { m.erfGrad(d, y, x) },
		"expm1":           func(m Mode, d []float32) { m.expm1(d, y) },
		"expm1Grad":       func(m Mode, d []float32) { m.expm1Grad(d, y, x) },
		"log1p":           func(m Mode, d []float32) { m.log1p(d, x) },
		"log1pGrad":       func(m Mode, d []float32) { m.log1pGrad(d, x, y) },
		"sin":             func(m Mode, d []float32) { m.sin(d, y) },
		"sinGrad":         func(m Mode, d []float32) { m.sinGrad(d, y, x) },
		"cos":             func(m Mode, d []float32) { m.cos(d, y) },
		"cosGrad":         func(m Mode, d []float32) { m.cosGrad(d, y, x) },
		"pow":             func(m Mode, d []float32) { m.Pow(d, x, y) },
		"exp2":            func(m Mode, d []float32) { m.exp2(d, y) },
		"exp2Grad":        func(m Mode, d []float32) { m.exp2Grad(d, y, x) },
		"log2":            func(m Mode, d []float32) { m.log2(d, x) },
		"log2Grad":        func(m Mode, d []float32) { m.log2Grad(d, x, y) },
		"log10":           func(m Mode, d []float32) { m.log10(d, x) },
		"log10Grad":       func(m Mode, d []float32) { m.log10Grad(d, x, y) },
		"sinh":            func(m Mode, d []float32) { m.sinh(d, y) },
		"sinhGrad":        func(m Mode, d []float32) { m.sinhGrad(d, y, x) },
		"cosh":            func(m Mode, d []float32) { m.cosh(d, y) },
		"coshGrad":        func(m Mode, d []float32) { m.coshGrad(d, y, x) },
		"atan":            func(m Mode, d []float32) { m.atan(d, y) },
		"tan":             func(m Mode, d []float32) { m.tan(d, y) },
		"tanGrad":         func(m Mode, d []float32) { m.tanGrad(d, y, x) },
		"asin":            func(m Mode, d []float32) { m.asin(d, within) },
		"asinGrad":        func(m Mode, d []float32) { m.asinGrad(d, within, x) },
		"acos":            func(m Mode, d []float32) { m.acos(d, within) },
		"acosGrad":        func(m Mode, d []float32) { m.acosGrad(d, within, x) },
		"asinh":           func(m Mode, d []float32) { m.asinh(d, y) },
		"asinhGrad":       func(m Mode, d []float32) { m.asinhGrad(d, y, x) },
		"acosh":           func(m Mode, d []float32) { m.acosh(d, above) },
		"acoshGrad":       func(m Mode, d []float32) { m.acoshGrad(d, above, y) },
		"atanh":           func(m Mode, d []float32) { m.atanh(d, within) },
		"atanhGrad":       func(m Mode, d []float32) { m.atanhGrad(d, within, x) },
		"erfc":            func(m Mode, d []float32) { m.erfc(d, y) },
		"erfcGrad":        func(m Mode, d []float32) { m.erfcGrad(d, y, x) },
		"round":           func(m Mode, d []float32) { m.round(d, y) },
		"floor":           func(m Mode, d []float32) { m.floor(d, y) },
		"ceil":            func(m Mode, d []float32) { m.ceil(d, y) },
		"trunc":           func(m Mode, d []float32) { m.trunc(d, y) },
		"softplus":        func(m Mode, d []float32) { m.softplus(d, y) },
		"softplusGrad":    func(m Mode, d []float32) { m.softplusGrad(d, y, x) },
		"logSigmoid":      func(m Mode, d []float32) { m.logSigmoid(d, y) },
		"logSigmoidGrad":  func(m Mode, d []float32) { m.logSigmoidGrad(d, y, x) },
		"mish":            func(m Mode, d []float32) { m.mish(d, y) },
		"mishGrad":        func(m Mode, d []float32) { m.mishGrad(d, y, x) },
		"hardsigmoid":     func(m Mode, d []float32) { m.hardsigmoid(d, y) },
		"hardsigmoidGrad": func(m Mode, d []float32) { m.hardsigmoidGrad(d, y, x) },
		"hardswish":       func(m Mode, d []float32) { m.hardswish(d, y) },
		"hardswishGrad":   func(m Mode, d []float32) { m.hardswishGrad(d, y, x) },
		"elu":             func(m Mode, d []float32) { m.elu(d, y) },
		"eluGrad":         func(m Mode, d []float32) { m.eluGrad(d, y, x) },
		"leaky":           func(m Mode, d []float32) { m.leaky(d, y, x, 0.1) },
		"atanGrad":        func(m Mode, d []float32) { m.atanGrad(d, y, x) },
		"maxScalar":       func(m Mode, d []float32) { m.MaxScalar(d, y, 0.5) },
		"minScalar":       func(m Mode, d []float32) { m.MinScalar(d, y, 0.5) },
		"divBy":           func(m Mode, d []float32) { m.DivBy(d, y, 0.7) },
		"divInto":         func(m Mode, d []float32) { m.DivInto(d, x, 0.7) },
		"subFrom":         func(m Mode, d []float32) { m.SubFrom(d, y, 0.7) },
		"fmod":            func(m Mode, d []float32) { m.Fmod(d, y, w) },
		"remainder":       func(m Mode, d []float32) { m.Remainder(d, y, w) },
		"floorDivide":     func(m Mode, d []float32) { m.FloorDivide(d, y, w) },
		"atan2":           func(m Mode, d []float32) { m.Atan2(d, y, w) },
		"product":         number(func(m Mode) float64 { return float64(m.product(y)) }),
		"where": func(m Mode, d []float32) {
			cond := make([]bool, n)
			m.compare(Less, cond, y, w)
			m.where(d, x, y, cond)
		},
		"compare": func(m Mode, d []float32) {
			ones, zeros, found := make([]float32, n), make([]float32, n), make([]bool, n)
			for op := range LessOrEqual + 1 {
				m.Scale(d, d, 2)
				m.compare(op, found, y, w)
				m.fill(ones, 1)
				m.where(ones, ones, zeros, found)
				m.Add(d, d, ones)
			}
		},
	}
}

// TestNonTemporal holds that each kernel gives the same bits with non-temporal stores, for
// destinations that begin at a cache line and for others.
func TestNonTemporal(t *testing.T) {
	const n = 2*chunk + 1000
	for _, level := range Levels() {
		if level != AVX2 && level != AVX512 {
			continue
		}
		past := Mode{level, true}
		for name, run := range runs(n) {
			want := alignedAt(n, 0)
			run(Mode{Level: level}, want)
			for _, shift := range []int{0, 1, 15} {
				got := alignedAt(n, shift)
				run(past, got)
				past.Done()
				for i := range want {
					if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
						t.Fatalf("%s: %v: element %d is %g, with ordinary stores %g (%d after a cache line)", name, past, i, got[i], want[i], shift)
					}
				}
			}
		}
	}
}

// TestCopyAtAnyPlace holds that a copy, with non-temporal stores where there are any, writes all of its bytes and no others.
func TestCopyAtAnyPlace(t *testing.T) {
	const room = 200
	for _, level := range Levels() {
		for _, n := range []int{4*chunk + 64, 8*chunk + 1, large, 2*large + 100} {
			for _, shift := range []int{0, 1, 31, 32, 63, 64} {
				src, dst := make([]byte, n+shift), bytes(alignedAt((n+2*room+3)/4, 0))
				for i := range src {
					src[i] = byte(i*7 + i>>8 + 1)
				}
				m, part := Mode{level, level >= AVX2}, dst[room-shift:][:n]
				m.copy(part, src[shift:], copyKernel, copyVec)
				m.Done()
				if !slices.Equal(part, src[shift:]) {
					t.Fatalf("%v: %d bytes from %d on: not what was copied", level, n, room-shift)
				}
				clear(part)
				if slices.ContainsFunc(dst, func(b byte) bool { return b != 0 }) {
					t.Fatalf("%v: %d bytes from %d on: bytes around them were written", level, n, room-shift)
				}
			}
		}
	}
}

// TestSingleKernel holds that a level may offer one kernel: the other functions run their plain
// loops, and what they compute has its bits.
func TestSingleKernel(t *testing.T) {
	if best == Scalar {
		t.Skip("this processor has no kernels")
	}
	level := Levels()[1]
	defer func(was kernelSet) { offers[level] = was }(offers[level])
	const n = 1000
	for name, run := range runs(n) {
		want, got := make([]float32, n), make([]float32, n)
		run(Mode{Level: Scalar}, want)
		offers[level] = setOf(addKernel)
		run(Mode{Level: level}, got)
		for i := range want {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				t.Fatalf("%s: element %d is %g, by the plain loop %g", name, i, got[i], want[i])
			}
		}
	}
}

// TestWriting has the level for large results, small ones and those in place.
func TestWriting(t *testing.T) {
	defer func(was, wasNoPrefetch Mode) { ordinary, noPrefetch = was, wasNoPrefetch }(ordinary, noPrefetch)
	x, y := make([]float32, nonTemporalFrom/8), make([]float32, nonTemporalFrom/8)
	for _, c := range []struct {
		name  string
		level Level
		got   func() Mode
		want  bool // non-temporal
	}{
		{"large", AVX512, func() Mode { return Writing(x, y) }, true},
		{"small", AVX512, func() Mode { return Writing(x[1:], y) }, false},
		{"large with what is read", AVX512, func() Mode { return Writing(x[len(x)/3:], y, y) }, true},
		{"in place", AVX512, func() Mode { return Writing(x, y, x) }, false},
		{"large, no such stores", AVX2, func() Mode { return Writing(x, y) }, false},
		{"large copy", AVX512, func() Mode { return Copying(nonTemporalFrom) }, true},
		{"large copy by AVX2", AVX2, func() Mode { return Copying(nonTemporalFrom) }, true},
		{"small copy by AVX2", AVX2, func() Mode { return Copying(nonTemporalFrom - 1) }, false},
		{"large copy by NEON", NEON, func() Mode { return Copying(nonTemporalFrom) }, false},
	} {
		ordinary = Mode{Level: c.level}
		if want := (Mode{c.level, c.want}); c.got() != want {
			t.Errorf("%s: in mode %v, want %v", c.name, c.got(), want)
		}
	}
	ordinary = Mode{Level: AVX512}
	for _, noPrefetch = range []Mode{{}, {Level: AVX2}, {Level: AVX512}, {AVX512, true}} {
		if got, want := computed(x, y), (Mode{AVX512, noPrefetch.NonTemporal}); got != want {
			t.Errorf("long computations where kernels without prefetches are in mode %v: in mode %v", noPrefetch, got)
		}
	}
}
