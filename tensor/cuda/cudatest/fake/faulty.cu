// Kernels with a mistake each, and a sound one beside most: for the test of the checks.
// All are launched with 2 blocks and n ints at p, which are zeros.
#include "../../kernels/common.h"

KERNEL(race_no_barrier, int *p, i64 n) {
	__shared__ int s[THREADS];
	s[threadIdx.x] = 0;
	__syncthreads();
	s[threadIdx.x] = 1;
	if (blockIdx.x == 0) p[threadIdx.x] = s[threadIdx.x ^ 32];
}
KERNEL(sound_barrier, int *p, i64 n) {
	__shared__ int s[THREADS];
	s[threadIdx.x] = 1;
	__syncthreads();
	if (blockIdx.x == 0) p[threadIdx.x] = s[threadIdx.x ^ 32];
}
// One barrier in a loop that needs two.
KERNEL(race_next_round, int *p, i64 n) {
	__shared__ int s[THREADS];
	int sum = 0;
	for (int k = 0; k < 3; k++) {
		s[threadIdx.x] = k;
		__syncthreads();
		sum += s[THREADS - 1 - threadIdx.x];
	}
	if (blockIdx.x == 0) p[threadIdx.x] = sum;
}
KERNEL(race_same_value, int *p, i64 n) {
	__shared__ int s;
	s = 1;
	__syncthreads();
	if (blockIdx.x == 0) p[threadIdx.x] = s;
}

// Lanes do not run in step, and a shuffle orders no memory.
KERNEL(race_lanes, int *p, i64 n) {
	__shared__ int s[THREADS];
	s[threadIdx.x] = 0;
	__syncthreads();
	s[threadIdx.x] = 1;
	if (blockIdx.x == 0) p[threadIdx.x] = s[threadIdx.x ^ 1];
}
KERNEL(race_lanes_shuffled, int *p, i64 n) {
	__shared__ int s[THREADS];
	s[threadIdx.x] = 1;
	int v = __shfl_xor_sync(0xffffffffu, (int)threadIdx.x, 1);
	if (blockIdx.x == 0) p[threadIdx.x] = s[v];
}
KERNEL(sound_lanes, int *p, i64 n) {
	__shared__ int s[THREADS];
	s[threadIdx.x] = 1;
	__syncwarp(0xffffffffu);
	if (blockIdx.x == 0) p[threadIdx.x] = s[threadIdx.x ^ 1];
}
// __syncwarp is for the lanes that it names.
static __device__ u32 half_of_warp() { return threadIdx.x % 32 < 16 ? 0x0000ffffu : 0xffff0000u; }
KERNEL(race_half_warps, int *p, i64 n) {
	__shared__ int s[THREADS];
	s[threadIdx.x] = 1;
	__syncwarp(half_of_warp());
	if (blockIdx.x == 0) p[threadIdx.x] = s[threadIdx.x ^ 16];
}
KERNEL(sound_half_warps, int *p, i64 n) {
	__shared__ int s[THREADS];
	s[threadIdx.x] = 1;
	__syncwarp(half_of_warp());
	if (blockIdx.x == 0) p[threadIdx.x] = s[threadIdx.x ^ 8];
}

KERNEL(race_global, int *p, i64 n) {
	if (blockIdx.x > 0) return;
	p[threadIdx.x] = 1;
	p[THREADS - 1 - threadIdx.x]++;
}
KERNEL(sound_global, int *p, i64 n) {
	if (blockIdx.x > 0) return;
	p[threadIdx.x] = 1;
	__syncthreads();
	p[THREADS - 1 - threadIdx.x]++;
}
KERNEL(race_blocks, int *p, i64 n) {
	if (threadIdx.x == 0) p[0] += 1;
}
// A barrier orders a block's accesses, not those of two.
KERNEL(race_blocks_barrier, int *p, i64 n) {
	if (blockIdx.x == 0) p[threadIdx.x] = 1;
	__syncthreads();
	if (blockIdx.x == 1) p[threadIdx.x + THREADS] = p[threadIdx.x];
}
KERNEL(race_atomic, int *p, i64 n) {
	if (blockIdx.x == 0) atomicAdd(p, 1);
	else p[1 + threadIdx.x] = p[0];
}
KERNEL(sound_atomic, int *p, i64 n) { atomicAdd(p, 1); }
// Bytes of one word are no one's but their writer's.
KERNEL(sound_bytes, int *p, i64 n) {
	u8 *b = (u8 *)p;
	EACH(i, 4 * n) b[i] = (u8)(b[i] + i);
}

KERNEL(unwritten_shared, int *p, i64 n) {
	__shared__ int s[THREADS];
	if (threadIdx.x % 2) s[threadIdx.x] = 1;
	__syncthreads();
	if (blockIdx.x == 0) p[threadIdx.x] = s[threadIdx.x];
}
// What another block left behind is not there.
KERNEL(unwritten_block, int *p, i64 n) {
	__shared__ int s[THREADS];
	if (blockIdx.x == 0) s[threadIdx.x] = 1;
	__syncthreads();
	if (blockIdx.x == 1) p[threadIdx.x] = s[threadIdx.x];
}
KERNEL(unwritten_global, int *p, i64 n) {
	EACH(i, n) p[i] += 1;
}

KERNEL(outside_read, int *p, i64 n) {
	int sum = 0;
	for (i64 i = 0; i <= n; i++) sum += p[i];
	if (blockIdx.x + threadIdx.x == 0) p[THREADS] = sum;
}
KERNEL(outside_write, int *p, i64 n) {
	if (blockIdx.x + threadIdx.x == 0) p[-1] = 1;
}
KERNEL(outside_null, int *p, i64 n) {
	int *q = n > 0 ? nullptr : p;
	EACH(i, n) q[i] = 1;
}
KERNEL(outside_shared, int *p, i64 n) {
	__shared__ int s[2][THREADS];
	s[0][threadIdx.x + (n > 0)] = 1;
	__syncthreads();
	if (blockIdx.x == 0) p[threadIdx.x] = s[0][threadIdx.x];
}
KERNEL(misaligned, int *p, i64 n) {
	if (blockIdx.x + threadIdx.x == 0) *(u64 *)(p + 1) = 1;
}

KERNEL(sync_some_ended, int *p, i64 n) {
	if (threadIdx.x < 32) return;
	__syncthreads();
}
KERNEL(sync_apart, int *p, i64 n) {
	if (threadIdx.x < 32) {
		__syncthreads();
	} else {
		__syncthreads();
	}
}
KERNEL(sync_lane_ended, int *p, i64 n) {
	if (threadIdx.x % 32 == 7) return;
	atomicAdd(p, __shfl_xor_sync(0xffffffffu, 1, 1));
}
KERNEL(sync_lane_elsewhere, int *p, i64 n) {
	if (threadIdx.x % 32 == 7) __syncthreads();
	else atomicAdd(p, __shfl_xor_sync(0xffffffffu, 1, 1));
}
KERNEL(sync_lane_unnamed, int *p, i64 n) {
	if (threadIdx.x % 32 < 16) atomicAdd(p, __shfl_xor_sync(0x0000ffffu, 1, 16));
}
KERNEL(sync_not_itself, int *p, i64 n) { __syncwarp(0xfffffffeu); }
KERNEL(sync_lanes_apart, int *p, i64 n) {
	if (threadIdx.x % 2) {
		__syncwarp(0xffffffffu);
	} else {
		__syncwarp(0xffffffffu);
	}
}

// A copy that nobody has waited for may not have been made, and it is its thread's alone
// before a barrier.
KERNEL(race_copy, int *p, i64 n) {
	__shared__ __align__(16) int s[4 * THREADS];
	copy_async<16>(s + 4 * threadIdx.x, p, false);
	__syncthreads();
	int v = s[threadIdx.x];
	copies_done();
	if (blockIdx.x == 0) p[4 + threadIdx.x] = v;
}
KERNEL(race_copy_done, int *p, i64 n) {
	__shared__ __align__(16) int s[4 * THREADS];
	for (int i = 0; i < 4; i++) s[4 * threadIdx.x + i] = 0;
	__syncthreads();
	copy_async<16>(s + 4 * threadIdx.x, p, false);
	copies_done();
	if (blockIdx.x == 0) p[4 + threadIdx.x] = s[threadIdx.x];
}
KERNEL(sound_copy, int *p, i64 n) {
	__shared__ __align__(16) int s[4 * THREADS];
	copy_async<16>(s + 4 * threadIdx.x, nullptr, true);
	copies_done();
	__syncthreads();
	if (blockIdx.x == 0) p[threadIdx.x] = s[threadIdx.x];
}
KERNEL(outside_copy, int *p, i64 n) {
	__shared__ __align__(16) int s[4 * THREADS];
	copy_async<16>(s + 4 * threadIdx.x, p + n, false);
	copies_done();
}
KERNEL(copy_undone, int *p, i64 n) {
	__shared__ __align__(16) int s[4 * THREADS];
	copy_async<16>(s + 4 * threadIdx.x, p, false);
}
// Any lane may read the rows that all name.
KERNEL(race_load, int *p, i64 n) {
	__shared__ __align__(16) u16 s[THREADS][8];
	for (int i = 0; i < 8; i++) s[threadIdx.x][i] = (u16)i;
	u32 r[4];
	load_matrices(r, s[threadIdx.x]);
	if (blockIdx.x == 0) p[threadIdx.x] = (int)r[0];
}
KERNEL(sound_load, int *p, i64 n) {
	__shared__ __align__(16) u16 s[THREADS][8];
	for (int i = 0; i < 8; i++) s[threadIdx.x][i] = (u16)i;
	__syncwarp(0xffffffffu);
	u32 r[4];
	load_transposed(r, s[threadIdx.x]);
	if (blockIdx.x == 0) p[threadIdx.x] = (int)r[0];
}
KERNEL(misaligned_load, int *p, i64 n) {
	__shared__ __align__(16) u16 s[THREADS][12];
	for (int i = 0; i < 12; i++) s[threadIdx.x][i] = (u16)i;
	__syncthreads();
	u32 r[4];
	load_matrices(r, s[threadIdx.x]);
	if (blockIdx.x == 0) p[threadIdx.x] = (int)r[0];
}
