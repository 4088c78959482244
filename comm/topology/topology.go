package topology

import (
	"context"
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// None stands in place of a neighbour beyond an open border of a Grid. It is no rank, nor message.AnySource: calls
// of packages comm and message refuse it. The calls of this package pass over it, as MPI's do over MPI_PROC_NULL.
const None = -2

// A Topology is a Grid or a Graph.
type Topology interface {
	// Comm returns the topology's own communicator.
	Comm() *comm.Comm
	// Sources and Destinations return the ranks that this one receives from, and those that
	// it sends to. A rank may occur more than once. Some may be None.
	Sources() []int
	Destinations() []int

	exchanges() []exchange
}

// An exchange is one message to a rank and one from a rank, either of which may be None.
type exchange struct {
	to, from    int
	destination int  // the index of to in Destinations
	source      int  // the index of from in Sources
	sendFirst   bool // else the rank receives first; the two ends of a message always differ
}

// run sends send(i) to each destination i and receives recv(i) from each source i.
func run[T any](ctx context.Context, c *comm.Comm, exchanges []exchange, send, recv func(i int) []T) error {
	for _, e := range exchanges {
		if e.to == c.Rank() && e.from == c.Rank() {
			copy(recv(e.source), send(e.destination))
			continue
		}
		if e.to != None && e.sendFirst {
			if err := comm.Send(ctx, c, send(e.destination), e.to); err != nil {
				return err
			}
		}
		if e.from != None {
			if err := comm.Recv(ctx, c, recv(e.source), e.from); err != nil {
				return err
			}
		}
		if e.to != None && !e.sendFirst {
			if err := comm.Send(ctx, c, send(e.destination), e.to); err != nil {
				return err
			}
		}
	}
	return nil
}

// AllGather sends src to every destination, and fills part i of dst, of len(src) elements, with
// the src of source i. A part whose source is None stays as it is. len(src) must be the same on
// all ranks, and len(dst) must be len(src) times the number of sources.
func AllGather[T any](ctx context.Context, t Topology, dst, src []T) error {
	n := len(src)
	if err := check(t, "AllGather", "dst", len(dst), len(t.Sources())*n); err != nil {
		return err
	}
	return run(ctx, t.Comm(), t.exchanges(), func(int) []T { return src }, func(i int) []T { return dst[i*n:][:n] })
}

// AllToAll sends part i of src to destination i, and fills part i of dst from source i. All
// parts have n elements, on all ranks: len(src) must be n times the number of destinations, and
// len(dst) n times the number of sources. A part whose source is None stays as it is.
func AllToAll[T any](ctx context.Context, t Topology, dst, src []T, n int) error {
	if err := check(t, "AllToAll", "dst", len(dst), len(t.Sources())*n); err != nil {
		return err
	}
	if err := check(t, "AllToAll", "src", len(src), len(t.Destinations())*n); err != nil {
		return err
	}
	part := func(s []T) func(i int) []T { return func(i int) []T { return s[i*n:][:n] } }
	return run(ctx, t.Comm(), t.exchanges(), part(src), part(dst))
}

// AllToAllV sends src[i] to destination i and fills dst[i] from source i. The two ends of a
// message must have the same length; messages may differ in length.
func AllToAllV[T any](ctx context.Context, t Topology, dst, src [][]T) error {
	if err := check(t, "AllToAllV", "dst", len(dst), len(t.Sources())); err != nil {
		return err
	}
	if err := check(t, "AllToAllV", "src", len(src), len(t.Destinations())); err != nil {
		return err
	}
	return run(ctx, t.Comm(), t.exchanges(), func(i int) []T { return src[i] }, func(i int) []T { return dst[i] })
}

// check refuses a call with a slice of the wrong length.
func check(t Topology, call, name string, got, want int) error {
	if got == want {
		return nil
	}
	return refuse(t, fmt.Errorf("topology: %s: len(%s) is %d; with %d sources and %d destinations it must be %d",
		call, name, got, len(t.Sources()), len(t.Destinations()), want))
}

// refuse ends the topology's communicator with err, so that the neighbours do not wait for this
// rank, and returns err with the program's line.
func refuse(t Topology, err error) error {
	err = fault.Located(err)
	t.Comm().Abort(err)
	return err
}

// agree returns an error on all ranks of c if they do not all give the same numbers.
func agree(ctx context.Context, c *comm.Comm, call string, numbers []int) error {
	all, err := comm.AllGatherSlices(ctx, c, numbers)
	if err != nil {
		return err
	}
	for r, other := range all {
		if !slices.Equal(other, all[0]) {
			return fault.Located(fmt.Errorf("topology: %s: %w: rank %d gives %v and rank %d %v; give the same on all ranks",
				call, comm.ErrMismatch, c.WorldRank(0), all[0], c.WorldRank(r), other))
		}
	}
	return nil
}
