// Reductions, running sums and the largest elements.
#include "common.h"

enum { SUM, PROD, AMAX, AMIN };

struct Prod {
	template <class T>
	static __device__ T of(T a, T b) { return a * b; }
};
struct Min {
	template <class T>
	static __device__ T of(T a, T b) { return min_of(a, b); }
};

// Floats are combined as doubles, integers as 64-bit ones.
static __device__ double start(int op, double) {
	return op == SUM ? 0 : op == PROD ? 1 : op == AMAX ? -infinity(0.0) : infinity(0.0);
}

template <class T>
static __device__ T combine(int op, T a, T b) {
	switch (op) {
	case SUM: return a + b;
	case PROD: return a * b;
	case AMAX: return max_of(a, b);
	default: return min_of(a, b);
	}
}

template <class T>
static __device__ T block_combine(int op, T v) {
	switch (op) {
	case SUM: return block_reduce<Sum>(v);
	case PROD: return block_reduce<Prod>(v);
	case AMAX: return block_reduce<Max>(v);
	default: return block_reduce<Min>(v);
	}
}

// Part s of segs of a run of red elements begins at cut(s).
static __device__ i64 cut(i64 s, i64 red, i64 segs) { return s * (red / segs) + (s < red % segs ? s : red % segs); }

// reduce computes dst[o, s, i] = op over part s of r of x[o, r, i]. In and Out read
// and write an element of [outer, red, inner] and [outer, segs, inner].
template <class T, class In, class Out>
static __device__ void reduce(int op, In in, Out out, T none, i64 outer, i64 red, i64 inner, i64 segs) {
	if (inner == 1) {
		for (i64 t = blockIdx.x; t < outer * segs; t += gridDim.x) {
			i64 o = t / segs, s = t % segs, end = cut(s + 1, red, segs);
			T v = none;
			for (i64 r = cut(s, red, segs) + threadIdx.x; r < end; r += THREADS) v = combine(op, v, in(o * red + r));
			v = block_combine(op, v);
			if (threadIdx.x == 0) out(t, v);
		}
		return;
	}
	EACH(t, outer * segs * inner) {
		i64 i = t % inner, s = t / inner % segs, o = t / inner / segs, end = cut(s + 1, red, segs);
		T v = none;
		for (i64 r = cut(s, red, segs); r < end; r++) v = combine(op, v, in((o * red + r) * inner + i));
		out(t, v);
	}
}

template <class T>
struct From {
	const T *p;
	__device__ double operator()(i64 i) const { return p[i]; }
};
template <class T>
struct To {
	T *p;
	__device__ void operator()(i64 i, double v) const { p[i] = (T)v; }
};
struct FromHalf { // bfloat16
	const u16 *p;
	__device__ double operator()(i64 i) const { return widen_bf16(p[i]); }
};
struct FromInt {
	int dt;
	const void *p;
	__device__ i64 operator()(i64 i) const { return load_int(dt, p, i); }
};
struct ToInt {
	int dt;
	void *p;
	__device__ void operator()(i64 i, i64 v) const { store_int(dt, p, i, v); }
};

KERNEL(reduce_f32, int op, float *dst, const float *x, i64 outer, i64 red, i64 inner) {
	reduce(op, From<float>{x}, To<float>{dst}, start(op, 0.0), outer, red, inner, 1);
}
KERNEL(reduce_f32_f64, int op, double *dst, const float *x, i64 outer, i64 red, i64 inner, i64 segs) {
	reduce(op, From<float>{x}, To<double>{dst}, start(op, 0.0), outer, red, inner, segs);
}
KERNEL(reduce_f64_f32, int op, float *dst, const double *x, i64 outer, i64 red, i64 inner) {
	reduce(op, From<double>{x}, To<float>{dst}, start(op, 0.0), outer, red, inner, 1);
}
KERNEL(reduce_f64, int op, double *dst, const double *x, i64 outer, i64 red, i64 inner, i64 segs) {
	reduce(op, From<double>{x}, To<double>{dst}, start(op, 0.0), outer, red, inner, segs);
}
KERNEL(reduce_int, int op, int to, void *dst, int from, const void *x, i64 none, i64 outer, i64 red, i64 inner, i64 segs) {
	reduce(op, FromInt{from, x}, ToInt{to, dst}, none, outer, red, inner, segs);
}

// sum_squares writes Σx² of part s of segs.
template <class T>
static __device__ void sum_squares(double *dst, const T *x, i64 n, i64 segs) {
	for (i64 s = blockIdx.x; s < segs; s += gridDim.x) {
		double v = 0;
		for (i64 i = cut(s, n, segs) + threadIdx.x, end = cut(s + 1, n, segs); i < end; i += THREADS) v = fma((double)x[i], (double)x[i], v);
		v = block_reduce<Sum>(v);
		if (threadIdx.x == 0) dst[s] = v;
	}
}
KERNEL(sum_squares_f32, double *dst, const float *x, i64 n, i64 segs) { sum_squares(dst, x, n, segs); }
KERNEL(sum_squares_f64, double *dst, const double *x, i64 n, i64 segs) { sum_squares(dst, x, n, segs); }

// cumsum adds up in S along r of [outer, n, inner], one thread a column, in order.
template <class S, class T>
static __device__ void cumsum(int reverse, T *dst, const T *x, i64 outer, i64 n, i64 inner) {
	EACH(t, outer * inner) {
		i64 at = t / inner * n * inner + t % inner;
		S v = 0;
		for (i64 k = 0; k < n; k++) {
			i64 r = at + (reverse ? n - 1 - k : k) * inner;
			v += x[r];
			dst[r] = (T)v;
		}
	}
}
KERNEL(cumsum_f32, int reverse, float *dst, const float *x, i64 outer, i64 n, i64 inner) { cumsum<double>(reverse, dst, x, outer, n, inner); }
KERNEL(cumsum_f64, int reverse, double *dst, const double *x, i64 outer, i64 n, i64 inner) { cumsum<double>(reverse, dst, x, outer, n, inner); }
KERNEL(cumsum_i64, int reverse, u64 *dst, const u64 *x, i64 outer, i64 n, i64 inner) { cumsum<u64>(reverse, dst, x, outer, n, inner); }

// A Place is an element with its position; at -1 is none.
template <class T>
struct Place {
	T v;
	i64 at;
};

// ahead is the order of TopK: NaN first, then the largest, of equals the first.
template <class T>
static __device__ bool ahead(T a, i64 i, T b, i64 j) {
	if (a != a || b != b) {
		if (a != a && b != b) return i < j;
		return a != a;
	}
	return a > b || (a == b && i < j);
}

// better returns which of two comes first.
template <class T>
static __device__ Place<T> better(Place<T> a, Place<T> b) {
	if (a.at < 0) return b;
	if (b.at < 0) return a;
	return ahead(a.v, a.at, b.v, b.at) ? a : b;
}

// top_k finds the first k of each row in that order, one after the other.
template <class T, class In, class Copy>
static __device__ void top_k(In in, Copy copy, i64 *index, i64 rows, i64 n, i64 k) {
	__shared__ T value[THREADS];
	__shared__ i64 where[THREADS];
	for (i64 r = blockIdx.x; r < rows; r += gridDim.x) {
		Place<T> last = {0, -1};
		for (i64 j = 0; j < k; j++) {
			Place<T> best = {0, -1};
			for (i64 i = threadIdx.x; i < n; i += THREADS) {
				T v = in(r * n + i);
				if (last.at < 0 || ahead(last.v, last.at, v, i)) best = better(best, Place<T>{v, i});
			}
			value[threadIdx.x] = best.v;
			where[threadIdx.x] = best.at;
			__syncthreads();
			for (int d = THREADS / 2; d > 0; d /= 2) {
				if (threadIdx.x < d) {
					best = better(Place<T>{value[threadIdx.x], where[threadIdx.x]}, Place<T>{value[threadIdx.x + d], where[threadIdx.x + d]});
					value[threadIdx.x] = best.v;
					where[threadIdx.x] = best.at;
				}
				__syncthreads();
			}
			last = Place<T>{value[0], where[0]};
			if (threadIdx.x == 0) {
				copy(r * k + j, r * n + last.at);
				index[r * k + j] = last.at;
			}
			__syncthreads();
		}
	}
}

template <class T>
struct Copy {
	T *dst;
	const T *src;
	__device__ void operator()(i64 to, i64 from) const { dst[to] = src[from]; }
};
struct CopyInt {
	int dt;
	void *dst;
	const void *src;
	__device__ void operator()(i64 to, i64 from) const { store_int(dt, dst, to, load_int(dt, src, from)); }
};

KERNEL(top_k_f32, float *values, i64 *index, const float *x, i64 rows, i64 n, i64 k) { top_k<double>(From<float>{x}, Copy<float>{values, x}, index, rows, n, k); }
KERNEL(top_k_f64, double *values, i64 *index, const double *x, i64 rows, i64 n, i64 k) { top_k<double>(From<double>{x}, Copy<double>{values, x}, index, rows, n, k); }
KERNEL(top_k_bf16, u16 *values, i64 *index, const u16 *x, i64 rows, i64 n, i64 k) { top_k<double>(FromHalf{x}, Copy<u16>{values, x}, index, rows, n, k); }
KERNEL(top_k_int, int dt, void *values, i64 *index, const void *x, i64 rows, i64 n, i64 k) { top_k<i64>(FromInt{dt, x}, CopyInt{dt, values, x}, index, rows, n, k); }
