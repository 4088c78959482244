// The largest elements of rows.
#include "common.h"

// key_of makes numbers that are ordered as TopK orders elements: NaN first, then the
// largest.
static __device__ u32 key_of(float v) {
	u32 b = v == 0 ? 0 : __float_as_uint(v);
	return v != v ? ~0u : b >> 31 ? ~b : b | 1u << 31;
}
static __device__ u64 key_of(double v) {
	u64 b = v == 0 ? 0 : (u64)__double_as_longlong(v);
	return v != v ? ~0ull : b >> 63 ? ~b : b | 1ull << 63;
}
static __device__ u32 key_of(u16 v) { return key_of(widen_bf16(v)); }
static __device__ u64 key_of(i64 v) { return (u64)v ^ 1ull << 63; }

// A Place is an element with its position. Of equals the first is ahead; at nowhere is
// none, which all are ahead of.
template <class K>
struct Place {
	K key;
	i64 at;
};
static const i64 nowhere = 0x7fffffffffffffffll;

template <class K>
static __device__ bool ahead(Place<K> a, Place<K> b) {
	return a.key > b.key | (a.key == b.key & a.at < b.at);
}

// Floats and Ints read elements, also as the Packs that lie at multiples of 16 bytes, and
// copy them; past says how many elements past such a multiple one is.
template <class T>
struct Floats {
	enum { SIZE = 16 / sizeof(T) };
	T *values;
	const T *x;
	__device__ int past(i64 i) const { return (int)((u64)(x + i) % 16 / sizeof(T)); }
	__device__ Pack<T, SIZE> pack(i64 i) const { return *(const Pack<T, SIZE> *)(x + i); }
	__device__ T operator()(i64 i) const { return x[i]; }
	__device__ void copy(i64 to, i64 from) const { values[to] = x[from]; }
};
struct Ints {
	enum { SIZE = 1 };
	int dt;
	void *values;
	const void *x;
	__device__ int past(i64) const { return 0; }
	__device__ Pack<i64, 1> pack(i64 i) const { return Pack<i64, 1>{{load_int(dt, x, i)}}; }
	__device__ i64 operator()(i64 i) const { return load_int(dt, x, i); }
	__device__ void copy(i64 to, i64 from) const { store_int(dt, values, to, load_int(dt, x, from)); }
};

// each_in_group calls f for the elements of a row of n that are in packs first,
// first + step, …: those that lie at multiples of 16 bytes, the first and the last maybe
// in part. AHEAD of them are read at once.
template <int AHEAD, class X, class F>
static __device__ void each_in_group(const X &x, i64 row, i64 n, i64 first, i64 step, F f) {
	const int N = X::SIZE;
	typedef decltype(x.pack(0)) P;
	i64 i = first * N - x.past(row);
	step *= N;
	for (; i < n; i += step) {
		for (; AHEAD > 1 && i >= 0 && i + (AHEAD - 1) * step + N <= n; i += AHEAD * step) {
			P p[AHEAD];
#pragma unroll
			for (int u = 0; u < AHEAD; u++) p[u] = x.pack(row + i + u * step);
#pragma unroll
			for (int u = 0; u < AHEAD; u++)
#pragma unroll
				for (int e = 0; e < N; e++) f(key_of(p[u].v[e]), i + u * step + e);
		}
		P p;
		if (i >= 0 && i + N <= n) p = x.pack(row + i);
		else
#pragma unroll
			for (int e = 0; e < N; e++) p.v[e] = i + e >= 0 && i + e < n ? x(row + i + e) : 0;
#pragma unroll
		for (int e = 0; e < N; e++)
			if (i + e >= 0 && i + e < n) f(key_of(p.v[e]), i + e);
	}
}

// So many places there is room for, and so many are asked for at once.
enum { ROOM = 1024, AT_ONCE = 128 };

// top_k finds the first k of each row of n, a block a row, some at a time. Each thread
// finds the first of a group of elements. Of these the one that is as many places down
// as are wanted is the limit: what is not behind it is as much as is wanted, or more,
// and lies in the few groups whose first is not behind it. Where there is no room for
// as many, fewer are asked for; of one there is one.
template <class X>
static __device__ void top_k(X x, i64 *index, i64 rows, i64 n, i64 k) {
	typedef decltype(key_of(x(0))) K;
	typedef Place<K> P;
	__shared__ K best[THREADS], found[ROOM], limit_key, last_key;
	__shared__ i64 best_at[THREADS], found_at[ROOM], limit_at, last_at;
	__shared__ int group[THREADS], groups, count;
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const i64 packs = n / X::SIZE + 2; // at most
	const int used = packs < THREADS ? (int)packs : THREADS;
	for (i64 r = blockIdx.x; r < rows; r += gridDim.x) {
		P last = {(K)~(K)0, -1}; // of those that are found
		int want = AT_ONCE;
		for (i64 done = 0; done < k;) {
			if (want > k - done) want = (int)(k - done);
			P own = {0, nowhere};
			each_in_group<X::SIZE == 8 ? 2 : 4>(x, r * n, n, threadIdx.x, THREADS, [&](K key, i64 i) {
				P p = {key, i};
				bool first = ahead(p, own) & ahead(last, p);
				own.key = first ? key : own.key;
				own.at = first ? i : own.at;
			});
			best[threadIdx.x] = own.key;
			best_at[threadIdx.x] = own.at;
			if (threadIdx.x == 0) {
				groups = count = 0;
				limit_key = 0;
				limit_at = nowhere;
			}
			__syncthreads();
			if (own.at != nowhere) {
				int rank = 0;
#pragma unroll 8
				for (int g = 0; g < used; g++)
					if (best[g] >= own.key) rank += best[g] > own.key || best_at[g] < own.at;
				if (rank == want - 1) {
					limit_key = own.key;
					limit_at = own.at;
				}
			}
			__syncthreads();
			P limit = {limit_key, limit_at};
			if (own.at != nowhere && !ahead(limit, own)) group[atomicAdd(&groups, 1)] = threadIdx.x;
			__syncthreads();
			for (int g = warp; g < groups; g += THREADS / 32)
				each_in_group<1>(x, r * n, n, group[g] + lane * THREADS, 32 * THREADS, [&](K key, i64 i) {
					P p = {key, i};
					if (ahead(limit, p) || !ahead(last, p)) return;
					int at = atomicAdd(&count, 1);
					if (at >= ROOM) return;
					found[at] = key;
					found_at[at] = i;
				});
			__syncthreads();
			const int m = count;
			if (m > ROOM) {
				want /= 2;
				__syncthreads(); // all have read the count
				continue;
			}
			for (int c = threadIdx.x; c < m; c += THREADS) {
				P p = {found[c], found_at[c]};
				int rank = 0;
#pragma unroll 8
				for (int g = 0; g < m; g++)
					if (found[g] >= p.key) rank += found[g] > p.key || found_at[g] < p.at;
				if (done + rank < k) {
					x.copy(r * k + done + rank, r * n + p.at);
					index[r * k + done + rank] = p.at;
				}
				if (rank == m - 1) {
					last_key = p.key;
					last_at = p.at;
				}
			}
			__syncthreads();
			last = P{last_key, last_at};
			done += m;
			want = AT_ONCE;
		}
	}
}

KERNEL(top_k_f32, float *values, i64 *index, const float *x, i64 rows, i64 n, i64 k) { top_k(Floats<float>{values, x}, index, rows, n, k); }
KERNEL(top_k_f64, double *values, i64 *index, const double *x, i64 rows, i64 n, i64 k) { top_k(Floats<double>{values, x}, index, rows, n, k); }
KERNEL(top_k_bf16, u16 *values, i64 *index, const u16 *x, i64 rows, i64 n, i64 k) { top_k(Floats<u16>{values, x}, index, rows, n, k); }
KERNEL(top_k_int, int dt, void *values, i64 *index, const void *x, i64 rows, i64 n, i64 k) { top_k(Ints{dt, values, x}, index, rows, n, k); }
