// Rows of embedding tables: lookup, distinct ids, gradients.
#include "common.h"

struct __align__(16) u128 {
	u64 low, high;
};

template <class T>
static __device__ void take_rows_of(T *dst, const T *table, int it, const void *ids, i64 n, i64 dim, i64 lo, i64 rows, int zero) {
	i64 total = n * dim;
	EACH(t, total) {
		i64 i, j;
		if (total < (1ll << 31)) {
			i = (u32)t / (u32)dim;
			j = (u32)t % (u32)dim;
		} else {
			i = t / dim;
			j = t % dim;
		}
		i64 r = index_at(it, ids, i) - lo;
		if (r >= 0 && r < rows) dst[t] = table[r * dim + j];
		else if (zero) dst[t] = T();
	}
}

// take_rows copies row ids[i]-lo of table [rows, dim units] to row i of dst; a row
// that is not in the table becomes zeros, or stays without zero.
KERNEL(take_rows, int unit, void *dst, const void *table, int it, const void *ids, i64 n, i64 dim, i64 lo, i64 rows, int zero) {
	switch (unit) {
	case 1: take_rows_of((u8 *)dst, (const u8 *)table, it, ids, n, dim, lo, rows, zero); break;
	case 2: take_rows_of((u16 *)dst, (const u16 *)table, it, ids, n, dim, lo, rows, zero); break;
	case 4: take_rows_of((u32 *)dst, (const u32 *)table, it, ids, n, dim, lo, rows, zero); break;
	case 8: take_rows_of((u64 *)dst, (const u64 *)table, it, ids, n, dim, lo, rows, zero); break;
	default: take_rows_of((u128 *)dst, (const u128 *)table, it, ids, n, dim, lo, rows, zero);
	}
}

// The distinct ids come from a stable radix sort of keys row<<32 | position, least
// significant digit first: Satish, Harris and Garland, "Designing efficient sorting
// algorithms for manycore GPUs", IPDPS 2009. A block sorts TILE keys at a time, whose
// order within a warp is found as by Adinets and Merrill, "Onesweep", 2022. Thread t of
// a block looks after digit t.
enum { DIGIT_BITS = 8, DIGITS = THREADS };

// unique_keys makes the keys; an id outside [lo, lo+size) is row size.
KERNEL(unique_keys, u64 *keys, int it, const void *ids, i64 n, i64 lo, i64 size) {
	EACH(i, n) {
		i64 r = index_at(it, ids, i) - lo;
		keys[i] = (u64)(r >= 0 && r < size ? r : size) << 32 | (u64)i;
	}
}

static __device__ int digit(u64 key, int shift) { return (int)(key >> shift & (DIGITS - 1)); }

// sort_count counts the digits of each tile: count[digit, tile].
KERNEL(sort_count, i64 *count, const u64 *keys, i64 n, i64 tiles, int shift) {
	__shared__ u32 sum[DIGITS];
	for (i64 b = blockIdx.x; b < tiles; b += gridDim.x) {
		sum[threadIdx.x] = 0;
		__syncthreads();
		for (int k = 0; k < EACH_THREAD; k++) {
			i64 i = b * TILE + k * THREADS + threadIdx.x;
			if (i < n) atomicAdd(&sum[digit(keys[i], shift)], 1u);
		}
		__syncthreads();
		count[threadIdx.x * tiles + b] = sum[threadIdx.x];
		__syncthreads();
	}
}

// scan_rows turns each row of x [rows, n] into the sums before its elements, a block a
// row, or a thread if they are short; total[r] gets the sum of all.
KERNEL(scan_rows, int are_short, i64 *x, i64 *total, i64 rows, i64 n) {
	if (are_short) {
		EACH(r, rows) {
			i64 before = 0;
			for (i64 i = r * n; i < (r + 1) * n; i++) {
				i64 v = x[i];
				x[i] = before;
				before += v;
			}
			total[r] = before;
		}
		return;
	}
	for (i64 r = blockIdx.x; r < rows; r += gridDim.x) {
		i64 before = 0;
		for (i64 b = 0; b < n; b += THREADS) {
			i64 i = b + threadIdx.x, v = i < n ? x[r * n + i] : 0, sum;
			i64 mine = block_scan(v, &sum);
			if (i < n) x[r * n + i] = before + mine;
			before += sum;
		}
		if (threadIdx.x == 0) total[r] = before;
	}
}

// sort_move puts the keys of each tile in their places: those with digit d of tile b
// come after before[d, b] others with that digit, and after all keys with smaller ones.
KERNEL(sort_move, u64 *dst, const u64 *keys, const i64 *before, const i64 *total, i64 n, i64 tiles, int shift) {
	__shared__ u32 place[THREADS / 32][DIGITS]; // of the next key of a warp with a digit
	int t = threadIdx.x, lane = t % 32, warp = t / 32;
	i64 all, smaller = block_scan(total[t], &all);
	for (i64 b = blockIdx.x; b < tiles; b += gridDim.x) {
		i64 first = b * TILE + warp * (32 * EACH_THREAD);
		for (int w = 0; w < THREADS / 32; w++) place[w][t] = 0;
		__syncthreads();
		u64 key[EACH_THREAD];
		u32 rank[EACH_THREAD]; // among the warp's keys with that digit
#pragma unroll
		for (int k = 0; k < EACH_THREAD; k++) {
			i64 i = first + 32 * k + lane;
			if (first + 32 * k >= n) break;
			key[k] = i < n ? keys[i] : 0;
			int d = i < n ? digit(key[k], shift) : (int)DIGITS;
			u32 same = __match_any_sync(0xffffffffu, d), so_far = i < n ? place[warp][d] : 0;
			rank[k] = so_far + __popc(same & ((1u << lane) - 1));
			__syncwarp(0xffffffffu); // all have read
			if (i < n && same >> lane == 1) place[warp][d] = rank[k] + 1;
			__syncwarp(0xffffffffu);
		}
		__syncthreads();
		u32 at = (u32)(smaller + before[t * tiles + b]);
		for (int w = 0; w < THREADS / 32; w++) {
			u32 keys_of_warp = place[w][t];
			place[w][t] = at;
			at += keys_of_warp;
		}
		__syncthreads();
#pragma unroll
		for (int k = 0; k < EACH_THREAD; k++)
			if (first + 32 * k + lane < n) dst[place[warp][digit(key[k], shift)] + rank[k]] = key[k];
		__syncthreads();
	}
}

// scan_tiles writes the sum of each tile of TILE elements; scan_add writes for each
// element the sum of those before it, from the sum of the tiles before its own.
KERNEL(scan_tiles, i64 *sums, const i64 *x, i64 n, i64 tiles) {
	for (i64 b = blockIdx.x; b < tiles; b += gridDim.x) {
		i64 v = 0;
		for (int k = 0; k < EACH_THREAD; k++) {
			i64 i = b * TILE + k * THREADS + threadIdx.x;
			if (i < n) v += x[i];
		}
		v = block_reduce<Sum>(v);
		if (threadIdx.x == 0) sums[b] = v;
	}
}

KERNEL(scan_add, i64 *dst, const i64 *x, const i64 *sums, i64 n, i64 tiles) {
	for (i64 b = blockIdx.x; b < tiles; b += gridDim.x) {
		i64 first = b * TILE + (i64)threadIdx.x * EACH_THREAD, v[EACH_THREAD], sum = 0, total;
#pragma unroll
		for (int k = 0; k < EACH_THREAD; k++) {
			v[k] = first + k < n ? x[first + k] : 0;
			sum += v[k];
		}
		i64 at = sums[b] + block_scan(sum, &total);
#pragma unroll
		for (int k = 0; k < EACH_THREAD; k++) {
			if (first + k < n) dst[first + k] = at;
			at += v[k];
		}
		__syncthreads();
	}
}

// unique_heads marks the first key of each row that is in range.
KERNEL(unique_heads, i64 *head, const u64 *keys, i64 n, i64 size) {
	EACH(i, n) {
		u64 row = keys[i] >> 32;
		head[i] = row < (u64)size && (i == 0 || keys[i - 1] >> 32 != row);
	}
}

// unique_write fills index, slot and order; start[s] gets where segment s begins
// in order, and the one past the last *m, the number of ids in range. before[i] is
// the number of heads before key i.
KERNEL(unique_write, i64 *index, int *slot, int *order, i64 *start, i64 *m, const u64 *keys, const i64 *before, i64 n, i64 size) {
	EACH(i, n) {
		u64 row = keys[i] >> 32;
		u32 pos = (u32)keys[i];
		bool in = row < (u64)size, head = in && (i == 0 || keys[i - 1] >> 32 != row);
		i64 s = before[i] - (head ? 0 : 1);
		slot[pos] = in ? (int)s : -1;
		if (in) order[i] = (int)pos;
		if (head) {
			index[s] = (i64)row;
			start[s] = i;
		}
		bool last = in && (i + 1 == n || keys[i + 1] >> 32 >= (u64)size);
		if (last) {
			*m = i + 1;
			start[s + 1] = i + 1;
		}
	}
}

KERNEL(unique_count, i64 *count, const i64 *start, i64 u) { EACH(s, u) count[s] = start[s + 1] - start[s]; }

// sum_rows returns column j of the sum of rows order[from], …, order[end-1] of values,
// in order.
template <class P>
static __device__ P sum_rows(const P *values, const int *order, i64 from, i64 end, i64 dim, i64 j) {
	P v = values[(i64)order[from] * dim + j];
#pragma unroll 4
	for (i64 k = from + 1; k < end; k++) {
		P w = values[(i64)order[k] * dim + j];
#pragma unroll
		for (int e = 0; e < P::SIZE; e++) v.v[e] += w.v[e];
	}
	return v;
}

// A segment of more than PIECE rows is summed in pieces of so many. Those after the
// first have their sums in part: that of the one that begins at row b of order is row
// b / PIECE, for no two of them begin less than PIECE apart.
enum { PIECE = 128 };

static __device__ i64 least(i64 a, i64 b) { return a < b ? a : b; }

// sum_pieces computes part; rows is how many rows order has. In [q·PIECE, (q+1)·PIECE)
// only a piece of the segment that has row q·PIECE can begin, and not be its first.
template <class P>
static __device__ void sum_pieces(P *part, const P *values, const int *order, const i64 *start, const i64 *count, i64 segments, i64 rows, i64 dim) {
	i64 chunks = (dim + 31) / 32;
	EACH_WARP(t, rows / PIECE * chunks) {
		i64 q = t / chunks + 1, j = t % chunks * 32 + threadIdx.x % 32, s = 0;
		for (i64 above = segments; above - s > 1;) { // start[s] <= q·PIECE < start[above]
			i64 mid = s + (above - s) / 2;
			if (start[mid] <= q * PIECE) s = mid;
			else above = mid;
		}
		i64 from = start[s] + (q * PIECE - start[s] + PIECE - 1) / PIECE * PIECE, end = start[s] + count[s];
		if (j >= dim || from == start[s] || from >= end) continue;
		P v = sum_rows(values, order, from, least(from + PIECE, end), dim, j);
		part[q * dim + j] = v;
	}
}

// sum_segments computes dst[s] = the sum of rows order[start[s]], … of values, in
// order, P at a time; dim counts these.
template <class P>
static __device__ void sum_segments(P *dst, const P *values, const void *parts, const int *order, const i64 *start, const i64 *count, i64 segments, i64 dim) {
	i64 chunks = (dim + 31) / 32;
	const P *part = (const P *)parts;
	EACH_WARP(t, segments * chunks) {
		i64 s = chunks == 1 ? t : t / chunks, j = t % chunks * 32 + threadIdx.x % 32, from = start[s], end = from + count[s];
		if (j >= dim) continue;
		P v = sum_rows(values, order, from, least(from + PIECE, end), dim, j);
#pragma unroll 4
		for (i64 b = from + PIECE; b < end; b += PIECE) {
			P w = part[b / PIECE * dim + j];
#pragma unroll
			for (int e = 0; e < P::SIZE; e++) v.v[e] += w.v[e];
		}
		dst[s * dim + j] = v;
	}
}

// BY_PACK calls f with Packs of 16 bytes where unit is 16, else of one element.
#define BY_PACK(T, unit, f, dst, src, ...)                                                                                    \
	if (unit == 16) f((Pack<T, 16 / sizeof(T)> *)dst, (const Pack<T, 16 / sizeof(T)> *)src, __VA_ARGS__, dim * sizeof(T) / 16); \
	else f((Pack<T, 1> *)dst, (const Pack<T, 1> *)src, __VA_ARGS__, dim);

KERNEL(sum_pieces_f32, int unit, float *part, const float *values, const int *order, const i64 *start, const i64 *count, i64 segments, i64 rows, i64 dim) { BY_PACK(float, unit, sum_pieces, part, values, order, start, count, segments, rows) }
KERNEL(sum_pieces_f64, int unit, double *part, const double *values, const int *order, const i64 *start, const i64 *count, i64 segments, i64 rows, i64 dim) { BY_PACK(double, unit, sum_pieces, part, values, order, start, count, segments, rows) }
KERNEL(sum_segments_f32, int unit, float *dst, const float *values, const float *part, const int *order, const i64 *start, const i64 *count, i64 segments, i64 dim) { BY_PACK(float, unit, sum_segments, dst, values, part, order, start, count, segments) }
KERNEL(sum_segments_f64, int unit, double *dst, const double *values, const double *part, const int *order, const i64 *start, const i64 *count, i64 segments, i64 dim) { BY_PACK(double, unit, sum_segments, dst, values, part, order, start, count, segments) }

// add_rows computes table[index[i]] += scale·values[i]; no row is named twice.
template <class P, class T>
static __device__ void add_rows(P *table, const P *values, const i64 *index, T scale, i64 n, i64 dim) {
	EACH_WARP(i, n) {
		P *row = table + index[i] * dim;
		EACH_LANE(j, dim) {
			P v = values[i * dim + j], t = row[j];
#pragma unroll
			for (int e = 0; e < P::SIZE; e++) t.v[e] = fused(scale, v.v[e], t.v[e]);
			row[j] = t;
		}
	}
}
KERNEL(add_rows_f32, int unit, float *table, const float *values, const i64 *index, i64 n, i64 dim, float scale) { BY_PACK(float, unit, add_rows, table, values, index, scale, n) }
KERNEL(add_rows_f64, int unit, double *table, const double *values, const i64 *index, i64 n, i64 dim, double scale) { BY_PACK(double, unit, add_rows, table, values, index, scale, n) }

// scale_rows computes table[index[i]] *= factor[i]; no row is named twice.
template <class T>
static __device__ void scale_rows(T *table, int it, const void *index, const T *factor, i64 n, i64 dim) {
	EACH_WARP(i, n) {
		T *row = table + index_at(it, index, i) * dim;
		EACH_LANE(j, dim) row[j] *= factor[i];
	}
}
KERNEL(scale_rows_f32, float *table, int it, const void *index, const float *factor, i64 n, i64 dim) { scale_rows(table, it, index, factor, n, dim); }
KERNEL(scale_rows_f64, double *table, int it, const void *index, const double *factor, i64 n, i64 dim) { scale_rows(table, it, index, factor, n, dim); }
