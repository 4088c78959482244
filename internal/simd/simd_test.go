package simd

import (
	"math"
	"math/rand/v2"
)

var (
	inf = float32(math.Inf(1))
	nan = float32(math.NaN())
)

// modes are those of this machine.
func modes() []Mode {
	var list []Mode
	for _, l := range Levels() {
		if l <= AVX512 { // those above have the same kernels
			list = append(list, Mode{Level: l})
		}
	}
	if best >= AVX512 {
		list = append(list, Mode{AVX512, true})
	}
	return list
}

// lengths are all the short ones, which have every kind of tail, and some around
// the sizes at which the loops change.
func lengths() []int {
	var l []int
	for n := range 140 {
		l = append(l, n)
	}
	return append(l, 1000, piece-1, piece, piece+1, chunk-3, chunk+70, 2*chunk+1)
}

// normals returns n random numbers.
func normals(r *rand.Rand, n int, scale float64) []float32 {
	s := make([]float32, n)
	for i := range s {
		s[i] = float32(r.NormFloat64() * scale)
	}
	return s
}

// guarded is normals between two guards, at an address that is no multiple of a
// vector; intact reports whether the guards still stand.
func guarded(r *rand.Rand, n int) (s []float32, intact func() bool) {
	all := normals(r, n+40, 1)
	for i := range 20 {
		all[i], all[n+20+i] = 12345, 12345
	}
	return all[20 : n+20 : n+20], func() bool {
		for i := range 20 {
			if all[i] != 12345 || all[n+20+i] != 12345 {
				return false
			}
		}
		return true
	}
}

// ulps is the distance from the rounded to the exact value in units of the last
// place of a float32 of that size; 0 for equal infinities and for two NaNs.
func ulps(got float32, want float64) float64 {
	switch {
	case math.IsNaN(want) || got != got:
		if math.IsNaN(want) && got != got {
			return 0
		}
		return math.Inf(1)
	case math.Abs(want) >= 0x1.ffffffp127: // rounds to infinity
		if float64(got) == math.Copysign(math.Inf(1), want) {
			return 0
		}
		return math.Inf(1)
	case math.IsInf(float64(got), 0):
		return math.Inf(1)
	}
	_, e := math.Frexp(want)
	return math.Abs(float64(got)-want) / math.Ldexp(1, max(e-24, -149))
}

// special are the values at which functions of one number tend to go wrong.
func special() []float32 {
	s := []float32{0, float32(math.Copysign(0, -1)), 1, -1, inf, -inf, nan, 0.625, -0.625, 0.62499994, 0x1p-126, 0x1p-127, 0x1p-149, -0x1p-149,
		math.MaxFloat32, -math.MaxFloat32, 88.7, 88.72283, 88.72284, 88.8, 89, 100, -87.3, -87.4, -100,
		-103.9, -103.98, -104, -105, 1e-10, -1e-10, 12, -12, 14, -14, 20, 1e10, -1e10}
	for x := float32(0.7); x < 1.5; x += 0.001 {
		s = append(s, x)
	}
	return s
}
