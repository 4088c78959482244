package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
)

// quarters returns q and r with t = i·π/2 + r for the nearest whole number i, and q the bits i·2³⁰: the lowest bit of i
// is the bit of 2, the next the sign. π/2 is in three parts, of which the first times i is taken from t exactly. It is
// for 0 ≤ t ≤ 102900, where i is below 2¹⁶; there no float32 is so near a multiple of π/2 that r had an error that
// counts, as a run of all of them showed.
func (x *vec) quarters(t operand.Op) (q, r operand.Op) {
	i := x.toInt(x.mul(t, x.k(2/math.Pi)))
	n := x.fromInt(i)
	r = x.fnma(n, x.k(0x1.921fb6p0), t)
	r = x.fnma(n, x.k(-0x1.777a5cp-25), r)
	r = x.fnma(n, x.k(-0x1.ee59dap-50), r)
	return x.shiftLeft(i, 30), r
}

// sinCosNear are r + r³·P(r²) and 1 - r²/2 + r⁴·Q(r²) for |r| ≤ 0.8, minimax with relative errors of the whole of 5e-9 and
// 3e-10.
func (x *vec) sinCosNear(r operand.Op) (sin, cos operand.Op) {
	z := x.mul(r, r)
	p := x.mul(x.poly(z, -0.166666537523, 0.00833209510893, -0.000195055428776), z)
	return x.fma(p, r, r), x.poly(z, 1, -0.5, 0.0416666530073, -0.00138875772245, 2.44554594246e-05)
}

// odd reports where the whole number whose quarters q is is odd.
func (x *vec) odd(q operand.Op) operand.Op { return x.greater(x.and(q, x.bits(0x40000000)), x.k(0)) }

// sin of -x is -sin x, also for -0.
func (x *vec) sin(a operand.Op) operand.Op {
	q, r := x.quarters(x.abs(a))
	sin, cos := x.sinCosNear(r)
	return x.xor(x.choose(x.odd(q), cos, sin), x.sign(x.xor(q, a)))
}

// cos x is sin(x + π/2).
func (x *vec) cos(a operand.Op) operand.Op {
	q, r := x.quarters(x.abs(a))
	sin, cos := x.sinCosNear(r)
	return x.xor(x.choose(x.odd(q), sin, cos), x.sign(x.addInt(q, x.bits(0x40000000))))
}

// tan of a whole number of quarters and r is sin r/cos r, or -cos r/sin r if the number is odd.
func (x *vec) tan(a operand.Op) operand.Op {
	q, r := x.quarters(x.abs(a))
	sin, cos := x.sinCosNear(r)
	odd := x.odd(q)
	y := x.div(x.choose(odd, cos, sin), x.choose(odd, sin, cos))
	return x.xor(y, x.sign(x.xor(x.shiftLeft(q, 1), a)))
}

// arc returns y = arcsin s for s = t ≤ ½, and else for s = √((1-t)/2), where arcsin t is π/2 - 2·y; big says which. It is
// s + s³·P(s²), with Cephes' P for single precision.
func (x *vec) arc(t operand.Op) (big, y operand.Op) {
	big = x.greater(t, x.k(0.5))
	z := x.choose(big, x.fnma(t, x.k(0.5), x.value(0.5)), x.mul(t, t))
	s := x.choose(big, x.sqrt(z), t)
	p := x.mul(x.poly(z, 1.6666752422e-1, 7.4953002686e-2, 4.5470025998e-2, 2.4181311049e-2, 4.2163199048e-2), z)
	return big, x.fma(p, s, s)
}

func (x *vec) asin(a operand.Op) operand.Op {
	big, y := x.arc(x.abs(a))
	return x.or(x.choose(big, x.fnma(y, x.k(2), x.value(math.Pi/2)), y), x.sign(a))
}

// acos x is π/2 - arcsin x, and beyond ½ 2·y or π - 2·y, y being that of arc.
func (x *vec) acos(a operand.Op) operand.Op {
	big, y := x.arc(x.abs(a))
	far := x.choose(x.less(a, x.k(0)), x.fnma(y, x.k(2), x.value(math.Pi)), x.add(y, y))
	return x.choose(big, far, x.sub(x.value(math.Pi/2), x.xor(y, x.sign(a))))
}

// beside is √(1-x²).
func (x *vec) beside(a operand.Op) operand.Op {
	return x.sqrt(x.mul(x.sub(x.value(1), a), x.add(a, x.k(1))))
}

// atan is that of r = |x| ≤ 1, and π/2 less that of r = 1/|x| beyond.
func (x *vec) atan(a operand.Op) operand.Op {
	t := x.abs(a)
	big := x.greater(t, x.k(1))
	y := x.atanNear(x.choose(big, x.div(x.value(1), t), t))
	return x.or(x.choose(big, x.sub(x.value(math.Pi/2), y), y), x.sign(a))
}

// atanNear is r + r³·P(r²) for 0 ≤ r ≤ 1, P minimax with a relative error of the whole of 4e-9.
func (x *vec) atanNear(r operand.Op) operand.Op {
	z := x.mul(r, r)
	y := x.mul(x.poly(z, -0.333333134651, 0.199989065528, -0.142675697803, 0.109678760171, -0.0844562426209, 0.0586316883564, -0.0318118743598,
		0.0112386327237, -0.0018630361883), z)
	return x.fma(y, r, r)
}

// atan2 is the arc tangent of the smaller of |a| and |b| over the larger, from π/2 down if a is the larger, and from π down if b is
// negative. Two equal ones, which may be infinite, have π/4; two zeros 0.
func (x *vec) atan2(a, b operand.Op) operand.Op {
	t, u := x.abs(a), x.abs(b)
	steep := x.greater(t, u)
	r := x.div(x.choose(steep, u, t), x.choose(steep, t, u))
	r = x.choose(x.equal(t, u), x.choose(x.equal(t, x.k(0)), x.k(0), x.value(1)), r)
	y := x.atanNear(r)
	y = x.choose(steep, x.sub(x.value(math.Pi/2), y), y)
	left := x.less(x.or(x.sign(b), x.bits(0x3f800000)), x.k(0))
	y = x.choose(left, x.sub(x.value(math.Pi), y), y)
	return x.or(y, x.sign(a))
}

// atanSlope is 1/(1+x²), of large x c²/(c²+(c·x)²) with a c for which the square does not overflow.
func (x *vec) atanSlope(a operand.Op) operand.Op {
	c := x.shrink(a)
	s := x.mul(a, c)
	return x.mul(x.div(c, x.fma(s, s, x.mul(c, c))), c)
}

// shrink is 2⁻⁶⁴ for large x and else 1.
func (x *vec) shrink(a operand.Op) operand.Op {
	return x.choose(x.greater(x.abs(a), x.k(0x1p40)), x.k(0x1p-64), x.value(1))
}
