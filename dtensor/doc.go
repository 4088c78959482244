// Package dtensor spreads tensors over the ranks of a mesh and computes with
// them as if each were whole.
//
// The primary type is Tensor: a global shape, one placement for each axis of a
// Mesh (R, S(0), P(sum), MaskP: see package layout), and this rank's part. An
// operator accepts any placements and gives what the unsharded operator would;
// where parts have to move it moves as little as it can.
//
//	mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: 2}, dtensor.Axis{Name: "tp", Size: 2})
//	...
//	R, S := layout.Replicate(), layout.Shard
//	up := dtensor.Normal(mesh, key, 0, 0.02, []int{4 * C, C}, R, S(0))  // [4C, C] R,S(0)
//	down := dtensor.Normal(mesh, key, 0, 0.02, []int{C, 4 * C}, R, S(1)) // [C, 4C] R,S(1)
//	loss, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
//		h := x.Linear(up, nil).Gelu()        // [B, 4C] S(0),S(1)   nothing is communicated
//		y := h.Linear(down, nil).Reduced()   // [B, C]  S(0),P → R  one all-reduce over tp
//		return y.Sub(t).Square().Mean(nil, false)
//	}, up, down) // the sums over dp of both gradients: one all-reduce
//
// # Your duties
//
// Every rank of a mesh runs the same program: the same operators on tensors of
// the same global shapes and placements, in the same order. That is all that
// keeps collectives matched, since which ones an operator needs follows from
// those facts alone. A rank outside the mesh may run the program too; its
// tensors are empty and it communicates nothing.
//
// # Errors
//
// Math throws: a *LayoutError for operands that do not fit together, a
// *tensor.ShapeError, a *comm.Error of a collective. ValueAndGrad and Try turn
// what is thrown inside them into an ordinary error, whose text ends in the line
// of the program that led to it; errors.As finds the types. A LayoutError comes
// from global facts, so every rank gets the same one at the same call and the
// group stays usable. Throw and Check do the same with an error of the program.
//
// # Checks
//
// Two things that no rank sees by itself are checked on request, for they cost time.
// GORUN_CHECK=1 compares what ranks say is the same: see CheckReplicas.
// GORUN_DETECT_ANOMALY=1 names the operator that makes the first NaN or infinity: see
// DetectAnomaly.
//
// # Gradients
//
// An operator is recorded if an operand depends on a parameter of the running
// ValueAndGrad. Gradients are global tensors like any other, so they have
// layouts of their own: that of a sharded value is sharded alike, that of a
// Partial value is Replicate, and that of a replicated value may be Partial
// until somebody needs the sum. The gradient of Redistribute is therefore no
// operator at all.
//
// # Memory
//
// What is allocated inside ValueAndGrad or Try goes back when it returns,
// except results, gradients and what was passed to Keep.
//
// # Where to look
//
// mesh.go and group.go make communicators, spec.go and rule.go look up what
// package layout decides, redistribute.go carries plans out, tape.go and
// grad.go differentiate. Each op_*.go has a family of operators: the table of
// layouts, the forward and the gradient beside it.
package dtensor
