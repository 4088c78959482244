// The memory's bound: the reads and writes that a benchmark cannot avoid, and
// nothing else, by as many threads as there are ranks. Each thread has buffers
// like a rank's, at most BYTES long, and reads the others' where a rank must.
//
//	bound THREADS SECONDS MATCH BYTES
//
//	all_reduce      sums its part of all ranks' buffers and writes it to all
//	reduce_scatter  the same, written once
//	all_gather, all_to_all, broadcast   copies, divided evenly among the threads
//	cross-entropy forward   reads the logits
//	cross-entropy both      reads them twice and writes as many
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { most_threads = 64, block = 1024 };

enum kind { all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, forward, both };

struct task {
	const char *name;
	enum kind kind;
	size_t n;           // floats a rank
	size_t out;         // floats of the second buffer
};

static int threads;
static double budget;
static struct task task;
static float *in[most_threads], *out[most_threads];
static float sink[most_threads][64];
static pthread_barrier_t gate;
static _Atomic int arrived, generation;
static int calls;
static double *times;

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

// meet waits for all threads without sleeping for long.
static void meet(void) {
	int g = atomic_load(&generation);
	if (atomic_fetch_add(&arrived, 1) + 1 == threads) {
		atomic_store(&arrived, 0);
		atomic_fetch_add(&generation, 1);
		return;
	}
	for (long spins = 0; atomic_load(&generation) == g; spins++)
		if (spins > 20000) nanosleep(&(struct timespec){0, 1000}, 0);
}

// ahead asks for the cache line of p that is needed soon: the processor does not do
// so for stores, nor across pages.
static inline void ahead(const void *p) { __builtin_prefetch((const char *)p + 2048); }

// copy is memcpy for more than the caches hold; it is 1.2 to 1.5 times as fast there.
static void copy(float *restrict dst, const float *restrict src, size_t n) {
	for (size_t i = 0; i + 16 <= n; i += 16) {
		ahead(dst + i);
		ahead(src + i);
		for (int j = 0; j < 16; j++) dst[i + j] = src[i + j];
	}
	memcpy(dst + n / 16 * 16, src + n / 16 * 16, n % 16 * 4);
}

static void reduce(int id, int everywhere) {
	size_t part = task.n / threads, lo = part * id;
	for (size_t i = 0; i < part; i += block) {
		float sum[block];
		size_t k = part - i < block ? part - i : block;
		copy(sum, in[0] + lo + i, k);
		for (int r = 1; r < threads; r++)
			for (size_t j = 0; j < k; j += 16) {
				ahead(&in[r][lo + i + j]);
				for (size_t l = j; l < j + 16 && l < k; l++) sum[l] += in[r][lo + i + l];
			}
		if (!everywhere) copy(out[id] + i, sum, k);
		else for (int r = 0; r < threads; r++) memcpy(in[r] + lo + i, sum, k * 4);
	}
}

static void read_all(int id) {
	float s[64] = {0};
	for (size_t i = 0; i + 64 <= task.n; i += 64) {
		for (int j = 0; j < 64; j += 16) ahead(&in[id][i + j]);
		for (int j = 0; j < 64; j++) s[j] += in[id][i + j];
	}
	memcpy(sink[id], s, sizeof s);
}

static void scale(int id) {
	float *restrict y = out[id], c = sink[id][0] * 0 + 0.5f;
	const float *restrict x = in[id];
	for (size_t i = 0; i + 16 <= task.n; i += 16) {
		ahead(x + i);
		ahead(y + i);
		for (int j = 0; j < 16; j++) y[i + j] = c * x[i + j];
	}
}

static void work(int id) {
	size_t part = task.n / threads;
	switch (task.kind) {
	case all_reduce: reduce(id, 1); break;
	case reduce_scatter: reduce(id, 0); break;
	case all_gather:
		for (int r = 0; r < threads; r++) copy(out[id] + r * task.n, in[r], task.n);
		break;
	case all_to_all:
		for (int r = 0; r < threads; r++) copy(out[id] + r * part, in[r] + id * part, part);
		break;
	case broadcast:
		for (int r = 1; r < threads; r++) copy(out[r] + id * part, in[0] + id * part, part);
		break;
	case both: read_all(id); scale(id); break;
	case forward: read_all(id); break;
	}
}

static float *buffer(size_t n) {
	float *p = mmap(0, n * 4, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	madvise(p, n * 4, MADV_HUGEPAGE);
	for (size_t i = 0; i < n; i++) p[i] = i % 7;
	return p;
}

static int less(const void *x, const void *y) {
	double d = *(const double *)x - *(const double *)y;
	return d < 0 ? -1 : d > 0;
}

static void *thread(void *arg) {
	int id = (int)(long)arg;
	in[id] = buffer(task.n);
	out[id] = buffer(task.out);
	pthread_barrier_wait(&gate);
	for (int i = 0; i < 2; i++) {
		work(id);
		meet();
	}
	double start = now();
	work(id);
	meet();
	if (id == 0) {
		calls = (int)(budget * 1e9 / (now() - start));
		calls = calls < 10 ? 10 : calls > 10000 ? 10000 : calls;
		times = malloc(calls * sizeof *times);
	}
	pthread_barrier_wait(&gate);
	for (int i = 0; i < calls; i++) {
		meet();
		start = now();
		work(id);
		meet();
		if (id == 0) times[i] = now() - start;
	}
	munmap(in[id], task.n * 4);
	munmap(out[id], task.out * 4);
	return 0;
}

static void measure(struct task t, const char *match) {
	if (!strstr(t.name, match)) return;
	task = t;
	pthread_t ids[most_threads];
	pthread_barrier_init(&gate, 0, threads);
	for (long i = 0; i < threads; i++) pthread_create(&ids[i], 0, thread, (void *)i);
	for (int i = 0; i < threads; i++) pthread_join(ids[i], 0);
	qsort(times, calls, sizeof *times, less);
	printf("{\"name\":\"%s\",\"np\":%d,\"ns\":%.1f,\"min_ns\":%.1f,\"calls\":%d}\n", t.name, threads, times[calls / 2], times[0], calls);
	fflush(stdout);
	free(times);
}

int main(int argc, char **argv) {
	threads = argc > 1 ? atoi(argv[1]) : 1;
	budget = argc > 2 ? atof(argv[2]) : 1;
	const char *match = argc > 3 ? argv[3] : "";
	size_t most = argc > 4 ? atol(argv[4]) : (size_t)1 << 40;
	if (threads < 1 || threads > most_threads) return 2;
	const char *collectives[] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast"};
	const size_t sizes[] = {1 << 20, 16 << 20, 64 << 20};
	for (int k = all_reduce; k <= broadcast && threads > 1; k++) {
		for (int s = 0; s < 3 && sizes[s] <= most; s++) {
			char name[64];
			size_t n = sizes[s] / 4;
			snprintf(name, sizeof name, "%s/%zu", collectives[k], 4 * n);
			measure((struct task){name, k, n, k == all_gather ? n * threads : k == reduce_scatter ? n / threads + 1 : n}, match);
		}
	}
	const size_t losses[][2] = {{1024, 32768}, {2048, 50304}, {2048, 131072}};
	for (int s = 0; s < 3; s++) {
		char name[64];
		size_t n = losses[s][0] * losses[s][1] / threads;
		snprintf(name, sizeof name, "cross-entropy/%zux%zu/forward", losses[s][0], losses[s][1]);
		measure((struct task){name, forward, n, 1}, match);
		snprintf(name, sizeof name, "cross-entropy/%zux%zu/both", losses[s][0], losses[s][1]);
		measure((struct task){name, both, n, n}, match);
	}
	return 0;
}
