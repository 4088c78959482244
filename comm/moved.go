package comm

import "github.com/gorun-spmd/gorun/comm/backend"

// What follows is for backends, which import package backend from here on.
type (
	Attrs             = backend.Attrs
	CommonBackend     = backend.CommonBackend
	DeviceBackend     = backend.DeviceBackend
	DeviceHolder      = backend.DeviceHolder
	Fingerprint       = backend.Fingerprint
	HostBackend       = backend.HostBackend
	Layout            = backend.Layout
	MessageBackend    = backend.MessageBackend
	NumberlessBackend = backend.NumberlessBackend
	PacketBackend     = backend.PacketBackend
	Packets           = backend.Packets
	Part              = backend.Part
	Party             = backend.Party
	Pattern           = backend.Pattern
	Prefixes          = backend.Prefixes
	RemoteMemory      = backend.RemoteMemory
	Root              = backend.Root
	RowBackend        = backend.RowBackend
	SendRecvBackend   = backend.SendRecvBackend
	Shape             = backend.Shape
	SharedBackend     = backend.SharedBackend
	WindowBackend     = backend.WindowBackend
	WindowMemory      = backend.WindowMemory
)

const (
	NoPattern            = backend.NoPattern
	PatternBarrier       = backend.PatternBarrier
	PatternMessage       = backend.PatternMessage
	PatternWindow        = backend.PatternWindow
	PatternTagged        = backend.PatternTagged
	PatternMove          = backend.PatternMove
	PatternReduce        = backend.PatternReduce
	PatternReduceScatter = backend.PatternReduceScatter
	PatternScan          = backend.PatternScan
	Unused               = backend.Unused
	Whole                = backend.Whole
	Parts                = backend.Parts
	Counted              = backend.Counted
	NoRoot               = backend.NoRoot
	RootReceives         = backend.RootReceives
	RootSends            = backend.RootSends
	RootShares           = backend.RootShares
)

var (
	Cancelled  = backend.Cancelled
	Contiguous = backend.Contiguous
	CopyParts  = backend.CopyParts
	Late       = backend.Late
	Mismatch   = backend.Mismatch
)
