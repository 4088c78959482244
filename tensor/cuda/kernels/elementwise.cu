// Kernels that compute one element at a time.
#include "common.h"
#include "ops.h"

// fill sets n elements of the given bytes to a pattern.
KERNEL(fill, int bytes, void *dst, i64 n, u64 v) {
	EACH(i, n) {
		switch (bytes) {
		case 1: ((u8 *)dst)[i] = (u8)v; break;
		case 2: ((u16 *)dst)[i] = (u16)v; break;
		case 4: ((u32 *)dst)[i] = (u32)v; break;
		case 8: ((u64 *)dst)[i] = v; break;
		default: missing();
		}
	}
}

// iota sets dst[i] = start + i.
KERNEL(iota, int dt, void *dst, i64 n, i64 start) {
	EACH(i, n) {
		i64 v = start + i;
		switch (dt) {
		case F32: ((float *)dst)[i] = (float)v; break;
		case F64: ((double *)dst)[i] = (double)v; break;
		default: store_int(dt, dst, i, v);
		}
	}
}

// cast converts n elements.
KERNEL(cast, int to, void *dst, int from, const void *src, i64 n) {
	EACH(i, n) {
		if (is_float(from)) {
			double v = load_float(from, src, i);
			if (is_float(to)) store_float(to, dst, i, v);
			else if (to == BOOL) ((u8 *)dst)[i] = v != 0;
			else store_int(to, dst, i, (i64)v);
			continue;
		}
		i64 v = load_int(from, src, i);
		switch (to) {
		case F32: ((float *)dst)[i] = (float)v; break;
		case F64: ((double *)dst)[i] = (double)v; break;
		case F16: ((u16 *)dst)[i] = narrow_f16((float)v); break;
		case BF16: ((u16 *)dst)[i] = narrow_bf16((float)v); break;
		case BOOL: ((u8 *)dst)[i] = v != 0; break;
		default: store_int(to, dst, i, v);
		}
	}
}

// cast_packs converts four elements at once where they lie at a multiple of their bytes.
template <class D, class S>
static __device__ void cast_packs(D *dst, const S *src, i64 n) {
	typedef Pack<D, 4> To;
	typedef Pack<S, 4> From;
	i64 packs = (u64)dst % sizeof(To) || (u64)src % sizeof(From) ? 0 : n / 4;
	EACH(k, packs) {
		From p = ((const From *)src)[k];
		To q;
#pragma unroll
		for (int e = 0; e < 4; e++) put(&q.v[e], wide(p.v[e]));
		((To *)dst)[k] = q;
	}
	EACH(k, n - 4 * packs) put(&dst[4 * packs + k], wide(src[4 * packs + k]));
}
KERNEL(cast_f32_bf16, u16 *dst, const float *src, i64 n) { cast_packs(dst, src, n); }
KERNEL(cast_bf16_f32, float *dst, const u16 *src, i64 n) { cast_packs(dst, src, n); }

// each_packed sets dst[i] = f(a[i], b[i], c[i]), with many for f on N elements at once,
// where all lie at multiples of their bytes and at_once says so, and one on what is left.
// dst may be one of the others.
template <int N, class T, class Many, class One>
static __device__ void each_packed(bool at_once, T *dst, const T *a, const T *b, const T *c, i64 n, Many many, One one) {
	typedef Pack<T, N> P;
	i64 packs = !at_once || ((u64)dst | (u64)a | (u64)b | (u64)c) % sizeof(P) ? 0 : n / N;
	EACH(k, packs) {
		P p = ((const P *)a)[k], q = ((const P *)b)[k], r = ((const P *)c)[k];
#pragma unroll
		for (int e = 0; e < N; e++) put(&p.v[e], many(wide(p.v[e]), wide(q.v[e]), wide(r.v[e])));
		put_whole((P *)dst + k, p);
	}
	EACH(k, n - N * packs) {
		i64 i = N * packs + k;
		put(&dst[i], one(wide(a[i]), wide(b[i]), wide(c[i])));
	}
}

template <class T>
static __device__ void copy_loop_of(T *dst, const T *src, const Loop &l, i64 n) {
	EACH(i, n) {
		At p = find(l, i, n);
		dst[p.a] = src[p.b];
	}
}

// copy_loop copies dst[Σ i·a] = src[Σ i·b].
KERNEL(copy_loop, int bytes, void *dst, const void *src, Loop l, i64 n) {
	switch (bytes) {
	case 1: copy_loop_of((u8 *)dst, (const u8 *)src, l, n); break;
	case 2: copy_loop_of((u16 *)dst, (const u16 *)src, l, n); break;
	case 4: copy_loop_of((u32 *)dst, (const u32 *)src, l, n); break;
	case 8: copy_loop_of((u64 *)dst, (const u64 *)src, l, n); break;
	default: missing();
	}
}

// transpose copies batch matrices [rows, cols], rows being srcStep apart and
// contiguous, to [cols, rows] with rows dstStep apart, a tile of 32·32 at a time.
template <class T>
static __device__ void transpose_of(T *dst, const T *src, i64 batch, i64 rows, i64 cols, i64 dstStep, i64 srcStep, i64 dstBatch, i64 srcBatch) {
	__shared__ T tile[32][33];
	i64 down = (rows + 31) / 32, across = (cols + 31) / 32;
	int x = threadIdx.x % 32, y = threadIdx.x / 32;
	for (i64 t = blockIdx.x; t < batch * down * across; t += gridDim.x) {
		i64 b = t / (down * across), r0 = t / across % down * 32, c0 = t % across * 32;
		for (int k = y; k < 32; k += THREADS / 32)
			if (r0 + k < rows && c0 + x < cols) tile[k][x] = src[b * srcBatch + (r0 + k) * srcStep + c0 + x];
		__syncthreads();
		for (int k = y; k < 32; k += THREADS / 32)
			if (c0 + k < cols && r0 + x < rows) dst[b * dstBatch + (c0 + k) * dstStep + r0 + x] = tile[x][k];
		__syncthreads();
	}
}

KERNEL(transpose, int bytes, void *dst, const void *src, i64 batch, i64 rows, i64 cols, i64 dstStep, i64 srcStep, i64 dstBatch, i64 srcBatch) {
	switch (bytes) {
	case 1: transpose_of((u8 *)dst, (const u8 *)src, batch, rows, cols, dstStep, srcStep, dstBatch, srcBatch); break;
	case 2: transpose_of((u16 *)dst, (const u16 *)src, batch, rows, cols, dstStep, srcStep, dstBatch, srcBatch); break;
	case 4: transpose_of((u32 *)dst, (const u32 *)src, batch, rows, cols, dstStep, srcStep, dstBatch, srcBatch); break;
	case 8: transpose_of((u64 *)dst, (const u64 *)src, batch, rows, cols, dstStep, srcStep, dstBatch, srcBatch); break;
	default: missing();
	}
}

static __device__ float log_of(float x) { return logf(x); }
static __device__ double log_of(double x) { return log(x); }
static __device__ float sqrt_of(float x) { return sqrtf(x); }
static __device__ double sqrt_of(double x) { return sqrt(x); }
static __device__ float tanh_of(float x) { return tanhf(x); }
static __device__ double tanh_of(double x) { return tanh(x); }
static __device__ float erf_of(float x) { return erff(x); }
static __device__ double erf_of(double x) { return erf(x); }
static __device__ float log1p_of(float x) { return log1pf(x); }
static __device__ double log1p_of(double x) { return log1p(x); }
static __device__ float expm1_of(float x) { return expm1f(x); }
static __device__ double expm1_of(double x) { return expm1(x); }
static __device__ float asin_of(float x) { return asinf(x); }
static __device__ double asin_of(double x) { return asin(x); }
static __device__ float acos_of(float x) { return acosf(x); }
static __device__ double acos_of(double x) { return acos(x); }
static __device__ float atan_of(float x) { return atanf(x); }
static __device__ double atan_of(double x) { return atan(x); }
static __device__ float sinh_of(float x) { return sinhf(x); }
static __device__ double sinh_of(double x) { return sinh(x); }
static __device__ float cosh_of(float x) { return coshf(x); }
static __device__ double cosh_of(double x) { return cosh(x); }
static __device__ float asinh_of(float x) { return asinhf(x); }
static __device__ double asinh_of(double x) { return asinh(x); }
static __device__ float acosh_of(float x) { return acoshf(x); }
static __device__ double acosh_of(double x) { return acosh(x); }
static __device__ float atanh_of(float x) { return atanhf(x); }
static __device__ double atanh_of(double x) { return atanh(x); }
static __device__ float erfc_of(float x) { return erfcf(x); }
static __device__ double erfc_of(double x) { return erfc(x); }
static __device__ float erfinv_of(float x) { return erfinvf(x); }
static __device__ double erfinv_of(double x) { return erfinv(x); }
static __device__ float exp2_of(float x) { return exp2f(x); }
static __device__ double exp2_of(double x) { return exp2(x); }
static __device__ float log2_of(float x) { return log2f(x); }
static __device__ double log2_of(double x) { return log2(x); }
static __device__ float log10_of(float x) { return log10f(x); }
static __device__ double log10_of(double x) { return log10(x); }
static __device__ float lgamma_of(float x) { return lgammaf(x); }
static __device__ double lgamma_of(double x) { return lgamma(x); }
static __device__ float bessel_i0(float x) { return cyl_bessel_i0f(x); }
static __device__ double bessel_i0(double x) { return cyl_bessel_i0(x); }
static __device__ float bessel_i1(float x) { return cyl_bessel_i1f(x); }
static __device__ double bessel_i1(double x) { return cyl_bessel_i1(x); }

// digamma and trigamma are those of package kernel's special.go, in double for float too.
static __device__ double digamma(double x) {
	if (x == 0) return copysign(INFINITY, -x);
	if (x < 0 && x == floor(x)) return NAN;
	double sum = 0;
	if (x < 0) {
		sum = -3.14159265358979323846 * cospi(x) / sinpi(x);
		x = 1 - x;
	}
	for (; x < 10; x++) sum -= 1 / x;
	double z = 1 / (x * x);
	return sum + log(x) - 0.5 / x - z * (1. / 12 - z * (1. / 120 - z * (1. / 252 - z * (1. / 240 - z * (1. / 132 -
		z * (691. / 32760 - z / 12))))));
}
static __device__ double trigamma(double x) {
	if (x <= 0 && x == floor(x)) return INFINITY;
	double sum = 0, side = 1;
	if (x < 0) {
		double s = sinpi(x);
		sum = 9.86960440108935861883 / (s * s); // pi^2
		side = -1;
		x = 1 - x;
	}
	for (; x < 10; x++) sum += side / (x * x);
	double z = 1 / (x * x);
	return sum + side * (1 + 0.5 / x + z * (1. / 6 - z * (1. / 30 - z * (1. / 42 - z * (1. / 30 - z * (5. / 66 -
		z * (691. / 2730 - z * 7 / 6))))))) / x;
}

// CUDA's own sine and cosine keep an array on the stack, for arguments near the largest.
// Here x = q·π/2 + r with |r| ≤ π/4 and π/2 in three parts, which is exact enough for
// |x| up to 2^50; of larger numbers the result is NaN. The polynomials are those of
// Cephes and fdlibm.
static __device__ float sin_near(float r, float z) {
	return r + r * z * (-1.6666654611e-1f + z * (8.3321608736e-3f + z * -1.9515295891e-4f));
}
static __device__ float cos_near(float, float z) {
	return 1 - 0.5f * z + z * z * (4.166664568298827e-2f + z * (-1.388731625493765e-3f + z * 2.443315711809948e-5f));
}
static __device__ double sin_near(double r, double z) {
	double p = 8.33333333332248946124e-03 + z * (-1.98412698298579493134e-04 + z * (2.75573137070700676789e-06 +
		z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)));
	return r + r * z * (-1.66666666666666324348e-01 + z * p);
}
static __device__ double cos_near(double, double z) {
	double p = 4.16666666666666019037e-02 + z * (-1.38888888888741095749e-03 + z * (2.48015872894767294178e-05 +
		z * (-2.75573143513906633035e-07 + z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11))));
	return 1 - (0.5 * z - z * z * p);
}

// sin_turned returns sin(x + turns·π/2).
template <class T>
static __device__ T sin_turned(T x, i64 turns) {
	double at = x, q = rint(at * 0.63661977236758134308);
	if (!(fabs(at) <= 1125899906842624.0)) {
		T none = (T)(at - at);
		return none / none;
	}
	T r = (T)fma(q, 1.4973849048591833e-33, fma(-q, 6.123233995736766e-17, fma(-q, 1.5707963267948966, at)));
	turns += (i64)q;
	T y = turns & 1 ? cos_near(r, r * r) : sin_near(r, r * r);
	return turns & 2 ? -y : y;
}
template <class T>
static __device__ T sin_of(T x) { return sin_turned(x, 0); }
template <class T>
static __device__ T cos_of(T x) { return sin_turned(x, 1); }

template <class T>
static __device__ T sigmoid(T x) {
	if (x >= 0) return 1 / (1 + exp_of(-x));
	T e = exp_of(x);
	return e / (1 + e);
}

// silu_grad is dy·(s + x·s·(1-s)) for s = sigmoid(x).
template <class T>
static __device__ T silu_grad(T dy, T x) {
	T s = sigmoid(x);
	return dy * s * (1 + x * (1 - s));
}

// density is exp(-x²/2) for x from -40 to 40 and phi, of x and of that, the normal
// distribution function.
template <class T>
static __device__ T density(T x) { return exp_of((T)-0.5 * x * x); }
static __device__ double phi(double x, double) { return 0.5 * erfc(-x * 0.70710678118654752440); }

// With u = 1/(1+0.35·t), the tail Φ(-t) for t ≥ 0 is exp(-t²/2)·u·P(u), P a polynomial
// with a relative error of 3e-8, as in internal/simd.
static __device__ float phi(float x, float density) {
	float u = __fdividef(1, fmaf(fabsf(x), 0.35f, 1));
	float p = -0.0291458462173f;
	p = fmaf(p, u, 0.143971308734f);
	p = fmaf(p, u, -0.255713498026f);
	p = fmaf(p, u, 0.15917335794f);
	p = fmaf(p, u, -0.0231093297237f);
	p = fmaf(p, u, 0.105507811564f);
	p = fmaf(p, u, 0.119832910721f);
	p = fmaf(p, u, 0.139861864512f);
	p = fmaf(p, u, 0.139621404551f);
	float tail = p * u * density;
	return x < 0 ? tail : 1 - tail;
}

// gelu is x·Φ(x) and gelu_slope its derivative, at the infinities their limits.
template <class T>
static __device__ T within(T x) { return x < -40 ? (T)-40 : x > 40 ? (T)40 : x; }
template <class T>
static __device__ T gelu(T x) {
	T t = within(x);
	return x < -40 ? (T)0 : x * phi(t, density(t));
}
template <class T>
static __device__ T gelu_slope(T x) {
	x = within(x);
	T d = density(x);
	return phi(x, d) + x * d * (T)0.39894228040143267794;
}

// gelu_tanh is x·sigmoid(bend(x)) and gelu_tanh_slope its derivative, at the infinities
// their limits.
template <class T>
static __device__ T bend(T x) { return x * ((T)1.5957691216057308 + (T)0.07135481627260025 * x * x); }
template <class T>
static __device__ T gelu_tanh(T x) { return x < -40 ? (T)0 : x * sigmoid(bend(x)); }
template <class T>
static __device__ T gelu_tanh_slope(T x) {
	x = within(x);
	T v = bend(x);
	return sigmoid(v) + x * sigmoid(v) * sigmoid(-v) * ((T)1.5957691216057308 + (T)0.21406444881780073 * x * x);
}

template <class T>
static __device__ T sign(T x) { return x > 0 ? (T)1 : x < 0 ? (T)-1 : x; }

static __device__ float floor_of(float x) { return floorf(x); }
static __device__ double floor_of(double x) { return floor(x); }
static __device__ float round_of(float x) { return rintf(x); }
static __device__ double round_of(double x) { return rint(x); }
static __device__ float trunc_of(float x) { return truncf(x); }
static __device__ double trunc_of(double x) { return trunc(x); }

// softplus is ln(1+e^x), mish_slope the derivative of x·tanh(softplus(x)), 1 at +Inf, and hard min(max(x+3, 0), 6).
template <class T>
static __device__ T softplus(T x) { return (x < 0 ? (T)0 : x) + log1p_of(exp_of(x < 0 ? x : -x)); }
template <class T>
static __device__ T mish_slope(T x) {
	x = x > 40 ? (T)40 : x;
	T t = tanh_of(softplus(x));
	return t + x * (1 - t) * (1 + t) * sigmoid(x);
}
template <class T>
static __device__ T hard(T x) {
	x += 3;
	return x < 0 ? (T)0 : x > 6 ? (T)6 : x;
}

// A Unary is what an operator computes: its value, its gradient dy·op'(x) for y = op(x), and
// of integers their value modulo 2^64. ops.h names all of them: one that is missing does not
// compile.
template <int OP>
struct Unary;
#define UNARY(op, value_of_x, gradient)                                   \
	template <>                                                                            \
	struct Unary<op> {                                                                     \
		template <class T>                                                                 \
		static __device__ T value(T x) { return value_of_x; }                              \
		template <class T>                                                                 \
		static __device__ T grad(T dy, T x, T y) { return gradient; }                      \
	};
UNARY(NEG, -x, -dy)
UNARY(ABS, x < 0 ? -x : x == 0 ? (T)0 : x, dy * sign(x))
UNARY(EXP, exp_of(x), dy * y)
UNARY(LOG, log_of(x), dy / x)
UNARY(SQRT, sqrt_of(x), dy / (2 * y))
UNARY(RSQRT, 1 / sqrt_of(x), dy * (T)-0.5 * y * y * y)
UNARY(TANH, tanh_of(x), dy * (1 - y * y))
UNARY(SIGMOID, sigmoid(x), dy * y * (1 - y))
UNARY(RELU, x < 0 ? (T)0 : x, y <= 0 ? (T)0 : dy)
UNARY(GELU, gelu(x), dy * gelu_slope(x))
UNARY(GELU_TANH, gelu_tanh(x), dy * gelu_tanh_slope(x))
UNARY(SILU, x * sigmoid(x), silu_grad(dy, x))
UNARY(SQUARE, x * x, dy * 2 * x)
UNARY(SIGN, sign(x), (T)0)
UNARY(ERF, erf_of(x), dy * (T)1.12837916709551257390 * exp_of(-x * x)) // 2/sqrt(pi)
UNARY(SIN, sin_of(x), dy * cos_of(x))
UNARY(COS, cos_of(x), -dy * sin_of(x))
UNARY(LOG1P, log1p_of(x), dy / (1 + x))
UNARY(EXPM1, expm1_of(x), dy * (y + 1))
UNARY(TAN, sin_of(x) / cos_of(x), dy * (1 + y * y))
UNARY(ASIN, asin_of(x), dy / sqrt_of((1 - x) * (1 + x)))
UNARY(ACOS, acos_of(x), -dy / sqrt_of((1 - x) * (1 + x)))
UNARY(ATAN, atan_of(x), dy / (1 + x * x))
UNARY(SINH, sinh_of(x), dy * cosh_of(x))
UNARY(COSH, cosh_of(x), dy * sinh_of(x))
UNARY(ASINH, asinh_of(x), dy / sqrt_of(x * x + 1))
UNARY(ACOSH, acosh_of(x), dy / sqrt_of((x - 1) * (x + 1)))
UNARY(ATANH, atanh_of(x), dy / ((1 - x) * (1 + x)))
UNARY(ERFC, erfc_of(x), -dy * (T)1.12837916709551257390 * exp_of(-x * x))
UNARY(ERFINV, erfinv_of(x), dy * (T)0.88622692545275801365 * exp_of(y * y)) // sqrt(pi)/2
UNARY(EXP2, exp2_of(x), dy * y * (T)0.69314718055994530942)
UNARY(LOG2, log2_of(x), dy / (x * (T)0.69314718055994530942))
UNARY(LOG10, log10_of(x), dy / (x * (T)2.30258509299404568402))
UNARY(LGAMMA, lgamma_of(x), dy * (T)digamma(x))
UNARY(DIGAMMA, (T)digamma(x), dy * (T)trigamma(x))
UNARY(I0, bessel_i0(x), dy * bessel_i1(x))
UNARY(FLOOR, floor_of(x), (T)0)
UNARY(CEIL, -floor_of(-x), (T)0)
UNARY(ROUND, round_of(x), (T)0)
UNARY(TRUNC, trunc_of(x), (T)0)
UNARY(SOFTPLUS, softplus(x), dy * sigmoid(x))
UNARY(LOG_SIGMOID, -softplus(-x), dy * sigmoid(-x))
UNARY(MISH, x * tanh_of(softplus(x)), dy * mish_slope(x))
UNARY(HARDSIGMOID, hard(x) / 6, x >= -3 && x <= 3 ? dy / 6 : (T)0)
UNARY(HARDSWISH, x * (hard(x) / 6), dy * (x < -3 ? (T)0 : x > 3 ? (T)1 : (2 * x + 3) / 6))
UNARY(ELU, x > 0 ? x : expm1_of(x), dy * (x > 0 ? (T)1 : exp_of(x)))

// unary_one returns op(x) and unary_grad_one its gradient.
template <class T>
static __device__ T unary_one(int op, T x) {
	switch ((UnaryOp)op) {
#define CASE(op) \
	case op: return Unary<op>::value(x);
		UNARY_OPS(CASE)
#undef CASE
	}
	return missing_value<T>();
}
template <class T>
static __device__ T unary_grad_one(int op, T dy, T x, T y) {
	switch ((UnaryOp)op) {
#define CASE(op) \
	case op: return Unary<op>::grad(dy, x, y);
		UNARY_OPS(CASE)
#undef CASE
	}
	return missing_value<T>();
}

// for_op calls f with the Unary of op: the loop is made for each, and has no switch.
template <class F>
static __device__ void for_op(int op, F f) {
	switch ((UnaryOp)op) {
#define CASE(op) \
	case op: f(Unary<op>()); return;
		UNARY_OPS(CASE)
#undef CASE
	}
	missing();
}

// Packs of float32 are taken four at once, by a loop for each operation.
typedef Pack<float, 4> Four;

KERNEL(unary_f32, int op, float *dst, const float *x, i64 n) {
	i64 packs = ((u64)dst | (u64)x) % 16 ? 0 : n / 4;
	for_op(op, [=](auto as) {
		EACH(k, packs) {
			Four p = ((const Four *)x)[k];
#pragma unroll
			for (int e = 0; e < 4; e++) p.v[e] = decltype(as)::value(p.v[e]);
			put_whole((Four *)dst + k, p);
		}
	});
	EACH(k, n - 4 * packs) dst[4 * packs + k] = unary_one(op, x[4 * packs + k]);
}
KERNEL(unary_f64, int op, double *dst, const double *x, i64 n) { EACH(i, n) dst[i] = unary_one(op, x[i]); }
KERNEL(unary_bf16, int op, u16 *dst, const u16 *x, i64 n) {
	auto f = [=](float v, float, float) { return unary_one(op, v); };
	each_packed<2>(true, dst, x, x, x, n, f, f);
}

// An Integer is what an operator makes of an integer, modulo 2^64.
template <int OP>
struct Integer;
#define INTEGER(op, value_of_v)                                   \
	template <>                                                   \
	struct Integer<op> {                                          \
		static __device__ i64 value(i64 v) { return value_of_v; } \
	};
INTEGER(NEG, (i64)(0 - (u64)v))
INTEGER(ABS, v < 0 ? (i64)(0 - (u64)v) : v)
INTEGER(RELU, v < 0 ? 0 : v)
INTEGER(SQUARE, (i64)((u64)v * (u64)v))
INTEGER(SIGN, v > 0 ? 1 : v < 0 ? -1 : 0)

KERNEL(unary_int, int op, int dt, void *dst, const void *x, i64 n) {
	EACH(i, n) {
		i64 v = load_int(dt, x, i);
		switch (op) {
#define CASE(op) \
	case op: v = Integer<op>::value(v); break;
			UNARY_INT_OPS(CASE)
#undef CASE
		default: missing();
		}
		store_int(dt, dst, i, v);
	}
}

KERNEL(unary_grad_f32, int op, float *dx, const float *dy, const float *x, const float *y, i64 n) {
	i64 packs = ((u64)dx | (u64)dy | (u64)x | (u64)y) % 16 ? 0 : n / 4;
	for_op(op, [=](auto as) {
		EACH(k, packs) {
			Four p = ((const Four *)dy)[k], q = ((const Four *)x)[k], r = ((const Four *)y)[k];
#pragma unroll
			for (int e = 0; e < 4; e++) p.v[e] = decltype(as)::grad(p.v[e], q.v[e], r.v[e]);
			put_whole((Four *)dx + k, p);
		}
	});
	EACH(k, n - 4 * packs) {
		i64 i = 4 * packs + k;
		dx[i] = unary_grad_one(op, dy[i], x[i], y[i]);
	}
}
KERNEL(unary_grad_f64, int op, double *dx, const double *dy, const double *x, const double *y, i64 n) {
	EACH(i, n) dx[i] = unary_grad_one(op, dy[i], x[i], y[i]);
}
KERNEL(unary_grad_bf16, int op, u16 *dx, const u16 *dy, const u16 *x, const u16 *y, i64 n) {
	auto f = [=](float g, float v, float w) { return unary_grad_one(op, g, v, w); };
	each_packed<2>(true, dx, dy, x, y, n, f, f);
}

template <class T>
static __device__ void clamp(T *dst, const T *x, double lo, double hi, i64 n) {
	EACH(i, n) {
		double v = x[i];
		dst[i] = v < lo ? (T)lo : v > hi ? (T)hi : x[i];
	}
}
KERNEL(clamp_f32, float *dst, const float *x, double lo, double hi, i64 n) { clamp(dst, x, lo, hi, n); }
KERNEL(clamp_f64, double *dst, const double *x, double lo, double hi, i64 n) { clamp(dst, x, lo, hi, n); }
KERNEL(clamp_int, int dt, void *dst, const void *x, i64 lo, i64 hi, i64 n) {
	EACH(i, n) {
		i64 v = load_int(dt, x, i);
		store_int(dt, dst, i, v < lo ? lo : v > hi ? hi : v);
	}
}

template <class T>
static __device__ void clamp_grad(T *dx, const T *dy, const T *x, double lo, double hi, i64 n) {
	EACH(i, n) dx[i] = x[i] >= lo && x[i] <= hi ? dy[i] : (T)0;
}
KERNEL(clamp_grad_f32, float *dx, const float *dy, const float *x, double lo, double hi, i64 n) { clamp_grad(dx, dy, x, lo, hi, n); }
KERNEL(clamp_grad_f64, double *dx, const double *dy, const double *x, double lo, double hi, i64 n) { clamp_grad(dx, dy, x, lo, hi, n); }

template <class T>
static __device__ void leaky(T *dst, const T *dy, const T *x, double slope, i64 n) {
	EACH(i, n) dst[i] = x[i] > 0 ? dy[i] : dy[i] * (T)slope;
}
KERNEL(leaky_f32, float *dst, const float *dy, const float *x, double slope, i64 n) { leaky(dst, dy, x, slope, n); }
KERNEL(leaky_f64, double *dst, const double *dy, const double *x, double slope, i64 n) { leaky(dst, dy, x, slope, n); }

static __device__ float mod_of(float a, float b) { return fmodf(a, b); }
static __device__ double mod_of(double a, double b) { return fmod(a, b); }

// towards returns a rest of a division by b, and b more where their signs differ.
template <class T>
static __device__ T towards(T b, T rest) {
	return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// is_short reports whether an operator is an instruction or two: those before POW.
static __device__ bool is_short(int op) { return op < POW; }

// floor_divide returns the largest whole number that is not above a/b, of the exact quotient.
static __device__ double floor_divide(double a, double b) {
	if (b == 0) return a / b;
	double rest = fmod(a, b), q = rint((a - rest) / b);
	if (rest != 0 && (b < 0) != (rest < 0)) return q - 1;
	return q == 0 ? copysign(0.0, a / b) : q;
}

// binary_short is binary_one of what is_short.
template <class T>
static __device__ T binary_short(int op, T a, T b) {
	switch ((BinaryOp)op) {
	case ADD: return a + b;
	case SUB: return a - b;
	case MUL: return a * b;
	case DIV: return a / b;
	case MAXIMUM: return max_of(a, b);
	case MINIMUM: return min_of(a, b);
	case POW:
	case REMAINDER:
	case FLOOR_DIVIDE:
	case FMOD:
	case ATAN2:
	case BITWISE_AND:
	case BITWISE_OR:
	case BITWISE_XOR:
	case SHIFT_LEFT:
	case SHIFT_RIGHT: break;
	}
	return missing_value<T>();
}

template <class T>
static __device__ T binary_one(int op, T a, T b) {
	if (op == POW) return (T)pow((double)a, (double)b);
	if (op == ATAN2) return (T)atan2((double)a, (double)b);
	if (op == FLOOR_DIVIDE) return (T)floor_divide(a, b);
	if (op == REMAINDER) return towards(b, mod_of(a, b));
	return op == FMOD ? mod_of(a, b) : binary_short(op, a, b);
}

// pow_int computes modulo 2^64.
static __device__ i64 pow_int(i64 a, i64 b) {
	u64 x = (u64)a, r = 1, n = (u64)b;
	if (b < 0) {
		if (a != 1 && a != -1) return 0;
		n = 0 - n;
	}
	for (; n > 0; n >>= 1) {
		if (n & 1) r *= x;
		x *= x;
	}
	return (i64)r;
}

// binary_int_one computes modulo 2^64, of which every smaller type keeps the low bits.
static __device__ i64 binary_int_one(int op, i64 a, i64 b) {
	switch ((BinaryOp)op) {
	case ADD: return (i64)((u64)a + (u64)b);
	case SUB: return (i64)((u64)a - (u64)b);
	case MUL: return (i64)((u64)a * (u64)b);
	case DIV: return b == 0 ? 0 : b == -1 ? (i64)(0 - (u64)a) : a / b;
	case MAXIMUM: return a > b ? a : b;
	case MINIMUM: return a < b ? a : b;
	case POW: return pow_int(a, b);
	case REMAINDER: return b == 0 ? a : b == -1 ? 0 : towards(b, a % b);
	case FLOOR_DIVIDE: {
		if (b == 0 || b == -1) return b == 0 ? 0 : (i64)(0 - (u64)a);
		i64 rest = a % b;
		return a / b - (rest != 0 && (rest < 0) != (b < 0));
	}
	case FMOD: return b == 0 ? a : b == -1 ? 0 : a % b;
	case BITWISE_AND: return a & b;
	case BITWISE_OR: return a | b;
	case BITWISE_XOR: return a ^ b;
	case SHIFT_LEFT: return (u64)b > 63 ? 0 : (i64)((u64)a << b);
	case SHIFT_RIGHT: return a >> ((u64)b > 63 ? 63 : b);
	case ATAN2: break;
	}
	return missing_value<i64>();
}

template <class T>
static __device__ void binary(int op, T *dst, const T *a, const T *b, i64 n) {
	typedef decltype(wide(*a)) W;
	each_packed<16 / sizeof(T)>(is_short(op), dst, a, b, b, n, [=](W x, W y, W) { return binary_short(op, x, y); },
		[=](W x, W y, W) { return binary_one(op, x, y); });
}
KERNEL(binary_f32, int op, float *dst, const float *a, const float *b, i64 n) { binary(op, dst, a, b, n); }
KERNEL(binary_f64, int op, double *dst, const double *a, const double *b, i64 n) { binary(op, dst, a, b, n); }
KERNEL(binary_bf16, int op, u16 *dst, const u16 *a, const u16 *b, i64 n) { binary(op, dst, a, b, n); }
KERNEL(binary_int, int op, int dt, void *dst, const void *a, const void *b, i64 n) {
	EACH(i, n) store_int(dt, dst, i, binary_int_one(op, load_int(dt, a, i), load_int(dt, b, i)));
}

template <class T>
static __device__ void binary_loop(int op, T *dst, const T *a, const T *b, const Loop &l, i64 n) {
	EACH(i, n) {
		At p = find(l, i, n);
		put(&dst[i], binary_one(op, wide(a[p.a]), wide(b[p.b])));
	}
}
KERNEL(binary_loop_bf16, int op, u16 *dst, const u16 *a, const u16 *b, Loop l, i64 n) { binary_loop(op, dst, a, b, l, n); }
KERNEL(binary_loop_f32, int op, float *dst, const float *a, const float *b, Loop l, i64 n) { binary_loop(op, dst, a, b, l, n); }
KERNEL(binary_loop_f64, int op, double *dst, const double *a, const double *b, Loop l, i64 n) { binary_loop(op, dst, a, b, l, n); }
KERNEL(binary_loop_int, int op, int dt, void *dst, const void *a, const void *b, Loop l, i64 n) {
	EACH(i, n) {
		At p = find(l, i, n);
		store_int(dt, dst, i, binary_int_one(op, load_int(dt, a, p.a), load_int(dt, b, p.b)));
	}
}

template <class T, class W>
static __device__ void binary_scalar(int op, T *dst, const T *x, W v, int swap, i64 n) {
	each_packed<16 / sizeof(T)>(is_short(op), dst, x, x, x, n, [=](W w, W, W) { return binary_short(op, swap ? v : w, swap ? w : v); },
		[=](W w, W, W) { return binary_one(op, swap ? v : w, swap ? w : v); });
}
KERNEL(binary_scalar_f32, int op, float *dst, const float *x, float v, int swap, i64 n) { binary_scalar(op, dst, x, v, swap, n); }
KERNEL(binary_scalar_f64, int op, double *dst, const double *x, double v, int swap, i64 n) { binary_scalar(op, dst, x, v, swap, n); }
KERNEL(binary_scalar_bf16, int op, u16 *dst, const u16 *x, float v, int swap, i64 n) { binary_scalar(op, dst, x, v, swap, n); }
KERNEL(binary_scalar_int, int op, int dt, void *dst, const void *x, i64 v, int swap, i64 n) {
	EACH(i, n) {
		i64 w = load_int(dt, x, i);
		store_int(dt, dst, i, swap ? binary_int_one(op, v, w) : binary_int_one(op, w, v));
	}
}

template <class T>
static __device__ bool compare_one(int op, T a, T b) {
	switch ((CompareOp)op) {
	case EQ: return a == b;
	case NE: return a != b;
	case LT: return a < b;
	case LE: return a <= b;
	case GT: return a > b;
	case GE: return a >= b;
	}
	return missing_value<bool>();
}

// compare_loop writes 0 or 1.
KERNEL(compare_loop, int op, int dt, u8 *dst, const void *a, const void *b, Loop l, i64 n) {
	EACH(i, n) {
		At p = find(l, i, n);
		if (is_float(dt)) dst[i] = compare_one(op, load_float(dt, a, p.a), load_float(dt, b, p.b));
		else dst[i] = compare_one(op, load_int(dt, a, p.a), load_int(dt, b, p.b));
	}
}

template <class T>
static __device__ void where_of(T *dst, const T *a, const T *b, const u8 *cond, const Loop &l, i64 n) {
	EACH(i, n) {
		At p = find(l, i, n);
		dst[i] = cond[p.c] ? a[p.a] : b[p.b];
	}
}

KERNEL(where, int bytes, void *dst, const void *a, const void *b, const u8 *cond, Loop l, i64 n) {
	switch (bytes) {
	case 1: where_of((u8 *)dst, (const u8 *)a, (const u8 *)b, cond, l, n); break;
	case 2: where_of((u16 *)dst, (const u16 *)a, (const u16 *)b, cond, l, n); break;
	case 4: where_of((u32 *)dst, (const u32 *)a, (const u32 *)b, cond, l, n); break;
	case 8: where_of((u64 *)dst, (const u64 *)a, (const u64 *)b, cond, l, n); break;
	default: missing();
	}
}

// axpy sets y[i] += alpha·x[i].
template <class T, class W>
static __device__ void axpy(T *y, W alpha, const T *x, i64 n) {
	auto add = [=](W to, W v, W) { return fused(alpha, v, to); };
	each_packed<16 / sizeof(T)>(true, y, y, x, x, n, add, add);
}
KERNEL(axpy_f32, float *y, float alpha, const float *x, i64 n) { axpy(y, alpha, x, n); }
KERNEL(axpy_f64, double *y, double alpha, const double *x, i64 n) { axpy(y, alpha, x, n); }
KERNEL(axpy_bf16, u16 *y, float alpha, const u16 *x, i64 n) { axpy(y, alpha, x, n); }

// philox is internal/philox.Key.Block.
static __device__ void philox(u64 seed, u64 stream, u64 block, u32 c[4]) {
	c[0] = (u32)block, c[1] = (u32)(block >> 32), c[2] = (u32)stream, c[3] = (u32)(stream >> 32);
	u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
	for (int r = 0; r < 10; r++) {
		u64 p0 = (u64)c[0] * 0xD2511F53u, p1 = (u64)c[2] * 0xCD9E8D57u;
		c[0] = (u32)(p1 >> 32) ^ c[1] ^ k0;
		c[1] = (u32)p1;
		c[2] = (u32)(p0 >> 32) ^ c[3] ^ k1;
		c[3] = (u32)p0;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
}

// OCTAVES polynomials of COEFFICIENTS each are the table of internal/philox.Normal.
enum { OCTAVES = 32, COEFFICIENTS = 9 };

// normal is internal/philox.Normal.
static __device__ double normal(u32 word, const double *tail) {
	double v = (double)((word & 0x7fffffff) << 1 | 1); // exact
	u64 bits = (u64)__double_as_longlong(v);
	const double *c = tail + COEFFICIENTS * ((u32)(bits >> 52) - 1023 & (OCTAVES - 1));
	double t = __longlong_as_double((i64)((bits & ((1ull << 52) - 1)) | 1023ull << 52)) - 1.5;
	double z = fma(c[0], t, c[1]);
#pragma unroll
	for (int k = 2; k < COEFFICIENTS; k++) z = fma(z, t, c[k]);
	return __longlong_as_double((i64)((u64)__double_as_longlong(z) ^ (u64)(word >> 31) << 63));
}

// random_runs sets dst[Σ i·a + k] to number(w), w being the random word of global element
// first + Σ i·b + k, for each k below run, and to single(w) where four float32 are written
// at once. A thread takes the words of one block of them.
template <class F, class G>
static __device__ void random_runs(int dt, void *dst, u64 seed, u64 stream, u64 first, const Loop &l, i64 runs, i64 run, F number, G single) {
	const i64 blocks = (run + 6) / 4; // at most so many have words of a run
	EACH(t, runs * blocks) {
		i64 r = runs == 1 ? 0 : runs * blocks < 1ll << 32 ? (u32)t / (u32)blocks : t / blocks;
		At p = find(l, r, runs);
		u64 start = first + (u64)p.b, block = start / 4 + (u64)(t - r * blocks);
		i64 k = (i64)(4 * block - start);
		if (k >= run) continue;
		u32 w[4];
		philox(seed, stream, block, w);
		float *to = (float *)dst + p.a + k;
		if (dt == F32 && k >= 0 && k + 4 <= run && (u64)to % 16 == 0) {
			Pack<float, 4> v;
#pragma unroll
			for (int e = 0; e < 4; e++) v.v[e] = single(w[e]);
			put_whole((Pack<float, 4> *)to, v);
			continue;
		}
#pragma unroll 1
		for (int e = 0; e < 4; e++) {
			if (k + e < 0 || k + e >= run) continue;
			double v = number(e == 0 ? w[0] : e == 1 ? w[1] : e == 2 ? w[2] : w[3]);
			if (is_float(dt)) store_float(dt, dst, p.a + k + e, v);
			else store_int(dt, dst, p.a + k + e, (i64)v);
		}
	}
}

// random_numbers makes runs of random numbers, a uniform one brought between least and
// most. It is the same arithmetic as the CPU's, one rounding for each fused multiply-add.
KERNEL(random_numbers, int op, int dt, void *dst, u64 seed, u64 stream, u64 first, Loop l, i64 runs, i64 run, double a, double b, double least, double most, const double *table) {
	__shared__ double tail[OCTAVES * COEFFICIENTS];
	switch ((RandomOp)op) {
	case UNIFORM: {
		auto number = [=](u32 w) {
			// 1 + u, of which the last 28 bits are 0
			double u = __longlong_as_double((i64)(1023ull << 52 | (u64)(w >> 8) << 28)) - 1;
			return fma(b - a, u, a);
		};
		float lowest = (float)least, highest = (float)most; // exact for float32
		random_runs(
			dt, dst, seed, stream, first, l, runs, run,
			[=](u32 w) {
				double v = number(w);
				return v < least ? least : v > most ? most : v;
			},
			[=](u32 w) { return fminf(fmaxf((float)number(w), lowest), highest); });
		break;
	}
	case NORMAL: {
		for (int i = threadIdx.x; i < OCTAVES * COEFFICIENTS; i += THREADS) tail[i] = table[i];
		__syncthreads();
		auto number = [=](u32 w) { return fma(b, normal(w, tail), a); };
		random_runs(dt, dst, seed, stream, first, l, runs, run, number, [=](u32 w) { return (float)number(w); });
		break;
	}
	case BERNOULLI: {
		auto number = [=](u32 w) { return (double)w < a * 4294967296.0 ? 1.0 : 0.0; };
		random_runs(dt, dst, seed, stream, first, l, runs, run, number, [=](u32 w) { return (float)number(w); });
		break;
	}
	default: missing();
	}
}
