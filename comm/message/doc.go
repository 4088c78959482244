// Package message sends messages with tags from rank to rank: MPI's point-to-point communication.
//
//	m, err := message.New(ctx, world) // all ranks call it
//	…
//	err = message.Send(ctx, m, x, 3, tag)          // x goes to rank 3
//	st, err := message.Recv(ctx, m, y, message.AnySource, tag)
//	fmt.Println(y[:st.Count], "from rank", st.Source)
//	…
//	err = m.Close(ctx) // all ranks call it
//
// # Which messages
//
// comm.Send and comm.Recv are calls in the order of the communicator, as its collectives are: both sides know
// who sends what when, ranks compare the calls, and an error names the lines of both. Use them, and
// comm.SendRecv, where the pattern is fixed: a pipeline, a ring.
//
// Use a Mailbox where it is not: where the sender, the length or the order is known late, where a rank
// has several messages under way while it computes, or to port a program of MPI. Its messages
// do not mix with the communicator's calls, nor with those of another Mailbox: a library makes its own.
//
// # Matching
//
// A receive names the rank and the tag that it takes messages of, or AnySource and AnyTag. The rules are MPI's:
//
//   - A receive takes the first message that it can, of those that a rank has sent to this one.
//   - A message goes to the receive that was begun first of those that take it.
//   - A receive may have room for more elements than the message has: see Status. Their type must be one.
//
// Probe says what a receive would get. RecvSlice and RecvObject need not know how long a message is.
//
// # Requests
//
// ISend and IRecv begin a message and return a Request. Until it has ended nobody may write to
// the buffer, nor read what it receives. A program may have any number of them, of any size, and end
// them in any order, by Wait, WaitAny, WaitAll, Test, or Done in a select. They go on by themselves, also
// while the rank computes or is in a collective; fastest while it waits for one of them.
//
//	in := message.IRecv(m, halo, left, tag)
//	out := message.ISend(m, border, right, tag)
//	compute()
//	err := message.WaitAll(ctx, in, out)
//
// A context that ends aborts the communicator. A receive with a time limit takes itself back instead:
//
//	in := message.IRecv(m, buf, from, tag)
//	select {
//	case <-in.Done():
//		st, err := in.Wait(ctx)
//		…
//	case <-time.After(time.Second):
//		in.Cancel() // false if the message has come meanwhile: then Wait
//	}
//
// # When a send ends
//
// A message of up to 4 KiB travels at once and its send ends, as long as the receiver has not
// more than 256 KiB of this rank's that no receive has taken (both are less among more than 16 ranks). A longer one, or
// one more, waits until its receive is there. So a late receiver costs memory that does not grow, and ranks
// that all Send much before they Recv wait for each other, which is reported as a hang: use SendRecv or ISend.
//
// SSend and ISSend end when the message was received, whatever its length.
//
// Where ranks share memory, buffers from Comm.Memory are read by the receiver where they lie; others are
// copied on the way. Over MPI everything is: package comm's calls are faster there.
//
// # What goes wrong
//
// A call with a wrong rank or tag returns an error and has no effect. A message that its receive
// has no room for, or that holds other elements, ends the communicator with an error on all ranks, as
// do an abort, a context that is done and the end of a rank that is waited for: see package comm.
// Close reports messages that nobody has received. Package comm counts and records the calls as the kinds
// message.Send, message.Recv and message.Probe.
package message
