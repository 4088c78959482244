package main

import (
	"math"
	"strings"

	"github.com/mmcloughlin/avo/operand"
)

// mapKernels are the element-wise kernels; what they compute is said where
// package simd exports them.
var mapKernels = []kernel{
	binary("add", (*vec).add),
	binary("sub", (*vec).sub),
	binary("mul", (*vec).mul),
	binary("div", (*vec).div),
	binary("max", (*vec).maxSigned),
	binary("min", (*vec).minSigned),
	{name: "addToVec", slices: "dst x", unroll: 4, inCache: "dst", noPrefetch: true, body: func(x *vec) {
		x.store("dst", x.add(x.load("dst"), x.load("x")))
	}},
	{name: "add2Vec", slices: "dst1 dst2 a b", unroll: 4, noPrefetch: true, body: func(x *vec) {
		s := x.add(x.load("a"), x.load("b"))
		x.store("dst1", s)
		x.store("dst2", s)
	}},
	{name: "axpyVec", slices: "dst x", scalars: "s", unroll: 4, noPrefetch: true, body: func(x *vec) {
		x.store("dst", x.fma(x.load("x"), x.s("s"), x.load("dst")))
	}},
	{name: "addScalarVec", slices: "dst x", scalars: "s", unroll: 4, nonTemporal: true, body: func(x *vec) {
		x.store("dst", x.add(x.load("x"), x.s("s")))
	}},
	{name: "scaleVec", slices: "dst x", scalars: "s", unroll: 4, nonTemporal: true, body: func(x *vec) {
		x.store("dst", x.mul(x.load("x"), x.s("s")))
	}},
	withScalar("maxScalar", (*vec).maxSigned),
	withScalar("minScalar", (*vec).minSigned),
	withScalar("divBy", (*vec).div),
	withScalar("subFrom", func(x *vec, a, s operand.Op) operand.Op { return x.sub(s, a) }),
	withScalar("divInto", func(x *vec, a, s operand.Op) operand.Op { return x.div(s, a) }),
	{name: "fillVec", slices: "dst", scalars: "s", unroll: 4, body: func(x *vec) {
		x.store("dst", x.s("s"))
	}},

	{name: "copyVec", slices: "dst:byte src:byte", unroll: 4, whole: true, nonTemporal: true, body: func(x *vec) {
		x.store("dst", x.load("src"))
	}},
	{name: "copyNearVec", slices: "dst:byte src:byte", unroll: 4, whole: true, inCache: "src", nonTemporal: true, body: func(x *vec) {
		x.store("dst", x.load("src"))
	}},

	unary("exp", 2, (*vec).exp).woven(4, 14),
	unary("log", 1, (*vec).log).woven(2, 8),
	unary("tanh", 1, (*vec).tanh).woven(3, 12),
	unary("sigmoid", 1, (*vec).sigmoid).woven(4, 10),
	unary("sqrt", 2, (*vec).sqrt),
	unary("rsqrt", 2, func(x *vec, a operand.Op) operand.Op { return x.div(x.value(1), x.sqrt(a)) }),
	unary("abs", 4, (*vec).abs),
	unary("relu", 4, func(x *vec, a operand.Op) operand.Op { return x.maxKeep(x.value(0), a) }),
	unary("gelu", 1, func(x *vec, a operand.Op) operand.Op {
		t, q, _ := x.tail(a) // x·Φ(x) = max(x, 0) - |x|·Φ(-|x|)
		return x.fnma(t, q, x.maxKeep(x.value(0), a))
	}),
	unary("geluTanh", 1, func(x *vec, a operand.Op) operand.Op {
		a = x.atLeast(x.value(-bentCut), a) // -Inf·0 would be NaN
		return x.mul(a, x.sigmoid(x.bend(a)))
	}).woven(4, 6),
	silu,

	unary("sign", 4, (*vec).signum),
	clamp,
	clampGrad,
	gradient("absGrad", 4, func(x *vec, a, dy operand.Op) operand.Op { return x.mul(dy, x.signum(a)) }),
	gradient("sqrtGrad", 2, func(x *vec, y, dy operand.Op) operand.Op { return x.mul(x.div(dy, y), x.k(0.5)) }),
	gradient("rsqrtGrad", 4, func(x *vec, y, dy operand.Op) operand.Op {
		return x.mul(x.mul(x.mul(x.mul(dy, y), y), y), x.k(-0.5))
	}),
	gradient("squareGrad", 4, func(x *vec, a, dy operand.Op) operand.Op { return x.mul(x.mul(dy, a), x.k(2)) }),
	gradient("reluGrad", 4, func(x *vec, a, dy operand.Op) operand.Op {
		return x.choose(x.lessOrEqual(a, x.k(0)), x.k(0), dy)
	}),
	gradient("geluGrad", 1, func(x *vec, a, dy operand.Op) operand.Op {
		return x.mul(dy, x.geluSlope(a))
	}).woven(3, 9),
	gradient("geluTanhGrad", 1, func(x *vec, a, dy operand.Op) operand.Op {
		return x.mul(dy, x.geluTanhSlope(a))
	}).woven(3, 6),
	siluGrad,
	tanhGrad,
	sigmoidGrad,

	{name: "scaledExpVec", slices: "dst x", scalars: "shift scale", unroll: 2, weave: 4, hoist: 12, nonTemporal: true, body: func(x *vec) {
		x.store("dst", x.mul(x.exp(x.sub(x.load("x"), x.s("shift"))), x.s("scale")))
	}},
	{name: "softmaxGradVec", slices: "dst y dy", scalars: "dot", unroll: 4, nonTemporal: true, body: func(x *vec) {
		x.store("dst", x.mul(x.load("y"), x.sub(x.load("dy"), x.s("dot"))))
	}},
	{name: "logSoftmaxGradVec", slices: "dst y dy", scalars: "sum", unroll: 2, weave: 4, hoist: 12, nonTemporal: true, body: func(x *vec) {
		x.store("dst", x.fnma(x.exp(x.load("y")), x.s("sum"), x.load("dy")))
	}},
	{name: "normalizeVec", slices: "dst x weight bias", scalars: "mean rstd shift", unroll: 2, nonTemporal: true, body: func(x *vec) {
		x.store("dst", x.fma(x.normalized(), x.loadOr("weight", 1), x.loadOr("bias", 0)))
	}},
	{name: "normalizeGradVec", slices: "dst x dy weight", scalars: "mean rstd shift lessG meanGH", unroll: 2, nonTemporal: true,
		body: func(x *vec) {
			h := x.normalized()
			g := x.fma(x.load("dy"), x.loadOr("weight", 1), x.s("lessG"))
			x.store("dst", x.mul(x.fnma(h, x.s("meanGH"), g), x.s("rstd")))
		}},

	{name: "sgdVec", slices: "param buf grad", scalars: "lr momentum fresh decay", unroll: 2, noPrefetch: true, body: func(x *vec) {
		p, buf := x.load("param"), x.load("buf")
		g := x.fma(p, x.s("decay"), x.load("grad"))
		buf = x.fma(buf, x.s("momentum"), x.mul(g, x.s("fresh")))
		x.store("buf", buf)
		x.store("param", x.fnma(buf, x.s("lr"), p))
	}},
	{name: "nesterovVec", slices: "param buf grad", scalars: "lr momentum fresh decay", unroll: 2, noPrefetch: true, body: func(x *vec) {
		p, buf := x.load("param"), x.load("buf")
		g := x.fma(p, x.s("decay"), x.load("grad"))
		buf = x.fma(buf, x.s("momentum"), x.mul(g, x.s("fresh")))
		x.store("buf", buf)
		x.store("param", x.fnma(x.fma(buf, x.s("momentum"), g), x.s("lr"), p))
	}},
	{name: "adamVec", slices: "param m v grad", scalars: "beta1 fresh1 beta2 fresh2 step rootBias2 eps decay l2", unroll: 1,
		noPrefetch: true, body: func(x *vec) {
			p := x.load("param")
			g := x.fma(p, x.s("l2"), x.load("grad"))
			m := x.fma(x.load("m"), x.s("beta1"), x.mul(g, x.s("fresh1")))
			x.store("m", m)
			v := x.fma(x.load("v"), x.s("beta2"), x.mul(x.mul(g, x.s("fresh2")), g))
			x.store("v", v)
			d := x.add(x.div(x.sqrt(v), x.s("rootBias2")), x.s("eps"))
			x.store("param", x.sub(x.mul(p, x.s("decay")), x.div(x.mul(m, x.s("step")), d)))
		}},
	{name: "adagradVec", slices: "param sum grad", scalars: "step eps", unroll: 2, noPrefetch: true, body: func(x *vec) {
		g := x.load("grad")
		s := x.add(x.load("sum"), x.mul(g, g))
		x.store("sum", s)
		x.store("param", x.fma(x.div(g, x.add(x.sqrt(s), x.s("eps"))), x.s("step"), x.load("param")))
	}},

	{name: "fromF16Vec", slices: "dst src:uint16", unroll: 4, whole: true, body: func(x *vec) {
		x.store("dst", x.loadF16("src"))
	}},
	{name: "toF16Vec", slices: "dst:uint16 src", unroll: 4, whole: true, body: func(x *vec) {
		x.storeF16("dst", x.load("src"))
	}},
	{name: "fromBF16Vec", slices: "dst src:uint16", unroll: 4, whole: true, body: func(x *vec) {
		x.store("dst", x.loadBF16("src"))
	}},
	{name: "toBF16Vec", slices: "dst:uint16 src", unroll: 2, whole: true, body: toBF16},

	unary("erf", 1, (*vec).erf).woven(2, 12),
	unary("expm1", 1, (*vec).expm1).woven(3, 12),
	unary("log1p", 1, (*vec).log1p).woven(2, 8),
	slope("erfGrad", (*vec).erfSlope).woven(3, 12),
	gradient("expm1Grad", 4, func(x *vec, y, dy operand.Op) operand.Op { return x.mul(dy, x.add(y, x.k(1))) }),
	gradient("log1pGrad", 4, func(x *vec, a, dy operand.Op) operand.Op { return x.div(dy, x.add(a, x.k(1))) }),
	unary("sin", 1, (*vec).sin).woven(2, 12),
	unary("cos", 1, (*vec).cos).woven(2, 12),
	slope("sinGrad", (*vec).cos).woven(2, 12),
	slope("cosGrad", func(x *vec, a operand.Op) operand.Op { return x.xor(x.sin(a), x.bits(0x80000000)) }).woven(2, 12),
	unary("exp2", 1, (*vec).exp2).woven(4, 12),
	unary("log2", 1, (*vec).log2).woven(2, 8),
	unary("log10", 1, (*vec).log10).woven(2, 8),
	unary("sinh", 1, (*vec).sinh).woven(2, 12),
	unary("cosh", 1, (*vec).cosh).woven(3, 12),
	unary("atan", 1, (*vec).atan).woven(2, 12),
	gradient("exp2Grad", 4, func(x *vec, y, dy operand.Op) operand.Op { return x.mul(x.mul(dy, y), x.k(math.Ln2)) }),
	gradient("log2Grad", 4, func(x *vec, a, dy operand.Op) operand.Op { return x.mul(x.div(dy, a), x.k(math.Log2E)) }),
	gradient("log10Grad", 4, func(x *vec, a, dy operand.Op) operand.Op { return x.div(x.mul(dy, x.k(math.Log10E)), a) }),
	slope("sinhGrad", (*vec).cosh).woven(3, 12),
	slope("coshGrad", (*vec).sinh).woven(2, 12),
	slope("atanGrad", (*vec).atanSlope).woven(2, 12),
	unary("tan", 1, (*vec).tan).woven(2, 12),
	unary("asin", 1, (*vec).asin).woven(2, 12),
	unary("acos", 1, (*vec).acos).woven(2, 12),
	unary("asinh", 1, (*vec).asinh).woven(1, 8),
	unary("acosh", 1, (*vec).acosh).woven(1, 8),
	unary("atanh", 1, (*vec).atanh).woven(2, 8),
	unary("erfc", 1, (*vec).erfc).woven(2, 12),
	gradient("tanGrad", 4, func(x *vec, y, dy operand.Op) operand.Op { return x.mul(dy, x.fma(y, y, x.value(1))) }),
	gradient("asinGrad", 2, func(x *vec, a, dy operand.Op) operand.Op { return x.div(dy, x.beside(a)) }),
	gradient("acosGrad", 2, func(x *vec, a, dy operand.Op) operand.Op { return x.div(x.xor(dy, x.bits(0x80000000)), x.beside(a)) }),
	slope("asinhGrad", (*vec).asinhSlope),
	slope("acoshGrad", (*vec).acoshSlope),
	gradient("atanhGrad", 2, func(x *vec, a, dy operand.Op) operand.Op {
		return x.div(x.div(dy, x.sub(x.value(1), a)), x.add(a, x.k(1)))
	}),
	slope("erfcGrad", func(x *vec, a operand.Op) operand.Op { return x.xor(x.erfSlope(a), x.bits(0x80000000)) }).woven(3, 12),
	unary("round", 4, (*vec).roundEven),
	unary("floor", 4, (*vec).floor),
	unary("ceil", 4, (*vec).ceil),
	unary("trunc", 4, func(x *vec, a operand.Op) operand.Op { return x.or(x.floor(x.abs(a)), x.sign(a)) }),
	softplus,
	logSigmoid,
	unary("mish", 1, (*vec).mish).woven(3, 12),
	unary("hardsigmoid", 2, func(x *vec, a operand.Op) operand.Op { return x.div(x.hard(a), x.k(6)) }),
	unary("hardswish", 2, func(x *vec, a operand.Op) operand.Op { return x.mul(a, x.div(x.hard(a), x.k(6))) }),
	unary("elu", 1, func(x *vec, a operand.Op) operand.Op { return x.choose(x.greater(a, x.k(0)), a, x.expm1(a)) }).woven(2, 12),
	slope("softplusGrad", (*vec).sigmoid).woven(4, 6),
	slope("logSigmoidGrad", func(x *vec, a operand.Op) operand.Op { return x.sigmoid(x.xor(a, x.bits(x.signBit()))) }).woven(4, 6),
	slope("mishGrad", (*vec).mishSlope).woven(3, 12),
	gradient("hardsigmoidGrad", 2, func(x *vec, a, dy operand.Op) operand.Op {
		return x.choose(x.lessOrEqual(x.abs(a), x.k(3)), x.div(dy, x.k(6)), x.value(0))
	}),
	gradient("hardswishGrad", 2, func(x *vec, a, dy operand.Op) operand.Op { return x.mul(dy, x.hardswishSlope(a)) }),
	slope("eluGrad", func(x *vec, a operand.Op) operand.Op {
		return x.choose(x.greater(a, x.k(0)), x.k(1), x.expDown(a))
	}).woven(4, 10),
	{name: "leakyVec", slices: "dst x dy", scalars: "s", unroll: 4, nonTemporal: true, body: func(x *vec) {
		dy := x.load("dy")
		x.store("dst", x.choose(x.greater(x.load("x"), x.k(0)), dy, x.mul(dy, x.s("s"))))
	}},
	comparison("equal", (*vec).equal),
	comparison("notEqual", notEqual),
	comparison("less", (*vec).less),
	comparison("lessOrEqual", (*vec).lessOrEqual),
	{name: "whereVec", slices: "dst a b cond:bool", unroll: 4, whole: true, avxOnly: true, nonTemporal: true, body: func(x *vec) {
		x.store("dst", x.choose(x.machine.(*avx).loadBool("cond"), x.load("a"), x.load("b")))
	}},
	binary("fmod", (*vec).fmod).woven(1, 12),
	binary("remainder", (*vec).remainder).woven(1, 12),
	binary("floorDivide", (*vec).floorDivide).woven(1, 12),
	binary("atan2", (*vec).atan2).woven(2, 4),
	{name: "powerVec", slices: "dst a b", unroll: 1, hoist: 8, nonTemporal: true, body: func(x *vec) {
		x.store("dst", x.power(x.load("a"), x.load("b")))
	}},
	{name: "powerOfVec", slices: "dst a b y", unroll: 1, nonTemporal: true, body: func(x *vec) {
		x.store("dst", x.powerOf(x.load("a"), x.load("b"), x.load("y")))
	}},

	unary("exp", 2, (*vec).exp).woven(4, 14).ofDouble(),
	unary("log", 1, (*vec).log).woven(2, 2).ofDouble(),
	unary("tanh", 1, (*vec).tanh).woven(2, 8).ofDouble(),
	unary("sigmoid", 1, (*vec).sigmoid).woven(3, 12).ofDouble(),
	unary("expm1", 1, (*vec).expm1).woven(3, 12).ofDouble(),
	unary("log1p", 1, (*vec).log1p).woven(2, 4).ofDouble(),
	softplus.ofDouble(),
	logSigmoid.ofDouble(),
	silu.woven(3, 12).ofDouble(),
	tanhGrad.ofDouble(),
	sigmoidGrad.ofDouble(),
	siluGrad.woven(3, 4).ofDouble(),
	slope("softplusGrad", (*vec).sigmoid).woven(3, 8).ofDouble(),
	clamp.ofDouble(),
	clampGrad.ofDouble(),
	comparison("equal", (*vec).equal).ofDouble(),
	comparison("notEqual", notEqual).ofDouble(),
	comparison("less", (*vec).less).ofDouble(),
	comparison("lessOrEqual", (*vec).lessOrEqual).ofDouble(),

	comparisonOfBytes("equal", 0),
	comparisonOfBytes("notEqual", 4),
	comparisonOfBytes("less", 1),
	comparisonOfBytes("lessOrEqual", 2),
	whereBytes,
	{name: "toInt32Vec", slices: "dst:int32 src", unroll: 4, whole: true, avxOnly: true, nonTemporal: true, body: func(x *vec) {
		x.store("dst", x.machine.(*avx).op("VCVTTPS2DQ", x.load("src")))
	}},
}

// Kernels of bytes have four of them in each of float32's lanes: n counts the fours.
var whereBytes = kernel{name: "whereBytesVec", slices: "dst:byte a:byte b:byte cond:byte", unroll: 4, whole: true, avxOnly: true,
	nonTemporal: true, body: func(x *vec) {
		b := x.load("b")
		chosen := x.machine.(*avx).op("VPSUBB", x.load("cond"), x.value(0)) // 255 or 0
		x.store("dst", x.xor(b, x.and(x.xor(x.load("a"), b), chosen)))
	}}

// comparisonOfBytes is comparison of unsigned bytes; for predicate see storeTruth.
func comparisonOfBytes(name string, predicate uint64) kernel {
	return kernel{name: name + "BytesVec", slices: "dst:byte a:byte b:byte", unroll: 4, whole: true, avxOnly: true, body: func(x *vec) {
		x.machine.(*avx).storeTruth("dst", predicate, x.load("a"), x.load("b"))
	}}
}

// Kernels of both float32 and float64.
var (
	clamp = kernel{name: "clampVec", slices: "dst x", scalars: "lo hi", unroll: 4, nonTemporal: true, body: func(x *vec) {
		a := x.load("x")
		a = x.choose(x.less(a, x.s("lo")), x.s("lo"), a)
		x.store("dst", x.choose(x.greater(a, x.s("hi")), x.s("hi"), a))
	}}
	clampGrad = kernel{name: "clampGradVec", slices: "dst x dy", scalars: "lo hi", unroll: 4, nonTemporal: true, body: func(x *vec) {
		a := x.load("x")
		dy := x.choose(x.greater(a, x.s("hi")), x.k(0), x.load("dy"))
		dy = x.choose(x.less(a, x.s("lo")), x.k(0), dy)
		x.store("dst", x.choose(x.unordered(a, a), x.k(0), dy))
	}}
	silu     = unary("silu", 1, func(x *vec, a operand.Op) operand.Op { return x.mul(a, x.sigmoid(a)) }).woven(4, 10)
	siluGrad = gradient("siluGrad", 1, func(x *vec, a, dy operand.Op) operand.Op {
		s := x.sigmoid(a)
		return x.mul(dy, x.mul(s, x.fma(a, x.sub(x.value(1), s), x.value(1))))
	}).woven(4, 6)
	tanhGrad = gradient("tanhGrad", 4, func(x *vec, y, dy operand.Op) operand.Op {
		return x.mul(dy, x.fnma(y, y, x.value(1)))
	})
	sigmoidGrad = gradient("sigmoidGrad", 4, func(x *vec, y, dy operand.Op) operand.Op {
		return x.mul(dy, x.mul(y, x.sub(x.value(1), y)))
	})
	softplus = unary("softplus", 1, func(x *vec, a operand.Op) operand.Op {
		return x.add(x.maxKeep(x.value(0), a), x.log1pExp(a))
	}).woven(2, 8)
	logSigmoid = unary("logSigmoid", 1, func(x *vec, a operand.Op) operand.Op {
		return x.sub(x.minKeep(x.value(0), a), x.log1pExp(a))
	}).woven(2, 8)
)

// ofDouble is k of float64.
func (k kernel) ofDouble() kernel {
	k.name, k.double = strings.TrimSuffix(k.name, "Vec")+"DoubleVec", true
	return k
}

func notEqual(x *vec, a, b operand.Op) operand.Op { return x.machine.(*avx).compare(4, a, b) }

// toBF16 adds just under half of the last place kept, and the bit itself for ties
// to even; NaN is made quiet instead, for it might overflow to infinity.
func toBF16(x *vec) {
	v := x.load("src")
	high := x.shiftRight(v, 16)
	odd := x.shiftRight(x.shiftLeft(v, 15), 31)
	r := x.shiftRight(x.addInt(x.addInt(v, x.bits(0x7fff)), odd), 16)
	quiet := x.or(high, x.bits(0x40))
	x.storeLow("dst", x.choose(x.unordered(v, v), quiet, r))
}

// normalized is x less its mean in units of its deviation. What of the mean is lost in
// float32 is in shift.
func (x *vec) normalized() operand.Op {
	return x.fma(x.sub(x.load("x"), x.s("mean")), x.s("rstd"), x.s("shift"))
}

func binary(name string, f func(x *vec, a, b operand.Op) operand.Op) kernel {
	return kernel{name: name + "Vec", slices: "dst a b", unroll: 4, nonTemporal: true, body: func(x *vec) {
		x.store("dst", f(x, x.load("a"), x.load("b")))
	}}
}

// withScalar is a kernel of each element and one number.
func withScalar(name string, f func(x *vec, a, s operand.Op) operand.Op) kernel {
	return kernel{name: name + "Vec", slices: "dst x", scalars: "s", unroll: 4, nonTemporal: true, body: func(x *vec) {
		x.store("dst", f(x, x.load("x"), x.s("s")))
	}}
}

// comparison is a kernel that writes a byte of 0 or 1 for each pair of elements.
func comparison(name string, f func(x *vec, a, b operand.Op) operand.Op) kernel {
	return kernel{name: name + "Vec", slices: "dst:bool a b", unroll: 4, whole: true, avxOnly: true, body: func(x *vec) {
		x.machine.(*avx).storeBool("dst", f(x, x.load("a"), x.load("b")))
	}}
}

// woven is k with the chains of several vectors side by side, and so fewer
// constants in registers.
func (k kernel) woven(vectors, constants int) kernel {
	k.weave, k.hoist = vectors, constants
	return k
}

func unary(name string, unroll int, f func(x *vec, a operand.Op) operand.Op) kernel {
	return kernel{name: name + "Vec", slices: "dst x", unroll: unroll, nonTemporal: true, body: func(x *vec) {
		x.store("dst", f(x, x.load("x")))
	}}
}

// gradient is a kernel of what the forward kept and of the gradient of its result.
func gradient(name string, unroll int, f func(x *vec, kept, dy operand.Op) operand.Op) kernel {
	return kernel{name: name + "Vec", slices: "dst x dy", unroll: unroll, nonTemporal: true, body: func(x *vec) {
		x.store("dst", f(x, x.load("x"), x.load("dy")))
	}}
}

// slope is the gradient dy·f(x).
func slope(name string, f func(x *vec, a operand.Op) operand.Op) kernel {
	return gradient(name, 1, func(x *vec, a, dy operand.Op) operand.Op { return x.mul(dy, f(x, a)) })
}

// reduceKernels are the kernels with results.
var reduceKernels = []reduction{
	unaryReduction("sumVec", "", 0, (*vec).add, func(x *vec, v operand.Op) operand.Op { return v }),
	unaryReduction("sumShiftedVec", "shift", 0, (*vec).add, func(x *vec, v operand.Op) operand.Op { return x.sub(v, x.s("shift")) }),
	unaryReduction("maxValueVec", "", math.Inf(-1), (*vec).max, func(x *vec, v operand.Op) operand.Op { return v }),
	unaryReduction("minValueVec", "", math.Inf(1), (*vec).minSigned, func(x *vec, v operand.Op) operand.Op { return v }),
	unaryReduction("productVec", "", 1, (*vec).mul, func(x *vec, v operand.Op) operand.Op { return v }),
	unaryReduction("maxNumberVec", "", math.Inf(-1), (*vec).maxNumber, func(x *vec, v operand.Op) operand.Op { return v }),
	unaryReduction("sumExpVec", "shift", 0, (*vec).add, func(x *vec, v operand.Op) operand.Op { return x.expDown(x.sub(v, x.s("shift"))) }).
		ahead(16 << 10), // the piece that follows, whose maximum comes next
	{
		kernel: kernel{name: "dotVec", slices: "a b", noPrefetch: true}, groups: 4, results: 1, join: (*vec).add,
		step: func(x *vec, acc []operand.Op) { x.fmaTo(acc[0], x.load("b"), x.load("a")) },
	},
	{
		kernel: kernel{name: "sumShiftedWeightedVec", slices: "x weight", scalars: "shift"}, groups: 4, results: 1, join: (*vec).add,
		step: func(x *vec, acc []operand.Op) {
			d := x.inMask(x.sub(x.load("x"), x.s("shift")), 0)
			x.fmaTo(acc[0], x.load("weight"), d)
		},
	},
	{
		kernel: kernel{name: "sumSquaresVec", slices: "x", scalars: "mean"}, groups: 4, results: 1, join: (*vec).add,
		step: func(x *vec, acc []operand.Op) {
			d := x.inMask(x.sub(x.load("x"), x.s("mean")), 0)
			x.fmaTo(acc[0], d, d)
		},
	},
	{
		kernel: kernel{name: "normalizeGradSumsVec", slices: "dweight dbias x dy weight", scalars: "mean rstd shift"}, groups: 1, results: 2,
		join: (*vec).add,
		step: func(x *vec, acc []operand.Op) {
			dy := x.load("dy")
			h := x.normalized()
			x.unlessNil("dweight", func() { x.store("dweight", x.fma(dy, h, x.load("dweight"))) })
			x.unlessNil("dbias", func() { x.store("dbias", x.add(dy, x.load("dbias"))) })
			g := x.mul(dy, x.loadOr("weight", 1)) // 0 outside the mask, as dy
			x.addTo(acc[0], g)
			x.fmaTo(acc[1], h, g)
		},
	},
}
