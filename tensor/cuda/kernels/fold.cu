// The arithmetic of collectives: Fold of package comm.
#include "common.h"
#include "ops.h"

struct Prod {
	template <class T>
	static __device__ T of(T a, T b) { return a * b; }
};
struct Min {
	template <class T>
	static __device__ T of(T a, T b) { return min_of(a, b); }
};
struct And {
	static __device__ u64 of(u64 a, u64 b) { return a & b; }
};
struct Or {
	static __device__ u64 of(u64 a, u64 b) { return a | b; }
};
struct Xor {
	static __device__ u64 of(u64 a, u64 b) { return a ^ b; }
};

// What elements are folded as: the halves in float, rounded once, and integers in 64
// bits, of which the low ones are kept. For sums they have no sign, for they may wrap.
struct Several {
	enum { ahead = 4 }; // as many ranks' elements are on their way at once
};
struct Single : Several {
	typedef float as;
	typedef float kept;
	static __device__ as widen(kept v) { return v; }
	static __device__ kept narrow(as v) { return v; }
	__device__ as load(const void *p, i64 i) const { return widen(((const kept *)p)[i]); }
	__device__ void store(void *p, i64 i, as v) const { ((kept *)p)[i] = narrow(v); }
};
struct Double : Several {
	typedef double as;
	typedef double kept;
	static __device__ as widen(kept v) { return v; }
	static __device__ kept narrow(as v) { return v; }
	__device__ as load(const void *p, i64 i) const { return widen(((const kept *)p)[i]); }
	__device__ void store(void *p, i64 i, as v) const { ((kept *)p)[i] = narrow(v); }
};
struct Half : Several {
	typedef float as;
	typedef u16 kept;
	static __device__ as widen(kept v) { return widen_f16(v); }
	static __device__ kept narrow(as v) { return narrow_f16(v); }
	__device__ as load(const void *p, i64 i) const { return widen(((const kept *)p)[i]); }
	__device__ void store(void *p, i64 i, as v) const { ((kept *)p)[i] = narrow(v); }
};
struct BHalf : Several {
	typedef float as;
	typedef u16 kept;
	static __device__ as widen(kept v) { return widen_bf16(v); }
	static __device__ kept narrow(as v) { return narrow_bf16(v); }
	__device__ as load(const void *p, i64 i) const { return widen(((const kept *)p)[i]); }
	__device__ void store(void *p, i64 i, as v) const { ((kept *)p)[i] = narrow(v); }
};
template <class T>
struct Whole {
	enum { ahead = 1 }; // which type it is, is looked up for each
	typedef T as;
	int dt;
	__device__ as load(const void *p, i64 i) const { return (T)load_int(dt, p, i); }
	__device__ void store(void *p, i64 i, as v) const { store_int(dt, p, i, (i64)v); }
};

template <class Op, class E>
static __device__ void fold_by(E e, i64 n, int ranks, int divisor, void *dst, const void *src) {
	typedef typename E::as T;
	EACH(i, n) {
		T x = e.load(src, i);
#pragma unroll E::ahead
		for (int r = 1; r < ranks; r++) x = Op::of(x, e.load(src, r * n + i));
		e.store(dst, i, divisor > 1 ? x / (T)divisor : x);
	}
}

// fold_sums folds sums 16 bytes at once where all ranks' elements lie at multiples of that.
template <class E>
static __device__ void fold_sums(E e, i64 n, int ranks, int divisor, void *dst, const void *src) {
	typedef typename E::as T;
	typedef Pack<typename E::kept, 16 / sizeof(typename E::kept)> P;
	if (((u64)dst | (u64)src) % sizeof(P) || n % P::SIZE) {
		fold_by<Sum>(e, n, ranks, divisor, dst, src);
		return;
	}
	const i64 packs = n / P::SIZE;
	EACH(k, packs) {
		P p = ((const P *)src)[k];
		T x[P::SIZE];
#pragma unroll
		for (int i = 0; i < P::SIZE; i++) x[i] = e.widen(p.v[i]);
#pragma unroll E::ahead
		for (int r = 1; r < ranks; r++) {
			P q = ((const P *)src)[r * packs + k];
#pragma unroll
			for (int i = 0; i < P::SIZE; i++) x[i] = x[i] + e.widen(q.v[i]);
		}
#pragma unroll
		for (int i = 0; i < P::SIZE; i++) p.v[i] = e.narrow(divisor > 1 ? x[i] / (T)divisor : x[i]);
		put_whole((P *)dst + k, p);
	}
}

template <class E>
static __device__ void fold_floats(E e, int op, i64 n, int ranks, void *dst, const void *src) {
	switch (op) {
	case FOLD_SUM:
	case FOLD_AVG: fold_sums(e, n, ranks, op == FOLD_AVG ? ranks : 1, dst, src); break;
	case FOLD_PROD: fold_by<Prod>(e, n, ranks, 1, dst, src); break;
	case FOLD_MIN: fold_by<Min>(e, n, ranks, 1, dst, src); break;
	case FOLD_MAX: fold_by<Max>(e, n, ranks, 1, dst, src); break;
	default: missing();
	}
}

static __device__ void fold_ints(int dt, int op, i64 n, int ranks, void *dst, const void *src) {
	Whole<u64> bits = {dt};
	Whole<i64> numbers = {dt};
	switch (op) {
	case FOLD_SUM: fold_by<Sum>(bits, n, ranks, 1, dst, src); break;
	case FOLD_PROD: fold_by<Prod>(bits, n, ranks, 1, dst, src); break;
	case FOLD_MIN: fold_by<Min>(numbers, n, ranks, 1, dst, src); break;
	case FOLD_MAX: fold_by<Max>(numbers, n, ranks, 1, dst, src); break;
	case FOLD_AND: fold_by<And>(bits, n, ranks, 1, dst, src); break;
	case FOLD_OR: fold_by<Or>(bits, n, ranks, 1, dst, src); break;
	case FOLD_XOR: fold_by<Xor>(bits, n, ranks, 1, dst, src); break;
	default: missing();
	}
}

// fold sets dst[i] = src[i] op src[n + i] op src[2n + i] …, ranks of them.
KERNEL(fold, int dt, int op, i64 n, int ranks, void *dst, const void *src) {
	switch (dt) {
	case F32: fold_floats(Single{}, op, n, ranks, dst, src); break;
	case F64: fold_floats(Double{}, op, n, ranks, dst, src); break;
	case F16: fold_floats(Half{}, op, n, ranks, dst, src); break;
	case BF16: fold_floats(BHalf{}, op, n, ranks, dst, src); break;
	default: fold_ints(dt, op, n, ranks, dst, src); // which knows what else there is
	}
}
