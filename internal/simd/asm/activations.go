package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
)

// sigmoid is 1/(1+e⁻ˣ), written with e to the -|x| so that neither side loses digits.
func (x *vec) sigmoid(a operand.Op) operand.Op {
	e := x.exp(x.below(a))
	return x.div(x.choose(x.less(a, x.k(0)), e, x.value(1)), x.add(e, x.k(1)))
}

// below is -|x|.
func (x *vec) below(a operand.Op) operand.Op { return x.or(a, x.bits(x.signBit())) }

// log1pExp is ln(1 + e to the -|x|); of NaN it is some number.
func (x *vec) log1pExp(a operand.Op) operand.Op {
	return x.logOf(x.normalOf1(x.expDown(x.below(a))))
}

// squareLess1 returns e = eˣ and n = (1+e)² - 1, of which tanh(ln(1+e)) is n/(n+2). It is for x up to flat, where that is 1.
func (x *vec) squareLess1(a operand.Op) (e, n operand.Op) {
	e = x.expDown(a)
	return e, x.mul(e, x.add(e, x.k(2)))
}

const flat = 20

func (x *vec) mish(a operand.Op) operand.Op {
	_, n := x.squareLess1(x.atMost(x.value(flat), a))
	return x.mul(a, x.div(n, x.add(n, x.k(2))))
}

// mishSlope is n/(n+2) + x·4e·(1+e)/(n+2)²: 1 at +Inf.
func (x *vec) mishSlope(a operand.Op) operand.Op {
	a = x.atMost(x.value(flat), a)
	e, n := x.squareLess1(a)
	r := x.div(x.value(1), x.add(n, x.k(2)))
	w := x.mul(x.mul(x.mul(e, x.k(4)), x.add(e, x.k(1))), r)
	return x.mul(x.fma(a, w, n), r)
}

// hard is min(max(x+3, 0), 6).
func (x *vec) hard(a operand.Op) operand.Op {
	return x.atMost(x.value(6), x.maxKeep(x.value(0), x.add(a, x.k(3))))
}

// hardswishSlope is (2x+3)/6 between -3 and 3, and 0 or 1 beyond.
func (x *vec) hardswishSlope(a operand.Op) operand.Op {
	s := x.div(x.fma(a, x.k(2), x.value(3)), x.k(6))
	s = x.choose(x.greater(a, x.k(3)), x.k(1), s)
	return x.choose(x.less(a, x.k(-3)), x.k(0), s)
}

// cut is where the normal density ends in float32: exp(-cut²/2) is 0, and not below the
// smallest argument of expWithin.
const cut = 14.422

// tail returns t = |x|, but at most cut, q = Φ(-t), the tail of the normal
// distribution, and e = exp(-t²/2).
//
// With u = 1/(1+0.35·t), q·exp(t²/2) is u·P(u), P a minimax polynomial for t ≤ 14 with
// a relative error of 3e-8; beyond, q is 0 in float32. The form is that of Abramowitz
// and Stegun 7.1.26.
func (x *vec) tail(a operand.Op) (t, q, e operand.Op) {
	t = x.atMost(x.value(cut), x.abs(a)) // NaN stays
	e = x.expWithin(x.mul(x.mul(t, t), x.k(-0.5)))
	u := x.div(x.value(1), x.fma(t, x.k(0.35), x.value(1)))
	return t, x.mul(x.mul(x.tailNear(u), u), e), e
}

// tailNear is the P of tail.
func (x *vec) tailNear(u operand.Op) operand.Op {
	return x.poly(u, 0.139621404551, 0.139861864512, 0.119832910721, 0.105507811564, -0.0231093297237, 0.15917335794, -0.255713498026,
		0.143971308734, -0.0291458462173)
}

// geluSlope is the derivative of x·Φ(x), Φ(x) + x·φ(x): 1 at +Inf and 0 at -Inf.
func (x *vec) geluSlope(a operand.Op) operand.Op {
	t, q, e := x.tail(a)
	phi := x.choose(x.less(a, x.k(0)), q, x.sub(x.value(1), q))
	within := x.or(t, x.sign(a)) // a itself may be infinite, and so times e NaN
	return x.fma(x.mul(within, e), x.k(1/math.Sqrt(2*math.Pi)), phi)
}

// The tanh form of gelu is x·sigmoid(bend(x)) with bend(x) = linear·x + cubic·x³. Beyond
// ±bentCut the sigmoid is 0 or 1 in float32.
const (
	linear  = 1.5957691216057308 // 2·√(2/π)
	cubic   = 0.044715 * linear
	bentCut = 12
)

func (x *vec) bend(a operand.Op) operand.Op {
	return x.mul(a, x.fma(x.mul(a, a), x.k(cubic), x.value(linear)))
}

// geluTanhSlope is the derivative of x·s with s = sigmoid(bend(x)), s + x·s·(1-s)·bend'(x).
// With e = exp(-|bend(x)|), s·(1-s) is e/(1+e)²: nothing cancels.
func (x *vec) geluTanhSlope(a operand.Op) operand.Op {
	t := x.atMost(x.value(bentCut), x.atLeast(x.value(-bentCut), a)) // NaN stays
	e := x.expDown(x.or(x.bend(t), x.bits(0x80000000)))
	r := x.div(x.value(1), x.add(e, x.k(1)))
	q := x.mul(e, r)
	slope := x.fma(x.mul(t, t), x.k(3*cubic), x.value(linear))
	s := x.choose(x.less(t, x.k(0)), q, r)
	return x.fma(x.mul(t, slope), x.mul(q, r), s)
}

// erf is x + x·P(x²) for |x| < 0.92, P minimax with a relative error of the whole of 3e-8, and
// ±(1 - exp(Q(|x|))) beyond, Q minimax with an error of the whole of 2e-8. At 4 that is 1 in float32.
func (x *vec) erf(a operand.Op) operand.Op {
	t := x.abs(a)
	z := x.mul(a, a)
	small := x.fma(x.poly(z, 0.128379151225, -0.376124888659, 0.112817302346, -0.0267629157752, 0.0049872752279, -0.000595933874138), a, a)
	q := x.poly(x.atMost(x.value(4), t), -8.49064308568e-05, -1.12820863724, -0.636016130447, -0.105437859893, 0.0234448425472,
		-0.003642906202, 0.000358403282007, -1.8375016225e-05)
	big := x.sub(x.value(1), x.expWithin(q))
	return x.choose(x.less(t, x.k(0.92)), small, x.or(big, x.sign(a)))
}

// erfSlope is 2/√π·exp(-x²). What x² loses in float32 is d: exp(-x²) is e·(1+d). Beyond √104 it is 0.
func (x *vec) erfSlope(a operand.Op) operand.Op {
	t := x.atMost(x.value(10.198), x.abs(a))
	z := x.mul(t, t)
	d := x.fnma(t, t, z)
	e := x.expWithin(x.mul(z, x.k(-1)))
	const scale = 0x1.20dd76p0 // 2/√π except for what float32 has no room for
	return x.fma(e, x.k(scale), x.mul(e, x.fma(d, x.k(scale), x.value(2/math.SqrtPi-scale))))
}

// erfc of t = |x| is twice the tail of the normal distribution at √2·t, see tail, and 2 less that for negative x. What x² loses
// in float32 is d: exp(-x²) is e·(1+d).
func (x *vec) erfc(a operand.Op) operand.Op {
	t := x.atMost(x.value(10.198), x.abs(a)) // NaN stays
	z := x.mul(t, t)
	d := x.fnma(t, t, z)
	e := x.expWithin(x.mul(z, x.k(-1)))
	u := x.div(x.value(1), x.fma(t, x.k(0.35*math.Sqrt2), x.value(1)))
	q := x.mul(x.tailNear(u), u)
	q = x.mul(x.add(q, q), x.fma(e, d, e))
	return x.choose(x.less(a, x.k(0)), x.sub(x.value(2), q), q)
}
