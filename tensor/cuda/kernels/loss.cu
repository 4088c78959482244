// Cross-entropy over a part of the classes. A team of threads has a row at a time.
#include "common.h"

enum { PER_ROW = 4 }; // the statistics: max, Σexp, target's logit, Σw·(x-max)

// xent_stats reads the logits once. Logits of bfloat16 are computed with as float.
template <class T, class L>
static __device__ void xent_stats(T *stats, const L *logits, int it, const void *target, const T *weight, i64 n, i64 classes, i64 lo, int with_sum, int team) {
	Team t(team);
	EACH_TEAM(t, r, n) {
		i64 m = r < n ? classes : 0;
		const L *x = logits + r * classes;
		i64 hit = r < n ? index_at(it, target, r) - lo : -1; // long before it is wanted
		T at_hit = hit >= 0 && hit < m ? wide(x[hit]) : (T)0;
		Run<T> run = {-infinity((T)0), 0};
		double weighted = 0, weights = 0;
		each_in_row(t, x, m, [&](i64 i, auto p) {
			run.add(p);
			if (!with_sum) return;
#pragma unroll
			for (int k = 0; k < p.SIZE; k++) {
				double w = weight ? (double)weight[i + k] : 1;
				weighted += w * (double)wide(p.v[k]);
				weights += w;
			}
		});
		run = team_run(t, run);
		if (with_sum) {
			weighted = t.reduce<Sum>(weighted);
			weights = t.reduce<Sum>(weights);
			if (run.top != -infinity((T)0)) weighted -= weights * (double)run.top;
		}
		if (t.mate == 0 && r < n) {
			T *s = stats + r * PER_ROW;
			if (run.top == infinity((T)0)) run.sum = run.top - run.top; // NaN, as Inf - Inf
			s[0] = run.top;
			s[1] = (T)run.sum;
			s[2] = at_hit;
			s[3] = (T)weighted;
		}
	}
}
KERNEL(xent_stats_f32, float *stats, const float *logits, int it, const void *target, const float *weight, i64 n, i64 classes, i64 lo, int with_sum, int team) { xent_stats(stats, logits, it, target, weight, n, classes, lo, with_sum, team); }
KERNEL(xent_stats_f64, double *stats, const double *logits, int it, const void *target, const double *weight, i64 n, i64 classes, i64 lo, int with_sum, int team) { xent_stats(stats, logits, it, target, weight, n, classes, lo, with_sum, team); }
KERNEL(xent_stats_bf16, float *stats, const u16 *logits, int it, const void *target, const float *weight, i64 n, i64 classes, i64 lo, int with_sum, int team) { xent_stats(stats, logits, it, target, weight, n, classes, lo, with_sum, team); }

// xent_join makes stats those of two parts of the classes; w and w2 are the sums of
// their weights.
template <class T>
static __device__ void xent_join(T *stats, const T *more, i64 n, double w, double w2) {
	EACH(r, n) {
		T *a = stats + r * PER_ROW;
		const T *b = more + r * PER_ROW;
		T top = max_of(a[0], b[0]);
		double sum = 0, dot = 0, from = top == -infinity((T)0) ? 0 : (double)top;
		for (int part = 0; part < 2; part++) {
			const T *s = part ? b : a;
			double weights = part ? w2 : w;
			sum += s[1] == 0 || s[0] == top ? (double)s[1] : (double)s[1] * exp((double)s[0] - (double)top);
			dot += weights == 0 ? (double)s[3] : (double)s[3] + weights * ((s[0] == -infinity((T)0) ? 0 : (double)s[0]) - from);
		}
		a[0] = top;
		a[1] = (T)sum;
		a[2] += b[2];
		a[3] = (T)dot;
	}
}
KERNEL(xent_join_f32, float *stats, const float *more, i64 n, double w, double w2) { xent_join(stats, more, n, w, w2); }
KERNEL(xent_join_f64, double *stats, const double *more, i64 n, double w, double w2) { xent_join(stats, more, n, w, w2); }

// xent_grad computes coef[r][0]·exp(x - lse[r]) - coef[r][2]·weight - [target]·coef[r][1];
// dst may be logits.
template <class T, class L, class D>
static __device__ void xent_grad(D *dst, const L *logits, int it, const void *target, const T *lse, const T *coef, const T *weight, i64 n, i64 classes, i64 lo, int team) {
	Team t(team);
	EACH_TEAM(t, r, n) {
		if (r >= n) return; // no barrier follows
		T a = coef[3 * r], b = coef[3 * r + 1], s = coef[3 * r + 2], shift = lse[r];
		bool skip = a == 0 && b == 0 && s == 0;
		i64 target_at = index_at(it, target, r) - lo;
		D *d = dst + r * classes;
		each_in_row(t, logits + r * classes, classes, [&](i64 i, auto p) {
			Pack<D, decltype(p)::SIZE> y;
#pragma unroll
			for (int k = 0; k < y.SIZE; k++) {
				T v = 0;
				if (!skip) {
					v = a * exp_of(wide(p.v[k]) - shift);
					if (s != 0) v -= weight ? s * weight[i + k] : s;
					if (i + k == target_at) v -= b;
				}
				put(&y.v[k], v);
			}
			put_pack(d + i, y);
		});
	}
}
CROWDED(4, xent_grad_f32, float *dst, const float *logits, int it, const void *target, const float *lse, const float *coef, const float *weight, i64 n, i64 classes, i64 lo, int team) { xent_grad(dst, logits, it, target, lse, coef, weight, n, classes, lo, team); }
KERNEL(xent_grad_f64, double *dst, const double *logits, int it, const void *target, const double *lse, const double *coef, const double *weight, i64 n, i64 classes, i64 lo, int team) { xent_grad(dst, logits, it, target, lse, coef, weight, n, classes, lo, team); }
CROWDED(3, xent_grad_bf16, u16 *dst, const u16 *logits, int it, const void *target, const float *lse, const float *coef, const float *weight, i64 n, i64 classes, i64 lo, int team) { xent_grad(dst, logits, it, target, lse, coef, weight, n, classes, lo, team); }
CROWDED(4, xent_grad_f32_bf16, u16 *dst, const float *logits, int it, const void *target, const float *lse, const float *coef, const float *weight, i64 n, i64 classes, i64 lo, int team) { xent_grad(dst, logits, it, target, lse, coef, weight, n, classes, lo, team); }
