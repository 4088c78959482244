// The messages of bench/comm by MPI, between ranks 0 and 1, 2 and 3, …: as osu_latency, osu_bw, osu_bibw
// and osu_mbw_mr of the OSU Micro-Benchmarks.
//
//	mpirun -np 2 messages SECONDS MATCH BYTES
//
// BYTES is the largest message.
#include "measure.h"

#define BURST 64

static float *a, *b;
static int peer;

enum op { ping_pong, one_way, both_ways, burst, ops };
static const char *names[] = {"ping_pong", "one_way", "both_ways", "burst"};

static void run(int op, int n) {
	MPI_Request r[BURST];
	if (peer >= size) return;
	switch (op) {
	case ping_pong:
		if (rank < peer) {
			MPI_Send(a, n, MPI_FLOAT, peer, 0, MPI_COMM_WORLD);
			MPI_Recv(b, n, MPI_FLOAT, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		} else {
			MPI_Recv(b, n, MPI_FLOAT, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			MPI_Send(a, n, MPI_FLOAT, peer, 0, MPI_COMM_WORLD);
		}
		break;
	case one_way:
		if (rank < peer) {
			MPI_Send(a, n, MPI_FLOAT, peer, 0, MPI_COMM_WORLD);
			MPI_Recv(b, 1, MPI_FLOAT, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		} else {
			MPI_Recv(b, n, MPI_FLOAT, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			MPI_Send(a, 1, MPI_FLOAT, peer, 1, MPI_COMM_WORLD);
		}
		break;
	case both_ways:
		MPI_Sendrecv(a, n, MPI_FLOAT, peer, 0, b, n, MPI_FLOAT, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		break;
	case burst:
		if (rank < peer) {
			for (int i = 0; i < BURST; i++) MPI_Isend(a, n, MPI_FLOAT, peer, 0, MPI_COMM_WORLD, &r[i]);
			MPI_Waitall(BURST, r, MPI_STATUSES_IGNORE);
			MPI_Recv(b, 1, MPI_FLOAT, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		} else {
			for (int i = 0; i < BURST; i++) MPI_Irecv(b + (size_t)i * n, n, MPI_FLOAT, peer, 0, MPI_COMM_WORLD, &r[i]);
			MPI_Waitall(BURST, r, MPI_STATUSES_IGNORE);
			MPI_Send(a, 1, MPI_FLOAT, peer, 1, MPI_COMM_WORLD);
		}
		break;
	default: abort();
	}
}

int main(int argc, char **argv) {
	begin(argc, argv);
	peer = rank ^ 1;
	size_t into = floats < BURST * 1024 ? BURST * 1024 : floats;
	a = zeros(floats);
	b = zeros(into);
	settle();
	for (int op = 0; op < ops; op++) each(op, names[op], "", op == burst ? 4 << 10 : 0);
	MPI_Finalize();
	return 0;
}
