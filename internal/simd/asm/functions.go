package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
)

// exp is eˣ within 1 ulp. With n = round(x/ln 2) and r = x - n·ln 2, ln 2 in two
// parts, it is 2ⁿ·eʳ, and eʳ is a minimax polynomial of degree 6 on |r| ≤ ln(2)/2
// with a relative error of 8e-9.
func (x *vec) exp(a operand.Op) operand.Op {
	// Beyond these the result is infinite or 0 anyhow. NaN, as second operand, stays.
	a = x.atLeast(x.value(-104), a)
	a = x.atMost(x.value(89), a)
	return x.expWithin(a)
}

// expDown is exp of what is not above 89.
func (x *vec) expDown(a operand.Op) operand.Op { return x.expWithin(x.atLeast(x.value(-104), a)) }

// expWithin is exp of what lies between -104 and 89.
func (x *vec) expWithin(a operand.Op) operand.Op {
	n, r := x.powers(a)
	return x.scale(x.expNear(r), n)
}

// powers returns n = round(a/ln 2) and a - n·ln 2.
func (x *vec) powers(a operand.Op) (n, r operand.Op) {
	n = x.roundEven(x.mul(a, x.k(math.Log2E)))
	const high, low = 0.693359375, math.Ln2 - 0.693359375 // high·n is exact
	r = x.fnma(n, x.k(high), a)
	return n, x.fnma(n, x.k(low), r)
}

// expNear is exp of what lies between ±ln(2)/2.
func (x *vec) expNear(r operand.Op) operand.Op {
	return x.poly(r, 1, 1, 0.50000000271, 0.166665766464, 0.04166637408, 0.0083632350724, 0.00139412183683)
}

// scaleInTwo is a·2ⁿ for integers n from -150 to 128, in two steps: 2ⁿ alone may be no float32.
func scaleInTwo(x machine, a, n operand.Op) operand.Op {
	i := x.toInt(n)
	half := x.shiftRightInt(i, 1)
	return x.mul(x.mul(a, power2(x, half)), power2(x, x.subInt(i, half)))
}

// power2 is 2ⁱ for integers i from -126 to 127.
func power2(x machine, i operand.Op) operand.Op { return x.shiftLeft(x.addInt(i, x.bits(127)), 23) }

// log is ln x within 1 ulp: x is 2ᵉ·(1+f) with 1+f in [√½, √2), and
// ln(1+f) = f - f²/2 + f³·P(f), P a minimax polynomial with a relative error of
// the whole of 8e-10.
func (x *vec) log(a operand.Op) operand.Op {
	e, f := x.normal(a)
	return x.poles(a, 0, x.logOf(e, f))
}

// normal returns e and f with a = 2ᵉ·(1+f) and 1+f in [√½, √2), for 0 < a < Inf.
func (x *vec) normal(a operand.Op) (e, f operand.Op) {
	tiny := x.less(a, x.k(0x1p-126))
	v := x.choose(tiny, x.mul(a, x.k(0x1p23)), a)
	const root = 0x3f3504f3 // the bits of √½
	i := x.subInt(v, x.bits(root))
	e = x.fromInt(x.shiftRightInt(i, 23))
	e = x.choose(tiny, x.sub(e, x.k(23)), e)
	f = x.addInt(x.and(i, x.bits(0x007fffff)), x.bits(root))
	return e, x.sub(f, x.k(1))
}

// logOf is ln(2ᵉ·(1+f)).
func (x *vec) logOf(e, f operand.Op) operand.Op {
	f2, y := x.bow(f)
	const high, low = 0.693359375, math.Ln2 - 0.693359375
	y = x.fma(e, x.k(low), y)
	y = x.fnma(f2, x.k(0.5), y)
	return x.fma(e, x.k(high), x.add(f, y))
}

// bow returns f² and f³·P(f).
func (x *vec) bow(f operand.Op) (f2, y operand.Op) {
	f2 = x.mul(f, f)
	y = x.poly(f, 0.333333126041, -0.250000095995, 0.200021186567, -0.166679958507, 0.142195524007, -0.124055889949, 0.118881620676,
		-0.116756513143, 0.067466403058)
	return f2, x.mul(x.mul(y, f), f2)
}

// poles is y, but NaN where a is below the pole or NaN, -Inf at the pole, and Inf at Inf.
func (x *vec) poles(a operand.Op, pole float64, y operand.Op) operand.Op {
	y = x.choose(x.greater(a, x.k(pole)), y, x.valueBits(0x7fc00000))
	y = x.choose(x.equal(a, x.k(pole)), x.k(math.Inf(-1)), y)
	return x.choose(x.equal(a, x.k(math.Inf(1))), a, y)
}

// tanh is x + x³·P(x²) for |x| < 0.625, P minimax with a relative error of the
// whole of 4e-9, and ±(1 - 2/(e²ˣ+1)) beyond.
func (x *vec) tanh(a operand.Op) operand.Op {
	t := x.abs(a)
	e := x.exp(x.add(t, t))
	big := x.sub(x.value(1), x.div(x.value(2), x.add(e, x.k(1))))
	z := x.mul(t, t)
	small := x.mul(x.poly(z, -0.333332839254, 0.133314912894, -0.0537434982405, 0.0206505877273, -0.00571704546186), z)
	small = x.fma(small, t, t)
	return x.or(x.choose(x.less(t, x.k(0.625)), small, big), x.sign(a)) // -0 stays
}

// signum is -1 or 1, or x where it is zero or NaN.
func (x *vec) signum(a operand.Op) operand.Op {
	below := x.choose(x.less(a, x.k(0)), x.k(-1), a)
	return x.choose(x.greater(a, x.k(0)), x.k(1), below)
}

// sigmoid is 1/(1+e⁻ˣ), written with e to the -|x| so that neither side loses digits.
func (x *vec) sigmoid(a operand.Op) operand.Op {
	e := x.exp(x.or(a, x.bits(0x80000000)))
	return x.div(x.choose(x.less(a, x.k(0)), e, x.value(1)), x.add(e, x.k(1)))
}

// floor is the nearest whole number, less 1 where that is above x; ceil is 1 more where it is below x. -0 stays.
func (x *vec) floor(a operand.Op) operand.Op {
	n := x.roundEven(a)
	return x.choose(x.greater(n, a), x.sub(n, x.k(1)), n)
}

func (x *vec) ceil(a operand.Op) operand.Op {
	n := x.roundEven(a)
	return x.or(x.choose(x.less(n, a), x.add(n, x.k(1)), n), x.sign(a))
}

// log1pExp is ln(1 + e to the -|x|); of NaN it is some number.
func (x *vec) log1pExp(a operand.Op) operand.Op {
	return x.logOf(x.normalOf1(x.expDown(x.or(a, x.bits(0x80000000)))))
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
	const scale = 0x1.20dd76p0 // 2/√π but for what float32 has no room for
	return x.fma(e, x.k(scale), x.mul(e, x.fma(d, x.k(scale), x.value(2/math.SqrtPi-scale))))
}

// expm1 is 2ⁿ·(eʳ-1) + 2ⁿ - 1, n and r as in exp, and eʳ-1 = r + r²·P(r), P minimax with a relative error
// of the whole of 2e-8. Half of it is doubled: 2¹²⁸ is no float32.
func (x *vec) expm1(a operand.Op) operand.Op {
	n, r := x.powers(x.atMost(x.value(89), x.atLeast(x.value(-20), a)))
	p := x.poly(r, 0.499999970198, 0.166665166616, 0.0416675545275, 0.00836997572333, 0.0013862795895)
	p = x.fma(x.mul(r, r), p, r)
	half := x.shiftLeft(x.addInt(x.toInt(n), x.bits(126)), 23)
	y := x.fma(half, p, x.sub(half, x.k(0.5)))
	return x.choose(x.less(x.abs(a), x.k(0x1p-25)), a, x.add(y, y))
}

// log1p is ln(2ᵉ·(1+f)), e from the rounded 1+x and f = x·2⁻ᵉ + (2⁻ᵉ-1), of which only the sum is rounded where it counts.
func (x *vec) log1p(a operand.Op) operand.Op {
	y := x.poles(a, -1, x.logOf(x.normalOf1(a)))
	return x.choose(x.less(x.abs(a), x.k(0x1p-25)), a, y)
}

// normalOf1 is normal of 1+a.
func (x *vec) normalOf1(a operand.Op) (e, f operand.Op) {
	i := x.shiftRightInt(x.subInt(x.add(a, x.k(1)), x.bits(0x3f3504f3)), 23)
	down := x.shiftLeft(i, 23)
	s := x.subInt(x.value(4), down) // 2²⁻ᵉ, for 2⁻¹²⁸ would be subnormal
	return x.fromInt(i), x.add(x.subInt(a, down), x.fma(s, x.k(0.25), x.value(-1)))
}

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

// exp2 is 2ⁿ·exp(r·ln 2) with n = round(x) and r = x - n, which is exact. Beyond -150 and 128 it is 0 and infinite.
func (x *vec) exp2(a operand.Op) operand.Op {
	a = x.atMost(x.value(128), x.atLeast(x.value(-150), a))
	n := x.roundEven(a)
	return x.scale(x.expNear(x.mul(x.sub(a, n), x.k(math.Ln2))), n)
}

// log2 is e + ln(1+f)/ln 2, exact where f is 0.
func (x *vec) log2(a operand.Op) operand.Op {
	e, f := x.normal(a)
	return x.poles(a, 0, x.fma(x.log1pNear(f), x.k(math.Log2E), e))
}

// log10 is e·lg 2 + ln(1+f)/ln 10, lg 2 in two parts, of which the first times e is exact.
func (x *vec) log10(a operand.Op) operand.Op {
	e, f := x.normal(a)
	y := x.mul(x.log1pNear(f), x.k(math.Log10E))
	const high, low = 0x1.344p-2, math.Ln2/math.Ln10 - 0x1.344p-2
	return x.poles(a, 0, x.fma(e, x.k(high), x.fma(e, x.k(low), y)))
}

// log1pNear is ln(1+f) for 1+f in [√½, √2).
func (x *vec) log1pNear(f operand.Op) operand.Op {
	f2, y := x.bow(f)
	return x.add(f, x.fnma(f2, x.k(0.5), y))
}

// sinh is x + x³·P(x²) for |x| < 1, P minimax with a relative error of the whole of 4e-10, and beyond ±(h - 1/(4h)) with h = eˣ/2.
func (x *vec) sinh(a operand.Op) operand.Op {
	t := x.abs(a)
	h, rest := x.halfExp(t)
	z := x.mul(t, t)
	small := x.mul(x.poly(z, 0.166666671634, 0.0083333067596, 0.000198438734515, 2.77605977317e-06), z)
	small = x.fma(small, t, t)
	return x.or(x.choose(x.less(t, x.k(1)), small, x.sub(h, rest)), x.sign(a))
}

func (x *vec) cosh(a operand.Op) operand.Op {
	h, rest := x.halfExp(x.abs(a))
	return x.add(h, rest)
}

// halfExp returns h = eᵗ/2, which is finite up to 89.4, and e⁻ᵗ/2 = 1/(4h), for t ≥ 0.
func (x *vec) halfExp(t operand.Op) (h, rest operand.Op) {
	n, r := x.powers(x.atMost(x.value(89.5), t))
	h = x.scale(x.expNear(r), x.sub(n, x.k(1)))
	return h, x.div(x.value(0.25), h)
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

// atan is r + r³·P(r²) for r = |x| ≤ 1, P minimax with a relative error of the whole of 4e-9, and π/2 less that of r = 1/|x| beyond.
func (x *vec) atan(a operand.Op) operand.Op {
	t := x.abs(a)
	big := x.greater(t, x.k(1))
	r := x.choose(big, x.div(x.value(1), t), t)
	z := x.mul(r, r)
	y := x.mul(x.poly(z, -0.333333134651, 0.199989065528, -0.142675697803, 0.109678760171, -0.0844562426209, 0.0586316883564, -0.0318118743598,
		0.0112386327237, -0.0018630361883), z)
	y = x.fma(y, r, r)
	return x.or(x.choose(big, x.sub(x.value(math.Pi/2), y), y), x.sign(a))
}

// atanSlope is 1/(1+x²), of large x c²/(c²+(c·x)²) with a c for which the square does not overflow.
func (x *vec) atanSlope(a operand.Op) operand.Op {
	c := x.shrink(a)
	s := x.mul(a, c)
	return x.mul(x.div(c, x.fma(s, s, x.mul(c, c))), c)
}

// asinh of t = |x| is ln(1+u) with u = t + t²/(1+√(1+t²)), and ln(2t) for large t, whose square may overflow.
func (x *vec) asinh(a operand.Op) operand.Op {
	t := x.abs(a)
	root := x.sqrt(x.fma(t, t, x.value(1)))
	u := x.add(t, x.div(x.mul(t, t), x.add(root, x.k(1))))
	return x.or(x.log1pOrTwice(t, u), x.sign(a))
}

// acosh is ln(1+u) with u = d + √(d·(x+1)) and d = x - 1, and ln(2x) for large x.
func (x *vec) acosh(a operand.Op) operand.Op {
	d := x.sub(a, x.k(1))
	u := x.add(d, x.sqrt(x.mul(d, x.add(a, x.k(1)))))
	return x.choose(x.less(a, x.k(1)), x.valueBits(0x7fc00000), x.log1pOrTwice(a, u))
}

// log1pOrTwice is ln(1+u), and ln(2t) where t is large.
func (x *vec) log1pOrTwice(t, u operand.Op) operand.Op {
	large := x.greater(t, x.k(0x1p30))
	u = x.choose(large, t, u)
	e, f := x.normalOf1(u)
	return x.poles(u, -1, x.logOf(x.choose(large, x.add(e, x.k(1)), e), f))
}

// atanh of t = |x| is ln(1+u)/2 with u = 2t/(1-t), which is 2t + 2t·t/(1-t).
func (x *vec) atanh(a operand.Op) operand.Op {
	t := x.abs(a)
	two := x.add(t, t)
	u := x.div(two, x.sub(x.value(1), t))
	u = x.choose(x.less(t, x.k(0.5)), x.fma(u, t, two), u)
	y := x.poles(u, -1, x.logOf(x.normalOf1(u)))
	return x.or(x.mul(y, x.k(0.5)), x.sign(a))
}

// asinhSlope is 1/√(1+x²), and acoshSlope 1/√((x-1)·(x+1)), of large x c/√(c²·…) with a c for which the squares do not overflow.
func (x *vec) asinhSlope(a operand.Op) operand.Op {
	c := x.shrink(a)
	s := x.mul(a, c)
	return x.div(c, x.sqrt(x.fma(s, s, x.mul(c, c))))
}

func (x *vec) acoshSlope(a operand.Op) operand.Op {
	c := x.shrink(a)
	return x.div(c, x.sqrt(x.mul(x.mul(x.sub(a, x.k(1)), c), x.mul(x.add(a, x.k(1)), c))))
}

// shrink is 2⁻⁶⁴ for large x and else 1.
func (x *vec) shrink(a operand.Op) operand.Op {
	return x.choose(x.greater(x.abs(a), x.k(0x1p40)), x.k(0x1p-64), x.value(1))
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

// power is tᵇ = 2ᶻ with t = |a| and z = b·log₂ t in two parts.
func (x *vec) power(a, b operand.Op) operand.Op {
	t := x.abs(a)
	h, l := x.log2InTwo(t)
	h = x.choose(x.equal(t, x.k(0)), x.k(math.Inf(-1)), h)
	h = x.choose(x.less(t, x.k(math.Inf(1))), h, t) // NaN stays
	z := x.mul(b, h)
	rest := x.sub(x.mul(b, l), x.fnma(b, h, z))
	rest = x.choose(x.less(x.abs(z), x.k(200)), rest, x.value(0))
	z = x.choose(x.equal(t, x.k(1)), x.k(0), z) // for any b
	z = x.atMost(x.value(128.5), x.atLeast(x.value(-150.5), z))
	n := x.roundEven(z)
	return x.scale(x.expNear(x.mul(x.add(x.sub(z, n), rest), x.k(math.Ln2))), n)
}

// powerOf is aᵇ, given y = |a|ᵇ: negative for negative a and odd b. For special values it is what C says. The square is a·a.
func (x *vec) powerOf(a, b, y operand.Op) operand.Op {
	half := x.mul(b, x.k(0.5))
	sign := x.choose(x.equal(x.roundEven(half), half), x.k(0), x.sign(a))
	whole := x.roundEven(b)
	y = x.or(y, x.choose(x.equal(whole, b), sign, x.value(0)))
	negative := x.choose(x.equal(whole, b), y, x.valueBits(0x7fc00000))
	negative = x.choose(x.equal(a, x.k(math.Inf(-1))), y, negative)
	y = x.choose(x.less(a, x.k(0)), negative, y)
	y = x.choose(x.equal(b, x.k(0)), x.k(1), y)
	return x.choose(x.equal(b, x.k(2)), x.mul(a, a), y)
}

// log2InTwo returns log₂ t in two parts, together within some 2⁻³³ of it, for 0 < t < Inf.
//
// With s = f/(2+f), ln(1+f) is 2·artanh s = 2·(s + s³·R(s²)), where R(w) is 1/3 + w·Q(w), Q minimax with an error of the whole of
// 2e-11. Each value comes with what float32 has no room for, which fused multiply-adds give. See Dekker, "A floating-point
// technique for extending the available precision", 1971.
func (x *vec) log2InTwo(t operand.Op) (h, l operand.Op) {
	e, f := x.normal(t)
	r := x.div(x.value(1), x.add(f, x.k(2)))
	s := x.mul(f, r)
	s2 := x.mul(x.fnma(s, f, x.fnma(s, x.k(2), f)), r)
	w := x.mul(s, s)
	w2 := x.sub(x.mul(x.add(s, s), s2), x.fnma(s, s, w))
	const third, third2 = 0x1.555556p-2, 1./3 - 0x1.555556p-2
	q := x.mul(x.poly(w, 0.200000464916, 0.142760753632, 0.11657845974), w)
	c := x.add(q, x.k(third))
	c2 := x.add(x.add(x.sub(x.value(third), c), q), x.k(third2))
	p, p2 := x.product(w, w2, c, c2)
	u, u2 := x.product(s, s2, p, p2)
	h = x.add(s, u)
	l = x.add(x.add(x.sub(s, h), u), x.add(s2, u2))
	const scale, scale2 = 0x1.715476p1, 2*math.Log2E - 0x1.715476p1
	v, v2 := x.product(h, l, x.value(scale), x.value(scale2))
	h = x.add(e, v)
	return h, x.add(x.add(x.sub(e, h), v), v2)
}

// product is (a+a2)·(b+b2) in two parts, a2 and b2 being small.
func (x *vec) product(a, a2, b, b2 operand.Op) (c, c2 operand.Op) {
	c = x.mul(a, b)
	return c, x.sub(x.fma(a, b2, x.mul(a2, b)), x.fnma(a, b, c))
}
