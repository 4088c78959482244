// Package layout says how a tensor lies on a mesh of ranks, and plans how to
// change that. It is pure: it sends nothing, reads no clock, knows no rank of its own, and
// imports of this module arithmetic alone, so it can be tested by the million.
//
// The primary type is Layout: a global shape and one Placement for each axis of
// a mesh. Placements are R (Replicate: each rank along the axis holds the whole),
// S(0) (Shard: each a block of dimension 0), P(sum) (Partial: each an addend) and
// MaskP (MaskPartial: rows of a sharded table, each with one owner).
//
//	axes, err := layout.NewAxes(layout.Axis{Name: "data", Size: 2}, layout.Axis{Name: "model", Size: 2})
//	from, err := layout.New(axes, []int{5, 4}, layout.Shard(0), layout.Shard(0)) // [5, 4] S(0),S(0)
//	to, err := layout.New(axes, []int{5, 4}, layout.Replicate(), layout.Shard(0))
//	plan, err := layout.NewPlan(from, to, 4, layout.Costs{})
//	fmt.Println(plan) // 1. data,model: S(0),S(0) → R,S(0)   exchange
//
// # Shards
//
// [B, T, C] is always a global shape; after it stands one placement for each
// mesh axis: [B, C] S(0),R. A dimension of size s over n ranks is split as
// torch.chunk splits it, into blocks of ceil(s/n), the last ones shorter or empty;
// ShardSizes gives the sizes one by one. ShardCyclic, printed C(0), deals rows out in turn:
// there Layout.Span and Layout.Offset count the rows rank by rank. A mesh axis further to the right splits what
// the ones to its left left over. Layout.LocalShape and Layout.Offset say which
// box of the global tensor the rank at a coordinate holds.
//
// # Plans
//
// NewPlan returns the steps from one layout to another: at most one collective
// each, the same on every rank. Whoever carries a step out asks Step.Sends and
// Step.Recvs which boxes pass between two ranks. Across does the same between
// two meshes.
//
// # Rules
//
// A Rule says which placements of its inputs an operator takes, axis by axis, and
// what placement its result then has. Choose finds the row of least cost for the
// layouts at hand. Contraction, Pointwise, Reduction and the others declare the
// rules of whole families; views (Reshape, Permute, Narrow, and so on) are functions
// from layout to layout.
//
// All values here are immutable, and those that name things (Placement, Axes,
// Layout, Costs) can be compared with == and used as map keys: whoever calls
// NewPlan or Choose often keeps the answers in a map.
package layout
