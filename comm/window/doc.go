// Package window lets a rank read and change memory of other ranks while they make no call:
// MPI's one-sided communication.
//
// A Window is memory on every rank of a communicator. Each rank chooses its number of elements:
//
//	w, err := window.New[float64](ctx, world, 1000) // all ranks call it
//	…
//	err = w.Put(2, 10, x)      // rank 2's elements from 10 on become x
//	err = w.Fence(ctx)         // all ranks call it: all earlier Puts have arrived, on all ranks
//	fmt.Println(w.Local()[10]) // this rank's own memory
//	err = w.Close(ctx)         // all ranks call it
//
// Calls that take a ctx may wait for other ranks; the others never do.
//
// # When data is there
//
// Put and Accumulate return when their source may be changed. Their data has arrived after the
// Flush of that rank, after the next Fence, or after Unlock. Until then a rank that reads these
// elements gets old ones or new ones.
//
// # Atomics
//
// Accumulate, FetchAndOp, FetchAndAdd, Swap, CompareAndSwap and Load are atomic for each
// element, whichever ranks make them at once. Ranks that act on one element at the same time must
// use the same operation, beside Load: MPI libraries promise no more. Elements are numbers of up
// to 8 bytes, or bool.
//
// A Counter is a number that all ranks can raise, a Mutex is a lock among ranks, and Queue deals
// out jobs:
//
//	for i, err := range window.Queue(ctx, world, len(jobs)) { // on all ranks
//		if err != nil {
//			return err
//		}
//		do(jobs[i]) // each i on one rank, the first that is free
//	}
//
// # What it costs
//
// Where ranks share memory, a Put is a copy, an atomic operation is one instruction or a few, and
// Shared gives another rank's memory as a slice. Over MPI they are the library's calls. Package
// comm counts and records them as the kinds Put, Get, Accumulate, FetchAndOp and Lock.
//
// # What goes wrong
//
// A call with a wrong rank or place, or on a closed window, returns an error and has no
// effect; the window stays usable. A rank that ends while it holds a lock, or while others wait
// for it in a Fence, ends the communicator with an error that names it, as in package comm. Ranks
// that wait for each other's locks are reported as a hang.
package window
