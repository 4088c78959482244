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
	case 16: take_rows_of((u128 *)dst, (const u128 *)table, it, ids, n, dim, lo, rows, zero); break;
	default: missing();
	}
}

// The distinct ids come from a stable radix sort of keys row<<32 | position, least
// significant digit first, a kernel a digit: Adinets and Merrill, "Onesweep: a faster
// least significant digit radix sort for GPUs", 2022. A block sorts TILE keys at a time
// and then needs how many keys of each digit the tiles before have. Each tile adds its
// own numbers to a word for itself and to one that it shares with the other tiles of its
// group, and whoever needs them waits until all have: it reads the groups before its own,
// and the tiles of its group before itself. Thread t of a block looks after digit t.
enum { DIGIT_BITS = 8, DIGITS = THREADS };

// NO_KEY is that of an id that is not in range.
static const u64 NO_KEY = ~0ull;

// A Sort is the scratch memory of one list of n ids. What comes before keys begins as zeros.
struct Sort {
	i64 n, tiles, groups;
	int group;                // tiles of a group, a power of two: its logarithm
	i64 *found;               // FOUND
	u32 *ticket;              // [8]: how many tiles of each pass have been begun
	u32 *digits;              // [4, DIGITS]: how many keys have each digit
	u32 *heads, *sums;        // [groups + tiles], [passes, groups + tiles, DIGITS]: see say
	u64 *keys, *spare;        // [n]: what pass 0 sorts, and where to; pass 1 the other way round

	__device__ Sort(void *scratch, i64 n, int group, int passes) : n(n), tiles((n + TILE - 1) / TILE), groups(((tiles - 1) >> group) + 1), group(group) {
		i64 words = (groups + tiles + 1) / 2 * 2;
		found = (i64 *)scratch;
		ticket = (u32 *)(found + 4);
		digits = ticket + 8;
		heads = digits + 4 * DIGITS;
		sums = heads + words;
		keys = (u64 *)(sums + passes * words * DIGITS);
		spare = keys + n;
	}
	__device__ u32 *sums_of(int pass) const { return sums + pass * ((groups + tiles + 1) / 2 * 2) * DIGITS; }
};

// found: the ids in range, the distinct ones, and those that occur more than PIECE times.
enum { IN_RANGE, DISTINCT, LONG };

static __device__ int digit(u64 key, int pass) { return (int)(key >> (32 + DIGIT_BITS * pass) & (DIGITS - 1)); }

// next_tile numbers tiles in the order in which blocks come to them: those before have
// been begun, and what waits for them will not wait for ever.
static __device__ i64 next_tile(u32 *ticket) {
	__shared__ u32 tile;
	__syncthreads(); // it may still be read from the call before
	if (threadIdx.x == 0) tile = atomicAdd(ticket, 1u);
	__syncthreads();
	return tile;
}

// say adds what tile b has of a kind to its own word and to that of its group, and ONE
// to both; there are width kinds, and sums is the first word of this one.
enum { ONE = 1 << 20 };
static __device__ void say(const Sort &s, u32 *sums, i64 width, i64 b, u32 has) {
	atomicAdd(&sums[(s.groups + b) * width], has + ONE);
	atomicAdd(&sums[(b >> s.group) * width], has + ONE);
}

// sum_said waits until each of n words is what as many tiles have said, and adds them
// up. Only volatile words are read again and again.
static __device__ u32 sum_said(const volatile u32 *word, i64 n, i64 width, u32 tiles) {
	const int AT_ONCE = 8;
	u32 sum = 0;
	for (i64 j = 0; j < n; j += AT_ONCE) {
		u32 v[AT_ONCE];
#pragma unroll
		for (int e = 0; e < AT_ONCE; e++) v[e] = j + e < n ? word[(j + e) * width] : tiles * ONE;
#pragma unroll
		for (int e = 0; e < AT_ONCE; e++) {
			while (v[e] / ONE != tiles) v[e] = word[(j + e) * width];
			sum += v[e] % ONE;
		}
	}
	return sum;
}

// said_before returns what the tiles before b have of a kind.
static __device__ u32 said_before(const Sort &s, const u32 *sums, i64 width, i64 b) {
	i64 group = b >> s.group, first = group << s.group;
	return sum_said(sums, group, width, 1u << s.group) + sum_said(&sums[(s.groups + first) * width], b - first, width, 1);
}

// keys_of_tile makes the keys of tile b and counts their digits.
static __device__ void keys_of_tile(const Sort &s, i64 b, int *slot, int it, const void *ids, i64 lo, i64 size, int passes) {
	__shared__ u32 sum[4][DIGITS];
	int t = threadIdx.x;
	i64 first = b * TILE + t, row[EACH_THREAD];
#pragma unroll
	for (int k = 0; k < EACH_THREAD; k++) row[k] = first + k * THREADS < s.n ? index_at(it, ids, first + k * THREADS) - lo : -1;
	for (int p = 0; p < passes; p++) sum[p][t] = 0;
	__syncthreads();
#pragma unroll
	for (int k = 0; k < EACH_THREAD; k++) {
		i64 i = first + k * THREADS;
		if (i >= s.n) break;
		bool in = row[k] >= 0 && row[k] < size;
		u64 key = in ? (u64)row[k] << 32 | (u64)i : NO_KEY;
		s.keys[i] = key;
		if (!in && slot) slot[i] = -1;
		for (int p = 0; in && p < passes; p++) atomicAdd(&sum[p][digit(key, p)], 1u);
	}
	__syncthreads();
	for (int p = 0; p < passes; p++)
		if (sum[p][t]) atomicAdd(&s.digits[p * DIGITS + t], sum[p][t]);
	__syncthreads();
}

// move_tile puts the keys of tile b in their places: those with digit d come after others
// with that digit of the tiles before, and after all keys with smaller ones. The order
// within a warp is found as in the paper. There are end keys to sort.
static __device__ void move_tile(const Sort &s, int pass, i64 b, i64 end) {
	__shared__ u32 place[THREADS / 32][DIGITS]; // in the tile, of the next key of a warp with a digit
	__shared__ u64 sorted[TILE];
	__shared__ u32 shift[DIGITS]; // from there to the place in dst
	int t = threadIdx.x, lane = t % 32, warp = t / 32;
	const u64 *keys = pass % 2 ? s.spare : s.keys;
	u64 *dst = pass % 2 ? s.keys : s.spare;
	i64 first = b * TILE + warp * (32 * EACH_THREAD) + lane;
	u64 key[EACH_THREAD];
	u32 rank[EACH_THREAD]; // among the warp's keys with that digit
#pragma unroll
	for (int k = 0; k < EACH_THREAD; k++) key[k] = first + 32 * k < end ? keys[first + 32 * k] : NO_KEY;
	u32 all, smaller = block_scan(s.digits[pass * DIGITS + t], &all);
	if (pass == 0 && b == 0 && t == 0) s.found[IN_RANGE] = all;
	for (int w = 0; w < THREADS / 32; w++) place[w][t] = 0;
	__syncthreads();
#pragma unroll
	for (int k = 0; k < EACH_THREAD; k++) {
		int d = key[k] != NO_KEY ? digit(key[k], pass) : (int)DIGITS;
		u32 same = __match_any_sync(0xffffffffu, d), so_far = d < DIGITS ? place[warp][d] : 0;
		rank[k] = so_far + __popc(same & ((1u << lane) - 1));
		__syncwarp(0xffffffffu); // all have read
		if (d < DIGITS && same >> lane == 1) place[warp][d] = rank[k] + 1;
		__syncwarp(0xffffffffu);
	}
	__syncthreads();
	u32 has = 0, count, *sums = s.sums_of(pass) + t;
	for (int w = 0; w < THREADS / 32; w++) has += place[w][t];
	say(s, sums, DIGITS, b, has);
	u32 here = block_scan(has, &count), at = here;
	for (int w = 0; w < THREADS / 32; w++) {
		u32 keys_of_warp = place[w][t];
		place[w][t] = at;
		at += keys_of_warp;
	}
	__syncthreads();
#pragma unroll
	for (int k = 0; k < EACH_THREAD; k++)
		if (key[k] != NO_KEY) sorted[place[warp][digit(key[k], pass)] + rank[k]] = key[k];
	shift[t] = smaller + said_before(s, sums, DIGITS, b) - here;
	__syncthreads();
#pragma unroll
	for (int k = 0; k < EACH_THREAD; k++) {
		u32 i = k * THREADS + t;
		if (i < count) dst[shift[digit(sorted[i], pass)] + i] = sorted[i];
	}
	__syncthreads();
}

// PIECE is how many rows of a segment are summed at once.
enum { PIECE = 128 };

// write_tile fills index, slot and order from sorted keys of tile b; start[s] gets where
// segment s begins in order, and the one past the last how many there are in order.
static __device__ void write_tile(const Sort &s, const u64 *keys, i64 b, i64 *index, i64 *start, int *slot, int *order) {
	__shared__ u32 of_warp[THREADS / 32];
	int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	i64 first = b * TILE + warp * (32 * EACH_THREAD) + lane, m = s.found[IN_RANGE];
	u64 key[EACH_THREAD];
	u32 heads[EACH_THREAD], has = 0, all = 0, before = 0; // heads: the first keys of rows
#pragma unroll
	for (int k = 0; k < EACH_THREAD; k++) {
		i64 i = first + 32 * k;
		key[k] = i < m ? keys[i] : NO_KEY;
		u64 last = i > 0 && i < m ? keys[i - 1] : NO_KEY;
		heads[k] = __ballot_sync(0xffffffffu, key[k] >> 32 != last >> 32);
		has += __popc(heads[k]);
	}
	if (lane == 0) of_warp[warp] = has;
	__syncthreads();
	for (int w = 0; w < THREADS / 32; w++) {
		if (w == warp) before = all;
		all += of_warp[w];
	}
	if (threadIdx.x == 0) say(s, s.heads, 1, b, all);
	u32 earlier = 0; // each thread reads some of the words
	i64 group = b >> s.group, own = group << s.group;
	for (i64 j = threadIdx.x; j < group; j += THREADS) earlier += sum_said(&s.heads[j], 1, 1, 1u << s.group);
	for (i64 j = own + threadIdx.x; j < b; j += THREADS) earlier += sum_said(&s.heads[s.groups + j], 1, 1, 1);
	earlier = block_reduce<Sum>(earlier);
	before += earlier;
#pragma unroll
	for (int k = 0; k < EACH_THREAD; k++) {
		i64 i = first + 32 * k;
		i64 at = (i64)before + __popc(heads[k] & ((2u << lane) - 1)) - 1, row = (i64)(key[k] >> 32);
		before += __popc(heads[k]);
		if (i >= m) continue;
		u32 pos = (u32)key[k];
		order[i] = (int)pos;
		if (slot) slot[pos] = (int)at;
		if (heads[k] >> lane & 1) {
			index[at] = row;
			start[at] = i;
			if (i + PIECE < m && (i64)(keys[i + PIECE] >> 32) == row) atomicAdd((u64 *)&s.found[LONG], 1ull);
		}
	}
	if (threadIdx.x == 0 && (b + 1) * TILE >= m) {
		s.found[DISTINCT] = earlier + all;
		start[earlier + all] = m;
	}
	__syncthreads();
}

KERNEL(unique_keys, void *scratch, i64 n, int group, int passes, int *slot, int it, const void *ids, i64 lo, i64 size) {
	Sort s(scratch, n, group, passes);
	for (i64 b = blockIdx.x; b < s.tiles; b += gridDim.x) keys_of_tile(s, b, slot, it, ids, lo, size, passes);
}

KERNEL(unique_sort, void *scratch, i64 n, int group, int passes, int pass) {
	Sort s(scratch, n, group, passes);
	i64 end = pass == 0 ? n : s.found[IN_RANGE];
	for (i64 i = blockIdx.x; i < s.tiles; i += gridDim.x) {
		i64 b = next_tile(&s.ticket[pass]);
		if (b * TILE < end) move_tile(s, pass, b, end);
	}
}

KERNEL(unique_write, void *scratch, i64 n, int group, int passes, i64 *index, i64 *start, int *slot, int *order) {
	Sort s(scratch, n, group, passes);
	for (i64 i = blockIdx.x; i < s.tiles; i += gridDim.x) {
		i64 b = next_tile(&s.ticket[passes]);
		if (b == 0 || b * TILE < s.found[IN_RANGE]) write_tile(s, passes % 2 ? s.spare : s.keys, b, index, start, slot, order);
	}
}

// unique_few does all of it for one tile.
KERNEL(unique_few, void *scratch, i64 n, int group, int passes, i64 *index, i64 *start, int *slot, int *order, int it, const void *ids, i64 lo, i64 size) {
	if (blockIdx.x > 0) return;
	Sort s(scratch, n, group, passes);
	keys_of_tile(s, 0, slot, it, ids, lo, size, passes);
	for (int pass = 0; pass < passes; pass++) move_tile(s, pass, 0, pass == 0 ? n : s.found[IN_RANGE]);
	write_tile(s, passes % 2 ? s.spare : s.keys, 0, index, start, slot, order);
}

// sum_of returns the sum of row(from), …, row(end-1), in order.
template <class P, class F>
static __device__ P sum_of(int from, int end, F row) {
	const int AT_ONCE = 4;
	P v;
	for (int k = from; k < end; k += AT_ONCE) {
		P w[AT_ONCE];
#pragma unroll
		for (int r = 0; r < AT_ONCE; r++)
			if (k + r < end) w[r] = *row(k + r);
#pragma unroll
		for (int r = 0; r < AT_ONCE; r++) {
			if (k + r >= end) break;
#pragma unroll
			for (int e = 0; e < P::SIZE; e++) v.v[e] = k + r == from ? w[r].v[e] : v.v[e] + w[r].v[e];
		}
	}
	return v;
}

// put_sum writes the sum of a segment, or adds it.
template <class P>
static __device__ void put_sum(P *to, bool add, P v) {
	if (add) {
		P w = *to;
#pragma unroll
		for (int e = 0; e < P::SIZE; e++) v.v[e] += w.v[e];
	}
	*to = v;
}

// A Segments says which rows are added up: order[start[s]], … of values for segment s.
// A segment of more than PIECE of them is summed in pieces of so many, of which part
// gets the sums: that of the piece that begins at row b of order is row b / PIECE of
// part [pieces+1, dim], or if it is the first of its segment as far into a second such
// array, for neither has two that begin less than PIECE apart.
template <class P>
struct Segments {
	P *dst, *part;
	const int *order;
	const i64 *start, *index; // index: where the sums are added, or null
	i64 segments, pieces, dim;

	// found says how many segments and rows there are, or is null and the arguments do.
	__device__ Segments(P *dst, P *part, const int *order, const i64 *start, const i64 *index, const i64 *found, i64 segments, i64 rows, i64 dim)
	    : dst(dst), part(part), order(order), start(start), index(index), segments(found ? found[DISTINCT] : segments), pieces((found ? found[IN_RANGE] : rows) / PIECE), dim(dim) {
		if (!part || (found && found[LONG] == 0)) pieces = 0;
	}
	__device__ P *first(i64 from) const { return part + (pieces + 1 + from / PIECE) * dim; }
	__device__ P *sum(i64 s) const { return dst + (index ? index[s] : s) * dim; }

	// with_row returns the segment that has row i of order.
	__device__ i64 with_row(i64 i) const {
		i64 s = 0;
		for (i64 above = segments; above - s > 1;) { // start[s] <= i < start[above]
			i64 mid = s + (above - s) / 2;
			if (start[mid] <= i) s = mid;
			else above = mid;
		}
		return s;
	}
};

// sum_segments sums the segments that have no pieces, and all pieces. In
// [q·PIECE, (q+1)·PIECE) only a piece of the segment that has row q·PIECE can begin, and
// not be its first.
template <class P>
static __device__ void sum_segments(P *dst, const P *values, void *part, const int *order, const i64 *start, const i64 *index, const i64 *found, i64 segments, i64 rows, i64 dim) {
	Segments<P> g(dst, (P *)part, order, start, index, found, segments, rows, dim);
	int wide = 5; // a warp has the columns of a sum side by side, or those of several sums
	while (wide > 0 && dim <= 1 << (wide - 1)) wide--;
	int lane = threadIdx.x % 32, several = 5 - wide;
	i64 chunks = (dim + 31) / 32, sums = g.pieces + g.segments;
	EACH_WARP(t, (sums + (1 << several) - 1 >> several) * chunks) {
		i64 q = chunks == 1 ? (t << several) + (lane >> wide) : t / chunks, j = (chunks == 1 ? 0 : t % chunks * 32) + (lane & ((1 << wide) - 1));
		if (q >= sums || j >= dim) continue;
		i64 s = q < g.pieces ? g.with_row((q + 1) * PIECE) : q - g.pieces;
		int from = (int)start[s], end = (int)start[s + 1];
		P *to;
		bool add = false;
		if (q < g.pieces) {
			int begin = from;
			from += (int)((q + 1) * PIECE - begin + PIECE - 1) / PIECE * PIECE;
			if (from == begin || from >= end) continue;
			to = g.part + (q + 1) * dim;
		} else if (end - from > PIECE) {
			to = g.first(from);
		} else {
			to = g.sum(s);
			add = index;
		}
		if (end - from > PIECE) end = from + PIECE;
		const P *column = values + j;
		put_sum(to + j, add, sum_of<P>(from, end, [&](int k) { return &column[order[k] * dim]; }));
	}
}

// join_pieces sums the segments that have pieces: the one that has row q·PIECE, if it
// has not (q-1)·PIECE or begins there.
template <class P>
static __device__ void join_pieces(P *dst, const P *part, const i64 *start, const i64 *index, const i64 *found, i64 segments, i64 rows, i64 dim) {
	Segments<P> g(dst, (P *)part, 0, start, index, found, segments, rows, dim);
	i64 chunks = (dim + 31) / 32;
	EACH_WARP(t, g.pieces * chunks) {
		i64 q = t / chunks + 1, j = t % chunks * 32 + threadIdx.x % 32, s = g.with_row(q * PIECE), from = start[s], n = start[s + 1] - from;
		if (j >= dim || n <= PIECE || q != from / PIECE + 1) continue;
		const P *first = g.first(from) + j, *others = part + from / PIECE * dim + j;
		put_sum(g.sum(s) + j, index, sum_of<P>(0, (int)((n + PIECE - 1) / PIECE), [&](int k) { return k == 0 ? first : others + k * dim; }));
	}
}

// BY_PACK calls f with Packs of 16 bytes where unit is 16, else of one element.
#define BY_PACK(T, unit, f, dst, src, ...)                                                                                    \
	if (unit == 16) f((Pack<T, 16 / sizeof(T)> *)dst, (const Pack<T, 16 / sizeof(T)> *)src, __VA_ARGS__, dim * sizeof(T) / 16); \
	else f((Pack<T, 1> *)dst, (const Pack<T, 1> *)src, __VA_ARGS__, dim);

KERNEL(sum_segments_f32, int unit, float *dst, const float *values, float *part, const int *order, const i64 *start, const i64 *index, const i64 *found, i64 segments, i64 rows, i64 dim) { BY_PACK(float, unit, sum_segments, dst, values, part, order, start, index, found, segments, rows) }
KERNEL(sum_segments_f64, int unit, double *dst, const double *values, double *part, const int *order, const i64 *start, const i64 *index, const i64 *found, i64 segments, i64 rows, i64 dim) { BY_PACK(double, unit, sum_segments, dst, values, part, order, start, index, found, segments, rows) }
KERNEL(join_pieces_f32, int unit, float *dst, const float *part, const i64 *start, const i64 *index, const i64 *found, i64 segments, i64 rows, i64 dim) { BY_PACK(float, unit, join_pieces, dst, part, start, index, found, segments, rows) }
KERNEL(join_pieces_f64, int unit, double *dst, const double *part, const i64 *start, const i64 *index, const i64 *found, i64 segments, i64 rows, i64 dim) { BY_PACK(double, unit, join_pieces, dst, part, start, index, found, segments, rows) }

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
