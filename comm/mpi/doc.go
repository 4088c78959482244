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
// each MPI call, and no call but MPI_Comm_split, MPI_Comm_free, MPI_Finalize
// and those on windows waits inside the library for other ranks. Calls are made on the caller's goroutine;
// MPI_Init_thread and MPI_Finalize on one thread kept for them. Several
// communicators may be used from several goroutines. As a Split waits in the library,
// and so does making and closing a window, those of several communicators at the same
// time take turns, in one order on all ranks.
//
// # Waiting
//
// Every call is made of non-blocking requests, messages among few ranks and the
// library's collectives among many, polled with MPI_Test between looks at the
// context and at a control communicator, on which aborts and ends travel. The
// requests of a call and the first looks at them are made in one passage from Go
// to C (on amd64), since a passage costs as much as a short message. So a call ends
// when its context is done, when any rank aborts and when a rank that it needs has
// called Close or has died. MPI moves data only during calls: a rank that computes
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
// # Several hosts
//
// Where the ranks of a communicator lie on several hosts, the same number on each, one host after the other, an
// AllReduce, an AllGather and a Broadcast of 64 KiB and more go by levels: within a host between all ranks, between hosts
// between ranks of one number alone, in pieces that are on both ways at a time. The order of a fold stays that of the ranks.
// AllReduces of 16-bit floats do not: their sums would be rounded on each host.
// Between hosts these and all reductions go in messages that need no answer before they leave.
//
// # Communicators
//
// Those that the program has let go of on all of their ranks are freed when more are
// made of the same communicator, see reclaimEvery.
//
// # Windows
//
// Those of package comm/window are the library's, in one epoch of MPI_Win_lock_all. Their locks
// are words in the window, so that who waits can be told of an end or an abort. The library
// folds sums of 32- and 64-bit numbers, and MPI_Compare_and_swap does all other operations.
// While a call is on its way to a rank the library spins; with more ranks than cores MPICH then
// takes milliseconds. A rank that makes no calls looks each millisecond what others want of it.
//
// # Sizes
//
// MPI counts elements in 32 bits. Calls that move more than 128 MiB at once are
// divided, into several collectives or into messages between pairs of ranks.
//
// Open MPI's own transport writes a long message beyond a buffer that is too short for it.
// There the tag of a message holds its length, so that one of another length is not
// received, and all ranks meet before a collective of the library's own that moves more
// than some 4 KiB between more than 5 ranks.
//
// # Ranks that disagree
//
// Before each collective a rank exchanges a note of 32 bytes with the ranks before and after
// it, and in calls whose counts only two ranks know with those too. A note holds the call's
// fingerprint. Ranks that disagree get an error naming both calls and their lines. The note
// of a Send travels with its message, and the Recv compares it. If they differ it asks the sender
// for its line, which that tells while it waits in the Send; of a short message it does not wait.
// On one machine with two ranks a note takes half a microsecond.
//
// A Recv, or a Send that waits for its Recv, may wait for a rank that waits for this one in
// another call of the same communicator. Such calls never meet. After half a second the rank asks
// who waits for whom; if all of a circle do, they get an error that names their calls. Circles
// through several communicators, windows or mailboxes are package runtime's to find, see Guard.
//
// GORUN_DEBUG=0 or Options.Unchecked leaves this out, except for long calls of the library's
// own over Open MPI: ranks that disagree then get what the MPI library makes of their
// calls, wrong numbers or a hang. No memory outside of their buffers changes. With GORUN_DEBUG=1 or
// Options.Debug a rank compares its calls with those of all ranks, and a Send waits for its
// Recv: an error then names the lines of both, and a call that runs out of time names all
// ranks that did not make it. The variable has to be the same on all ranks.
//
// # Guard
//
// The ranks of a machine share a control segment (see Rank.Segment), in which each keeps its calls
// and waits. Those of other machines send rank 0 reports, twice a second. The rank that another
// waits for says whether it has begun the call, so no message on its way is taken for a missing one.
// The ranks of a machine see each other's processes end: Options.Lost is told of the first one, and
// calls of all ranks that need it fail; ranks that are left after Options.Linger end by MPI_Abort.
// There is no guard with GORUN_DEBUG=0 or more than 4096
// ranks, and where ranks may not look into /proc they see no process end.
//
// # Environment
//
// GORUN_MPI_LIB names the library, as a path or a name for the dynamic linker.
// GORUN_MPI_CUDA, 1 or 0, says in the library's stead whether it takes addresses of
// CUDA devices.
// OMPI_MCA_osc says which of its components Open MPI has windows of. Unless it is set Open chooses
// those that are right: sm and pt2pt of version 4, all but ucx of 5.
// Open sets the variables that keep UCX, Open MPI and libfabric from replacing
// the signal handlers of Go's runtime, unless they are set already.
//
// With the build tag nolibs, for musl and for images without a C library, Open
// only returns an error.
package mpi
