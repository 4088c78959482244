package simd

import "math"

// Fmod does dst[i] = a[i] - b[i]·trunc(a[i]/b[i]), exact, with the sign of a[i]; NaN where b[i] is 0.
func (m Mode) Fmod(dst, a, b []float32) { m.rests(fmodKernel, fmodVec, fmod, dst, a, b) }

// Remainder does dst[i] = a[i] - b[i]·⌊a[i]/b[i]⌋, exact except for one rounding where the signs differ; NaN where b[i] is 0.
func (m Mode) Remainder(dst, a, b []float32) {
	m.rests(remainderKernel, remainderVec, remainder, dst, a, b)
}

// FloorDivide does dst[i] = ⌊a[i]/b[i]⌋ of the exact quotient, rounded; a[i]/b[i] where b[i] is 0.
func (m Mode) FloorDivide(dst, a, b []float32) {
	m.rests(floorDivideKernel, floorDivideVec, floorDivide, dst, a, b)
}

// rests does dst[i] = plain(a[i], b[i]). The kernel leaves NaN where quotients are too large for it.
func (m Mode) rests(k kernel, vec func(level uint8, dst, a, b *float32, n int), plain func(a, b float32) float32, dst, a, b []float32) {
	same("rests", len(dst), len(a), len(b))
	var y [1024]float32 // dst may be a or b
	for i := 0; i < len(dst); i += len(y) {
		end := min(i+len(y), len(dst))
		d, a, b, y := dst[i:end], a[i:end], b[i:end], y[:end-i]
		if m.has(k) {
			vec(Mode{Level: m.Level}.code(), &y[0], &a[0], &b[0], len(y))
		} else {
			m.fill(y, float32(math.NaN()))
		}
		for j, v := range y {
			if v != v {
				v = plain(a[j], b[j])
			}
			d[j] = v
		}
	}
}

func fmod(a, b float32) float32 { return float32(math.Mod(float64(a), float64(b))) }

func remainder(a, b float32) float32 {
	rest := fmod(a, b)
	if rest != 0 && (rest < 0) != (b < 0) {
		return rest + b
	}
	return rest
}

func floorDivide(a, b float32) float32 {
	if b == 0 {
		return a / b
	}
	x, y := float64(a), float64(b)
	rest := math.Mod(x, y)
	q := math.RoundToEven((x - rest) / y)
	switch {
	case rest != 0 && (b < 0) != (rest < 0):
		q--
	case q == 0:
		q = math.Copysign(0, x/y)
	}
	return float32(q)
}

// Atan2 does dst[i] = the angle of the point (b[i], a[i]), within 3 ulp, from -π to π.
func (m Mode) Atan2(dst, a, b []float32) {
	same("Atan2", len(dst), len(a), len(b))
	eachPair(m, atan2Kernel, atan2Vec, atan2, dst, a, b)
}

func atan2(a, b float32) float32 {
	t, u := abs(a), abs(b)
	steep := t > u
	if steep {
		t, u = u, t
	}
	r := t / u
	switch {
	case t == 0 && u == 0:
		r = 0
	case t == u:
		r = 1
	}
	y := atanNear(r)
	if steep {
		y = math.Pi/2 - y
	}
	if math.Signbit(float64(b)) {
		y = math.Pi - y
	}
	return signed(y, a)
}
