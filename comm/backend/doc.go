// Package backend is what those see who write a backend of package comm: the interface Backend, the calls that it
// carries out, and what helps to carry them out. A program needs none of it. It holds a *comm.Comm, which
// comm.NewWorld makes over a Backend, and sees the types that it uses, such as Call, as those of package comm.
//
// # What Comm has done
//
// Comm checks a call (Call.Problem), counts and records it, gives a call in place two buffers where the backend wants
// that, and keeps the first error. Do of a Backend is called with correct calls, one after another, and never
// after an error. Structs have become bytes. A group of one rank has no Backend of yours.
//
// # What Do has to do
//
// It refuses a call of a pattern that it was not written for. It compares Fingerprints, so that ranks that made
// different calls get an error and no wrong numbers. It moves and folds elements. And it ends, with an error on every
// rank, soon after the context is done or a rank aborts or ends.
//
//	func (b *board) Do(ctx context.Context, call *backend.Call) error {
//		if err := call.Carried("board", patterns); err != nil { // 1<<backend.PatternMove | …
//			return err
//		}
//		all, err := b.publish(ctx, call) // waits for the calls of all ranks; if ctx ends: Cancelled and Late
//		if err != nil {
//			return err // an *AbortError or *EndedError, if a rank has aborted or ended
//		}
//		for from, other := range all {
//			if other.Fingerprint() != call.Fingerprint() {
//				return backend.Mismatch(other.Party(b.world[from]), call.Party(b.world[b.rank]))
//			}
//		}
//		for from, other := range all { // a PatternMove
//			at, n := call.Incoming(b.rank, from, len(all))
//			first, _ := other.Outgoing(from, b.rank, len(all))
//			copy(call.Dst.Slice(at, at+n).Data(), other.Source(from).Slice(first, first+n).Data())
//		}
//		return b.leave(ctx) // other ranks still read this one's Src
//	}
//
// A backend is written for patterns (see Pattern), and not for kinds: Kind.Shape is the table of all kinds, and
// Source, Incoming and Outgoing of a Call derive from it who sends what to whom. Where a sender and a receiver alone know
// how much that is, both sides' Lengths are compared, and Call.Uneven is the error. A reduction is
// Call.Fold of all ranks' sources in rank order, and a scan Prefixes.Fold; Call.Folds says how many sources a rank's
// result is of. Where parts may be columns of a matrix (RowBackend), Buffer.Part and CopyParts take the place of copy. Where
// a call is carried out in steps or pieces, Call.Inner and Call.Piece keep its fingerprint and line.
//
// # What a backend may do besides
//
// The other interfaces whose names end in Backend are abilities, which Comm and the packages over it ask for: a Send and
// a Recv at once, memory that other ranks reach (package comm/window), messages with tags (comm/message),
// memory of a device. A backend without one has its callers told so, by an error or by a slower way.
//
// commtest.TestBackend is the test of a backend, and commtest.UnknownKind that of what it refuses. Package comm/mem is the
// shortest example; comm/mpi/exchange helps where ranks share no memory.
package backend
