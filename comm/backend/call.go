package backend

import (
	"fmt"

	"github.com/gorun-spmd/gorun/internal/fold"
)

// A Call is one collective as data: what the generic functions build and a
// Backend carries out.
//
//	kind             Dst                  Src                   counts
//	AllReduce        n                    n, may be Dst
//	Reduce           n, at Root           n
//	AllGather        Size·n               n
//	AllGatherV       Σ DstCounts          DstCounts[rank]       DstCounts, the same on all ranks
//	Gather           Size·n, at Root      n
//	GatherV          Σ DstCounts, at Root any                   DstCounts, at Root
//	Scatter          n                    Size·n, at Root
//	ScatterV         any                  Σ SrcCounts, at Root  SrcCounts, at Root
//	ReduceScatter    n                    Size·n
//	ReduceScatterV   SrcCounts[rank]      Σ SrcCounts           SrcCounts, the same on all ranks
//	AllToAll         Size·n               Size·n
//	AllToAllV        Σ DstCounts          Σ SrcCounts           both; SrcCounts[q] of rank p is DstCounts[p] of rank q
//	Broadcast        n
//	Barrier
//	Send                                  n                     Root is the receiver
//	Recv             n                                          Root is the sender
//	Split            Size·n               n                     as AllGather
//	Scan             n                    n
//	Exscan           n                    n
//
// Kind.Shape has the table as data. Counts are in elements. Dst and Src must not overlap,
// except in place: in a gather Src may be this rank's part of Dst, in a scatter Dst the
// root's part of Src, and in an AllToAll, a Scan or a reduction both may begin at one address.
//
// The parts of a buffer lie one after another. In calls without a root that have counts they
// may lie side by side instead: with DstRows or SrcRows R above 1 the buffer is a row-major
// matrix of R rows, and a part of n elements is n/R of its columns. Ranks may choose
// differently. See Internals.SupportsRows of a comm.Comm.
type Call struct {
	Kind                 Kind
	Op                   Op
	Func                 *Func // the operation if Op is Custom, else nil
	Root                 int
	Dst, Src             Buffer
	DstCounts, SrcCounts []int
	DstRows, SrcRows     int          // above 1, the parts of that buffer are columns of a matrix with this number of rows
	Tag                  int          // of a call of package comm/message
	Cause                string       // the operator and step that made the call, for statistics and traces
	Facts                uint32       // a hash of what else all ranks must have the same, such as a global shape; 0: nothing
	Subject              fmt.Stringer // what Facts is a hash of, for the error of ranks that differ; nil: the error does not say it
	Check                bool         // a check that users may turn off: Stats and recordings leave it out
	site                 *Site        // where an asynchronous call was started, or see At; nil: where the call is made
	waiters              *Waiters     // for an asynchronous call; nil: the call blocks
	whole                int          // elements of the longest part of the call that Piece divided; 0: this is no piece
	of                   *Call        // the call that this is a step of, see Inner; nil: none

	places func(rank int) (a, b int) // see Places

	// Untaken says, while a call of package comm/message waits, which messages have come that it does not take; "" if none
	// have. If it is nil nothing is said.
	Untaken func() string
}

// Places returns a function that says which two numbers each rank hands in to a Split, where this
// rank knows them; else nil. It is for a backend that answers for ranks: see package comm/standin.
func (c *Call) Places() func(rank int) (color, key int) { return c.places }

// SetPlaces sets what Places returns.
func (c *Call) SetPlaces(places func(rank int) (color, key int)) { c.places = places }

// Piece returns a copy of c that is one of several calls on pieces of its buffers. elements
// is the length of c's longest part; it is in the fingerprint, so the ranks compare it.
func (c *Call) Piece(elements int) Call {
	piece := *c
	piece.whole = elements
	return piece
}

// At returns a copy of c whose line, in errors and recordings, is that of the stack and not the one that
// makes the call.
func (c *Call) At(stack []uintptr) Call {
	there := *c
	there.site = new(Site)
	there.site.n = copy(there.site.pcs[:], stack)
	return there
}

// Inner returns a call that is a step of c. It has c's fingerprint and line, so that an error
// about ranks that disagree names c.
func (c *Call) Inner(kind Kind, dst, src Buffer) Call {
	return Call{Kind: kind, Dst: dst, Src: src, Cause: c.Cause, of: c, site: c.site, waiters: c.waiters}
}

// user returns the call that c is a step of, else c.
func (c *Call) user() *Call {
	for c.of != nil {
		c = c.of
	}
	return c
}

// DType returns the element type, invalid for a Barrier.
func (c *Call) DType() DType {
	if c.Src.DType.Size() > 0 {
		return c.Src.DType
	}
	return c.Dst.DType
}

// Elements returns the name of the type of the elements, "" for a Barrier.
func (c *Call) Elements() string {
	if t := c.structType(); t != nil {
		return t.Name
	}
	if c.DType().Size() == 0 {
		return ""
	}
	return c.DType().String()
}

// Bytes returns the bytes that this rank hands in, or receives where it hands in none.
func (c *Call) Bytes() int {
	if c.Src.Count > 0 {
		return c.Src.Bytes()
	}
	return c.Dst.Bytes()
}

// String describes the call without its line: "AllReduce sum float32[1024]".
func (c *Call) String() string {
	var s string
	switch c.Kind.Shape().Pattern {
	case PatternMessage:
		s = c.withElements()
	case PatternWindow:
		s = fmt.Sprintf("%s of rank %d", c.withElements(), c.Root)
	case PatternTagged:
		if s = c.withElements(); c.ofObject() {
			s = c.Kind.String() + "Object"
		}
		s += c.address()
	default:
		s = c.Fingerprint().describe(c.structType(), c.user().Root)
	}
	if c.Op == fold.Custom && c.Func != nil && c.Func.size > 0 { // not one on other elements
		s += fmt.Sprintf(" by %q on %d-byte elements", c.Func.name, c.Func.size)
	}
	if c.Cause != "" {
		s += " for " + c.Cause
	}
	return s
}

// withElements describes a call with one buffer at most, without the other rank.
func (c *Call) withElements() string {
	s := c.Kind.String()
	if e := c.Elements(); e != "" {
		s += fmt.Sprintf(" %s[%d]", e, (c.Dst.Count+c.Src.Count)/c.Width())
	}
	return s
}

// address describes the other rank and the tag of a call of package comm/message.
func (c *Call) address() string {
	way, rank, tag := "from", "any rank", "any tag"
	if c.Kind == TaggedSendKind {
		way = "to"
	}
	if c.Root != AnyRank {
		rank = fmt.Sprintf("rank %d", c.Root)
	}
	if c.Tag != AnyTag {
		tag = fmt.Sprintf("tag %d", c.Tag)
	}
	return fmt.Sprintf(" %s %s, %s", way, rank, tag)
}

// Site returns where the user made the call, as "train/main.go:31". It walks the
// stack, so it costs nothing until it is asked for.
func (c *Call) Site() string {
	if c.site != nil {
		return c.site.String()
	}
	var here Site
	here.Capture(2)
	return here.String()
}

// Locate sets at to where the call was made: where an asynchronous one was started, what At says, or else the stack
// above skip frames (1 is Locate's caller).
func (c *Call) Locate(at *Site, skip int) {
	if c.site != nil {
		*at = *c.site
		return
	}
	at.Capture(skip + 1)
}

// OfAny reports whether the call waits for a message of any rank.
func (c *Call) OfAny() bool { return c.Kind.Tagged() && c.Root == AnyRank }

// NotTaken returns what Untaken says, "" if it is nil.
func (c *Call) NotTaken() string {
	if c.Untaken == nil {
		return ""
	}
	return c.Untaken()
}
