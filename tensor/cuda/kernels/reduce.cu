// Reductions and running sums.
#include "common.h"
#include "ops.h"

// Floats are combined as doubles, integers as 64-bit ones.
static __device__ double start(int op, double) {
	switch ((ReduceOp)op) {
	case SUM: return 0;
	case PROD: return 1;
	case AMAX: return -infinity(0.0);
	case AMIN: return infinity(0.0);
	}
	return missing_value<double>();
}

template <class T>
static __device__ T combine(int op, T a, T b) {
	switch ((ReduceOp)op) {
	case SUM: return a + b;
	case PROD: return a * b;
	case AMAX: return max_of(a, b);
	case AMIN: return min_of(a, b);
	}
	return missing_value<T>();
}

// team_combine is warp_reduce for a team of 32 threads, block_reduce for one of THREADS.
template <class T>
static __device__ T team_combine(int op, int team, T v) {
	__shared__ T part[THREADS / 32];
#pragma unroll 1
	for (int d = 16; d > 0; d >>= 1) v = combine(op, v, __shfl_xor_sync(0xffffffffu, v, d));
	if (team == 32) return v;
	__syncthreads(); // part may still be read from the call before
	if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
	__syncthreads();
	v = part[0];
#pragma unroll 1
	for (int w = 1; w < THREADS / 32; w++) v = combine(op, v, part[w]);
	return v;
}

// Part s of segs of a run of red elements begins at cut(s).
static __device__ i64 cut(i64 s, i64 red, i64 segs) { return s * (red / segs) + (s < red % segs ? s : red % segs); }

// In reads elements as what is computed with, N that lie side by side at once, SIZE at
// most, which are 16 bytes; aligned says whether those from i on lie at a multiple of
// that. PARTS says that they may be those of another reduction. Out writes one.
template <class T>
struct From {
	enum { SIZE = 16 / sizeof(T), PARTS = sizeof(T) == 8 };
	const T *p;
	__device__ double operator()(i64 i) const { return wide(p[i]); }
	__device__ bool aligned(i64 i) const { return (u64)(p + i) % 16 == 0; }
	template <int N>
	__device__ Pack<T, N> several(i64 i) const { return *(const Pack<T, N> *)(p + i); }
};
template <class T>
struct To {
	T *p;
	__device__ void operator()(i64 i, double v) const { p[i] = (T)v; }
};
struct FromInt {
	enum { SIZE = 1, PARTS = 1 };
	int dt;
	const void *p;
	__device__ i64 operator()(i64 i) const { return load_int(dt, p, i); }
	__device__ bool aligned(i64) const { return true; }
	template <int N>
	__device__ Pack<i64, 1> several(i64 i) const { return Pack<i64, 1>{{load_int(dt, p, i)}}; }
};
struct ToInt {
	int dt;
	void *p;
	__device__ void operator()(i64 i, i64 v) const { store_int(dt, p, i, v); }
};

static __device__ i64 wide(i64 v) { return v; }

// SHORT is how long a row is that a warp combines, not a block.
enum { SHORT = 2048 };

// AHEAD is how many loads are on their way at once: one where what follows each is long.
template <int N>
struct Loads {
	enum { AHEAD = N > 1 ? 4 : 1 };
};

// reduce_rows computes dst[o, s] = op over part s of r of x[o, r], N elements a thread
// at once, wherever they lie: the order depends on red and segs alone.
template <int N, class T, class In, class Out>
static __device__ void reduce_rows(int op, In in, Out out, T none, i64 outer, i64 red, i64 segs) {
	const int team = red <= SHORT * segs ? 32 : THREADS, mate = threadIdx.x % team;
	for (i64 t = (blockIdx.x * (i64)THREADS + threadIdx.x) / team; t < outer * segs; t += (i64)gridDim.x * (THREADS / team)) {
		i64 s = t % segs, begin = cut(s, red, segs), n = cut(s + 1, red, segs) - begin, from = t / segs * red + begin;
		T v = none;
		if (N == 1 || in.aligned(from)) {
#pragma unroll Loads<N>::AHEAD
			for (i64 k = mate; k < n / N; k += team) {
				auto p = in.template several<N>(from + k * N);
#pragma unroll
				for (int e = 0; e < N; e++) v = combine(op, v, (T)wide(p.v[e]));
			}
		} else {
			for (i64 k = mate; k < n / N; k += team)
#pragma unroll
				for (int e = 0; e < N; e++) v = combine(op, v, in(from + k * N + e));
		}
		for (i64 k = n / N * N + mate; k < n; k += team) v = combine(op, v, in(from + k));
		v = team_combine(op, team, v);
		if (mate == 0) out(t, v);
	}
}

// reduce_columns computes dst[o, s, i] = op over part s of r of x[o, r, i], N columns a
// thread.
template <int N, class T, class In, class Out>
static __device__ void reduce_columns(int op, In in, Out out, T none, i64 outer, i64 red, i64 inner, i64 segs) {
	EACH(t, outer * segs * (inner / N)) {
		i64 i = t % (inner / N) * N, s = t / (inner / N) % segs, o = t / (inner / N) / segs, end = cut(s + 1, red, segs);
		T v[N];
#pragma unroll
		for (int e = 0; e < N; e++) v[e] = none;
#pragma unroll Loads<N>::AHEAD
		for (i64 r = cut(s, red, segs); r < end; r++) {
			auto p = in.template several<N>((o * red + r) * inner + i);
#pragma unroll
			for (int e = 0; e < N; e++) v[e] = combine(op, v[e], (T)wide(p.v[e]));
		}
#pragma unroll
		for (int e = 0; e < N; e++) out(t * N + e, v[e]);
	}
}

// Up to FEW columns of TALL parts and more are combined by many threads each.
enum { FEW = 8192, TALL = 32 };

// reduce computes dst[o, s, i] = op over part s of r of x[o, r, i] for x
// [outer, red, inner] and dst [outer, segs, inner]. Sums read 16 bytes at once.
template <class T, class In, class Out>
static __device__ void reduce(int op, In in, Out out, T none, i64 outer, i64 red, i64 inner, i64 segs) {
	const int N = In::SIZE;
	if (inner == 1 && op == SUM) reduce_rows<N>(SUM, in, out, none, outer, red, segs);
	else if (inner == 1) reduce_rows<1>(op, in, out, none, outer, red, segs);
	else if (In::PARTS && segs == 1 && outer * inner <= FEW && red >= TALL) tall_columns(outer * inner, red, inner, none, [&](i64 c) { return c / inner * red * inner + c % inner; }, in, [&](T a, T b) { return combine(op, a, b); }, out);
	else if (op == SUM && inner % N == 0 && in.aligned(0)) reduce_columns<N>(SUM, in, out, none, outer, red, inner, segs);
	else reduce_columns<1>(op, in, out, none, outer, red, inner, segs);
}

KERNEL(reduce_f32, int op, float *dst, const float *x, i64 outer, i64 red, i64 inner) {
	reduce(op, From<float>{x}, To<float>{dst}, start(op, 0.0), outer, red, inner, 1);
}
KERNEL(reduce_f32_f64, int op, double *dst, const float *x, i64 outer, i64 red, i64 inner, i64 segs) {
	reduce(op, From<float>{x}, To<double>{dst}, start(op, 0.0), outer, red, inner, segs);
}
KERNEL(reduce_bf16_f32, int op, float *dst, const u16 *x, i64 outer, i64 red, i64 inner) {
	reduce(op, From<u16>{x}, To<float>{dst}, start(op, 0.0), outer, red, inner, 1);
}
KERNEL(reduce_bf16_f64, int op, double *dst, const u16 *x, i64 outer, i64 red, i64 inner, i64 segs) {
	reduce(op, From<u16>{x}, To<double>{dst}, start(op, 0.0), outer, red, inner, segs);
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

// sum_squares writes Σx² of part s of segs, 16 bytes a thread at once, wherever they lie.
template <class T>
static __device__ void sum_squares(double *dst, const T *x, i64 n, i64 segs) {
	const int N = 16 / sizeof(T);
	for (i64 s = blockIdx.x; s < segs; s += gridDim.x) {
		i64 begin = cut(s, n / N, segs) * N, len = (s + 1 < segs ? cut(s + 1, n / N, segs) * N : n) - begin;
		const T *part = x + begin;
		double v = 0;
		auto add = [&](T e) { v = fma((double)wide(e), (double)wide(e), v); };
		if ((u64)part % 16 == 0) {
#pragma unroll 4
			for (i64 k = threadIdx.x; k < len / N; k += THREADS) {
				Pack<T, N> p = ((const Pack<T, N> *)part)[k];
#pragma unroll
				for (int e = 0; e < N; e++) add(p.v[e]);
			}
		} else {
			for (i64 k = threadIdx.x; k < len / N; k += THREADS)
				for (int e = 0; e < N; e++) add(part[k * N + e]);
		}
		for (i64 i = len / N * N + threadIdx.x; i < len; i += THREADS) add(part[i]);
		v = block_reduce<Sum>(v);
		if (threadIdx.x == 0) dst[s] = v;
	}
}
KERNEL(sum_squares_f32, double *dst, const float *x, i64 n, i64 segs) { sum_squares(dst, x, n, segs); }
KERNEL(sum_squares_bf16, double *dst, const u16 *x, i64 n, i64 segs) { sum_squares(dst, x, n, segs); }
KERNEL(sum_squares_f64, double *dst, const double *x, i64 n, i64 segs) { sum_squares(dst, x, n, segs); }

// cumsum_columns adds up in S along r of part s of segs of [outer, n, inner], one thread
// a column, in order. part [outer, segs, inner] has the sums of the parts; it is not
// read for one.
template <class S, class T>
static __device__ void cumsum_columns(int reverse, T *__restrict__ dst, const T *__restrict__ x, const S *part, i64 outer, i64 n, i64 inner, i64 segs) {
	EACH(t, outer * segs * inner) {
		i64 i = t % inner, s = t / inner % segs, o = t / inner / segs, begin = cut(s, n, segs), end = cut(s + 1, n, segs);
		S v = 0;
		for (i64 q = reverse ? segs - 1 : 0; q != s; q += reverse ? -1 : 1) v += part[(o * segs + q) * inner + i];
#pragma unroll 4
		for (i64 k = 0; k < end - begin; k++) {
			i64 at = (o * n + (reverse ? end - 1 - k : begin + k)) * inner + i;
			v += x[at];
			dst[at] = (T)v;
		}
	}
}

// block_before returns the sum of v over the threads before this one, and the sum over
// all. Calls take turns with the halves of part, so that one barrier is enough.
template <class S>
static __device__ S block_before(S v, int turn, S *total) {
	__shared__ S part[2][THREADS / 32];
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	S upto = v;
#pragma unroll
	for (int d = 1; d < 32; d *= 2) {
		S o = __shfl_up_sync(0xffffffffu, upto, d);
		if (lane >= d) upto = o + upto;
	}
	if (lane == 31) part[turn % 2][warp] = upto;
	S before = __shfl_up_sync(0xffffffffu, upto, 1);
	if (lane == 0) before = 0;
	__syncthreads();
	S sum = 0;
#pragma unroll
	for (int w = 0; w < THREADS / 32; w++) {
		if (w == warp) before = sum + before;
		sum += part[turn % 2][w];
	}
	*total = sum;
	return before;
}

// cumsum_rows adds up in S along rows [outer, n], a block a part. Each thread takes 16
// bytes at a time, and those after them are on their way.
template <class S, class T>
static __device__ void cumsum_rows(int reverse, T *dst, const T *x, const S *part, i64 outer, i64 n, i64 segs) {
	enum { N = 16 / sizeof(T) };
	typedef Pack<T, N> P;
	for (i64 t = blockIdx.x; t < outer * segs; t += gridDim.x) {
		i64 s = t % segs, o = t / segs, len = cut(s + 1, n, segs) - cut(s, n, segs), from = o * n + cut(s, n, segs);
		S before = 0;
		for (i64 q = threadIdx.x; q < segs; q += THREADS)
			if (reverse ? q > s : q < s) before += part[o * segs + q];
		if (segs > 1) before = block_reduce<Sum>(before);
		auto load = [=](i64 k) {
			P p;
			if (k + N <= len) return pack_at<P>(x + from + (reverse ? len - N - k : k));
#pragma unroll
			for (int e = 0; e < N; e++) {
				i64 i = reverse ? len - N - k + e : k + e;
				p.v[e] = i < 0 || i >= len ? (T)0 : x[from + i];
			}
			return p;
		};
		P next = load(threadIdx.x * N);
		int turn = 0;
		for (i64 k = threadIdx.x * N; k - threadIdx.x * N < len; k += THREADS * N, turn++) {
			P p = next;
			next = load(k + THREADS * N);
			S v[N], total;
#pragma unroll
			for (int e = 0; e < N; e++) {
				v[e] = (S)p.v[reverse ? N - 1 - e : e];
				if (e > 0) v[e] += v[e - 1];
			}
			S at = before + block_before(v[N - 1], turn, &total);
#pragma unroll
			for (int e = 0; e < N; e++) p.v[e] = (T)(at + v[reverse ? N - 1 - e : e]);
			if (k + N <= len) put_pack(dst + from + (reverse ? len - N - k : k), p);
			else
#pragma unroll
				for (int e = 0; e < N; e++) {
					i64 i = reverse ? len - N - k + e : k + e;
					if (i >= 0 && i < len) dst[from + i] = p.v[e];
				}
			before += total;
		}
		__syncthreads(); // the turns begin anew
	}
}

// cumsum_in_order does so one number after the other, 32 rows a block. All threads read
// and write, some columns at a time; one for each row adds up.
template <class S, class T>
static __device__ void cumsum_in_order(int reverse, T *dst, const T *x, i64 outer, i64 n) {
	enum { ROWS = 32, COLUMNS = 64, ROWS_AT_ONCE = THREADS / COLUMNS, N = ROWS / ROWS_AT_ONCE };
	__shared__ S tile[ROWS][COLUMNS + 1];
	const int column = threadIdx.x % COLUMNS, row = threadIdx.x / COLUMNS;
	for (i64 o = (i64)blockIdx.x * ROWS; o < outer; o += (i64)gridDim.x * ROWS) {
		S sum = 0;
		T next[N];
		// Element e of a thread is that of column k, counted from where the sum begins.
		auto place = [=](int e, i64 k) { return (o + row + e * ROWS_AT_ONCE) * n + (reverse ? n - 1 - k : k); };
		auto within = [=](int e, i64 k) { return o + row + e * ROWS_AT_ONCE < outer && k < n; };
#pragma unroll
		for (int e = 0; e < N; e++) next[e] = within(e, column) ? x[place(e, column)] : (T)0;
		for (i64 k = column; k - column < n; k += COLUMNS) {
#pragma unroll
			for (int e = 0; e < N; e++) tile[row + e * ROWS_AT_ONCE][column] = (S)next[e];
			__syncthreads();
#pragma unroll
			for (int e = 0; e < N; e++) next[e] = within(e, k + COLUMNS) ? x[place(e, k + COLUMNS)] : (T)0;
			if (threadIdx.x < ROWS) {
#pragma unroll 16
				for (int c = 0; c < COLUMNS; c++) {
					sum += tile[threadIdx.x][c];
					tile[threadIdx.x][c] = sum;
				}
			}
			__syncthreads();
#pragma unroll
			for (int e = 0; e < N; e++)
				if (within(e, k)) dst[place(e, k)] = (T)tile[row + e * ROWS_AT_ONCE][column];
		}
	}
}

// Up to SHORT_SUM elements of a row are added up in order.
enum { SHORT_SUM = 256 };

template <class S, class T>
static __device__ void cumsum(int reverse, T *dst, const T *x, const S *part, i64 outer, i64 n, i64 inner, i64 segs) {
	if (inner > 1) cumsum_columns(reverse, dst, x, part, outer, n, inner, segs);
	else if (n > SHORT_SUM) cumsum_rows(reverse, dst, x, part, outer, n, segs);
	else cumsum_in_order<S>(reverse, dst, x, outer, n);
}
KERNEL(cumsum_f32, int reverse, float *dst, const float *x, const double *part, i64 outer, i64 n, i64 inner, i64 segs) { cumsum(reverse, dst, x, part, outer, n, inner, segs); }
KERNEL(cumsum_i64, int reverse, u64 *dst, const u64 *x, const u64 *part, i64 outer, i64 n, i64 inner, i64 segs) { cumsum(reverse, dst, x, part, outer, n, inner, segs); }

// What is float64 is added up in order, to the bits of the CPU's.
KERNEL(cumsum_f64, int reverse, double *dst, const double *x, i64 outer, i64 n, i64 inner) {
	if (inner > 1) cumsum_columns(reverse, dst, x, (const double *)0, outer, n, inner, 1);
	else cumsum_in_order<double>(reverse, dst, x, outer, n);
}
