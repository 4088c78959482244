// How the programs of this folder that use MPI time a call, as bench/comm does: before each call a
// barrier, the time of the slowest rank, the median; and the mean of the same number of calls
// back to back. A program that includes this gives names, forms and run.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

// What the command line says: PROGRAM SECONDS MATCH BYTES.
static double budget = 1;
static const char *match = "";
static size_t most = 64 << 20; // bytes of the largest buffer
static size_t floats;          // of it, at least one a rank

// run makes call op on buffers of n floats.
static void run(int op, int n);

static int less(const void *x, const void *y) {
	double d = *(const double *)x - *(const double *)y;
	return d < 0 ? -1 : d > 0;
}

static double seconds_a_call(int op, int n, int calls) {
	MPI_Barrier(MPI_COMM_WORLD);
	double t = MPI_Wtime();
	for (int i = 0; i < calls; i++) run(op, n);
	t = (MPI_Wtime() - t) / calls;
	MPI_Allreduce(MPI_IN_PLACE, &t, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return t;
}

// measure prints the times of one call. who names the form where MPI has several.
static void measure(int op, const char *name, const char *who, int n) {
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
		printf("{\"name\":\"%s\",\"who\":\"%s\",\"np\":%d,\"ns\":%.1f,\"min_ns\":%.1f,\"loop_ns\":%.1f,\"calls\":%d}\n", name, who, size,
		       times[calls / 2], times[0], loop, calls);
		fflush(stdout);
	}
	free(times);
}

// begin reads the command line and starts MPI.
static void begin(int argc, char **argv) {
	if (argc > 1) budget = atof(argv[1]);
	if (argc > 2) match = argv[2];
	if (argc > 3) most = atol(argv[3]);
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	floats = most / 4 < (size_t)size ? size : most / 4;
}

// zeros returns n floats that are 0. It writes them, by volatile stores, which a compiler does not drop: pages of
// malloc that nothing has written are all one page of zeros, which is read from the first cache.
static float *zeros(size_t n) {
	volatile float *p = malloc(n * 4);
	if (!p) abort();
	for (size_t i = 0; i < n; i++) p[i] = 0;
	return (float *)p;
}

// settle makes small calls for 50 ms: while ranks start, they share the cores with what starts them.
static void settle(void) {
	double start = MPI_Wtime();
	for (int on = 1; on;) {
		on = MPI_Wtime() - start < 0.05;
		MPI_Allreduce(MPI_IN_PLACE, &on, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	}
}

// each measures call op with all sizes, or with those of at most small bytes if that is not 0. name is
// without the bytes.
static void each(int op, const char *name, const char *who, size_t small) {
	const int sizes[] = {8, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
	for (int i = 0; i < 6 && (size_t)sizes[i] <= most && (!small || (size_t)sizes[i] <= small); i++) {
		char full[64];
		int n = sizes[i] / 4 < size ? size : sizes[i] / 4;
		snprintf(full, sizeof full, "%s/%d", name, strcmp(name, "barrier") ? 4 * n : 0);
		if (strstr(full, match)) measure(op, full, who, n);
	}
}
