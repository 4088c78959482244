// Scan, the halo exchange and the one-sided calls of bench/comm by MPI: each rank reaches the
// memory of the next one, all at once.
//
//	mpirun -np 2 onesided SECONDS MATCH BYTES
//
// BYTES is the largest buffer.
#include "measure.h"
#include <math.h>

static int next, before[2], after[2];
static float *a, *b;
static MPI_Comm grid;
static MPI_Datatype column;
static int column_side;
static MPI_Win win, number;

enum op { scan, halo, put, get, fetch_and_add, ops };
static const char *names[] = {"scan", "halo", "put", "get", "fetch_and_add"};

// side is that of a square of n cells, or some fewer.
static int side(int n) { return (int)sqrt((double)n); }

static void run(int op, int n) {
	int s = side(n) + 2;
	long one = 1, was;
	switch (op) {
	case scan: MPI_Scan(MPI_IN_PLACE, a, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
	case halo:
		if (s != column_side) {
			if (column_side) MPI_Type_free(&column);
			MPI_Type_vector(s, 1, s, MPI_FLOAT, &column);
			MPI_Type_commit(&column);
			column_side = s;
		}
		MPI_Sendrecv(b + s, s, MPI_FLOAT, before[0], 0, b + (s - 1) * s, s, MPI_FLOAT, after[0], 0, grid, MPI_STATUS_IGNORE);
		MPI_Sendrecv(b + (s - 2) * s, s, MPI_FLOAT, after[0], 0, b, s, MPI_FLOAT, before[0], 0, grid, MPI_STATUS_IGNORE);
		MPI_Sendrecv(b + 1, 1, column, before[1], 0, b + s - 1, 1, column, after[1], 0, grid, MPI_STATUS_IGNORE);
		MPI_Sendrecv(b + s - 2, 1, column, after[1], 0, b, 1, column, before[1], 0, grid, MPI_STATUS_IGNORE);
		break;
	case put:
		MPI_Put(a, n, MPI_FLOAT, next, 0, n, MPI_FLOAT, win);
		MPI_Win_flush(next, win);
		break;
	case get:
		MPI_Get(a, n, MPI_FLOAT, next, 0, n, MPI_FLOAT, win);
		MPI_Win_flush(next, win);
		break;
	case fetch_and_add:
		MPI_Fetch_and_op(&one, &was, MPI_LONG, next, 0, MPI_SUM, number);
		MPI_Win_flush(next, number);
		break;
	default: abort();
	}
}

int main(int argc, char **argv) {
	begin(argc, argv);
	next = (rank + 1) % size;
	a = zeros(floats);
	b = zeros((side(floats) + 3) * (side(floats) + 3));
	int dims[2] = {0, 0}, open[2] = {0, 0};
	MPI_Dims_create(size, 2, dims);
	MPI_Cart_create(MPI_COMM_WORLD, 2, dims, open, 0, &grid);
	for (int d = 0; d < 2; d++) MPI_Cart_shift(grid, d, 1, &before[d], &after[d]);
	void *mine;
	MPI_Win_allocate(floats * 4, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win);
	memset(mine, 0, floats * 4);
	MPI_Win_allocate(64, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &number);
	memset(mine, 0, 64);
	MPI_Win_lock_all(0, win);
	MPI_Win_lock_all(0, number);
	settle();
	for (int op = 0; op < ops; op++) each(op, names[op], "", op == fetch_and_add ? 8 : 0);
	MPI_Win_unlock_all(win);
	MPI_Win_unlock_all(number);
	MPI_Win_free(&win);
	MPI_Win_free(&number);
	MPI_Finalize();
	return 0;
}
