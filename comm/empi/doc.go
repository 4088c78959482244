// Package empi is the backend over github.com/emer/empi/mpi, for programs that must
// link an MPI library when they are built; package mpi needs neither a C compiler
// nor tags. It exists with the build tag empi, and needs the binding's own tag
// mpi too: without it the binding is a dummy in which every rank is a
// world of one, and Open refuses to start. It cannot be in one binary with
// package gompi, since both bindings define the same C symbols.
//
//	go build -tags empi,mpi
//
// A program with runtime.Main that is built in this way uses this backend when mpirun or
// gorun --via openmpi starts it.
//
// Version 1.0.22 of the binding finds Open MPI by pkg-config, under the name ompi.
//
// What the binding lacks is composed from its messages of bytes (see package
// blocking): communicators of a part of a group, all-to-all, reduce-scatter,
// the v-variants. Some parts of the binding are not used, for these reasons:
//
//   - It takes an Op that it does not know for MPI_SUM.
//   - Every call takes the address of the first element, and panics on an empty
//     slice; no empty message is sent.
//   - Reduce takes its count from dest, which only the root need have.
//   - NewComm is collective over the world, whatever group is split.
//   - Abort ends the job with the exit code 0. The process exits by a signal after it.
//   - Errors are returned and also logged; Open turns the logging off. Each
//     error leaks the memory of its text.
//   - A reduction of floating-point numbers is in the library's order.
//
// Ranks compare the fingerprints of their collectives, see package blocking. A Send and a
// collective that wait for each other hang. A call cannot be stopped, so an abort, a context
// that is done and a failed rank end the job, with the cause on standard error.
package empi
