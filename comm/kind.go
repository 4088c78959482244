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

// Reduces reports whether a call of kind k has an operation.
func (k Kind) Reduces() bool {
	return k == AllReduceKind || k == ReduceKind || k == ReduceScatterKind || k == ReduceScatterVKind
}

// Rooted reports whether a call of kind k has a root.
func (k Kind) Rooted() bool {
	switch k {
	case ReduceKind, GatherKind, GatherVKind, ScatterKind, ScatterVKind, BroadcastKind:
		return true
	}
	return false
}

// PointToPoint reports whether k is Send or Recv, which two ranks alone take part in.
func (k Kind) PointToPoint() bool { return k == SendKind || k == RecvKind }
