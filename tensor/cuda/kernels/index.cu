// Kernels that move elements by position. Indices have been checked unless a kernel
// says otherwise.
#include "common.h"

// A unit is what is copied at once: an element, or 16 bytes of a row.
struct __align__(16) u128 {
	u64 low, high;
};

#define BY_UNIT(unit, f, ...)                                              \
	switch (unit) {                                                        \
	case 1: f((u8 *)dst, (const u8 *)src, __VA_ARGS__); break;             \
	case 2: f((u16 *)dst, (const u16 *)src, __VA_ARGS__); break;           \
	case 4: f((u32 *)dst, (const u32 *)src, __VA_ARGS__); break;           \
	case 8: f((u64 *)dst, (const u64 *)src, __VA_ARGS__); break;           \
	case 16: f((u128 *)dst, (const u128 *)src, __VA_ARGS__); break;        \
	default: missing();                                                    \
	}

// check_index lowers *first, which starts at n, to the first position whose index
// is outside [0, size).
KERNEL(check_index, int it, const void *index, i64 n, i64 size, u64 *first) {
	EACH(i, n) {
		i64 v = index_at(it, index, i);
		if (v < 0 || v >= size) atomicMin(first, (u64)i);
	}
}

template <class T>
static __device__ void index_select_of(T *dst, const T *src, int it, const void *index, i64 outer, i64 n, i64 count, i64 inner) {
	i64 total = outer * count * inner;
	EACH(t, total) {
		i64 i, j, o;
		if (total < (1ll << 31)) {
			u32 k = (u32)t, w = (u32)inner, c = (u32)count;
			i = k % w;
			j = k / w % c;
			o = k / w / c;
		} else {
			i = t % inner;
			j = t / inner % count;
			o = t / inner / count;
		}
		dst[t] = src[(o * n + index_at(it, index, j)) * inner + i];
	}
}

// index_select computes dst[o, j, i] = src[o, index[j], i].
KERNEL(index_select, int unit, void *dst, const void *src, int it, const void *index, i64 outer, i64 n, i64 count, i64 inner) {
	BY_UNIT(unit, index_select_of, it, index, outer, n, count, inner)
}

// index_add computes dst[o, index[j], i] += src[o, j, i], one thread a column, in
// the order of j.
template <class T>
static __device__ void index_add(T *dst, const T *src, int it, const void *index, i64 outer, i64 n, i64 count, i64 inner) {
	EACH(t, outer * inner) {
		i64 o = t / inner, i = t % inner;
		for (i64 j = 0; j < count; j++) dst[(o * n + index_at(it, index, j)) * inner + i] += src[(o * count + j) * inner + i];
	}
}
KERNEL(index_add_f32, float *dst, const float *src, int it, const void *index, i64 outer, i64 n, i64 count, i64 inner) { index_add(dst, src, it, index, outer, n, count, inner); }
KERNEL(index_add_f64, double *dst, const double *src, int it, const void *index, i64 outer, i64 n, i64 count, i64 inner) { index_add(dst, src, it, index, outer, n, count, inner); }
KERNEL(index_add_int, int dt, void *dst, const void *src, int it, const void *index, i64 outer, i64 n, i64 count, i64 inner) {
	EACH(t, outer * inner) {
		i64 o = t / inner, i = t % inner;
		for (i64 j = 0; j < count; j++) {
			i64 at = (o * n + index_at(it, index, j)) * inner + i;
			store_int(dt, dst, at, (i64)((u64)load_int(dt, dst, at) + (u64)load_int(dt, src, (o * count + j) * inner + i)));
		}
	}
}

// index_add_words is index_add of integers of 32 or 64 bits, one thread an element: the
// order does not matter.
template <class T>
static __device__ void index_add_words_of(T *dst, const T *src, int it, const void *index, i64 outer, i64 n, i64 count, i64 inner) {
	EACH(t, outer * count * inner) {
		i64 i = t % inner, j = t / inner % count, o = t / inner / count;
		atomicAdd(&dst[(o * n + index_at(it, index, j)) * inner + i], src[t]);
	}
}
KERNEL(index_add_words, int bytes, void *dst, const void *src, int it, const void *index, i64 outer, i64 n, i64 count, i64 inner) {
	if (bytes == 4) index_add_words_of((u32 *)dst, (const u32 *)src, it, index, outer, n, count, inner);
	else index_add_words_of((u64 *)dst, (const u64 *)src, it, index, outer, n, count, inner);
}

// flat_index sets dst[o, j] = o·n + index[j].
KERNEL(flat_index, i64 *dst, int it, const void *index, i64 outer, i64 n, i64 count) {
	EACH(t, outer * count) dst[t] = t / count * n + index_at(it, index, t % count);
}

template <class T>
static __device__ void gather_of(T *dst, const T *src, int it, const void *index, i64 step, const Loop &l, i64 n) {
	EACH(i, n) dst[i] = src[find(l, i, n).a + index_at(it, index, i) * step];
}

// gather computes dst[i] = src[Σ i·a + index[i]·step].
KERNEL(gather, int unit, void *dst, const void *src, int it, const void *index, i64 step, Loop l, i64 n) {
	BY_UNIT(unit, gather_of, it, index, step, l, n)
}

// A Line is the dimension along which a scatter picks: elements of one line may
// meet in one place, those of different lines never do. One thread walks a line.
struct Line {
	i64 count, index, src; // how many, and the distances in index and src
};

template <class T>
static __device__ void scatter_of(T *dst, const T *src, int it, const void *index, i64 step, const Loop &l, Line line, i64 n) {
	EACH(i, n) {
		At p = find(l, i, n);
		for (i64 k = 0; k < line.count; k++) dst[p.a + index_at(it, index, p.c + k * line.index) * step] = src[p.b + k * line.src];
	}
}

// scatter computes dst[Σ i·a + index·step] = src[Σ i·b], the last of a line staying.
KERNEL(scatter, int unit, void *dst, const void *src, int it, const void *index, i64 step, Loop l, Line line, i64 n) {
	BY_UNIT(unit, scatter_of, it, index, step, l, line, n)
}

template <class T>
static __device__ void scatter_add(T *dst, const T *src, int it, const void *index, i64 step, const Loop &l, Line line, i64 n) {
	EACH(i, n) {
		At p = find(l, i, n);
		for (i64 k = 0; k < line.count; k++) dst[p.a + index_at(it, index, p.c + k * line.index) * step] += src[p.b + k * line.src];
	}
}
KERNEL(scatter_add_f32, float *dst, const float *src, int it, const void *index, i64 step, Loop l, Line line, i64 n) { scatter_add(dst, src, it, index, step, l, line, n); }
KERNEL(scatter_add_f64, double *dst, const double *src, int it, const void *index, i64 step, Loop l, Line line, i64 n) { scatter_add(dst, src, it, index, step, l, line, n); }
KERNEL(scatter_add_int, int dt, void *dst, const void *src, int it, const void *index, i64 step, Loop l, Line line, i64 n) {
	EACH(i, n) {
		At p = find(l, i, n);
		for (i64 k = 0; k < line.count; k++) {
			i64 at = p.a + index_at(it, index, p.c + k * line.index) * step;
			store_int(dt, dst, at, (i64)((u64)load_int(dt, dst, at) + (u64)load_int(dt, src, p.b + k * line.src)));
		}
	}
}

// one_hot sets dst[i, index[i]-lo] = 1; other elements are zeros already.
KERNEL(one_hot, int dt, void *dst, int it, const void *index, i64 n, i64 lo, i64 classes) {
	EACH(i, n) {
		i64 k = index_at(it, index, i) - lo;
		if (k < 0 || k >= classes) continue;
		if (is_float(dt)) store_float(dt, dst, i * classes + k, 1);
		else store_int(dt, dst, i * classes + k, 1);
	}
}
