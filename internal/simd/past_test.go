package simd

import (
	"math"
	"math/rand/v2"
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

// TestPast has each kernel give the same bits past the caches, for destinations that
// begin at a cache line and for others.
func TestPast(t *testing.T) {
	if best != AVX512 {
		t.Skip("this processor has no AVX-512")
	}
	r := rand.New(rand.NewPCG(8, 8))
	const n = 2*chunk + 1000
	x, y, w := normals(r, n, 1), normals(r, n, 1), normals(r, n, 1)
	for i := range x {
		x[i] = max(x[i], -x[i]) // for Log and Sqrt
	}
	for name, run := range map[string]func(l Level, dst []float32){
		"Add":            func(l Level, d []float32) { l.Add(d, x, y) },
		"Sub":            func(l Level, d []float32) { l.Sub(d, x, y) },
		"Mul":            func(l Level, d []float32) { l.Mul(d, x, y) },
		"Div":            func(l Level, d []float32) { l.Div(d, x, y) },
		"Max":            func(l Level, d []float32) { l.Max(d, x, y) },
		"Min":            func(l Level, d []float32) { l.Min(d, x, y) },
		"AddScalar":      func(l Level, d []float32) { l.AddScalar(d, x, 3) },
		"Scale":          func(l Level, d []float32) { l.Scale(d, x, 3) },
		"copy":           func(l Level, d []float32) { l.copy(bytes(d), bytes(x), copyVec) },
		"copyNear":       func(l Level, d []float32) { l.copy(bytes(d), bytes(x), copyNearVec) },
		"exp":            func(l Level, d []float32) { l.exp(d, x) },
		"log":            func(l Level, d []float32) { l.log(d, x) },
		"tanh":           func(l Level, d []float32) { l.tanh(d, x) },
		"sigmoid":        func(l Level, d []float32) { l.sigmoid(d, x) },
		"sqrt":           func(l Level, d []float32) { l.sqrt(d, x) },
		"rsqrt":          func(l Level, d []float32) { l.rsqrt(d, x) },
		"abs":            func(l Level, d []float32) { l.abs(d, y) },
		"relu":           func(l Level, d []float32) { l.relu(d, y) },
		"reluGrad":       func(l Level, d []float32) { l.reluGrad(d, y, x) },
		"gelu":           func(l Level, d []float32) { l.gelu(d, y) },
		"geluGrad":       func(l Level, d []float32) { l.geluGrad(d, y, x) },
		"geluTanh":       func(l Level, d []float32) { l.geluTanh(d, y) },
		"geluTanhGrad":   func(l Level, d []float32) { l.geluTanhGrad(d, y, x) },
		"silu":           func(l Level, d []float32) { l.silu(d, y) },
		"siluGrad":       func(l Level, d []float32) { l.siluGrad(d, y, x) },
		"tanhGrad":       func(l Level, d []float32) { l.tanhGrad(d, y, x) },
		"sigmoidGrad":    func(l Level, d []float32) { l.sigmoidGrad(d, y, x) },
		"ScaledExp":      func(l Level, d []float32) { l.ScaledExp(d, y, 1, 2) },
		"SoftmaxGrad":    func(l Level, d []float32) { l.SoftmaxGradRow(d, x, y) },
		"LogSoftmaxGrad": func(l Level, d []float32) { l.LogSoftmaxGradRow(d, y, x) },
		"Normalize":      func(l Level, d []float32) { l.Normalize(d, x, 1, 2, y, nil) },
		"NormalizeGrad":  func(l Level, d []float32) { l.normalizeGrad(d, x, y, w, units{1, 2, 3}, 4, 5) },
		"add2":           func(l Level, d []float32) { l.add2(d, make([]float32, n), x, y) },
		"addTo":          func(l Level, d []float32) { l.addTo(d, x) },
		"axpy":           func(l Level, d []float32) { l.axpy(d, x, 3) },
		"dot":            func(l Level, d []float32) { d[0] = float32(l.dot(x, y)) },
	} {
		want := alignedAt(n, 0)
		run(AVX512, want)
		for _, shift := range []int{0, 1, 15} {
			got := alignedAt(n, shift)
			run(AVX512Past, got)
			AVX512Past.Done()
			for i := range want {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					t.Fatalf("%s: element %d is %g past the caches, else %g (%d after a cache line)", name, i, got[i], want[i], shift)
				}
			}
		}
	}
}

// TestWriting has the level for large results, small ones and those in place.
func TestWriting(t *testing.T) {
	defer func(was, wasUnasked Level) { best, unasked = was, wasUnasked }(best, unasked)
	x, y := make([]float32, pastFrom/8), make([]float32, pastFrom/8)
	for _, c := range []struct {
		name string
		best Level
		got  func() Level
		want Level
	}{
		{"large", AVX512, func() Level { return Writing(x, y) }, AVX512Past},
		{"small", AVX512, func() Level { return Writing(x[1:], y) }, AVX512},
		{"large with what is read", AVX512, func() Level { return Writing(x[len(x)/3:], y, y) }, AVX512Past},
		{"in place", AVX512, func() Level { return Writing(x, y, x) }, AVX512},
		{"large, no such stores", AVX2, func() Level { return Writing(x, y) }, AVX2},
	} {
		if best = c.best; c.got() != c.want {
			t.Errorf("%s: at level %v, want %v", c.name, c.got(), c.want)
		}
	}
	best = AVX512
	for unasked = range AVX512Past + 1 {
		if got := computing(x, y); got != max(unasked, AVX512) {
			t.Errorf("long computations where kernels that ask for nothing are at level %v: at level %v", unasked, got)
		}
	}
}
