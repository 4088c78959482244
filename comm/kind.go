package comm

import "github.com/gorun-spmd/gorun/comm/backend"

// A Kind says which collective a Call is.
type Kind = backend.Kind

// The kinds. The zero Kind is invalid, so that a forgotten one is noticed.
const (
	Invalid            = backend.Invalid
	AllReduceKind      = backend.AllReduceKind
	ReduceKind         = backend.ReduceKind
	AllGatherKind      = backend.AllGatherKind
	AllGatherVKind     = backend.AllGatherVKind
	GatherKind         = backend.GatherKind
	GatherVKind        = backend.GatherVKind
	ScatterKind        = backend.ScatterKind
	ScatterVKind       = backend.ScatterVKind
	ReduceScatterKind  = backend.ReduceScatterKind
	ReduceScatterVKind = backend.ReduceScatterVKind
	AllToAllKind       = backend.AllToAllKind
	AllToAllVKind      = backend.AllToAllVKind
	BroadcastKind      = backend.BroadcastKind
	BarrierKind        = backend.BarrierKind
	SendKind           = backend.SendKind
	RecvKind           = backend.RecvKind
	SplitKind          = backend.SplitKind // the exchange that begins a Split or Group
	ScanKind           = backend.ScanKind
	ExscanKind         = backend.ExscanKind
	PutKind            = backend.PutKind // the calls on a window: see package comm/window
	GetKind            = backend.GetKind
	AccumulateKind     = backend.AccumulateKind
	FetchAndOpKind     = backend.FetchAndOpKind // and CompareAndSwap
	LockKind           = backend.LockKind
	TaggedSendKind     = backend.TaggedSendKind // the calls of package comm/message
	TaggedRecvKind     = backend.TaggedRecvKind
	TaggedProbeKind    = backend.TaggedProbeKind
	Kinds              = backend.Kinds // how many there are
)

// AnyRank and AnyTag are the Root and the Tag of a tagged receive that takes a message of any.
const (
	AnyRank = backend.AnyRank
	AnyTag  = backend.AnyTag
)
