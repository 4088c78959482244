package simd

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gorun-spmd/gorun/internal/dtype"
)

// recorded are the bits that kernels compute of fixed arguments, hashed; they were recorded
// with AVX2.
var recorded = map[string]uint64{
	"Add": 0xc068a7d1cb74de31, "AddScalar": 0xe2a1ace9252454aa, "Div": 0x18cff3b9a25af276, "LogSoftmaxGrad": 0x55e1d9a65992b2b1,
	"Max": 0x516d8cb656f9be7a, "Min": 0xafce2ae64957788b, "Mul": 0xe04e8eeca2f02f6b, "Normalize": 0x9823311cbe9e2eb1,
	"NormalizeGrad": 0xc94461a357baa200, "Scale": 0xc12e6a4ceb278fb2, "ScaledExp": 0x29796117eff15b10,
	"SoftmaxGrad": 0x6473b0dd3e03e027, "Sub": 0x76145ce7af2ba493, "abs": 0xb9b26836b95fb2c7,
	"abs of special values": 0x1af34cc8cb6b894d, "adagrad": 0xaf84b56be9468e4b, "adam": 0x2e1db48d7d239242, "add2": 0xc068a7d1cb74de31,
	"addTo": 0x5168d097547e4c1e, "axpy": 0x310f06dc14c88278, "copy": 0x5c35a12fcb565daa, "copyNear": 0x5c35a12fcb565daa,
	"dot": 0x13cd12cc63b1d400, "exp": 0xc20b12256700a9c1, "exp of special values": 0xb06ceac5b13241fd, "fill": 0x221d765ab80739a5,
	"gelu": 0x6fc1be3c9687a62d, "gelu of special values": 0xe8980922a5e53f9d, "geluGrad": 0xf3c88ba5b2b98861,
	"geluTanh": 0x2dd7a21bdc642147, "geluTanh of special values": 0xdae264b73df303af, "geluTanhGrad": 0x54fcafe70e1776c0,
	"log": 0x6348b2f891f7d2f6, "log of special values": 0x4ff8273b54825934, "maxNumber": 0x8f7d6552d4700e3,
	"maxValue": 0xf6677877f65b5c31, "minValue": 0xc3493ecb46279add, "nesterov": 0x82576ccbf8205940,
	"normalizeGradSums": 0xbe8a068abf8ddde2, "relu": 0x3231937749ab0231, "relu of special values": 0xa70c291a4252733a,
	"reluGrad": 0xefe6a3e2d5114edc, "rsqrt": 0xd6aecba4107a53bf, "rsqrt of special values": 0xc89a4a17bdca42ec,
	"sgd": 0x17c40f63940fce05, "sigmoid": 0x8efc6684730ae74f, "sigmoid of special values": 0x1adc59b620e9feb4,
	"sigmoidGrad": 0xf9de4bc7d5196b84, "silu": 0xd9a6b765a9a77cb, "silu of special values": 0x3ecc272d7df151c,
	"siluGrad": 0x29330db5cb4b0f29, "softmax": 0xb91c8021f4de3cb0, "sqrt": 0x4283fee4636a7764,
	"sqrt of special values": 0x11f4c3f68000a494, "sum": 0x94036db530ca25be, "sumShifted": 0x7f552498395b1b80,
	"sumSquares": 0xa8662d24a0a21208, "sumWeighted": 0x99ec2a7a0fd80493, "tanh": 0x5d89c469b7d82b5a,
	"tanh of special values": 0xf01ee761123d2eca, "tanhGrad": 0xc56021d4505dd215, "toBF16 and back": 0xf928985df655d2e5,
	"toF16 and back":         0x6cc7bffcf1a93880,
	"absGrad":                0x86fda0cf6d135138,
	"clamp":                  0xfa344cae1168902,
	"clampGrad":              0x2af895b70d35a48a,
	"rsqrtGrad":              0xe0eb15dc455e5ef5,
	"sign":                   0xad48a438a43921a4,
	"sign of special values": 0xc7eed63c5a998313,
	"sqrtGrad":               0x5c7551d7f667995c,
	"squareGrad":             0x50bcd59902b7ae6e,
	"erf":                    0x5a970b38eeaeca04, "erf of special values": 0xe0ee676e8c28b105, "erfGrad": 0x9333b9b727f7d435,
	"erfSlope of special values": 0xd5238fbb804e7108, "expm1": 0xc4767aefafaf2e23, "expm1 of special values": 0x22808e4ec83740c4,
	"expm1Grad": 0x1c4d964dbc2d94b7, "expm1Slope of special values": 0xd15fc71634b19046, "log1p": 0xdcf8416e4524a6c4,
	"log1p of special values": 0xa63c497ee687021b, "log1pGrad": 0x8087f67aa7c43e73, "log1pSlope of special values": 0x206f265234cf8666,
	"cos": 0xa2e50ea413e228d4, "cos of special values": 0xd9c8d3f279f74d27, "cosGrad": 0x1974a7ae6fa91f87,
	"cosSlope of special values": 0x5dc00b7d389dc149, "sin": 0xe0098fb1a44979fb, "sin of special values": 0xa7407360f56ee39d,
	"sinGrad": 0x33664012989bdcb6, "sinSlope of special values": 0xd9c8d3f279f74d27,
	"atan": 0x427c9ff3f319343c, "atan of special values": 0x52f3c67e9bc8fdc4, "atanGrad": 0x83b3cff4159f19d4,
	"atanSlope of special values": 0xd4da35b5539cd17c, "cosh": 0xb7ecf2ab1b65b4ab, "cosh of special values": 0xbd81ce3573c46e40,
	"coshGrad": 0xe989f38c9396317c, "coshSlope of special values": 0xaac142a55ac237de, "exp2": 0xa071a98aafe0328f,
	"exp2 of special values": 0xc42a895902f35117, "exp2Grad": 0xfc3685f44108d9c5, "exp2Slope of special values": 0x15d0a90564642b9e,
	"log10": 0xeff2745387132bd7, "log10 of special values": 0xbfd72c19a3f6ec97, "log10Grad": 0x816a65504e16ffc4,
	"log10Slope of special values": 0x4545fe861c67078e, "log2": 0xb77ac8096c0feae9, "log2 of special values": 0x6d227931ea7d1ee9,
	"log2Grad": 0xce9dbfd3a49de568, "log2Slope of special values": 0x1bae187ee5106bb7, "sinh": 0xbfea970f2043d43d,
	"sinh of special values": 0xaac142a55ac237de, "sinhGrad": 0xb57c2e93c777f9a6, "sinhSlope of special values": 0xbd81ce3573c46e40,
	"pow":  0x955b52bc5e96d2df,
	"acos": 0xf8a4639a857b8e0f, "acos of special values": 0x4b2dd04d0f331309, "acosGrad": 0x56dff01ef59afe5c,
	"acosSlope of special values": 0xc7a3235caa252d8, "acosh": 0xac13ad34f4638823, "acosh of special values": 0xa34a4df52d5a4f10,
	"acoshGrad": 0x7cd9129ea2f53653, "acoshSlope of special values": 0xd49055aa49e2b336, "asin": 0x8e4b10fccedb0384,
	"asin of special values": 0x2789f198e3a0b388, "asinGrad": 0x3f3c31825f5c7b8b, "asinSlope of special values": 0xec3956ea940f8904,
	"asinh": 0xd222befb70edee21, "asinh of special values": 0xd72e35f6e4bc3404, "asinhGrad": 0x26398b7739f9180e,
	"asinhSlope of special values": 0xc140682436719874, "atanh": 0x6014d386bd156cdc, "atanh of special values": 0xf2cb4ffe2056443b,
	"atanhGrad": 0xe40a9e9f10cecc12, "atanhSlope of special values": 0xb4e2479357547539, "erfc": 0xb25808a2c7c68aba,
	"erfc of special values": 0x9046f53943b14fad, "erfcGrad": 0x2d4f7ac78eef6b22, "erfcSlope of special values": 0xce8064665fecf480,
	"tan": 0x51fe833e9adfb2f7, "tan of special values": 0x7aa754869e7d8cbf, "tanGrad": 0x477022137a95a02d,
	"tanSlope of special values": 0x6d2b7ec0cd9851ad,
	"ceil":                       0x9c0a1bb1ab8f2ef1, "ceil of special values": 0xc149c890286cce9, "elu": 0x188182871778e555,
	"elu of special values": 0xc0838888075fe6f1, "eluGrad": 0xc13f79c5e6f9ac64, "eluSlope of special values": 0x93926a5e1d43a9c,
	"floor": 0x367ea4e9133a0811, "floor of special values": 0xaf8d830497059108, "hardsigmoid": 0x9230689ab08b676e,
	"hardsigmoid of special values": 0x4fbf189194afb1c8, "hardsigmoidGrad": 0xfbcd31ecc95e5ea,
	"hardsigmoidSlope of special values": 0x8993c63b2d2fdb85, "hardswish": 0xb05bb18a51d62a2,
	"hardswish of special values": 0x65521db1f8c32b68, "hardswishGrad": 0x5354f5d59e789563,
	"hardswishSlope of special values": 0xd1bdff3c5e82b33f, "leaky": 0x9057b314341038d6, "logSigmoid": 0xd64ba9e99eb72aaf,
	"logSigmoid of special values": 0xf59e6e4a1ae64c3b, "logSigmoidGrad": 0xac5e0c5c0eb213,
	"logSigmoidSlope of special values": 0x37a63e8f4736ee3d, "mish": 0x6ce68ecd2fd1945a, "mish of special values": 0x348a0bdf7cf9fe69,
	"mishGrad": 0x933c07d93e6e9b61, "mishSlope of special values": 0xf247294491914efa, "round": 0x866331dbae41e91b,
	"round of special values": 0xe6a686131bdbcaa, "softplus": 0x3acf41776a4c2891, "softplus of special values": 0x42636e56a3bc67d4,
	"softplusGrad": 0xde4165737b9ee67c, "softplusSlope of special values": 0x1adc59b620e9feb4, "trunc": 0x6d010c8ca9e76a4d,
	"trunc of special values": 0xf92b8e708bd936f4,
	"atan2":                   0x859509ff883925a9, "compare": 0xd746b8a12092ee79, "divBy": 0xb5ae2ec90e9b9bfb, "divInto": 0xfec30c28fc794901,
	"floorDivide": 0x58de1d02f09f92e7, "fmod": 0x81e5d8758918a963, "maxScalar": 0xa4a048e912324cd6, "minScalar": 0xf7b2d3cb3a76bd2d,
	"product": 0xe3bfa4e5ebe0dd40, "remainder": 0xb5773544fbce02fa, "subFrom": 0x784e635674206f4e, "where": 0x460983cc1d56804b,
}

// TestBitsAreThoseOfEveryInstructionSet holds that kernels give the recorded bits, on amd64
// and on arm64.
func TestBitsAreThoseOfEveryInstructionSet(t *testing.T) {
	const n = 2*piece + 77
	all := runs(n)
	r := rand.New(rand.NewPCG(13, 13))
	for name, more := range map[string]func(m Mode, d []float32){
		"maxNumber": func(m Mode, d []float32) { d[0] = m.maxNumber(normals(r, piece, 1)) },
		"sgd": func(m Mode, d []float32) {
			m.sgd(d, steps(n, 1), steps(n, 2), SGD{LR: 0.1, Momentum: 0.9, Dampening: 0.2, WeightDecay: 0.01})
		},
		"nesterov": func(m Mode, d []float32) {
			m.sgd(d, steps(n, 1), steps(n, 2), SGD{LR: 0.1, Momentum: 0.9, WeightDecay: 0.01, Nesterov: true})
		},
		"adam": func(m Mode, d []float32) {
			v := steps(n, 3)
			m.abs(v, v)
			m.adam(d, steps(n, 1), v, steps(n, 2), Adam{0.9, 0.999, 1e-3, 0.5, 1e-8, 0.99, 0.01})
		},
		"adagrad": func(m Mode, d []float32) {
			sum := steps(n, 3)
			m.abs(sum, sum)
			m.AdagradRow(d, sum, steps(n, 2), Adagrad{-0.1, 1e-10})
			m.Add(d, d, sum)
		},
		"normalizeGradSums": func(m Mode, d []float32) {
			weight, bias := steps(n, 1), steps(n, 2)
			d[0], d[1] = m.normalizeGradSums(weight, bias, steps(n, 3), steps(n, 4), steps(n, 5), units{1, 2, 3})
			m.Add(d[2:], weight[2:], bias[2:])
		},
		"toF16 and back": func(m Mode, d []float32) {
			half := make([]dtype.F16, n)
			m.toF16(half, append(special(), steps(n, 1)...)[:n])
			m.fromF16(d, half)
		},
		"toBF16 and back": func(m Mode, d []float32) {
			half := make([]dtype.BF16, n)
			m.toBF16(half, append(special(), steps(n, 1)...)[:n])
			m.fromBF16(d, half)
		},
	} {
		all[name] = more
	}
	for _, f := range unaries { // at the values at which they tend to go wrong
		all[f.name+" of special values"] = func(m Mode, d []float32) { f.run(m, d, append(special(), steps(n, 1)...)[:n]) }
	}
	for name, run := range all {
		if _, ok := recorded[name]; !ok {
			t.Errorf("nothing is recorded of %s", name)
		}
		for _, m := range modes() {
			d := steps(n, 6)
			r = rand.New(rand.NewPCG(13, 13))
			run(m, d)
			if got := bitsOf(d); got != recorded[name] {
				t.Errorf("%v, %s: the bits are %#x, recorded are %#x", m, name, got, recorded[name])
			}
		}
	}
}

// steps returns n numbers between -8 and 8.
func steps(n, seed int) []float32 {
	s := make([]float32, n)
	for i := range s {
		s[i] = float32(uint32((i+1)*(2*seed+1)*0x9e3779b1)>>8)/0x1p20 - 8
	}
	return s
}

// bitsOf hashes the bits of numbers, all NaN being the same.
func bitsOf(s []float32) uint64 {
	h := fnv.New64a()
	for _, v := range s {
		if v != v {
			v = nan
		}
		fmt.Fprintf(h, "%08x", math.Float32bits(v))
	}
	return h.Sum64()
}
