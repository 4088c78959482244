// What CUDA C++ offers a kernel, for the CPU: the fake driver runs the very
// kernels that a GPU runs. The threads of a block are coroutines on one thread of
// the machine, which change places at barriers and warp shuffles.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#define __device__
#define __global__
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))

struct dim3u {
	unsigned x, y, z;
};
extern const dim3u threadIdx, blockIdx, blockDim, gridDim;

// fake_barrier waits for all threads of the block, at the same place of the source.
// fake_warp waits for the lanes of the warp that mask names, at the same place, and
// returns where one of them has what it shows; with null it orders their accesses to
// memory.
void fake_barrier(int line);
void *fake_warp(int line, unsigned mask, void *mine, unsigned lane);

// fake_trap ends the launch: it fails.
[[noreturn]] void fake_trap();
#define __trap fake_trap

// fake_shown returns where a lane has what it has shown.
void *fake_shown(unsigned lane);

#define __popc __builtin_popcount
#define __fdividef(a, b) ((float)(a) / (b))
#define __match_any_sync(mask, v) fake_match(__LINE__, mask, v)
#define __syncthreads() fake_barrier(__LINE__)
#define __syncwarp(mask) fake_warp(__LINE__, mask, nullptr, threadIdx.x % 32)
#define __shfl_up_sync(mask, v, d) fake_shfl(__LINE__, mask, v, threadIdx.x % 32 < (unsigned)(d) ? threadIdx.x % 32 : threadIdx.x % 32 - (d))
#define __shfl_xor_sync(mask, v, lane) fake_shfl(__LINE__, mask, v, threadIdx.x % 32 ^ (lane))

template <class T>
T fake_shfl(int line, unsigned mask, T v, unsigned lane) {
	T copy = v, got = *(T *)fake_warp(line, mask, &copy, lane);
	fake_warp(line, mask, &copy, lane); // all have read
	return got;
}

template <class T>
unsigned fake_match(int line, unsigned mask, T v) {
	T copy = v;
	unsigned same = 0;
	fake_warp(line, mask, &copy, threadIdx.x % 32);
	for (unsigned l = 0; l < 32; l++)
		if (mask >> l & 1 && *(T *)fake_shown(l) == v) same |= 1u << l;
	fake_warp(line, mask, &copy, threadIdx.x % 32); // all have read
	return same;
}

template <class To, class From>
To fake_bits(From v) {
	To r;
	static_assert(sizeof r == sizeof v, "sizes differ");
	memcpy(&r, &v, sizeof r);
	return r;
}
#define __ballot_sync(mask, v) fake_ballot(__LINE__, mask, v)
inline unsigned fake_ballot(int line, unsigned mask, bool v) {
	unsigned same = fake_match(line, mask, v);
	return v ? same : mask & ~same;
}
inline float __uint_as_float(unsigned v) { return fake_bits<float>(v); }
inline unsigned __float_as_uint(float v) { return fake_bits<unsigned>(v); }
inline double __longlong_as_double(long long v) { return fake_bits<double>(v); }
inline long long __double_as_longlong(double v) { return fake_bits<long long>(v); }

// erfinv is the inverse of erf, which the C library lacks, by halving.
inline double erfinv(double x) {
	double a = fabs(x), lo = 0, hi = 6;
	if (!(a < 1)) return a == 1 ? x * INFINITY : NAN;
	for (int i = 0; i < 200; i++) {
		double mid = (lo + hi) / 2;
		(a < 0.5 ? erf(mid) < a : erfc(mid) > 1 - a) ? (lo = mid) : (hi = mid);
	}
	return copysign(lo, x);
}
inline float erfinvf(float x) { return (float)erfinv(x); }

// sinpi, cospi and the Bessel functions are CUDA's; the C library has none of them. x - 2·rint(x/2) is exact.
inline double half_turns(double x) { return fmod(rint(x), 2) != 0 ? -1 : 1; } // as exact near whole numbers as a GPU's
inline double sinpi(double x) { return half_turns(x) * sin(M_PI * (x - rint(x))); }
inline double cospi(double x) { return half_turns(x) * cos(M_PI * (x - rint(x))); }
inline double cyl_bessel_i0(double x) { return isinf(x) ? INFINITY : std::cyl_bessel_i(0., fabs(x)); }
inline double cyl_bessel_i1(double x) { return copysign(isinf(x) ? INFINITY : std::cyl_bessel_i(1., fabs(x)), x); }
inline float cyl_bessel_i0f(float x) { return (float)cyl_bessel_i0(x); }
inline float cyl_bessel_i1f(float x) { return (float)cyl_bessel_i1(x); }

struct __attribute__((may_alias, aligned(16))) uint4 {
	unsigned x, y, z, w;
};
struct __attribute__((may_alias, aligned(8))) uint2 {
	unsigned x, y;
};
template <class T>
void __stwb(T *p, T v) {
	*p = v;
}

// fake_atomic tells the checks of an atomic access.
#define UNSEEN __attribute__((no_sanitize("thread")))
void fake_atomic(const void *p, uint64_t bytes, void *caller);

template <class T, class V>
UNSEEN __attribute__((noinline)) T atomicAdd(T *p, V v) {
	fake_atomic(p, sizeof *p, __builtin_return_address(0));
	T old = *p;
	*p = old + (T)v;
	return old;
}
template <class T, class V>
UNSEEN __attribute__((noinline)) T atomicMin(T *p, V v) {
	fake_atomic(p, sizeof *p, __builtin_return_address(0));
	T old = *p;
	if ((T)v < old) *p = (T)v;
	return old;
}

// fake_read and fake_write tell the checks of other accesses.
void fake_read(const void *p, uint64_t bytes, void *caller);
void fake_write(const void *p, uint64_t bytes, void *caller);

// A FakeOperand is a lane's part of the arguments of a product.
struct FakeOperand {
	unsigned a[4], b[2];
};

#define mma(c, a, b0, b1) fake_mma(__LINE__, c, a, b0, b1)
UNSEEN inline void fake_mma(int line, float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
	FakeOperand mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
	auto half = [](unsigned v, int i) { return (double)fake_bits<float>(i ? v & 0xffff0000u : v << 16); };
	unsigned lane = threadIdx.x % 32;
	fake_warp(line, 0xffffffffu, &mine, lane);
	for (unsigned i = 0; i < 4; i++) {
		double sum = c[i];
		for (unsigned k = 0; k < 16; k++) {
			auto *left = (FakeOperand *)fake_shown(lane / 4 * 4 + k % 8 / 2), *right = (FakeOperand *)fake_shown((lane % 4 * 2 + i % 2) * 4 + k % 8 / 2);
			sum += half(left->a[i / 2 + k / 8 * 2], k % 2) * half(right->b[k / 8], k % 2);
		}
		c[i] = (float)sum;
	}
	fake_warp(line, 0xffffffffu, &mine, lane); // all have read
}

// The lane that an element goes to reads it, and the one that names its row could.
#define load_matrices(r, row) fake_load(__LINE__, r, row, false)
#define load_transposed(r, row) fake_load(__LINE__, r, row, true)
UNSEEN __attribute__((noinline)) inline void fake_load(int line, unsigned (&r)[4], const uint16_t *row, bool transposed) {
	void *caller = __builtin_return_address(0);
	fake_read(row, 16, caller);
	unsigned lane = threadIdx.x % 32;
	fake_warp(line, 0xffffffffu, &row, lane);
	for (unsigned i = 0; i < 4; i++) {
		r[i] = 0;
		for (unsigned k = 0; k < 2; k++) {
			unsigned down = lane / 4, across = lane % 4 * 2 + k;
			if (transposed) std::swap(down, across);
			const uint16_t *p = *(const uint16_t **)fake_shown(8 * i + down) + across;
			fake_read(p, 2, caller);
			r[i] |= (unsigned)*p << 16 * k;
		}
	}
	fake_warp(line, 0xffffffffu, &row, lane); // all have read
}

// What copy_async brings arrives with copies_done; until then there are ones.
void fake_copy(void *to, const void *from, unsigned bytes, bool zeros, void *caller);
void fake_copies_done(void *caller);
template <int BYTES>
UNSEEN __attribute__((noinline)) void copy_async(void *to, const void *from, bool zeros) {
	fake_copy(to, from, BYTES, zeros, __builtin_return_address(0));
}
UNSEEN __attribute__((noinline)) inline void copies_done() { fake_copies_done(__builtin_return_address(0)); }

// A FakeKernel is a kernel as the fake driver knows it: the sizes of its parameters
// and a function that takes them from a launch's buffer.
struct FakeKernel {
	const char *name;
	std::vector<size_t> sizes, offsets;
	size_t bytes;
	void (*call)(const FakeKernel &, char *buffer);
	void (*body)();
	uint64_t pointers; // bit i: parameter i is an address
};
void fake_register(FakeKernel k);

template <class... A>
struct FakeSignature {
	template <size_t... I>
	UNSEEN static void go(void (*f)(A...), const FakeKernel &k, char *p, std::index_sequence<I...>) {
		f(*(typename std::decay<A>::type *)(p + k.offsets[I])...);
	}
	UNSEEN static void call(const FakeKernel &k, char *p) { go((void (*)(A...))k.body, k, p, std::index_sequence_for<A...>{}); }
};

struct FakeEntry {
	template <class... A>
	FakeEntry(const char *name, void (*f)(A...)) {
		FakeKernel k;
		k.name = name;
		size_t sizes[] = {sizeof(A)...}, aligns[] = {alignof(A)...}, at = 0;
		bool pointer[] = {std::is_pointer<A>::value...};
		k.pointers = 0;
		for (size_t i = 0; i < sizeof...(A); i++) {
			at = (at + aligns[i] - 1) / aligns[i] * aligns[i];
			k.sizes.push_back(sizes[i]);
			k.offsets.push_back(at);
			at += sizes[i];
			if (pointer[i]) k.pointers |= 1ull << i;
		}
		k.bytes = at;
		k.call = FakeSignature<A...>::call;
		k.body = (void (*)())f;
		fake_register(k);
	}
};

#define KERNEL(name, ...)                                \
	static void name(__VA_ARGS__);                       \
	static FakeEntry fake_entry_##name(#name, name);     \
	static void name(__VA_ARGS__)
