// Attention of bfloat16 by the tensor cores. A warp has 16 queries, and the warps of a
// block go through the keys together, some at a time, so that neither scores nor weights
// reach memory: a row's largest score and the sum of its weights are brought up to date
// with each tile, and the gradients compute the weights again. Scores, sums and results
// are float32 until they are stored; weights and the scores' gradients are rounded to
// bfloat16 for the products.
//
// Dao, Fu, Ermon, Rudra, Ré: FlashAttention: Fast and Memory-Efficient Exact Attention
// with IO-Awareness (2022); Dao: FlashAttention-2: Faster Attention with Better
// Parallelism and Work Partitioning (2023).
#include "common.h"

// What the tensor cores offer; the fake driver's shim.h has its own. Of a matrix of 16·16
// or 16·8 that a warp holds, lane l has rows l/4 and l/4 + 8 of a left argument and of a
// result, column l/4 of a right one, and there two neighbours from 2·(l%4) on, with 8 more
// between one pair and the next.
#ifdef __CUDACC__
// PAIR is a KERNEL of which two blocks fit on a multiprocessor.
#define PAIR(name, ...) extern "C" __global__ void __launch_bounds__(THREADS, 2) name(__VA_ARGS__)

// mma adds to c [16, 8] the product of a [16, 16] and b [16, 8].
static __device__ void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
	asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
	    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
	    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// load_matrices reads four matrices of 8·8 from shared memory: lane l says where row l%8
// of matrix l/8 lies, and gets two neighbours in row l/4 of each.
static __device__ void load_matrices(u32 (&r)[4], const u16 *row) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((u32)__cvta_generic_to_shared(row)));
}

// load_transposed is load_matrices with two neighbours in column l/4.
static __device__ void load_transposed(u32 (&r)[4], const u16 *row) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((u32)__cvta_generic_to_shared(row)));
}

// copy_async begins to copy 4 or 16 bytes to shared memory, or to write zeros there without
// reading. They are there for the thread after copies_done, for others after a barrier too.
template <int BYTES>
static __device__ void copy_async(void *to, const void *from, bool zeros) {
	u32 at = (u32)__cvta_generic_to_shared(to), n = zeros ? 0 : BYTES;
	if (BYTES == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(n));
	else asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from), "r"(n));
}
static __device__ void copies_done() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// halves rounds two numbers to bfloat16: a is the lower half.
static __device__ u32 halves(float a, float b) {
	u32 r;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
	return r;
}

static __device__ float exp2_of(float x) {
	float r;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
	return r;
}
static __device__ float one_by(float x) {
	float r;
	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
	return r;
}
#else
#define PAIR KERNEL
static __device__ u32 halves(float a, float b) { return narrow_bf16(a) | (u32)narrow_bf16(b) << 16; }
static __device__ float exp2_of(float x) { return exp2f(x); }
static __device__ float one_by(float x) { return 1 / x; }
#endif

// ROWS is how many queries a block has, or keys, 16 for each warp.
enum { ROWS = THREADS / 32 * 16 };

// A Tile is N rows in shared memory. With 8 columns more, 8 rows that a warp reads at once
// lie in different banks.
template <int N, int W>
struct __align__(16) Tile {
	u16 row[N][W + 8];
};

// A Sizes is the geometry of a launch: d and e are multiples of 8, addresses those of 16,
// and a head's elements can be counted in 32 bits. scale2 is scale·log₂e.
struct Sizes {
	int heads, t, s, d, e, causal;
	float scale, scale2;
};

#define LOG2E 1.4426950408889634f

// seen_by is how many keys a query attends to.
static __device__ int seen_by(const Sizes &n, int query) { return n.causal && query < n.s ? query + 1 : n.s; }

template <int N>
static __device__ void clear(float (&x)[N][4]) {
#pragma unroll
	for (int i = 0; i < N; i++)
#pragma unroll
		for (int j = 0; j < 4; j++) x[i][j] = 0;
}

// left reads 16 rows of x [n, width] as left arguments of products, with zeros where there is nothing.
template <int K>
static __device__ void left(u32 (&a)[K][4], const u16 *x, int from, int n, int width) {
	int lane = threadIdx.x % 32;
#pragma unroll
	for (int k = 0; k < K; k++)
#pragma unroll
		for (int i = 0; i < 4; i++) {
			int row = from + lane / 4 + i % 2 * 8, col = 16 * k + 2 * (lane % 4) + i / 2 * 8;
			a[k][i] = row < n && col < width ? *(const u32 *)(x + row * width + col) : 0;
		}
}

// fetch begins to copy N rows of x [n, width] to a tile, with zeros where there is nothing.
template <int N, int W>
static __device__ void fetch(Tile<N, W> &tile, const u16 *x, int from, int n, int width) {
	const int ACROSS = W / 8;
	static_assert(N % (THREADS / ACROSS) == 0, "a tile is copied by all threads");
	int col = threadIdx.x % ACROSS * 8;
#pragma unroll
	for (int k = 0; k < N; k += THREADS / ACROSS) {
		int row = k + threadIdx.x / ACROSS;
		copy_async<16>(&tile.row[row][col], x + (from + row) * width + col, from + row >= n || col >= width);
	}
}

// times_rows adds to c [16, 16] the product of a [16, W] and 16 rows of a tile, transposed.
template <int N, int W>
static __device__ void times_rows(float (&c0)[4], float (&c1)[4], const u32 (&a)[W / 16][4], const Tile<N, W> &tile, int row) {
	int lane = threadIdx.x % 32;
#pragma unroll
	for (int k = 0; k < W / 16; k++) {
		u32 b[4];
		load_matrices(b, &tile.row[row + lane / 16 * 8 + lane % 8][16 * k + lane / 8 % 2 * 8]);
		mma(c0, a[k], b[0], b[1]);
		mma(c1, a[k], b[2], b[3]);
	}
}

// times adds to c [16, W] the product of a [16, 16] and 16 rows of a tile.
template <int N, int W>
static __device__ void times(float (&c)[W / 8][4], const u32 (&a)[4], const Tile<N, W> &tile, int row) {
	int lane = threadIdx.x % 32;
#pragma unroll
	for (int j = 0; j < W / 16; j++) {
		u32 b[4];
		load_transposed(b, &tile.row[row + lane / 8 % 2 * 8 + lane % 8][16 * j + lane / 16 * 8]);
		mma(c[2 * j], a, b[0], b[1]);
		mma(c[2 * j + 1], a, b[2], b[3]);
	}
}

// as_left turns a result [16, 16] into a left argument.
static __device__ void as_left(u32 (&a)[4], const float (&c0)[4], const float (&c1)[4]) {
	a[0] = halves(c0[0], c0[1]);
	a[1] = halves(c0[2], c0[3]);
	a[2] = halves(c1[0], c1[1]);
	a[3] = halves(c1[2], c1[3]);
}

// put_row stores row l/4 + 8·h of c, times scale, as a row of width elements.
template <int N>
static __device__ void put_row(u16 *to, const float (&c)[N][4], int h, float scale, int width) {
#pragma unroll
	for (int j = 0; j < N; j++) {
		int col = 8 * j + 2 * (threadIdx.x % 4);
		if (col < width) *(u32 *)(to + col) = halves(c[j][2 * h] * scale, c[j][2 * h + 1] * scale);
	}
}

// lanes_sum and lanes_max are those of the four lanes that share a row.
static __device__ float lanes_sum(float v) {
	v += __shfl_xor_sync(0xffffffffu, v, 1);
	return v + __shfl_xor_sync(0xffffffffu, v, 2);
}
static __device__ float lanes_max(float v) {
	v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
	return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

// attend computes y and lse. The tiles with the most keys come first.
template <int W, int KEYS>
static __device__ void attend(u16 *y, float *lse, const u16 *q, const u16 *k, const u16 *v, const Sizes &n) {
	__shared__ Tile<KEYS, W> keys[2], values[2];
	int lane = threadIdx.x % 32, tiles = (n.t + ROWS - 1) / ROWS;
	for (int item = blockIdx.x; item < n.heads * tiles; item += gridDim.x) {
		i64 head = item % n.heads;
		int from = (tiles - 1 - item / n.heads) * ROWS, first = from + threadIdx.x / 32 * 16;
		const u16 *headK = k + head * n.s * n.d, *headV = v + head * n.s * n.e;
		u32 a[W / 16][4];
		left(a, q + head * n.t * n.d, first, n.t, n.d);
		float sum[2] = {0, 0}, top[2] = {-infinity(0.0f), -infinity(0.0f)}, o[W / 8][4];
		clear(o);
		int end = n.causal && from + ROWS < n.s ? from + ROWS : n.s;
		__syncthreads(); // the tiles may still be read from
		if (end > 0) {
			fetch(keys[0], headK, 0, n.s, n.d);
			fetch(values[0], headV, 0, n.s, n.e);
		}
#pragma unroll 1
		for (int at = 0; at < end; at += KEYS) {
			int now = at / KEYS % 2;
			copies_done();
			__syncthreads();
			if (at + KEYS < end) {
				fetch(keys[now ^ 1], headK, at + KEYS, n.s, n.d);
				fetch(values[now ^ 1], headV, at + KEYS, n.s, n.e);
			}
			if (first >= n.t || (n.causal && at > first + 15)) continue;
			float s[KEYS / 8][4];
			clear(s);
#pragma unroll
			for (int j = 0; j < KEYS / 16; j++) times_rows(s[2 * j], s[2 * j + 1], a, keys[now], 16 * j);
			if (at + KEYS > seen_by(n, first)) {
#pragma unroll
				for (int h = 0; h < 2; h++) {
					int seen = seen_by(n, first + lane / 4 + 8 * h) - at - 2 * (lane % 4);
#pragma unroll
					for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
						for (int i = 0; i < 2; i++)
							if (8 * j + i >= seen) s[j][2 * h + i] = -infinity(0.0f);
				}
			}
#pragma unroll
			for (int h = 0; h < 2; h++) {
				float most = top[h];
#pragma unroll
				for (int j = 0; j < KEYS / 8; j++) most = fmaxf(most, fmaxf(s[j][2 * h], s[j][2 * h + 1]));
				most = lanes_max(most);
				float shift = most == -infinity(0.0f) ? 0 : most * n.scale2; // -Inf - -Inf is NaN
				float less = exp2_of(fused(top[h], n.scale2, -shift));
				top[h] = most;
				sum[h] *= less;
#pragma unroll
				for (int j = 0; j < W / 8; j++) {
					o[j][2 * h] *= less;
					o[j][2 * h + 1] *= less;
				}
#pragma unroll
				for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
					for (int i = 2 * h; i < 2 * h + 2; i++) {
						s[j][i] = exp2_of(fused(s[j][i], n.scale2, -shift));
						sum[h] += s[j][i];
					}
			}
#pragma unroll
			for (int j = 0; j < KEYS / 16; j++) {
				u32 p[4];
				as_left(p, s[2 * j], s[2 * j + 1]);
				times(o, p, values[now], 16 * j);
			}
		}
#pragma unroll
		for (int h = 0; h < 2; h++) {
			float all = lanes_sum(sum[h]);
			int query = first + lane / 4 + 8 * h;
			if (query >= n.t) continue;
			i64 row = head * n.t + query;
			put_row(y + row * n.e, o, h, all == 0 ? 0 : one_by(all), n.e);
			if (lane % 4 == 0) lse[row] = all == 0 ? infinity(0.0f) : top[h] * n.scale + logf(all);
		}
	}
}
PAIR(attend64_bf16, u16 *y, float *lse, const u16 *q, const u16 *k, const u16 *v, Sizes n) { attend<64, 64>(y, lse, q, k, v, n); }
KERNEL(attend128_bf16, u16 *y, float *lse, const u16 *q, const u16 *k, const u16 *v, Sizes n) { attend<128, 32>(y, lse, q, k, v, n); }

static __device__ float low(u32 v) { return __uint_as_float(v << 16); }
static __device__ float high(u32 v) { return __uint_as_float(v & 0xffff0000u); }

// attend_grad_q computes dq, and delta = Σ dy·y of each query.
template <int W, int KEYS>
static __device__ void attend_grad_q(u16 *dq, float *delta, const u16 *dy, const u16 *q, const u16 *k, const u16 *v, const u16 *y, const float *lse, const Sizes &n) {
	__shared__ Tile<KEYS, W> keys[2], values[2];
	int lane = threadIdx.x % 32, tiles = (n.t + ROWS - 1) / ROWS;
	for (int item = blockIdx.x; item < n.heads * tiles; item += gridDim.x) {
		i64 head = item % n.heads;
		int from = (tiles - 1 - item / n.heads) * ROWS, first = from + threadIdx.x / 32 * 16;
		const u16 *headK = k + head * n.s * n.d, *headV = v + head * n.s * n.e;
		u32 a[W / 16][4], g[W / 16][4];
		float less[2], shift[2], o[W / 8][4];
		left(a, y + head * n.t * n.e, first, n.t, n.e);
		left(g, dy + head * n.t * n.e, first, n.t, n.e);
#pragma unroll
		for (int h = 0; h < 2; h++) {
			int query = first + lane / 4 + 8 * h;
			float sum = 0;
#pragma unroll
			for (int j = 0; j < W / 16; j++)
#pragma unroll
				for (int i = h; i < 4; i += 2) sum += low(a[j][i]) * low(g[j][i]) + high(a[j][i]) * high(g[j][i]);
			less[h] = lanes_sum(sum);
			if (query < n.t && lane % 4 == 0) delta[head * n.t + query] = less[h];
			shift[h] = query < n.t ? lse[head * n.t + query] * LOG2E : 0;
		}
		left(a, q + head * n.t * n.d, first, n.t, n.d);
		clear(o);
		int end = n.causal && from + ROWS < n.s ? from + ROWS : n.s;
		__syncthreads(); // the tiles may still be read from
		if (end > 0) {
			fetch(keys[0], headK, 0, n.s, n.d);
			fetch(values[0], headV, 0, n.s, n.e);
		}
#pragma unroll 1
		for (int at = 0; at < end; at += KEYS) {
			int now = at / KEYS % 2;
			copies_done();
			__syncthreads();
			if (at + KEYS < end) {
				fetch(keys[now ^ 1], headK, at + KEYS, n.s, n.d);
				fetch(values[now ^ 1], headV, at + KEYS, n.s, n.e);
			}
			if (first >= n.t || (n.causal && at > first + 15)) continue;
#pragma unroll
			for (int j = 0; j < KEYS; j += 16) {
				float s[2][4], dp[2][4];
				clear(s);
				clear(dp);
				times_rows(s[0], s[1], a, keys[now], j);
				times_rows(dp[0], dp[1], g, values[now], j);
#pragma unroll
				for (int h = 0; h < 2; h++) {
					int seen = seen_by(n, first + lane / 4 + 8 * h) - at - 2 * (lane % 4);
#pragma unroll
					for (int i = 0; i < 4; i++) {
						float &to = s[i / 2][2 * h + i % 2], p = exp2_of(fused(to, n.scale2, -shift[h]));
						to = j + i / 2 * 8 + i % 2 < seen ? p * (dp[i / 2][2 * h + i % 2] - less[h]) : 0;
					}
				}
				u32 ds[4];
				as_left(ds, s[0], s[1]);
				times(o, ds, keys[now], j);
			}
		}
#pragma unroll
		for (int h = 0; h < 2; h++) {
			int query = first + lane / 4 + 8 * h;
			if (query < n.t) put_row(dq + (head * n.t + query) * n.d, o, h, n.scale, n.d);
		}
	}
}
PAIR(attend_grad_q64_bf16, u16 *dq, float *delta, const u16 *dy, const u16 *q, const u16 *k, const u16 *v, const u16 *y, const float *lse, Sizes n) { attend_grad_q<64, 64>(dq, delta, dy, q, k, v, y, lse, n); }
KERNEL(attend_grad_q128_bf16, u16 *dq, float *delta, const u16 *dy, const u16 *q, const u16 *k, const u16 *v, const u16 *y, const float *lse, Sizes n) { attend_grad_q<128, 32>(dq, delta, dy, q, k, v, y, lse, n); }

// attend_grad_kv computes dk and dv: a warp has 16 keys, and the block goes through the
// queries that see one of its own. Scores and weights are transposed.
template <int W, int QUERIES>
static __device__ void attend_grad_kv(u16 *dk, u16 *dv, const u16 *dy, const u16 *q, const u16 *k, const u16 *v, const float *delta, const float *lse, const Sizes &n) {
	__shared__ Tile<QUERIES, W> queries[2], grads[2];
	__shared__ float shift[2][QUERIES], less[2][QUERIES];
	int lane = threadIdx.x % 32, tiles = (n.s + ROWS - 1) / ROWS;
	for (int item = blockIdx.x; item < n.heads * tiles; item += gridDim.x) {
		i64 head = item % n.heads;
		int from = item / n.heads * ROWS, first = from + threadIdx.x / 32 * 16;
		const u16 *headQ = q + head * n.t * n.d, *headDY = dy + head * n.t * n.e;
		u32 a[W / 16][4], b[W / 16][4];
		float ok[W / 8][4], ov[W / 8][4];
		left(a, k + head * n.s * n.d, first, n.s, n.d);
		left(b, v + head * n.s * n.e, first, n.s, n.e);
		clear(ok);
		clear(ov);
		auto bring = [&](int now, int at) {
			fetch(queries[now], headQ, at, n.t, n.d);
			fetch(grads[now], headDY, at, n.t, n.e);
			int i = threadIdx.x;
			if (i < QUERIES) copy_async<4>(&shift[now][i], lse + head * n.t + at + i, at + i >= n.t);
			else if (i < 2 * QUERIES) copy_async<4>(&less[now][i - QUERIES], delta + head * n.t + at + i - QUERIES, at + i - QUERIES >= n.t);
		};
		int begin = n.causal ? from / QUERIES * QUERIES : 0;
		__syncthreads(); // the tiles may still be read from
		if (begin < n.t) bring(begin / QUERIES % 2, begin);
#pragma unroll 1
		for (int at = begin; at < n.t; at += QUERIES) {
			int now = at / QUERIES % 2;
			copies_done();
			__syncthreads();
			if (at + QUERIES < n.t) bring(now ^ 1, at + QUERIES);
			if (first >= n.s || (n.causal && at + QUERIES <= first)) continue;
			int seeing[2];
#pragma unroll
			for (int h = 0; h < 2; h++) seeing[h] = n.causal ? first + lane / 4 + 8 * h - at : 0;
#pragma unroll
			for (int j = 0; j < QUERIES; j += 16) {
				float s[2][4], p[2][4];
				u32 w[4];
				clear(s);
				times_rows(s[0], s[1], a, queries[now], j);
#pragma unroll
				for (int i = 0; i < 2; i++)
#pragma unroll
					for (int c = 0; c < 4; c++) {
						int row = j + 8 * i + 2 * (lane % 4) + c % 2;
						p[i][c] = row >= seeing[c / 2] && row < n.t - at ? exp2_of(fused(s[i][c], n.scale2, -LOG2E * shift[now][row])) : 0;
					}
				as_left(w, p[0], p[1]);
				times(ov, w, grads[now], j);
#pragma unroll
				for (int i = 0; i < 2; i++)
#pragma unroll
					for (int c = 0; c < 4; c++) s[i][c] = -less[now][j + 8 * i + 2 * (lane % 4) + c % 2];
				times_rows(s[0], s[1], b, grads[now], j);
#pragma unroll
				for (int i = 0; i < 2; i++)
#pragma unroll
					for (int c = 0; c < 4; c++) s[i][c] = p[i][c] * s[i][c];
				as_left(w, s[0], s[1]);
				times(ok, w, queries[now], j);
			}
		}
#pragma unroll
		for (int h = 0; h < 2; h++) {
			int key = first + lane / 4 + 8 * h;
			if (key >= n.s) continue;
			put_row(dk + (head * n.s + key) * n.d, ok, h, n.scale, n.d);
			put_row(dv + (head * n.s + key) * n.e, ov, h, 1, n.e);
		}
	}
}
KERNEL(attend_grad_kv64_bf16, u16 *dk, u16 *dv, const u16 *dy, const u16 *q, const u16 *k, const u16 *v, const float *delta, const float *lse, Sizes n) { attend_grad_kv<64, 64>(dk, dv, dy, q, k, v, delta, lse, n); }
KERNEL(attend_grad_kv128_bf16, u16 *dk, u16 *dv, const u16 *dy, const u16 *q, const u16 *k, const u16 *v, const float *delta, const float *lse, Sizes n) { attend_grad_kv<128, 16>(dk, dv, dy, q, k, v, delta, lse, n); }
