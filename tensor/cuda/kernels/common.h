// What all kernels share. The same files are compiled by nvcc for a GPU and, with
// testdata/shim.h before them, by a C++ compiler for the tests' fake driver.
//
// Every kernel covers its work with a stride of the whole grid, so any launch
// geometry gives the same result; those that use a block's shared memory expect
// THREADS threads in it. Sizes and positions are 64-bit.
#pragma once

typedef long long i64;
typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;
typedef signed char i8;

// THREADS is the size of a block.
#define THREADS 256

// KERNEL is a kernel, CROWDED one that has to leave the registers for so many blocks at
// once on a multiprocessor.
#ifndef KERNEL
#define KERNEL(name, ...) extern "C" __global__ void name(__VA_ARGS__)
#define CROWDED(blocks, name, ...) extern "C" __global__ void __launch_bounds__(THREADS, blocks) name(__VA_ARGS__)
#else
#define CROWDED(blocks, name, ...) KERNEL(name, __VA_ARGS__)
#endif

// Element types, numbered as in package dtype.
enum DType { F32 = 1, F64, F16, BF16, I8, I16, I32, I64, U8, BOOL };

// missing ends a kernel that was asked for an operation, an element type or a size that it
// does not have: the launch fails, where it would compute something else. Switches over
// an enum have no default, so that the compiler names a case that was forgotten.
static __device__ void missing() { __trap(); }
template <class T>
static __device__ T missing_value() {
	missing();
	return T();
}

// A Loop is tensor.Loop.
struct Loop {
	i64 n;
	i64 size[8], a[8], b[8], c[8];
};

#define EACH(i, n) for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < (n); i += (i64)gridDim.x * blockDim.x)

// EACH_WARP has a warp for each i, whose threads share the columns j of a row: rows of
// tables are mostly short, and finding row and column of an element would take a
// division of 64-bit numbers.
#define EACH_WARP(i, n) for (i64 i = (blockIdx.x * (i64)THREADS + threadIdx.x) / 32; i < (n); i += (i64)gridDim.x * (THREADS / 32))
#define EACH_LANE(j, n) for (i64 j = threadIdx.x % 32; j < (n); j += 32)

// A Pack is what a thread reads or writes at once. Where 16 bytes are, a multiprocessor
// has enough of them under way to keep the memory busy.
template <class T, int N>
struct __align__(sizeof(T) * N) Pack {
	enum { SIZE = N };
	T v[N];
};

// At is where element i of a loop lies in the three arrays.
struct At {
	i64 a, b, c;
};

template <class I>
static __device__ At walk(const Loop &l, i64 at) {
	At p = {0, 0, 0};
	I i = (I)at;
	for (int d = (int)l.n - 1; d >= 0; d--) {
		I n = (I)l.size[d], k = i % n;
		i /= n;
		p.a += (i64)k * l.a[d];
		p.b += (i64)k * l.b[d];
		p.c += (i64)k * l.c[d];
	}
	return p;
}

// find divides 32-bit numbers where they are large enough: it costs a fraction.
static __device__ At find(const Loop &l, i64 i, i64 total) {
	return total < (1ll << 31) ? walk<u32>(l, i) : walk<i64>(l, i);
}

static __device__ float widen_f16(u16 h) {
	u32 sign = (u32)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023;
	if (e == 31) return __uint_as_float(sign | 0x7f800000 | m << 13);
	if (e == 0) {
		float v = (float)m * 5.9604644775390625e-8f; // 2^-24
		return sign ? -v : v;
	}
	return __uint_as_float(sign | (e + 112) << 23 | m << 13);
}

// narrow_f16 rounds to nearest even.
static __device__ u16 narrow_f16(float f) {
	u32 b = __float_as_uint(f), sign = b >> 16 & 0x8000, e = b >> 23 & 255, m = b & 0x7fffff;
	if (e == 255) return (u16)(sign | 0x7c00 | (m ? 0x200 | m >> 13 : 0));
	int shift = 13, exp = (int)e - 112;
	if (exp >= 31) return (u16)(sign | 0x7c00);
	if (exp <= 0) {
		if (exp < -10) return (u16)sign;
		m |= 0x800000;
		shift = 14 - exp;
		exp = 0;
	}
	u32 h = ((u32)exp << 10) + (m >> shift), rest = m & ((1u << shift) - 1), half = 1u << (shift - 1);
	if (rest > half || (rest == half && (h & 1))) h++;
	return (u16)(sign | h);
}

static __device__ float widen_bf16(u16 h) { return __uint_as_float((u32)h << 16); }

// narrow_bf16 rounds to nearest even.
static __device__ u16 narrow_bf16(float f) {
	u32 b = __float_as_uint(f);
	if (f != f) return (u16)(b >> 16 | 0x40);
	return (u16)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

// load_int reads an element of an integer type.
static __device__ i64 load_int(int dt, const void *p, i64 i) {
	switch (dt) {
	case I8: return ((const i8 *)p)[i];
	case I16: return ((const short *)p)[i];
	case I32: return ((const int *)p)[i];
	case I64: return ((const i64 *)p)[i];
	case U8:
	case BOOL: return ((const u8 *)p)[i];
	}
	return missing_value<i64>();
}

// store_int keeps the low bits, as Go's conversions do.
static __device__ void store_int(int dt, void *p, i64 i, i64 v) {
	switch (dt) {
	case I8: ((i8 *)p)[i] = (i8)v; break;
	case I16: ((short *)p)[i] = (short)v; break;
	case I32: ((int *)p)[i] = (int)v; break;
	case I64: ((i64 *)p)[i] = v; break;
	case U8:
	case BOOL: ((u8 *)p)[i] = (u8)v; break;
	default: missing();
	}
}

// load_float reads an element of a floating-point type.
static __device__ double load_float(int dt, const void *p, i64 i) {
	switch (dt) {
	case F32: return ((const float *)p)[i];
	case F64: return ((const double *)p)[i];
	case F16: return widen_f16(((const u16 *)p)[i]);
	case BF16: return widen_bf16(((const u16 *)p)[i]);
	}
	return missing_value<double>();
}

// store_float rounds; a half is rounded from float, as on the CPU.
static __device__ void store_float(int dt, void *p, i64 i, double v) {
	switch (dt) {
	case F32: ((float *)p)[i] = (float)v; break;
	case F64: ((double *)p)[i] = v; break;
	case F16: ((u16 *)p)[i] = narrow_f16((float)v); break;
	case BF16: ((u16 *)p)[i] = narrow_bf16((float)v); break;
	default: missing();
	}
}

static __device__ bool is_float(int dt) { return dt <= BF16; }

// index_at reads an index, int32 or int64.
static __device__ i64 index_at(int it, const void *p, i64 i) {
	return it == I32 ? (i64)((const int *)p)[i] : ((const i64 *)p)[i];
}

// wide is an element as what is computed with, put stores one; u16 is bfloat16.
static __device__ float wide(float v) { return v; }
static __device__ double wide(double v) { return v; }
static __device__ float wide(u16 v) { return widen_bf16(v); }
static __device__ void put(float *p, float v) { *p = v; }
static __device__ void put(double *p, double v) { *p = v; }
#ifdef __CUDACC__
static __device__ void put(u16 *p, float v) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(*p) : "f"(v)); }
#else
static __device__ void put(u16 *p, float v) { *p = narrow_bf16(v); }
#endif

static __device__ float exp_of(float x) { return expf(x); }
static __device__ double exp_of(double x) { return exp(x); }

// exp_near is exp_of for sums of what is not above 1: where x is far below 0, it is off by
// some more units in the last place.
#ifdef __CUDACC__
static __device__ float exp_near(float x) {
	float r;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x * 1.442695041f));
	return r;
}
#else
static __device__ float exp_near(float x) { return exp2f(x * 1.442695041f); }
#endif
static __device__ double exp_near(double x) { return exp(x); }

// fused is a·b + c, rounded once.
static __device__ float fused(float a, float b, float c) { return fmaf(a, b, c); }
static __device__ double fused(double a, double b, double c) { return fma(a, b, c); }

// max_of and min_of say NaN if one is, and know that -0 is below 0.
template <class T>
static __device__ T max_of(T a, T b) {
	if (a != a) return a;
	if (b != b) return b;
	return a > b ? a : b > a ? b : a == (T)0 ? (T)(a + b) : a;
}
template <class T>
static __device__ T min_of(T a, T b) {
	if (a != a) return a;
	if (b != b) return b;
	return a < b ? a : b < a ? b : a == (T)0 ? (T)(-(-a + -b)) : a;
}

// larger is the other of a NaN.
static __device__ float larger(float a, float b) { return fmaxf(a, b); }
static __device__ double larger(double a, double b) { return fmax(a, b); }

// A constant of each type.
static __device__ float infinity(float) { return __uint_as_float(0x7f800000); }
static __device__ double infinity(double) { return __longlong_as_double(0x7ff0000000000000ll); }

// Reductions over a warp and over a block: every thread of it calls them and gets the
// result. The tree is the same each time, so the bits are.
struct Sum {
	template <class T>
	static __device__ T of(T a, T b) { return a + b; }
};
// Two numbers are reduced as one.
struct Two {
	double a, b;
};
static __device__ Two operator+(const Two &x, const Two &y) { return Two{x.a + y.a, x.b + y.b}; }

struct Larger {
	template <class T>
	static __device__ T of(T a, T b) { return larger(a, b); }
};
struct Max {
	template <class T>
	static __device__ T of(T a, T b) { return max_of(a, b); }
};

template <class Op, class T>
static __device__ T warp_reduce(T v) {
	for (int d = 16; d > 0; d >>= 1) v = Op::of(v, __shfl_xor_sync(0xffffffffu, v, d));
	return v;
}

template <class Op, class T>
static __device__ T block_reduce(T v) {
	__shared__ T part[THREADS / 32];
	v = warp_reduce<Op>(v);
	__syncthreads(); // part may still be read from the call before
	if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
	__syncthreads();
	v = part[0];
	for (int w = 1; w < THREADS / 32; w++) v = Op::of(v, part[w]);
	return v;
}

// exchange returns what the thread has whose lane differs by the bit d.
template <class T>
static __device__ T exchange(T v, int d) { return __shfl_xor_sync(0xffffffffu, v, d); }
static __device__ Two exchange(Two v, int d) { return Two{exchange(v.a, d), exchange(v.b, d)}; }

// tall_columns calls out(c, v) for each of so many columns, where v combines the elements
// in(start(c) + r·stride) for r below rows. A block takes 8 columns at a time, each in 32
// slices.
template <class T, class Start, class In, class Op, class Out>
static __device__ void tall_columns(i64 columns, i64 rows, i64 stride, T none, Start start, In in, Op op, Out out) {
	const int WIDE = 8, SLICES = THREADS / WIDE;
	__shared__ T part[SLICES][WIDE];
	int own = threadIdx.x % WIDE, slice = threadIdx.x / WIDE;
	for (i64 first = blockIdx.x * (i64)WIDE; first < columns; first += gridDim.x * (i64)WIDE) {
		i64 c = first + own;
		T v = none;
		if (c < columns) {
			i64 at = start(c);
#pragma unroll 8
			for (i64 r = slice; r < rows; r += SLICES) v = op(v, (T)in(at + r * stride));
		}
		part[slice][own] = v;
		__syncthreads();
		if (slice == 0 && c < columns) {
			for (int s = 1; s < SLICES; s++) v = op(v, part[s][own]);
			out(c, v);
		}
		__syncthreads();
	}
}

// A block scans TILE elements at a time, of which each thread takes some that lie side by
// side.
enum { EACH_THREAD = 8, TILE = THREADS * EACH_THREAD };

// block_scan returns the sum of v over the threads before this one, and the sum
// over all. Every thread of the block calls it.
template <class T>
static __device__ T block_scan(T v, T *total) {
	__shared__ T part[2][THREADS];
	int t = threadIdx.x, from = 0;
	__syncthreads();
	part[0][t] = v;
	__syncthreads();
	for (int d = 1; d < THREADS; d *= 2, from ^= 1) {
		part[from ^ 1][t] = part[from][t] + (t >= d ? part[from][t - d] : 0);
		__syncthreads();
	}
	*total = part[from][THREADS - 1];
	return t > 0 ? part[from][t - 1] : 0;
}

// A Team is the threads that share a row: size of them, a power of two that THREADS is a
// multiple of, of which mate is this one. The teams of a block go from row to row together.
struct Team {
	int size, mate, own, teams, turn;

	__device__ Team(int n) : size(n), mate(threadIdx.x & (n - 1)), own(threadIdx.x / n), teams(THREADS / n), turn(0) {}

	// reduce is block_reduce for a team, with one barrier at most.
	template <class Op, class V>
	__device__ V reduce(V v) {
		__shared__ V part[2][THREADS / 32];
#pragma unroll
		for (int d = 16; d > 0; d >>= 1)
			if (d < size) v = Op::of(v, exchange(v, d));
		if (size <= 32) return v;
		turn ^= 1; // the other may still be read from the call before
		if (threadIdx.x % 32 == 0) part[turn][threadIdx.x / 32] = v;
		__syncthreads();
		const V *its = part[turn] + own * (size / 32);
		v = its[0];
		for (int w = 1; w < size / 32; w++) v = Op::of(v, its[w]);
		return v;
	}
};

// EACH_TEAM has a team t for each row r. All threads of a block go through it as often:
// r may be rows or more.
#define EACH_TEAM(t, r, rows) for (i64 r = blockIdx.x * (i64)t.teams + t.own; r - t.own < (rows); r += gridDim.x * (i64)t.teams)

// each_in_row calls f(i, p) for the elements of a row, which the threads of a team
// divide: p is a Pack of those from i on, of 16 bytes where they lie at a multiple of
// that, and of one element before and after. Four are read before the first is used.
template <class T, class F>
static __device__ void each_in_row(const Team &t, const T *x, i64 n, F f) {
	const int N = 16 / sizeof(T), AHEAD = 4;
	i64 head = -(i64)((u64)x / sizeof(T)) & (N - 1);
	if (head > n) head = n;
	i64 packs = (n - head) / N;
	const Pack<T, N> *in = (const Pack<T, N> *)(x + head);
	for (i64 k = t.mate; k < packs; k += AHEAD * t.size) {
		Pack<T, N> p[AHEAD];
#pragma unroll
		for (int j = 0; j < AHEAD; j++)
			if (k + j * t.size < packs) p[j] = in[k + j * t.size];
#pragma unroll
		for (int j = 0; j < AHEAD; j++)
			if (k + j * t.size < packs) f(head + (k + j * t.size) * N, p[j]);
	}
	for (i64 k = t.mate; k < n - packs * N; k += t.size) {
		i64 i = k < head ? k : k + packs * N;
		f(i, Pack<T, 1>{{x[i]}});
	}
}

// put_whole writes a Pack at once: of an assignment the compiler makes one store for each
// element where it unrolls a loop.
template <class P>
static __device__ void put_whole(P *dst, const P &p) {
	if (sizeof(P) == 16) {
		uint4 v;
		memcpy(&v, &p, sizeof(P));
		__stwb((uint4 *)dst, v);
	} else if (sizeof(P) == 8) {
		uint2 v;
		memcpy(&v, &p, sizeof(P));
		__stwb((uint2 *)dst, v);
	} else {
		*dst = p;
	}
}

// pack_at reads a Pack, and put_pack writes one, wherever it lies.
template <class P, class T>
static __device__ P pack_at(const T *x) {
	if ((u64)x % sizeof(P) == 0) return *(const P *)x;
	P p;
#pragma unroll
	for (int k = 0; k < P::SIZE; k++) p.v[k] = x[k];
	return p;
}
template <class P, class T>
static __device__ void put_pack(T *dst, const P &p) {
	if ((u64)dst % sizeof(P) == 0) {
		put_whole((P *)dst, p);
		return;
	}
#pragma unroll
	for (int k = 0; k < P::SIZE; k++) dst[k] = p.v[k];
}

// A Run is the largest element so far and Σexp(x - it); a NaN shows in the sum.
template <class T>
struct Run {
	T top;
	double sum;

	template <class P>
	__device__ void add(const P &p) {
		T most = top, more = 0;
#pragma unroll
		for (int k = 0; k < P::SIZE; k++) most = larger(most, (T)wide(p.v[k]));
		if (most > top) {
			sum *= (double)exp_of(top - most);
			top = most;
		}
		if (most == -infinity((T)0)) most = 0; // -Inf - -Inf is NaN
#pragma unroll
		for (int k = 0; k < P::SIZE; k++) more += exp_near((T)wide(p.v[k]) - most);
		sum += (double)more;
	}
};

// team_run returns the Run of all threads' elements to every thread of the team.
template <class T>
static __device__ Run<T> team_run(Team &t, const Run<T> &run) {
	T top = t.reduce<Larger>(run.top);
	return Run<T>{top, t.reduce<Sum>(run.sum == 0 ? 0 : run.sum * (double)exp_of(run.top - top))};
}
