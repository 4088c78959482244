// Package comm moves data between the ranks of a job.
//
// A job is N copies of one program; each copy is a rank, numbered from 0. A
// *Comm is one rank's end of a group of ranks. Every rank of the group makes
// the same calls on it in the same order, and each call is a collective: it is
// defined by the loop in its doc comment, over the memory of all ranks.
//
//	func train(ctx context.Context, world *comm.Comm) error {
//		x := []float32{float32(world.Rank())}
//		if err := comm.AllReduce(ctx, world, x, comm.Sum); err != nil {
//			return err
//		}
//		fmt.Println(x[0]) // 0+1+…+N-1, the same bits on every rank
//		return nil
//	}
//
// # Your duties
//
// Call the same collectives in the same order on all ranks of a communicator,
// from one goroutine at a time; other goroutines may use other communicators
// meanwhile. Do not touch a buffer while a call uses it, which for a call made
// with Start is until its Wait returns. If a rank cannot go on, call Abort
// (runtime.Main does so when your function returns an error).
//
// # What goes wrong, and what you get
//
// Every call carries a fingerprint: kind, operation, root, element type and
// count. Ranks that disagree get an error naming both calls and their lines; over
// MPI too, unless GORUN_DEBUG=0 turns the comparison off. For it a collective may
// wait for any rank of its communicator, even one that it needs no data from. An
// abort, a cancelled context or the death of a rank ends the pending and later
// calls of all ranks with an error naming the rank and the cause. Every error
// is an *Error; after one the communicator cannot be used again. When the user
// stops the job, the context of runtime.Main is cancelled but ends no call, so that
// the ranks can save: see ErrStopping.
//
// # Elements
//
// Operations such as Sum take slices of any number, of bool, and of types defined from these:
// see Elem and Op. Calls that only move elements take structs and arrays too, if they hold no
// pointers. So do the calls by a Func, the program's own operation; MinLoc and MaxLoc are ready
// made. Most calls can be made in place: their documentation says how.
//
// # Memory
//
// Any slice will do. One allocated from Memory is read by the other ranks
// where it lies; any other is copied through shared memory on the way.
//
// # What was called
//
// Stats counts calls and bytes by kind, and by the cause that a Call names.
// Record keeps every call with its time and line until Stop; commtest.Expect
// holds a function to a budget; gorun --trace shows the calls of all ranks of a job, and
// what it computes between, on one time line.
//
// # Who implements what
//
// Programs hold a *Comm; checks, counters and the sticky error live in it, once.
// Implementers see a Backend: package comm/mem (goroutines of one process),
// comm/shm (processes of one host), comm/mpi. Package comm/backend says how one is written, and has
// the types that a program only passes on, such as Call, which are aliases here; comm/commtest has the suite that
// every one of them passes. Package comm/message has messages with tags, comm/topology
// neighbours on grids and graphs, and comm/window memory that ranks reach without a call of its owner.
//
// Packages that build on comm, and no programs, need Internals, Tally and CheckKey.
package comm
