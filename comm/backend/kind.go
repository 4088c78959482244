package backend

import (
	"fmt"
	"math"
)

// A Kind says which collective a Call is.
type Kind uint8

// The zero Kind is invalid, so that a forgotten one is noticed.
const (
	Invalid Kind = iota
	AllReduceKind
	ReduceKind
	AllGatherKind
	AllGatherVKind
	GatherKind
	GatherVKind
	ScatterKind
	ScatterVKind
	ReduceScatterKind
	ReduceScatterVKind
	AllToAllKind
	AllToAllVKind
	BroadcastKind
	BarrierKind
	SendKind
	RecvKind
	SplitKind // the exchange that begins a Split or Group: an AllGather by another name
	ScanKind
	ExscanKind
	PutKind // the calls on a window, which one rank makes alone: see package comm/window
	GetKind
	AccumulateKind
	FetchAndOpKind // and CompareAndSwap
	LockKind
	TaggedSendKind // the calls of package comm/message
	TaggedRecvKind
	TaggedProbeKind
	Kinds // how many there are
)

// A Pattern is what a kind of call does with the ranks' elements. Backends are written
// for patterns: each refuses a call of a pattern that it does not know, see Call.Carried.
type Pattern uint8

// The patterns. That of a Kind without a row is NoPattern.
const (
	NoPattern            Pattern = iota
	PatternBarrier               // nothing moves: ranks wait for each other
	PatternMessage               // elements of one rank go to another; no other rank takes part
	PatternWindow                // one rank alone makes the call, on a window; no backend's Do carries it out
	PatternTagged                // one rank alone makes the call, on a mailbox; no backend's Do carries it out
	PatternMove                  // parts of the ranks' sources go to parts of the ranks' results
	PatternReduce                // results are folds of all ranks' sources
	PatternReduceScatter         // rank r's result is the fold of part r of all ranks' sources
	PatternScan                  // rank r's result is the fold of the sources of ranks 0 to r, see Shape.Below
)

// A Layout is how a buffer of a call is divided.
type Layout uint8

// The layouts.
const (
	Unused  Layout = iota // there is no such buffer
	Whole                 // it is one part
	Parts                 // a part for each rank, all of one length
	Counted               // a part for each rank, of the lengths in DstCounts or SrcCounts
)

// A Root says in what the root of a call differs from the other ranks.
type Root uint8

// The roots.
const (
	NoRoot       Root = iota
	RootReceives      // Dst is used on the root alone
	RootSends         // Src is used on the root alone
	RootShares        // the root's Dst is what the other ranks receive
)

// A Shape is what calls of one kind have in common.
type Shape struct {
	Pattern  Pattern
	Dst, Src Layout
	Root     Root
	InPlace  bool // Dst and Src may be the same memory
	Agreed   bool // all ranks give the same counts
	Below    bool // a PatternScan folds the sources of ranks 0 to r-1 alone
}

// shapes is the table of the collectives: checks, fingerprints, and who sends what to
// whom derive from it. It has an entry for each value of a Kind, so that Shape compares nothing.
var shapes = [math.MaxUint8 + 1]struct {
	name string
	Shape
}{
	Invalid:            {"Invalid", Shape{}},
	AllReduceKind:      {"AllReduce", Shape{Pattern: PatternReduce, Dst: Whole, Src: Whole, InPlace: true}},
	ReduceKind:         {"Reduce", Shape{Pattern: PatternReduce, Dst: Whole, Src: Whole, Root: RootReceives}},
	AllGatherKind:      {"AllGather", Shape{Pattern: PatternMove, Dst: Parts, Src: Whole}},
	AllGatherVKind:     {"AllGatherV", Shape{Pattern: PatternMove, Dst: Counted, Src: Whole, Agreed: true}},
	GatherKind:         {"Gather", Shape{Pattern: PatternMove, Dst: Parts, Src: Whole, Root: RootReceives}},
	GatherVKind:        {"GatherV", Shape{Pattern: PatternMove, Dst: Counted, Src: Whole, Root: RootReceives}},
	ScatterKind:        {"Scatter", Shape{Pattern: PatternMove, Dst: Whole, Src: Parts, Root: RootSends}},
	ScatterVKind:       {"ScatterV", Shape{Pattern: PatternMove, Dst: Whole, Src: Counted, Root: RootSends}},
	ReduceScatterKind:  {"ReduceScatter", Shape{Pattern: PatternReduceScatter, Dst: Whole, Src: Parts}},
	ReduceScatterVKind: {"ReduceScatterV", Shape{Pattern: PatternReduceScatter, Dst: Whole, Src: Counted, Agreed: true}},
	AllToAllKind:       {"AllToAll", Shape{Pattern: PatternMove, Dst: Parts, Src: Parts}},
	AllToAllVKind:      {"AllToAllV", Shape{Pattern: PatternMove, Dst: Counted, Src: Counted}},
	BroadcastKind:      {"Broadcast", Shape{Pattern: PatternMove, Dst: Whole, Root: RootShares}},
	BarrierKind:        {"Barrier", Shape{Pattern: PatternBarrier}},
	SendKind:           {"Send", Shape{Pattern: PatternMessage, Src: Whole}},
	RecvKind:           {"Recv", Shape{Pattern: PatternMessage, Dst: Whole}},
	SplitKind:          {"Split", Shape{Pattern: PatternMove, Dst: Parts, Src: Whole}},
	ScanKind:           {"Scan", Shape{Pattern: PatternScan, Dst: Whole, Src: Whole, InPlace: true}},
	ExscanKind:         {"Exscan", Shape{Pattern: PatternScan, Dst: Whole, Src: Whole, InPlace: true, Below: true}},
	PutKind:            {"Put", Shape{Pattern: PatternWindow, Src: Whole}},
	GetKind:            {"Get", Shape{Pattern: PatternWindow, Dst: Whole}},
	AccumulateKind:     {"Accumulate", Shape{Pattern: PatternWindow, Src: Whole}},
	FetchAndOpKind:     {"FetchAndOp", Shape{Pattern: PatternWindow, Src: Whole}},
	LockKind:           {"Lock", Shape{Pattern: PatternWindow}},
	TaggedSendKind:     {"message.Send", Shape{Pattern: PatternTagged, Src: Whole}},
	TaggedRecvKind:     {"message.Recv", Shape{Pattern: PatternTagged, Dst: Whole}},
	TaggedProbeKind:    {"message.Probe", Shape{Pattern: PatternTagged}},
}

// String returns the name of the function, "AllReduce" for instance.
func (k Kind) String() string {
	if k < Kinds {
		return shapes[k].name
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Valid reports whether k is one of the kinds above, Invalid and Kinds excepted.
func (k Kind) Valid() bool { return k > Invalid && k < Kinds }

// Shape returns what calls of kind k have in common, the zero Shape if k is not Valid. It
// is not to be changed: a copy would take a good part of the time of a small collective.
func (k Kind) Shape() *Shape { return &shapes[k].Shape }

// Reduces reports whether a call of kind k has an operation.
func (k Kind) Reduces() bool { return k.Shape().Pattern >= PatternReduce }

// Rooted reports whether a call of kind k has a root.
func (k Kind) Rooted() bool { return k.Shape().Root != NoRoot }

// PointToPoint reports whether k is Send or Recv, which two ranks alone take part in.
func (k Kind) PointToPoint() bool { return k.Shape().Pattern == PatternMessage }

// OneSided reports whether one rank makes a call of kind k alone, on a window.
func (k Kind) OneSided() bool { return k.Shape().Pattern == PatternWindow }

// Tagged reports whether k is a call of package comm/message.
func (k Kind) Tagged() bool { return k.Shape().Pattern == PatternTagged }

// AnyRank and AnyTag are the Root and the Tag of a tagged receive that takes a message of any.
const (
	AnyRank = -1
	AnyTag  = -1
)

// Pairwise reports whether only the sender and the receiver of a part know its length.
func (s Shape) Pairwise() bool { return (s.Dst == Counted || s.Src == Counted) && !s.Agreed }

// gets reports whether rank me gets a result in a call with this root.
func (s Shape) gets(me, root int) bool { return s.Root != RootReceives || me == root }

// Folds returns how many ranks' sources are folded into rank me's Dst, in a call of size
// ranks: those of rank 0 and the next ones, as Fold folds them. It is 0 if Dst is not used.
func (c *Call) Folds(me, size int) int {
	switch s := c.Kind.Shape(); {
	case s.Pattern == PatternScan && s.Below:
		return me
	case s.Pattern == PatternScan:
		return me + 1
	case s.Pattern < PatternReduce || !s.gets(me, c.Root):
		return 0
	}
	return size
}

// Fills reports whether rank me of size has a result in Dst.
func (c *Call) Fills(me, size int) bool {
	if c.Kind.Reduces() {
		return c.Folds(me, size) > 0
	}
	return c.Kind.Shape().gets(me, c.Root)
}

// Carried returns an error that names c's kind if its pattern is not in patterns, which has
// the bit 1<<p for each pattern p. A Backend's Do calls it first, with the patterns that it
// carries out, so that a call of any other pattern is refused.
func (c *Call) Carried(backend string, patterns uint32) error {
	if patterns>>c.Kind.Shape().Pattern&1 != 0 {
		return nil
	}
	return c.unknown(backend)
}

// unknown is the error of code that was not written for calls of c's kind.
func (c *Call) unknown(where string) error {
	return fmt.Errorf("%s carries out no %v; use one of the kinds of package comm, or write what is missing there", where, c.Kind)
}
