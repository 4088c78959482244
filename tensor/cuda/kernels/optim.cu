// Optimizer updates, in place.
#include "common.h"

static __device__ float root(float x) { return sqrtf(x); }
static __device__ double root(double x) { return sqrt(x); }

template <class T>
struct Sgd {
	T lr, momentum, dampening, decay;
};

template <class T>
static __device__ void sgd(T *param, const T *grad, T *buf, i64 n, Sgd<T> o, int nesterov) {
	EACH(i, n) {
		T g = grad[i] + o.decay * param[i], step = g;
		if (buf) {
			T b = o.momentum * buf[i] + (1 - o.dampening) * g;
			buf[i] = b;
			step = nesterov ? g + o.momentum * b : b;
		}
		param[i] -= o.lr * step;
	}
}
KERNEL(sgd_f32, float *param, const float *grad, float *buf, i64 n, float lr, float momentum, float dampening, float decay, int nesterov) { sgd(param, grad, buf, n, Sgd<float>{lr, momentum, dampening, decay}, nesterov); }
KERNEL(sgd_f64, double *param, const double *grad, double *buf, i64 n, double lr, double momentum, double dampening, double decay, int nesterov) { sgd(param, grad, buf, n, Sgd<double>{lr, momentum, dampening, decay}, nesterov); }

// Adam is tensor.AdamStep.
struct Adam {
	double beta1, beta2, step, root2, eps, decay, l2;
};

template <class T>
static __device__ void adam_one(T *param, T *m, T *v, T g, const Adam &s) {
	g += (T)s.l2 * *param;
	T m1 = (T)s.beta1 * *m + (T)(1 - s.beta1) * g, v1 = (T)s.beta2 * *v + (T)(1 - s.beta2) * g * g;
	*m = m1;
	*v = v1;
	*param = (T)s.decay * *param - (T)s.step * m1 / (root(v1) / (T)s.root2 + (T)s.eps);
}

// adam updates n rows of dim elements: row index[i], or row i without an index.
template <class T>
static __device__ void adam(T *param, const T *grad, const i64 *index, T *m, T *v, i64 n, i64 dim, const Adam &s) {
	if (!index) {
		EACH(t, n * dim) adam_one(param + t, m + t, v + t, grad[t], s);
		return;
	}
	EACH_WARP(i, n) {
		EACH_LANE(j, dim) {
			i64 at = index[i] * dim + j;
			adam_one(param + at, m + at, v + at, grad[i * dim + j], s);
		}
	}
}
KERNEL(adam_f32, float *param, const float *grad, const i64 *index, float *m, float *v, i64 n, i64 dim, Adam s) { adam(param, grad, index, m, v, n, dim, s); }
KERNEL(adam_f64, double *param, const double *grad, const i64 *index, double *m, double *v, i64 n, i64 dim, Adam s) { adam(param, grad, index, m, v, n, dim, s); }

// adagrad_rows is a step of row-wise Adagrad; no row is named twice.
template <class T>
static __device__ void adagrad_rows(T *table, const T *grad, const i64 *index, T *state, i64 n, i64 dim, double lr, double eps) {
	EACH_WARP(i, n) {
		const T *g = grad + i * dim;
		T *row = table + index[i] * dim;
		double sum = 0;
		EACH_LANE(j, dim) sum += (double)g[j] * (double)g[j];
		sum = warp_reduce<Sum>(sum);
		T s = state[index[i]];
		if (dim > 0) s += (T)(sum / (double)dim);
		__syncwarp(0xffffffffu); // all have read the state
		if (threadIdx.x % 32 == 0) state[index[i]] = s;
		T step = (T)(lr / (sqrt((double)s) + eps));
		if (s > 0) EACH_LANE(j, dim) row[j] -= step * g[j];
	}
}
KERNEL(adagrad_rows_f32, float *table, const float *grad, const i64 *index, float *state, i64 n, i64 dim, double lr, double eps) { adagrad_rows(table, grad, index, state, n, dim, lr, eps); }
KERNEL(adagrad_rows_f64, double *table, const double *grad, const i64 *index, double *state, i64 n, i64 dim, double lr, double eps) { adagrad_rows(table, grad, index, state, n, dim, lr, eps); }
