// The collectives of bench/comm by MPI.
//
//	mpirun -np 2 coll SECONDS MATCH BYTES
//
// BYTES is the largest buffer.
#include "measure.h"

static float *a, *b;

enum op { barrier, all_reduce, all_reduce_in_place, all_gather, reduce_scatter, all_to_all, broadcast, ops };
static const char *names[] = {"barrier", "all_reduce", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"};

static void run(int op, int n) {
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

int main(int argc, char **argv) {
	begin(argc, argv);
	a = zeros(floats);
	b = zeros(floats * size);
	settle();
	for (int op = 0; op < ops; op++)
		each(op, names[op], op == all_reduce_in_place ? "in place" : "", op == barrier ? 8 : 0);
	MPI_Finalize();
	return 0;
}
