package comm

import "github.com/gorun-spmd/gorun/comm/backend"

// A Call is one collective as data: what AllReduce and the other functions build, and Do and Start carry out. A
// program sets the fields that its kind has:
//
//	Kind                  AllReduceKind, for instance
//	Op, Func              the operation of a reduction, and the Func if that is Custom
//	Root                  the root, the receiver of a Send, the sender of a Recv
//	Dst, Src              the buffers, see Of
//	DstCounts, SrcCounts  elements of each rank's part
//	DstRows, SrcRows      above 1, the parts are columns of a matrix with this number of rows
//	Cause                 what made the call, for statistics and traces
//
// The documentation of backend.Call says which kind has which, how long the buffers are, and what the other fields are.
type Call = backend.Call

// A Backend is one rank's end of a group, as an implementer sees it.
type Backend = backend.Backend

// A Func is a user-defined reduction on elements of one Go type, a small
// struct without pointers for instance. The zero Func is not valid: use NewFunc.
type Func = backend.Func
