package comm

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
	Kinds     // how many there are
)

var kindNames = [Kinds]string{
	"Invalid", "AllReduce", "Reduce", "AllGather", "AllGatherV", "Gather", "GatherV", "Scatter", "ScatterV",
	"ReduceScatter", "ReduceScatterV", "AllToAll", "AllToAllV", "Broadcast", "Barrier", "Send", "Recv", "Split",
}

// String returns the name of the function, "AllReduce" for instance.
func (k Kind) String() string {
	if k < Kinds {
		return kindNames[k]
	}
	return kindNames[Invalid]
}

// Valid reports whether k is one of the kinds above, Invalid and Kinds excepted.
func (k Kind) Valid() bool { return k > Invalid && k < Kinds }

// Sets of kinds, a bit each.
const (
	reducing = 1<<AllReduceKind | 1<<ReduceKind | 1<<ReduceScatterKind | 1<<ReduceScatterVKind
	rooted   = 1<<ReduceKind | 1<<GatherKind | 1<<GatherVKind | 1<<ScatterKind | 1<<ScatterVKind | 1<<BroadcastKind
)

// Reduces reports whether a call of kind k has an operation.
func (k Kind) Reduces() bool { return reducing>>k&1 != 0 }

// Rooted reports whether a call of kind k has a root.
func (k Kind) Rooted() bool { return rooted>>k&1 != 0 }

// PointToPoint reports whether k is Send or Recv, which two ranks alone take part in.
func (k Kind) PointToPoint() bool { return k == SendKind || k == RecvKind }
