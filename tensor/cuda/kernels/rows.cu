// Softmax, norms and other functions of a row. A team of threads has a row at a time;
// if it can, it reads it once and keeps it in registers.
#include "common.h"
#include "ops.h"

// Held is a row in the registers of a team: up to E elements of it a thread, in Packs of
// N, of which number k of a thread is number k·size + mate of the row.
template <class T, int N, int E>
struct Held {
	Pack<T, N> pack[E / N];

	// each_pack calls f(i, k) for the packs of a thread: number k begins at element i.
	template <class F>
	static __device__ void each_pack(const Team &t, i64 n, F f) {
		int packs = (int)n / N, most = (packs + t.size - 1) / t.size, first = t.mate / 8 * 8 * most + t.mate % 8;
		int end = first + most * 8 < packs ? most * 8 : packs - first;
#pragma unroll
		for (int k = 0; k < E / N; k++)
			if (k * 8 < end) f((first + k * 8) * N, k);
	}
	__device__ void read(const Team &t, const T *x, i64 n) {
		each_pack(t, n, [&](int i, int k) { pack[k] = at<Pack<T, N>>(x, i); });
	}
	// each calls f(i, p) for the packs, those from element i on.
	template <class F>
	__device__ void each(const Team &t, i64 n, F f) const {
		each_pack(t, n, [&](int i, int k) { f(i, pack[k]); });
	}
	// each2 calls f(i, p, q) for the packs of this row and of another.
	template <class F>
	__device__ void each2(const Held &other, const Team &t, i64 n, F f) const {
		each_pack(t, n, [&](int i, int k) { f(i, pack[k], other.pack[k]); });
	}
	template <class W>
	__device__ Run<W> run(Team &t, i64 n, W top) const {
		each(t, n, [&](int, Pack<T, N> p) {
#pragma unroll
			for (int e = 0; e < N; e++) top = larger(top, wide(p.v[e]));
		});
		top = t.reduce<Larger>(top);
		double sum = 0;
		each(t, n, [&](int, Pack<T, N> p) {
			W more = 0;
#pragma unroll
			for (int e = 0; e < N; e++) more += exp_near(wide(p.v[e]) - top);
			sum += (double)more;
		});
		return Run<W>{top, t.reduce<Sum>(sum)};
	}
	template <class P>
	static __device__ P at(const T *x, int i) { return ((const P *)x)[i / N]; }
	template <class P>
	static __device__ void put(T *dst, int i, const P &p) { ((P *)dst)[i / N] = p; }
};

// Streamed is a row that is read as often as it is gone through.
template <class T>
struct Streamed {
	const T *x;

	__device__ void read(const Team &, const T *from, i64) { x = from; }
	template <class F>
	__device__ void each(const Team &t, i64 n, F f) const { each_in_row(t, x, n, f); }
	template <class F>
	__device__ void each2(const Streamed &other, const Team &t, i64 n, F f) const {
		each_in_row(t, x, n, [&](i64 i, auto p) { f(i, p, pack_at<decltype(p)>(other.x + i)); });
	}
	template <class W>
	__device__ Run<W> run(Team &t, i64 n, W none) const {
		Run<W> run = {none, 0};
		each(t, n, [&](i64, auto p) { run.add(p); });
		return team_run(t, run);
	}
	template <class P>
	static __device__ P at(const T *x, i64 i) { return pack_at<P>(x + i); }
	template <class P>
	static __device__ void put(T *dst, i64 i, const P &p) { put_pack(dst + i, p); }
};

// as_row calls f with a row of n elements: one that is held if a thread has at most E of
// them and all rows begin at multiples of 16 bytes. Rows of float64 are streamed: they are
// seldom, and what is unrolled for them takes the driver long to compile.
template <int E, class T, class F>
static __device__ void as_row(const Team &t, bool aligned, i64 n, const T *, F f) {
	const int N = 16 / sizeof(T);
	if (aligned && n % N == 0 && n <= E * t.size) f(Held<T, N, E>());
	else f(Streamed<T>());
}

template <int E, class F>
static __device__ void as_row(const Team &, bool, i64, const double *, F f) {
	f(Streamed<double>());
}

static __device__ bool aligned(const void *p) { return (u64)p % 16 == 0; }

// HELD is how many elements of a row a thread holds.
enum { HELD = 32 };

template <class T>
static __device__ void softmax(int want_log, T *dst, const T *x, i64 rows, i64 n, int team) {
	typedef decltype(wide(*x)) W;
	Team t(team);
	as_row<HELD>(t, aligned(dst) && aligned(x), n, x, [&](auto row) {
		EACH_TEAM(t, r, rows) {
			i64 m = r < rows ? n : 0;
			row.read(t, x + r * n, m);
			Run<W> run = row.run(t, m, -infinity((W)0));
			W shift = want_log ? (W)log(run.sum) : 0, scale = (W)(1 / run.sum);
			row.each(t, m, [&](auto i, auto p) {
#pragma unroll
				for (int k = 0; k < p.SIZE; k++) {
					W v = wide(p.v[k]) - run.top;
					put(&p.v[k], want_log ? v - shift : exp_of(v) * scale);
				}
				row.put(dst + r * n, i, p);
			});
		}
	});
}
CROWDED(3, softmax_f32, int want_log, float *dst, const float *x, i64 rows, i64 n, int team) { softmax(want_log, dst, x, rows, n, team); }
KERNEL(softmax_f64, int want_log, double *dst, const double *x, i64 rows, i64 n, int team) { softmax(want_log, dst, x, rows, n, team); }
KERNEL(softmax_bf16, int want_log, u16 *dst, const u16 *x, i64 rows, i64 n, int team) { softmax(want_log, dst, x, rows, n, team); }

template <class T>
static __device__ void softmax_grad(int want_log, T *dx, const T *dy, const T *y, i64 rows, i64 n, int team) {
	typedef decltype(wide(*y)) W;
	Team t(team);
	as_row<HELD>(t, aligned(dx) && aligned(dy) && aligned(y), n, y, [&](auto g) {
		decltype(g) s;
		EACH_TEAM(t, r, rows) {
			i64 m = r < rows ? n : 0;
			g.read(t, dy + r * n, m);
			s.read(t, y + r * n, m);
			double sum = 0;
			g.each2(s, t, m, [&](auto, const auto &p, const auto &q) {
#pragma unroll
				for (int k = 0; k < p.SIZE; k++) sum += want_log ? (double)wide(p.v[k]) : (double)wide(p.v[k]) * (double)wide(q.v[k]);
			});
			W total = (W)t.reduce<Sum>(sum);
			g.each2(s, t, m, [&](auto i, auto p, const auto &q) {
#pragma unroll
				for (int k = 0; k < p.SIZE; k++) {
					W a = wide(p.v[k]), b = wide(q.v[k]);
					put(&p.v[k], want_log ? a - exp_of(b) * total : b * (a - total));
				}
				g.put(dx + r * n, i, p);
			});
		}
	});
}
KERNEL(softmax_grad_f32, int want_log, float *dx, const float *dy, const float *y, i64 rows, i64 n, int team) { softmax_grad(want_log, dx, dy, y, rows, n, team); }
KERNEL(softmax_grad_f64, int want_log, double *dx, const double *dy, const double *y, i64 rows, i64 n, int team) { softmax_grad(want_log, dx, dy, y, rows, n, team); }
KERNEL(softmax_grad_bf16, int want_log, u16 *dx, const u16 *dy, const u16 *y, i64 rows, i64 n, int team) { softmax_grad(want_log, dx, dy, y, rows, n, team); }

// A Mean is taken from numbers to the last bit: lo is what hi leaves of it.
template <class W>
struct Mean {
	W hi, lo;
	__device__ Mean(double m) : hi((W)m), lo((W)(m - (double)hi)) {}
	__device__ W from(W v) const { return v - hi - lo; }
};

// What is added up of a Pack is float64, but float32 of bfloat16: to convert each term
// would take longer than to read it.
template <class T>
struct Terms {
	typedef double type;
};
template <>
struct Terms<u16> {
	typedef float type;
};
template <class T, int N>
static __device__ typename Terms<T>::type term_of(const Pack<T, N> &) { return 0; }

// row_mean returns the mean of a row of n elements, of which this team has m.
template <class Row>
static __device__ double row_mean(Team &t, const Row &row, i64 m, i64 n) {
	double sum = 0;
	row.each(t, m, [&](auto, const auto &p) {
		auto some = term_of(p);
#pragma unroll
		for (int k = 0; k < p.SIZE; k++) some += wide(p.v[k]);
		sum += (double)some;
	});
	return t.reduce<Sum>(sum) / (double)n;
}

// row_squares returns Σ(x - mean)².
template <class Row>
static __device__ double row_squares(Team &t, const Row &row, i64 n, double mean) {
	double sum = 0;
	row.each(t, n, [&](auto, const auto &p) {
		auto some = term_of(p);
#pragma unroll
		for (int k = 0; k < p.SIZE; k++) {
			decltype(some) d = Mean<decltype(some)>(mean).from(wide(p.v[k]));
			some += d * d;
		}
		sum += (double)some;
	});
	return t.reduce<Sum>(sum);
}

// log_sum_exp returns ln Σexp(x).
template <class T>
static __device__ double log_sum_exp(Team &t, const Streamed<T> &row, i64 n, T top) {
	row.each(t, n, [&](i64, auto p) {
#pragma unroll
		for (int k = 0; k < p.SIZE; k++) top = max_of(top, p.v[k]);
	});
	top = t.reduce<Max>(top);
	double sum = 0;
	row.each(t, n, [&](i64, auto p) {
#pragma unroll
		for (int k = 0; k < p.SIZE; k++) sum += (double)exp_of(p.v[k] - top);
	});
	sum = t.reduce<Sum>(sum);
	return top == infinity(top) || top == -infinity(top) ? (double)top : (double)top + log(sum);
}

// power_sum returns Σ|x|^p, max|x| for p = +Inf.
template <class T>
static __device__ double power_sum(Team &t, const T *x, i64 n, double p) {
	double v = 0;
	bool most = p == infinity(p);
	if (most || p == 1 || p == 2)
		each_in_row(t, x, n, [&](i64, auto q) {
#pragma unroll
			for (int k = 0; k < q.SIZE; k++) {
				double a = fabs((double)q.v[k]);
				v = most ? max_of(v, a) : v + (p == 1 ? a : a * a);
			}
		});
	else
		for (i64 i = t.mate; i < n; i += t.size) v += pow(fabs((double)x[i]), p);
	return most ? t.reduce<Max>(v) : t.reduce<Sum>(v);
}

template <class T>
static __device__ void row_stat(int op, T *dst, const T *x, i64 rows, i64 n, double p, int team) {
	Team t(team);
	EACH_TEAM(t, r, rows) {
		i64 m = r < rows ? n : 0;
		Streamed<T> row = {x + r * n};
		double v = 0;
		switch ((RowOp)op) {
		case LOG_SUM_EXP: v = log_sum_exp(t, row, m, -infinity((T)0)); break;
		case SQUARE_DEV: v = row_squares(t, row, m, row_mean(t, row, m, n)); break;
		case NORM:
		case POW_SUM:
			v = power_sum(t, row.x, m, p);
			if (op == NORM && p != infinity(p)) v = p == 2 ? sqrt(v) : pow(v, 1 / p);
			break;
		default: missing();
		}
		if (t.mate == 0 && r < rows) dst[r] = (T)v;
	}
}
KERNEL(row_stat_f32, int op, float *dst, const float *x, i64 rows, i64 n, double p, int team) { row_stat(op, dst, x, rows, n, p, team); }
KERNEL(row_stat_f64, int op, double *dst, const double *x, i64 rows, i64 n, double p, int team) { row_stat(op, dst, x, rows, n, p, team); }

// row_pow_sums is POW_SUM of the rows that index names.
template <class T>
static __device__ void row_pow_sums(T *dst, const T *table, int it, const void *index, i64 n, i64 dim, double p, int team) {
	Team t(team);
	EACH_TEAM(t, i, n) {
		double v = power_sum(t, table + (i < n ? index_at(it, index, i) : 0) * dim, i < n ? dim : 0, p);
		if (t.mate == 0 && i < n) dst[i] = (T)v;
	}
}
KERNEL(row_pow_sums_f32, float *dst, const float *table, int it, const void *index, i64 n, i64 dim, double p, int team) { row_pow_sums(dst, table, it, index, n, dim, p, team); }
KERNEL(row_pow_sums_f64, double *dst, const double *table, int it, const void *index, i64 n, i64 dim, double p, int team) { row_pow_sums(dst, table, it, index, n, dim, p, team); }

// norm normalises rows; without centre it is the root-mean-square norm, whose
// stats hold one number a row, of float64 for every type. weight and bias may be null.
template <class T>
static __device__ void norm(int centre, T *dst, double *stats, const T *x, const T *weight, const T *bias, i64 rows, i64 n, double eps, int team) {
	typedef decltype(wide(*x)) W;
	Team t(team);
	as_row<HELD>(t, aligned(dst) && aligned(x) && aligned(weight) && aligned(bias), n, x, [&](auto row) {
		EACH_TEAM(t, r, rows) {
			i64 m = r < rows ? n : 0;
			row.read(t, x + r * n, m);
			double mean = centre ? row_mean(t, row, m, n) : 0;
			double rstd = 1 / sqrt(row_squares(t, row, m, mean) / (double)n + eps);
			Mean<W> its(mean);
			row.each(t, m, [&](auto i, auto p) {
				W h[p.SIZE];
#pragma unroll
				for (int k = 0; k < p.SIZE; k++) h[k] = its.from(wide(p.v[k])) * (W)rstd;
				if (weight) {
					auto w = row.template at<decltype(p)>(weight, i);
#pragma unroll
					for (int k = 0; k < p.SIZE; k++) h[k] *= wide(w.v[k]);
				}
				if (bias) {
					auto b = row.template at<decltype(p)>(bias, i);
#pragma unroll
					for (int k = 0; k < p.SIZE; k++) h[k] += wide(b.v[k]);
				}
#pragma unroll
				for (int k = 0; k < p.SIZE; k++) put(&p.v[k], h[k]);
				row.put(dst + r * n, i, p);
			});
			if (t.mate == 0 && r < rows) {
				if (centre) {
					stats[2 * r] = mean;
					stats[2 * r + 1] = rstd;
				} else {
					stats[r] = rstd;
				}
			}
		}
	});
}
CROWDED(3, norm_f32, int centre, float *dst, double *stats, const float *x, const float *weight, const float *bias, i64 rows, i64 n, double eps, int team) { norm(centre, dst, stats, x, weight, bias, rows, n, eps, team); }
KERNEL(norm_f64, int centre, double *dst, double *stats, const double *x, const double *weight, const double *bias, i64 rows, i64 n, double eps, int team) { norm(centre, dst, stats, x, weight, bias, rows, n, eps, team); }
KERNEL(norm_bf16, int centre, u16 *dst, double *stats, const u16 *x, const u16 *weight, const u16 *bias, i64 rows, i64 n, double eps, int team) { norm(centre, dst, stats, x, weight, bias, rows, n, eps, team); }

// A NormRow has the statistics of a row, of type D. Gradients of float32 are computed with
// in float64: where the elements of a row hardly differ, differences are multiplied by a
// large rstd.
template <class D>
struct NormRow {
	Mean<D> mean;
	D rstd;
	__device__ NormRow(int centre, const double *stats, i64 r) : mean(centre ? stats[2 * r] : 0), rstd((D)stats[centre ? 2 * r + 1 : r]) {}
	__device__ D normal(D v) const { return mean.from(v) * rstd; }
};

// norm_means makes means of a row's Σ g and Σ g·h; a norm without centre does not depend
// on the first.
template <class W>
static __device__ void norm_means(Team &t, int centre, const Two &sum, i64 n, W *g, W *gh) {
	Two total = t.reduce<Sum>(sum);
	*g = centre ? (W)(total.a / (double)n) : 0;
	*gh = (W)(total.b / (double)n);
}

// norm_grad computes dx of either norm, and for part s of parts of the rows, if part is
// not null, part[s, 0, i] = Σ dy·h and with centre part[s, 1, i] = Σ dy. A team has a part,
// one row after the other, and holds both rows and sums in registers: n is E·team at
// most, and all begins at multiples of 16 bytes.
template <int E, class T, class W>
static __device__ void norm_grad(int centre, T *dx, W *part, const T *dy, const T *x, const T *weight, const double *stats, i64 rows, i64 n, i64 parts, int team) {
	const int N = 16 / sizeof(T);
	typedef Held<T, N, E> Row;
	typedef Pack<T, N> P;
	typedef typename Terms<T>::type D;
	Team t(team);
	EACH_TEAM(t, s, parts) {
		i64 begin = s * rows / parts, end = s < parts ? (s + 1) * rows / parts : begin;
		W w[E], b[E];
#pragma unroll
		for (int e = 0; e < E; e++) w[e] = b[e] = 0;
		for (i64 j = 0; j * parts < rows; j++) { // all teams as often, for the sake of barriers
			i64 r = begin + j < end ? begin + j : 0, m = begin + j < end ? n : 0;
			Row a, g;
			g.read(t, dy + r * n, m);
			a.read(t, x + r * n, m);
			NormRow<D> its(centre, stats, r);
			Two sum = {0, 0};
			Row::each_pack(t, m, [&](int i, int k) {
				P by;
				if (weight) by = Row::template at<P>(weight, i);
				D some = 0, more = 0;
#pragma unroll
				for (int e = 0; e < N; e++) {
					D h = its.normal((D)wide(a.pack[k].v[e])), d = (D)wide(g.pack[k].v[e]);
					w[k * N + e] += (W)(d * h);
					b[k * N + e] += (W)d;
					if (weight) d *= (D)wide(by.v[e]);
					some += d;
					more += d * h;
				}
				sum.a += (double)some;
				sum.b += (double)more;
			});
			D mean_g, mean_gh;
			norm_means(t, centre, sum, n, &mean_g, &mean_gh);
			Row::each_pack(t, m, [&](int i, int k) {
				P by, out;
				if (weight) by = Row::template at<P>(weight, i);
#pragma unroll
				for (int e = 0; e < N; e++) {
					D h = its.normal((D)wide(a.pack[k].v[e])), d = (D)wide(g.pack[k].v[e]);
					if (weight) d *= (D)wide(by.v[e]);
					put(&out.v[e], (W)(its.rstd * (d - mean_g - h * mean_gh)));
				}
				Row::put(dx + r * n, i, out);
			});
		}
		if (!part || s >= parts) continue;
		Row::each_pack(t, n, [&](int i, int k) {
#pragma unroll
			for (int e = 0; e < N; e++) {
				part[2 * s * n + i + e] = w[k * N + e];
				if (centre) part[(2 * s + 1) * n + i + e] = b[k * N + e];
			}
		});
	}
}
KERNEL(norm_grad_f32, int centre, float *dx, float *part, const float *dy, const float *x, const float *weight, const double *stats, i64 rows, i64 n, i64 parts, int team) { norm_grad<HELD / 2>(centre, dx, part, dy, x, weight, stats, rows, n, parts, team); }
KERNEL(norm_grad_long_f32, int centre, float *dx, float *part, const float *dy, const float *x, const float *weight, const double *stats, i64 rows, i64 n, i64 parts, int team) { norm_grad<HELD>(centre, dx, part, dy, x, weight, stats, rows, n, parts, team); }
KERNEL(norm_grad_bf16, int centre, u16 *dx, float *part, const u16 *dy, const u16 *x, const u16 *weight, const double *stats, i64 rows, i64 n, i64 parts, int team) { norm_grad<HELD / 2>(centre, dx, part, dy, x, weight, stats, rows, n, parts, team); }
KERNEL(norm_grad_long_bf16, int centre, u16 *dx, float *part, const u16 *dy, const u16 *x, const u16 *weight, const double *stats, i64 rows, i64 n, i64 parts, int team) { norm_grad<HELD>(centre, dx, part, dy, x, weight, stats, rows, n, parts, team); }

// norm_grad_rows computes dx of rows of any length.
template <class T>
static __device__ void norm_grad_rows(int centre, T *dx, const T *dy, const T *x, const T *weight, const double *stats, i64 rows, i64 n, int team) {
	typedef decltype(wide(*x)) W;
	typedef typename Terms<T>::type D;
	Team t(team);
	EACH_TEAM(t, r, rows) {
		i64 m = r < rows ? n : 0;
		NormRow<D> its(centre, stats, r < rows ? r : 0);
		Two sum = {0, 0};
		each_in_row(t, dy + r * n, m, [&](i64 i, auto p) {
			auto q = pack_at<decltype(p)>(x + r * n + i);
			D some = 0, more = 0;
#pragma unroll
			for (int e = 0; e < p.SIZE; e++) {
				D h = its.normal((D)wide(q.v[e])), d = (D)wide(p.v[e]);
				if (weight) d *= (D)wide(weight[i + e]);
				some += d;
				more += d * h;
			}
			sum.a += (double)some;
			sum.b += (double)more;
		});
		D mean_g, mean_gh;
		norm_means(t, centre, sum, n, &mean_g, &mean_gh);
		each_in_row(t, dy + r * n, m, [&](i64 i, auto p) {
			auto q = pack_at<decltype(p)>(x + r * n + i);
#pragma unroll
			for (int e = 0; e < p.SIZE; e++) {
				D h = its.normal((D)wide(q.v[e])), d = (D)wide(p.v[e]);
				if (weight) d *= (D)wide(weight[i + e]);
				put(&p.v[e], (W)(its.rstd * (d - mean_g - h * mean_gh)));
			}
			put_pack(dx + r * n + i, p);
		});
	}
}
KERNEL(norm_grad_rows_f32, int centre, float *dx, const float *dy, const float *x, const float *weight, const double *stats, i64 rows, i64 n, int team) { norm_grad_rows(centre, dx, dy, x, weight, stats, rows, n, team); }
KERNEL(norm_grad_rows_f64, int centre, double *dx, const double *dy, const double *x, const double *weight, const double *stats, i64 rows, i64 n, int team) { norm_grad_rows(centre, dx, dy, x, weight, stats, rows, n, team); }
KERNEL(norm_grad_rows_bf16, int centre, u16 *dx, const u16 *dy, const u16 *x, const u16 *weight, const double *stats, i64 rows, i64 n, int team) { norm_grad_rows(centre, dx, dy, x, weight, stats, rows, n, team); }

// norm_grad_part writes the parts of norm_grad for rows of any length.
template <class T, class W>
static __device__ void norm_grad_part(int centre, W *part, const T *dy, const T *x, const double *stats, i64 rows, i64 n, i64 parts) {
	EACH(at, parts * n) {
		i64 s = at / n, i = at % n;
		double w = 0, b = 0;
#pragma unroll 4
		for (i64 r = s * rows / parts, end = (s + 1) * rows / parts; r < end; r++) {
			W d = wide(dy[r * n + i]);
			w += (double)(d * NormRow<W>(centre, stats, r).normal(wide(x[r * n + i])));
			b += (double)d;
		}
		part[2 * s * n + i] = (W)w;
		if (centre) part[(2 * s + 1) * n + i] = (W)b;
	}
}
KERNEL(norm_grad_part_f32, int centre, float *part, const float *dy, const float *x, const double *stats, i64 rows, i64 n, i64 parts) { norm_grad_part(centre, part, dy, x, stats, rows, n, parts); }
KERNEL(norm_grad_part_f64, int centre, double *part, const double *dy, const double *x, const double *stats, i64 rows, i64 n, i64 parts) { norm_grad_part(centre, part, dy, x, stats, rows, n, parts); }
KERNEL(norm_grad_part_bf16, int centre, float *part, const u16 *dy, const u16 *x, const double *stats, i64 rows, i64 n, i64 parts) { norm_grad_part(centre, part, dy, x, stats, rows, n, parts); }

// norm_grad_sum adds the sums of the parts to dweight and dbias, which may be null.
template <class T, class W>
static __device__ void norm_grad_sum(T *dweight, T *dbias, const W *part, i64 n, i64 parts) {
	i64 first = dweight ? 0 : n, columns = (dbias ? 2 * n : n) - first;
	tall_columns(columns, parts, 2 * n, 0.0, [&](i64 c) { return first + c; }, [&](i64 i) { return part[i]; }, Sum::of<double>, [&](i64 c, double v) {
		T *to = first + c < n ? dweight + c : dbias + first + c - n;
		put(to, wide(*to) + (W)v);
	});
}
KERNEL(norm_grad_sum_f32, float *dweight, float *dbias, const float *part, i64 n, i64 parts) { norm_grad_sum(dweight, dbias, part, n, parts); }
KERNEL(norm_grad_sum_f64, double *dweight, double *dbias, const double *part, i64 n, i64 parts) { norm_grad_sum(dweight, dbias, part, n, parts); }
KERNEL(norm_grad_sum_bf16, u16 *dweight, u16 *dbias, const float *part, i64 n, i64 parts) { norm_grad_sum(dweight, dbias, part, n, parts); }

// attend_rows turns scores [heads, tile, keys] of queries from on into weights:
// the softmax of scale·score over the keys that a query sees (those up to itself,
// if causal), zeros elsewhere and where all scores are -Inf. lse [heads, T] gets the
// logarithms of the sums, for such scores +Inf.
template <class T>
static __device__ void attend_rows(T *p, T *lse, i64 heads, i64 tile, i64 keys, i64 from, i64 total, int causal, T scale, int team) {
	Team t(team);
	as_row<HELD>(t, aligned(p), keys, p, [&](auto row) {
		EACH_TEAM(t, r, heads * tile) {
			i64 head = r / tile, query = from + r % tile, m = r < heads * tile ? keys : 0, seen = causal && query + 1 < keys ? query + 1 : keys;
			T top = -infinity((T)0);
			double sum = 0;
			row.read(t, p + r * keys, m);
			row.each(t, m, [&](auto i, const auto &s) {
#pragma unroll
				for (int k = 0; k < s.SIZE; k++)
					if (i + k < seen) top = larger(top, s.v[k]);
			});
			top = t.reduce<Larger>(top) * scale;
			if (top == -infinity((T)0)) top = 0; // -Inf - -Inf is NaN
			row.each(t, m, [&](auto i, const auto &s) {
				T more = 0;
#pragma unroll
				for (int k = 0; k < s.SIZE; k++)
					if (i + k < seen) more += exp_near(scale * s.v[k] - top);
				sum += (double)more;
			});
			sum = t.reduce<Sum>(sum);
			T by = sum == 0 ? (T)0 : (T)(1 / sum);
			row.each(t, m, [&](auto i, auto s) {
#pragma unroll
				for (int k = 0; k < s.SIZE; k++) s.v[k] = i + k < seen ? exp_of(scale * s.v[k] - top) * by : (T)0;
				row.put(p + r * keys, i, s);
			});
			if (r < heads * tile && t.mate == 0) lse[head * total + query] = sum == 0 ? infinity((T)0) : top + (T)log(sum);
		}
	});
}
KERNEL(attend_rows_f32, float *p, float *lse, i64 heads, i64 tile, i64 keys, i64 from, i64 total, int causal, double scale, int team) { attend_rows(p, lse, heads, tile, keys, from, total, causal, (float)scale, team); }
KERNEL(attend_rows_f64, double *p, double *lse, i64 heads, i64 tile, i64 keys, i64 from, i64 total, int causal, double scale, int team) { attend_rows(p, lse, heads, tile, keys, from, total, causal, scale, team); }

// attend_grad_rows turns scores p and dP (both [heads, tile, keys]) into the
// weights P and dS = P·(dP - Σ dy·y). dy and y are [heads, T, width].
template <class T>
static __device__ void attend_grad_rows(T *p, T *dp, const T *lse, const T *dy, const T *y, i64 heads, i64 tile, i64 keys, i64 from, i64 total, i64 width, int causal, T scale, int team) {
	Team t(team);
	as_row<HELD / 2>(t, aligned(p) && aligned(dp), keys, p, [&](auto s) {
		decltype(s) g;
		EACH_TEAM(t, r, heads * tile) {
			i64 m = r < heads * tile ? keys : 0, query = from + r % tile, at = r / tile * total + query, seen = causal && query + 1 < keys ? query + 1 : keys;
			double sum = 0;
			for (i64 i = t.mate; m > 0 && i < width; i += t.size) sum += (double)dy[at * width + i] * (double)y[at * width + i];
			T delta = (T)t.reduce<Sum>(sum), shift = m > 0 ? lse[at] : (T)0;
			s.read(t, p + r * keys, m);
			g.read(t, dp + r * keys, m);
			s.each2(g, t, m, [&](auto i, auto w, auto d) {
#pragma unroll
				for (int k = 0; k < w.SIZE; k++) {
					w.v[k] = i + k < seen ? exp_of(scale * w.v[k] - shift) : (T)0;
					d.v[k] = i + k < seen ? w.v[k] * (d.v[k] - delta) : (T)0;
				}
				s.put(p + r * keys, i, w);
				g.put(dp + r * keys, i, d);
			});
		}
	});
}
KERNEL(attend_grad_rows_f32, float *p, float *dp, const float *lse, const float *dy, const float *y, i64 heads, i64 tile, i64 keys, i64 from, i64 total, i64 width, int causal, double scale, int team) { attend_grad_rows(p, dp, lse, dy, y, heads, tile, keys, from, total, width, causal, (float)scale, team); }
KERNEL(attend_grad_rows_f64, double *p, double *dp, const double *lse, const double *dy, const double *y, i64 heads, i64 tile, i64 keys, i64 from, i64 total, i64 width, int causal, double scale, int team) { attend_grad_rows(p, dp, lse, dy, y, heads, tile, keys, from, total, width, causal, scale, team); }
