package main

import (
	"github.com/mmcloughlin/avo/operand"
)

// tanh is x + x³·P(x²) for |x| < 0.625, P minimax with a relative error of the
// whole of 4e-9, and ±(1 - 2/(e²ˣ+1)) beyond.
func (x *vec) tanh(a operand.Op) operand.Op {
	if x.isDouble() {
		return x.tanhDouble(a)
	}
	t := x.abs(a)
	e := x.exp(x.add(t, t))
	big := x.sub(x.value(1), x.div(x.value(2), x.add(e, x.k(1))))
	z := x.mul(t, t)
	small := x.mul(x.poly(z, -0.333332839254, 0.133314912894, -0.0537434982405, 0.0206505877273, -0.00571704546186), z)
	small = x.fma(small, t, t)
	return x.or(x.choose(x.less(t, x.k(0.625)), small, big), x.sign(a)) // -0 stays
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
