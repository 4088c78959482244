// The collectives of bench/comm by MPI, timed as bench/comm times them: before
// each call a barrier, the time of the slowest rank, the median. "who" names the
// form where MPI has two.
//
//	mpirun -np 2 coll SECONDS MATCH BYTES
//
// BYTES is the largest buffer.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;
static float *a, *b;

static int less(const void *x, const void *y) {
	double d = *(const double *)x - *(const double *)y;
	return d < 0 ? -1 : d > 0;
}

enum op { barrier, all_reduce, all_reduce_in_place, all_gather, reduce_scatter, all_to_all, broadcast, ops };
static const char *names[] = {"barrier", "all_reduce", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"};

static void run(enum op op, int n) {
	int part = n / size;
	switch (op) {
	case barrier: MPI_Barrier(MPI_COMM_WORLD); break;
	case all_reduce: MPI_Allreduce(a, b, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
	case all_reduce_in_place: MPI_Allreduce(MPI_IN_PLACE, a, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
	case all_gather: MPI_Allgather(a, n, MPI_FLOAT, b, n, MPI_FLOAT, MPI_COMM_WORLD); break;
	case reduce_scatter: MPI_Reduce_scatter_block(a, b, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
	case all_to_all: MPI_Alltoall(a, part, MPI_FLOAT, b, part, MPI_FLOAT, MPI_COMM_WORLD); break;
	case broadcast: MPI_Bcast(a, n, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
	default: abort();
	}
}

static double seconds_a_call(enum op op, int n, int calls) {
	MPI_Barrier(MPI_COMM_WORLD);
	double t = MPI_Wtime();
	for (int i = 0; i < calls; i++) run(op, n);
	t = (MPI_Wtime() - t) / calls;
	MPI_Allreduce(MPI_IN_PLACE, &t, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return t;
}

static void measure(enum op op, int n, double budget) {
	int calls = 1;
	double once;
	while ((once = seconds_a_call(op, n, calls)) * calls <= budget / 50 && calls <= 20000) calls *= 4;
	calls = (int)(budget / 2 / once);
	calls = calls < 7 ? 7 : calls > 20000 ? 20000 : calls;
	double *times = malloc(calls * sizeof *times);
	for (int i = 0; i < calls; i++) {
		MPI_Barrier(MPI_COMM_WORLD);
		double t = MPI_Wtime();
		run(op, n);
		times[i] = (MPI_Wtime() - t) * 1e9;
	}
	MPI_Allreduce(MPI_IN_PLACE, times, calls, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	qsort(times, calls, sizeof *times, less);
	double loop = seconds_a_call(op, n, calls) * 1e9;
	if (rank == 0) {
		printf("{\"name\":\"%s/%d\",\"who\":\"%s\",\"np\":%d,\"ns\":%.1f,\"min_ns\":%.1f,\"loop_ns\":%.1f,\"calls\":%d}\n",
		       names[op], op == barrier ? 0 : 4 * n, op == all_reduce_in_place ? "in place" : "", size, times[calls / 2], times[0], loop, calls);
		fflush(stdout);
	}
	free(times);
}

int main(int argc, char **argv) {
	const int sizes[] = {8, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
	double budget = argc > 1 ? atof(argv[1]) : 1;
	const char *match = argc > 2 ? argv[2] : "";
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	size_t most = argc > 3 ? atol(argv[3]) : 64 << 20;
	size_t floats = most / 4 < (size_t)size ? size : most / 4;
	a = malloc(floats * 4);
	b = malloc(floats * 4 * size);
	memset(a, 0, floats * 4);
	memset(b, 0, floats * 4 * size);
	double start = MPI_Wtime();
	for (int on = 1; on;) { // the ranks come to rest
		on = MPI_Wtime() - start < 0.05;
		MPI_Allreduce(MPI_IN_PLACE, &on, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	}
	for (int op = 0; op < ops; op++) {
		for (int i = 0; i < 6 && (size_t)sizes[i] <= most; i++) {
			char name[64];
			int n = sizes[i] / 4 < size ? size : sizes[i] / 4;
			snprintf(name, sizeof name, "%s/%d", names[op], op == barrier ? 0 : 4 * n);
			if (strstr(name, match)) measure(op, n, budget);
			if (op == barrier) break;
		}
	}
	MPI_Finalize();
	return 0;
}
