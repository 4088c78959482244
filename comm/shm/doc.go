// Package shm is the backend whose ranks are processes of one host: the
// embedded default. It needs nothing but shared memory made by a launcher (see
// internal/control).
//
// # How a call runs
//
// Each communicator has a region of the control segment with two slots a rank.
// A call number s is published in slot s%2: its fingerprint, and either its
// data (up to 4 KiB) or where the data lies. The rank then waits for the slots
// of all others and compares fingerprints. Two slots are enough: no rank can
// publish call s+2 before all have published s+1, and so finished s.
//
// If all data is in the slots, every rank reads its result there, in rank order, and
// returns. Otherwise the ranks read each other's memory where it
// lies in their arenas, and an exit barrier lets nobody return before all have
// read. A reduction is divided: each rank folds its share of the elements from
// all ranks' buffers, in rank order, and stores the result into all of them.
//
// A buffer outside the arenas is copied through a staging block of its rank's
// arena, round by round. A round covers the same elements of every rank's
// buffer, or of every part where a buffer has a part for each rank. So the call
// becomes a sequence of smaller ones.
//
// # Waiting
//
// A waiting rank spins while the ranks of the host fit its cores, then yields (and
// moves to an emptier core where more ranks than cores are unevenly divided),
// then sleeps on a futex. A rank that publishes wakes others only if some
// sleep. While it waits, a rank looks for aborts, ended ranks and the end of its context.
package shm
