// Package mpi is the backend whose ranks are the processes of an MPI job: it
// finds an MPI library when the program runs, so that one binary, built
// without a C compiler, works under Open MPI 4 and 5, MPICH 4, and what shares
// its ABI (Intel MPI, Cray MPICH, MVAPICH).
//
//	b, err := mpi.Open(mpi.Options{})
//	if err != nil {
//		return err
//	}
//	err = train(ctx, comm.NewWorld(b))
//	return errors.Join(err, b.Close(err))
//
// Detect says, from the environment alone, whether and by which launcher the
// process was started as a rank.
//
// # Threads
//
// The library is opened with MPI_THREAD_SERIALIZED: one mutex is held during
// each MPI call, and no call but MPI_Comm_split, MPI_Comm_free and MPI_Finalize
// waits inside the library for other ranks. Calls are made on the caller's goroutine;
// MPI_Init_thread and MPI_Finalize on one thread kept for them. Several
// communicators may be used from several goroutines.
//
// # Waiting
//
// Every call is made of non-blocking requests, messages among few ranks and the
// library's collectives among many, polled with MPI_Test between looks at the
// context and at a control communicator, on which aborts and ends travel. The
// requests of a call and the first looks at them are made in one passage from Go
// to C (on amd64), since a passage costs as much as a short message. So a call ends
// when its context is done, when any rank aborts and when a rank that it needs has
// called Close. A rank that is killed is the
// launcher's to notice. MPI moves data only during calls: a rank that computes
// for long delays the others' large transfers.
//
// A collective that was given up cannot be taken back from the library. Its
// buffers stay in use until the process ends: they must not be unmapped, and
// Close then leaves MPI_Finalize out where the library would wait in it.
//
// # Arithmetic
//
// Reductions fold in rank order, so the bits are those of the other backends.
// They are exchanged and folded here: each rank receives its part of all ranks'
// values, so the bytes that move are those of any all-reduce. With more than 16
// ranks the library reduces what comes out the same in any order, integers and
// bool; with Options.Unordered it does so for any number of ranks, and for sums
// and products of float32 and float64. It never reduces 16-bit floats, Min and
// Max of floating-point numbers (MPI does not define NaN), sums of 8 and 16
// bits (Open MPI's saturate), uint8 (MPICH compares with signs) and user-defined
// operations.
//
// # Communicators
//
// Those that the program has let go of on all of their ranks are freed when more are
// made of the same communicator, see reclaimEvery.
//
// # Sizes
//
// MPI counts elements in 32 bits. Calls that move more than 1 GiB at once are
// divided, into several collectives or into messages between pairs of ranks.
//
// # Debug mode
//
// With Options.Debug or GORUN_DEBUG=1 the ranks exchange their calls'
// fingerprints before each call, over messages that can be taken back: ranks
// that disagree get an error naming both calls, and a call that runs out of
// time names the ranks that did not make it. Without it such a call is what
// the MPI library makes of it.
//
// # Environment
//
// GORUN_MPI_LIB names the library, as a path or a name for the dynamic linker.
// GORUN_MPI_CUDA, 1 or 0, says in the library's stead whether it takes addresses of
// CUDA devices.
// Open sets the variables that keep UCX, Open MPI and libfabric from replacing
// the signal handlers of Go's runtime, unless they are set already.
//
// With the build tag nolibs, for musl and for images without a C library, Open
// only returns an error.
package mpi
