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
#define __align__(n) alignas(n)

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

// fake_shown returns where a lane has what it has shown.
void *fake_shown(unsigned lane);

#define __popc __builtin_popcount
#define __match_any_sync(mask, v) fake_match(__LINE__, mask, v)
#define __syncthreads() fake_barrier(__LINE__)
#define __syncwarp(mask) fake_warp(__LINE__, mask, nullptr, threadIdx.x % 32)
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
inline float __uint_as_float(unsigned v) { return fake_bits<float>(v); }
inline unsigned __float_as_uint(float v) { return fake_bits<unsigned>(v); }
inline double __longlong_as_double(long long v) { return fake_bits<double>(v); }
inline long long __double_as_longlong(double v) { return fake_bits<long long>(v); }

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
