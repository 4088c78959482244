package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
)

// Functions of float64, which those of the same names without Double call.

// expDouble is eˣ within 1 ulp. With n = round(x/ln 2) and r = x - n·ln 2, ln 2 in two parts, it is 2ⁿ·eʳ, and
// eʳ = 1 + r + r²·Q(r), Q minimax on |r| ≤ ln(2)/2 with an error of 2e-17 of eʳ - 1.
func (x *vec) expDouble(a operand.Op) operand.Op {
	_, n, r := x.powersDouble(x.atMost(x.value(710), x.atLeast(x.value(-746), a))) // beyond, it is infinite or 0
	return x.scale(x.add(x.nearDouble(r), x.k(1)), n)
}

// shifter is a number near which float64 are whole. What is added to it is rounded, ties to even, and is in its last bits.
const shifter = 0x1.8p52

// powersDouble returns t = n + shifter, n = round(a/ln 2) and a - n·ln 2.
func (x *vec) powersDouble(a operand.Op) (t, n, r operand.Op) {
	t = x.fma(a, x.k(math.Log2E), x.value(shifter))
	n = x.sub(t, x.k(shifter))
	const high, low = 0x1.62e42feep-1, 0x1.a39ef35793c76p-33 // high·n is exact
	r = x.fnma(n, x.k(high), a)
	return t, n, x.fnma(n, x.k(low), r)
}

// nearDouble is eʳ - 1 for |r| ≤ ln(2)/2.
func (x *vec) nearDouble(r operand.Op) operand.Op {
	q := x.poly(r, 0.5000000000000005176, 0.1666666666666658943, 0.04166666666657681527, 0.008333333333389468545, 0.001388888893154152399,
		0.0001984126971914131069, 0.00002480150530494976582, 2.755740747337409622e-6, 2.762602453101165849e-7, 2.505377901465808787e-8)
	return x.fma(x.mul(r, r), q, r)
}

// scaleDouble is a·2ⁿ for whole numbers n from -1076 to 1024, in two steps: 2ⁿ alone may be no float64.
func scaleDouble(x machine, a, n operand.Op) operand.Op {
	t := x.fma(n, x.k(0.5), x.value(shifter))
	rest := x.add(x.sub(n, x.sub(t, x.k(shifter))), x.k(shifter))
	return x.mul(x.mul(a, power2Double(x, t, 1023)), power2Double(x, rest, 1023))
}

// power2Double is 2ⁿ⁺ᵇ⁻¹⁰²³ for t = n + shifter and the bias b.
func power2Double(x machine, t operand.Op, bias uint64) operand.Op {
	return x.shiftLeft(x.addInt(t, x.bits(bias)), 52)
}

// expm1Double is 2ⁿ·(eʳ-1) + 2ⁿ - 1, within 2 ulp. Half of it is doubled: 2¹⁰²⁴ is no float64.
func (x *vec) expm1Double(a operand.Op) operand.Op {
	t, _, r := x.powersDouble(x.atMost(x.value(710), x.atLeast(x.value(-40), a)))
	half := power2Double(x, t, 1022)
	y := x.fma(half, x.nearDouble(r), x.sub(half, x.k(0.5)))
	return x.choose(x.less(x.abs(a), x.k(0x1p-54)), a, x.add(y, y))
}

const rootDouble = 0x3fe6a09e667f3bcd // the bits of √½

// wholeDouble is the number whose bits are i, which are below 2⁵², less bias.
func (x *vec) wholeDouble(i operand.Op, bias float64) operand.Op {
	return x.sub(x.or(i, x.k(0x1p52)), x.k(0x1p52+bias))
}

// normalDouble is normal of float64.
func (x *vec) normalDouble(a operand.Op) (e, f operand.Op) {
	tiny := x.less(a, x.k(0x1p-1022))
	v := x.choose(tiny, x.mul(a, x.k(0x1p54)), a)
	i := x.addInt(v, x.bits(0x3ff0000000000000-rootDouble))
	e = x.wholeDouble(x.shiftRight(i, 52), 1023)
	e = x.choose(tiny, x.sub(e, x.k(54)), e)
	f = x.addInt(x.and(i, x.bits(0x000fffffffffffff)), x.bits(rootDouble))
	return e, x.sub(f, x.k(1))
}

// normalOf1Double is normalOf1 of float64.
func (x *vec) normalOf1Double(a operand.Op) (e, f operand.Op) {
	i := x.addInt(x.add(a, x.k(1)), x.bits(0x3ff0000000000000-rootDouble))
	down := x.subInt(x.and(i, x.bits(0xfff0000000000000)), x.bits(0x3ff0000000000000)) // e, where exponents are
	s := x.subInt(x.value(4), down)                                                    // 2²⁻ᵉ
	return x.wholeDouble(x.shiftRight(i, 52), 1023), x.add(x.subInt(a, down), x.fma(s, x.k(0.25), x.value(-1)))
}

// logOfDouble is ln(2ᵉ·(1+f)) within 1 ulp. With s = f/(2+f), ln(1+f) = ln((1+s)/(1-s)) is f - (f²/2 - s·(f²/2 + s²·P(s²))), P
// minimax with a relative error of the whole of 2e-18. The form is that of fdlibm.
func (x *vec) logOfDouble(e, f operand.Op) operand.Op {
	s := x.div(f, x.add(f, x.k(2)))
	z := x.mul(s, s)
	p := x.poly(z, 0.6666666666666734414, 0.3999999999941467033, 0.2857142874238911844, 0.2222219857305086608, 0.1818356433231944457,
		0.1531405040809504996, 0.1479595102554647465)
	h := x.mul(x.mul(f, x.k(0.5)), f)
	const high, low = 0x1.62e42feep-1, 0x1.a39ef35793c76p-33 // high·e is exact
	y := x.fma(s, x.fma(z, p, h), x.mul(e, x.k(low)))
	return x.fma(e, x.k(high), x.sub(f, x.sub(h, y)))
}

// tanhDouble of t = |x| is t + t³·P(t²)/Q(t²) for t < 0.625, P and Q those of Cephes, and 1 - 2/(e²ᵗ+1) beyond, within 1 ulp.
func (x *vec) tanhDouble(a operand.Op) operand.Op {
	t := x.abs(a)
	e := x.exp(x.add(t, t))
	z := x.mul(t, t)
	p := x.poly(z, -1.61468768441708447952e3, -9.92877231001918586564e1, -9.64399179425052238628e-1)
	q := x.poly(z, 4.84406305325125486048e3, 2.23548839060100448583e3, 1.12811678491632931402e2, 1)
	small := x.less(t, x.k(0.625))
	p = x.choose(small, x.mul(x.mul(p, z), t), x.value(-2))
	q = x.choose(small, q, x.add(e, x.k(1)))
	return x.or(x.add(x.choose(small, t, x.value(1)), x.div(p, q)), x.sign(a)) // -0 stays
}
