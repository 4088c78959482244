package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
)

// exp is eˣ within 1 ulp. With n = round(x/ln 2) and r = x - n·ln 2, ln 2 in two
// parts, it is 2ⁿ·eʳ, and eʳ is a minimax polynomial of degree 6 on |r| ≤ ln(2)/2
// with a relative error of 8e-9.
func (x *vec) exp(a operand.Op) operand.Op {
	if x.isDouble() {
		return x.expDouble(a)
	}
	// Beyond these the result is infinite or 0 anyhow. NaN, as second operand, stays.
	a = x.atLeast(x.value(-104), a)
	a = x.atMost(x.value(89), a)
	return x.expWithin(a)
}

// expDown is exp of what is not above 89.
func (x *vec) expDown(a operand.Op) operand.Op {
	if x.isDouble() {
		return x.expDouble(a)
	}
	return x.expWithin(x.atLeast(x.value(-104), a))
}

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
	if x.isDouble() {
		return x.normalDouble(a)
	}
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
	if x.isDouble() {
		return x.logOfDouble(e, f)
	}
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
	y = x.choose(x.greater(a, x.k(pole)), y, x.value(math.NaN()))
	y = x.choose(x.equal(a, x.k(pole)), x.k(math.Inf(-1)), y)
	return x.choose(x.equal(a, x.k(math.Inf(1))), a, y)
}

// signum is -1 or 1, or x where it is zero or NaN.
func (x *vec) signum(a operand.Op) operand.Op {
	below := x.choose(x.less(a, x.k(0)), x.k(-1), a)
	return x.choose(x.greater(a, x.k(0)), x.k(1), below)
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

// expm1 is 2ⁿ·(eʳ-1) + 2ⁿ - 1, n and r as in exp, and eʳ-1 = r + r²·P(r), P minimax with a relative error
// of the whole of 2e-8. Half of it is doubled: 2¹²⁸ is no float32.
func (x *vec) expm1(a operand.Op) operand.Op {
	if x.isDouble() {
		return x.expm1Double(a)
	}
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
	tiny := 0x1p-25
	if x.isDouble() {
		tiny = 0x1p-54
	}
	return x.choose(x.less(x.abs(a), x.k(tiny)), a, y)
}

// normalOf1 is normal of 1+a.
func (x *vec) normalOf1(a operand.Op) (e, f operand.Op) {
	if x.isDouble() {
		return x.normalOf1Double(a)
	}
	i := x.shiftRightInt(x.subInt(x.add(a, x.k(1)), x.bits(0x3f3504f3)), 23)
	down := x.shiftLeft(i, 23)
	s := x.subInt(x.value(4), down) // 2²⁻ᵉ, for 2⁻¹²⁸ would be subnormal
	return x.fromInt(i), x.add(x.subInt(a, down), x.fma(s, x.k(0.25), x.value(-1)))
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

// rest returns n = ⌊|a|/|b|⌋ and r = |a| - n·|b|, exact, where the quotient is below 2²²; elsewhere, and for an infinite b, r is NaN. The
// rounded quotient is never too small, and too large by less than 1: r is below 0 then, and n one too many.
func (x *vec) rest(a, b operand.Op) (n, r operand.Op) {
	t, u := x.abs(a), x.abs(b)
	q := x.div(t, u)
	n = x.floor(q)
	r = x.fnma(n, u, t)
	below := x.less(r, x.k(0))
	n = x.choose(below, x.sub(n, x.k(1)), n)
	r = x.choose(below, x.add(r, u), r)
	return n, x.choose(x.less(q, x.k(0x1p22)), r, x.valueBits(0x7fc00000))
}

// apart reports whether the signs of a and b differ.
func (x *vec) apart(a, b operand.Op) operand.Op {
	return x.less(x.or(x.sign(x.xor(a, b)), x.bits(0x3f800000)), x.k(0))
}

// fmod is a - b·trunc(a/b), with the sign of a; NaN where rest has none.
func (x *vec) fmod(a, b operand.Op) operand.Op {
	_, r := x.rest(a, b)
	return x.or(r, x.sign(a))
}

// remainder is fmod, or b more where that has another sign than b.
func (x *vec) remainder(a, b operand.Op) operand.Op {
	_, r := x.rest(a, b)
	y := x.or(r, x.sign(a))
	more := x.choose(x.apart(a, b), x.add(y, b), y)
	return x.choose(x.greater(r, x.k(0)), more, y)
}

// floorDivide is ⌊a/b⌋; NaN where rest has none.
func (x *vec) floorDivide(a, b operand.Op) operand.Op {
	n, r := x.rest(a, b)
	up := x.choose(x.greater(r, x.k(0)), x.add(n, x.k(1)), n)
	y := x.choose(x.apart(a, b), x.xor(up, x.bits(0x80000000)), n)
	return x.choose(x.unordered(r, r), r, y)
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
