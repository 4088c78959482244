// Optimizer updates, in place.
#include "common.h"

static __device__ float root(float x) { return sqrtf(x); }
static __device__ double root(double x) { return sqrt(x); }

template <class T>
struct Sgd {
	T lr, momentum, dampening, decay;
};

// Parameters and gradients may be of bfloat16, P; what is remembered and computed with
// is of type T.
template <class T, class P>
static __device__ void sgd(P *param, const P *grad, T *buf, i64 n, Sgd<T> o, int nesterov) {
	EACH(i, n) {
		T p = wide(param[i]), g = wide(grad[i]) + o.decay * p, step = g;
		if (buf) {
			T b = o.momentum * buf[i] + (1 - o.dampening) * g;
			buf[i] = b;
			step = nesterov ? g + o.momentum * b : b;
		}
		put(&param[i], p - o.lr * step);
	}
}
KERNEL(sgd_f32, float *param, const float *grad, float *buf, i64 n, float lr, float momentum, float dampening, float decay, int nesterov) { sgd(param, grad, buf, n, Sgd<float>{lr, momentum, dampening, decay}, nesterov); }
KERNEL(sgd_bf16, u16 *param, const u16 *grad, float *buf, i64 n, float lr, float momentum, float dampening, float decay, int nesterov) { sgd(param, grad, buf, n, Sgd<float>{lr, momentum, dampening, decay}, nesterov); }
KERNEL(sgd_f64, double *param, const double *grad, double *buf, i64 n, double lr, double momentum, double dampening, double decay, int nesterov) { sgd(param, grad, buf, n, Sgd<double>{lr, momentum, dampening, decay}, nesterov); }

// Adam is tensor.AdamStep.
struct Adam {
	double beta1, beta2, step, root2, eps, decay, l2;
};

template <class T, class P>
static __device__ void adam_one(P *param, T *m, T *v, T g, const Adam &s) {
	T p = wide(*param);
	g += (T)s.l2 * p;
	T m1 = (T)s.beta1 * *m + (T)(1 - s.beta1) * g, v1 = (T)s.beta2 * *v + (T)(1 - s.beta2) * g * g;
	*m = m1;
	*v = v1;
	put(param, (T)s.decay * p - (T)s.step * m1 / (root(v1) / (T)s.root2 + (T)s.eps));
}

// adam updates n rows of dim elements: row index[i], or row i without an index.
template <class T, class P>
static __device__ void adam(P *param, const P *grad, const i64 *index, T *m, T *v, i64 n, i64 dim, const Adam &s) {
	if (!index) {
		EACH(t, n * dim) adam_one(param + t, m + t, v + t, wide(grad[t]), s);
		return;
	}
	EACH_WARP(i, n) {
		EACH_LANE(j, dim) {
			i64 at = index[i] * dim + j;
			adam_one(param + at, m + at, v + at, wide(grad[i * dim + j]), s);
		}
	}
}
KERNEL(adam_f32, float *param, const float *grad, const i64 *index, float *m, float *v, i64 n, i64 dim, Adam s) { adam(param, grad, index, m, v, n, dim, s); }
KERNEL(adam_bf16, u16 *param, const u16 *grad, const i64 *index, float *m, float *v, i64 n, i64 dim, Adam s) { adam(param, grad, index, m, v, n, dim, s); }
KERNEL(adam_f64, double *param, const double *grad, const i64 *index, double *m, double *v, i64 n, i64 dim, Adam s) { adam(param, grad, index, m, v, n, dim, s); }

// adagrad_rows is a step of row-wise Adagrad; no row is named twice. mean is of g² over whole rows, or null: of grad's.
template <class T, class P>
static __device__ void adagrad_rows(P *table, const P *grad, const i64 *index, T *state, const double *mean, i64 n, i64 dim, double lr, double eps) {
	EACH_WARP(i, n) {
		const P *g = grad + i * dim;
		P *row = table + index[i] * dim;
		T s = state[index[i]];
		if (mean) {
			s += (T)mean[i];
		} else {
			double sum = 0;
			EACH_LANE(j, dim) sum += (double)wide(g[j]) * (double)wide(g[j]);
			sum = warp_reduce<Sum>(sum);
			if (dim > 0) s += (T)((double)(T)sum / (double)dim);
		}
		__syncwarp(0xffffffffu); // all have read the state
		if (threadIdx.x % 32 == 0) state[index[i]] = s;
		T step = (T)(lr / (sqrt((double)s) + eps));
		if (s > 0) EACH_LANE(j, dim) put(&row[j], wide(row[j]) - step * wide(g[j]));
	}
}
KERNEL(adagrad_rows_f32, float *table, const float *grad, const i64 *index, float *state, const double *mean, i64 n, i64 dim, double lr, double eps) { adagrad_rows(table, grad, index, state, mean, n, dim, lr, eps); }
KERNEL(adagrad_rows_bf16, u16 *table, const u16 *grad, const i64 *index, float *state, const double *mean, i64 n, i64 dim, double lr, double eps) { adagrad_rows(table, grad, index, state, mean, n, dim, lr, eps); }
KERNEL(adagrad_rows_f64, double *table, const double *grad, const i64 *index, double *state, const double *mean, i64 n, i64 dim, double lr, double eps) { adagrad_rows(table, grad, index, state, mean, n, dim, lr, eps); }
