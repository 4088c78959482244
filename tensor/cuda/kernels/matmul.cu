// Matrix products where cuBLAS is not found: a block computes a tile of 64·64, each
// thread 4·4 of it, from tiles of both arguments in shared memory.
#include "common.h"

enum { SIDE = 64, DEPTH = 16, OWN = 4 };

// A Mat is a matrix of a batch: element (i, j) of number b at b·batch + i·row + j·col.
struct Mat {
	i64 batch, row, col;
};

// matmul computes c = alpha·a·b + beta·c for [m, k] and [k, n]; rows of c are ldc
// apart. With beta 0 what c holds is not read. a and b hold E, c holds C, and T is
// what is computed with.
template <class T, class E, class C>
static __device__ void matmul(C *c, const E *a, const E *b, Mat ma, Mat mb, i64 ldc, i64 cBatch, i64 batch, i64 m, i64 n, i64 k, T alpha, T beta) {
	__shared__ T ta[DEPTH][SIDE + 1], tb[DEPTH][SIDE + 1];
	i64 down = (m + SIDE - 1) / SIDE, across = (n + SIDE - 1) / SIDE;
	int t = threadIdx.x, ti = t / 16, tj = t % 16;
	for (i64 tile = blockIdx.x; tile < batch * down * across; tile += gridDim.x) {
		i64 z = tile / (down * across), i0 = tile / across % down * SIDE, j0 = tile % across * SIDE;
		const E *pa = a + z * ma.batch, *pb = b + z * mb.batch;
		T sum[OWN][OWN];
#pragma unroll
		for (int i = 0; i < OWN; i++)
#pragma unroll
			for (int j = 0; j < OWN; j++) sum[i][j] = 0;
		for (i64 p0 = 0; p0 < k; p0 += DEPTH) {
			// Neighbouring threads read what lies side by side.
			for (int e = t; e < SIDE * DEPTH; e += THREADS) {
				int p = ma.col == 1 ? e % DEPTH : e / SIDE, i = ma.col == 1 ? e / DEPTH : e % SIDE;
				ta[p][i] = i0 + i < m && p0 + p < k ? wide(pa[(i0 + i) * ma.row + (p0 + p) * ma.col]) : (T)0;
				int q = mb.col == 1 ? e / SIDE : e % DEPTH, j = mb.col == 1 ? e % SIDE : e / DEPTH;
				tb[q][j] = j0 + j < n && p0 + q < k ? wide(pb[(p0 + q) * mb.row + (j0 + j) * mb.col]) : (T)0;
			}
			__syncthreads();
			int depth = k - p0 < DEPTH ? (int)(k - p0) : (int)DEPTH;
			for (int p = 0; p < depth; p++) {
				T x[OWN], y[OWN];
#pragma unroll
				for (int i = 0; i < OWN; i++) {
					x[i] = ta[p][ti + 16 * i];
					y[i] = tb[p][tj + 16 * i];
				}
#pragma unroll
				for (int i = 0; i < OWN; i++)
#pragma unroll
					for (int j = 0; j < OWN; j++) sum[i][j] = fused(x[i], y[j], sum[i][j]);
			}
			__syncthreads();
		}
#pragma unroll
		for (int i = 0; i < OWN; i++)
#pragma unroll
			for (int j = 0; j < OWN; j++) {
				i64 row = i0 + ti + 16 * i, col = j0 + tj + 16 * j;
				if (row >= m || col >= n) continue;
				C *p = c + z * cBatch + row * ldc + col;
				put(p, beta == 0 ? alpha * sum[i][j] : fused(beta, (T)wide(*p), alpha * sum[i][j]));
			}
	}
}
KERNEL(matmul_f32, float *c, const float *a, const float *b, Mat ma, Mat mb, i64 ldc, i64 cBatch, i64 batch, i64 m, i64 n, i64 k, float alpha, float beta) { matmul(c, a, b, ma, mb, ldc, cBatch, batch, m, n, k, alpha, beta); }
KERNEL(matmul_f64, double *c, const double *a, const double *b, Mat ma, Mat mb, i64 ldc, i64 cBatch, i64 batch, i64 m, i64 n, i64 k, double alpha, double beta) { matmul(c, a, b, ma, mb, ldc, cBatch, batch, m, n, k, alpha, beta); }
KERNEL(matmul_bf16, u16 *c, const u16 *a, const u16 *b, Mat ma, Mat mb, i64 ldc, i64 cBatch, i64 batch, i64 m, i64 n, i64 k, float alpha, float beta) { matmul(c, a, b, ma, mb, ldc, cBatch, batch, m, n, k, alpha, beta); }
KERNEL(matmul_bf16_f32, float *c, const u16 *a, const u16 *b, Mat ma, Mat mb, i64 ldc, i64 cBatch, i64 batch, i64 m, i64 n, i64 k, float alpha, float beta) { matmul(c, a, b, ma, mb, ldc, cBatch, batch, m, n, k, alpha, beta); }
