// Package window lets a rank read and change memory of other ranks without a call of theirs:
// MPI's one-sided communication.
//
// A Window is memory of every rank of a communicator, as many elements as each wants to show:
//
//	w, err := window.New[float64](ctx, world, 1000) // all ranks call it
//	…
//	err = w.Put(2, 10, x)      // rank 2's elements from 10 on become x
//	err = w.Fence(ctx)         // all ranks call it: what was put before is there, on all ranks
//	fmt.Println(w.Local()[10]) // this rank's own memory
//	err = w.Close(ctx)         // all ranks call it
//
// Calls that take a ctx may wait for other ranks; the others never do.
//
// # When data is there
//
// Put and Accumulate return when their source may be changed. Their effect is there after the
// Flush of that rank, after the next Fence, or after Unlock. Between Fences, or under a Lock,
// who reads what another rank writes gets old elements or new ones.
//
// # Atomics
//
// Accumulate, FetchAndOp, FetchAndAdd, Swap, CompareAndSwap and Load are atomic for each
// element, whichever ranks make them at once. At one time use one of these operations on an
// element (Load goes with any): MPI libraries promise no more. They take numbers of up to 8
// bytes and bool.
//
// A Counter is a number that all ranks count with, a Mutex a lock among ranks, and Queue deals
// out jobs:
//
//	for i, err := range window.Queue(ctx, world, len(jobs)) { // on all ranks
//		if err != nil {
//			return err
//		}
//		do(jobs[i]) // each i on one rank: that which is free first
//	}
//
// # What it costs
//
// Where ranks share memory a Put is a copy, an atomic operation an instruction or a few, and
// Shared gives another rank's memory as a slice. Over MPI they are the library's calls. Package
// comm counts and records them as the kinds Put, Get, Accumulate, FetchAndOp and Lock.
//
// # What goes wrong
//
// A call with a wrong rank or place, and one on a closed window, returns an error and has no
// effect; the window can be used further. A rank that ends while it holds a lock, or is needed
// in a Fence, ends the communicator with an error that names it, as in package comm. Ranks that
// wait for each other's locks are reported as a hang.
package window
