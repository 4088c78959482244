// Package empi is the backend over github.com/emer/empi/mpi, for those who must
// link an MPI library when they build; package mpi needs neither a C compiler
// nor tags. It exists with the build tag empi, and needs the binding's own tag
// mpi beside it: without that the binding is a dummy in which every rank is a
// world of one, and Open refuses to start. It cannot be in one binary with
// package gompi, since both bindings define the same C symbols.
//
//	go build -tags empi,mpi
//
// A program of runtime.Main that is built so uses this backend when mpirun or gorun --via
// openmpi starts it.
//
// Version 1.0.22 of the binding finds Open MPI by pkg-config, under the name ompi.
//
// What the binding lacks is composed from its messages of bytes (see package
// blocking): communicators of a part of a group, all-to-all, reduce-scatter,
// the v-variants. What of it is not used, and why:
//
//   - An Op that it does not know is MPI_SUM.
//   - Every call takes the address of the first element, and panics on an empty
//     slice; no empty message is sent.
//   - Reduce takes its count from dest, which other ranks than the root need not have.
//   - NewComm is collective over the world, whatever group is split.
//   - Abort ends the job with the exit code 0. The process exits by a signal after it.
//   - Errors are logged besides being returned: Open turns that off. Each
//     loses the memory of its text.
//   - A reduction of floating-point numbers is in the library's order.
//
// Ranks compare the fingerprints of their collectives, see package blocking; a Send and a
// collective that wait for each other hang. A call cannot be stopped: an abort, a context that is done and a failed rank
// end the job, with the cause on standard error.
package empi
