package simd

import "math"

// Fused multiply-adds in plain Go.

// FMA is a·b + c, rounded once, on every machine.
func FMA(a, b, c float32) float32 {
	p := float64(a) * float64(b) // exact
	s := p + float64(c)
	if doubtful(s) {
		s = toOdd(p, float64(c), s)
	}
	return float32(s)
}

// FMA4 does c[i] = a·b[i] + c[i] as FMA does.
func FMA4(c *[4]float32, a float32, b *[4]float32) {
	v := float64(a)
	for i, w := range b {
		p, old := v*float64(w), float64(c[i])
		s := p + old
		if doubtful(s) {
			s = toOdd(p, old, s)
		}
		c[i] = float32(s)
	}
}

// FMA4Flush is FMA4 to which numbers below 2⁻¹²⁶ are zeros, as operands and as results. So VDPBF16PS adds its products, and a
// fused multiply-add where MXCSR has FTZ and DAZ.
func FMA4Flush(c *[4]float32, a float32, b *[4]float32) {
	const normal = 0x1p-126
	const least = normal - 0x1p-151 // what is below rounds to less than 2⁻¹²⁶
	v := flush(float64(a), normal)
	for i, w := range b {
		p, old := v*flush(float64(w), normal), flush(float64(c[i]), normal)
		s := p + old
		if doubtful(s) {
			s = toOdd(p, old, s)
		}
		c[i] = float32(flush(s, least))
	}
}

// flush is x, or a zero of its sign if x is below least.
func flush(x, least float64) float64 {
	if math.Abs(x) < least {
		return math.Copysign(0, x)
	}
	return x
}

// doubtful reports whether s, a sum that was rounded to float64, may lie between two float32 where the sum itself does not.
func doubtful(s float64) bool { return math.Float64bits(s)<<36 == 0 }

// toOdd is p + c, rounded so that it is rounded to float32 as the sum itself is; s is the sum, rounded to the nearest, and its last
// bit is 0. Where that lost something, s goes the way of what it lost. See Boldo and Melquiond, "Emulation of a FMA and correctly
// rounded sums: proved algorithms using rounding to odd", 2008.
//
//go:noinline
func toOdd(p, c, s float64) float64 {
	q := s - p
	lost := (p - (s - q)) + (c - q)
	switch bits := math.Float64bits(s); {
	case lost > 0 && s > 0, lost < 0 && s < 0:
		return math.Float64frombits(bits | 1)
	case lost > 0, lost < 0:
		return math.Float64frombits(bits - 1)
	}
	return s // even where it is infinite or NaN
}
