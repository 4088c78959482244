// Package gompi is the backend over github.com/sbromberger/gompi, for programs that
// must link an MPI library when they are built; package mpi needs neither a C
// compiler nor tags. It exists with the build tag gompi, and cannot be in one
// binary with package empi, since both bindings define the same C symbols.
//
//	go build -tags gompi
//
// A program with runtime.Main that is built in this way uses this backend when mpirun or
// gorun --via openmpi starts it.
//
// Version 0.2.0 of the binding finds Open MPI where Debian for amd64 puts it;
// elsewhere set CGO_CFLAGS and CGO_LDFLAGS.
//
// What the binding lacks is composed from its messages of bytes (see package
// blocking): communicators of a part of a group, gather, scatter, all-to-all
// and reduce-scatter, types of 8 and 16 bits. Some parts of the binding are not used, for these
// reasons:
//
//   - BcastBytes sends four times as many bytes as its slice has.
//   - Sends and collectives drop the library's return code. The library's own
//     error handler, which ends the job, is left in place.
//   - Every call takes the address of the first element, and panics on an empty
//     slice; no empty message is sent.
//   - NewCommunicator is collective over the world, whatever group is split.
//   - A reduction of floating-point numbers is in the library's order.
//
// Ranks compare the fingerprints of their collectives, see package blocking. A Send and a
// collective that wait for each other hang. A call cannot be stopped, so an abort, a context
// that is done and a failed rank end the job, with the cause on standard error.
package gompi
