package embedding

import (
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// Fuse makes the backward pass update the table itself: as soon as the gradients
// of all its lookups have arrived, update gets their sum and changes the rows. No
// gradient of the table is returned or kept, and no further pass over the tables
// is needed. With an optimizer of this table alone it is
//
//	opt := optim.NewRowAdagrad([]*dtensor.Tensor{table.Weight()}, optim.RowAdagradConfig{})
//	table.Fuse(func(rows *dtensor.Rows) error { return opt.Step([]dtensor.Grad{dtensor.Sparse(rows)}, rate) })
//	...
//	value, grads, err := dtensor.ValueAndGrad(ctx, forward, table.Param(), head)
//
// and gives the same bits as a step after ValueAndGrad. What to know:
//
//   - Pass Param, not Weight, to ValueAndGrad; the gradient of Param is one zero. With Weight alone a lookup throws an *Error.
//   - The table changes during ValueAndGrad. If that returns an error, it may have
//     changed or not: go back to a checkpoint. optim.ClipGradNorm and the Clip of a train.Run
//     pass over the table, for its gradient is gone when the norm is known; FusedOptimizer.MaxGradient bounds it
//     element by element. A loss that an optim.Scaler has scaled is refused.
//   - A table whose lookups the value does not depend on is not updated.
//   - Each function of dtensor.Accumulate updates the table.
//   - Lookups are to be outside of dtensor.Recompute: inside they are refused.
//   - Lookups through the table or its Collection are fused; the functions Lookup
//     and Bag on Weight know nothing of it.
//
// Fuse keeps the rows: they outlive every scope, as what an optimizer remembers of them does.
//
// An error of update ends ValueAndGrad with that error. A nil update undoes Fuse.
// Fuse throws an *Error for a table that is Partial.
func (t *Table) Fuse(update func(rows *dtensor.Rows) error) {
	t.fused = nil
	if t.weight.Layout().IsPartial() {
		refuse("Fuse", "%v is a sum of what the ranks hold; redistribute it to Replicate or Shard", t)
	}
	if update != nil && t.stored != nil && !t.stored.followed {
		refuse("Fuse", "%s has a Store, and what its optimizer remembers of rows has to go there with them; call Follow(opt.State()) before",
			t.stored.name)
	}
	if update != nil {
		mesh := t.weight.Mesh()
		handle := dtensor.Zeros(mesh, tensor.Float32, []int{1}, mesh.Every(layout.Replicate())...)
		handle.Local().Persist()
		t.weight.Local().Persist()
		t.fused = &fused{handle: handle, update: update}
	}
}

// Param returns what to pass to ValueAndGrad: the rows, or if the table is fused
// a tensor of one zero that stands for them.
func (t *Table) Param() *dtensor.Tensor {
	if t.fused != nil {
		return t.fused.handle
	}
	return t.weight
}

// A fused table gathers the gradients of its lookups in one backward pass. The
// gate is an operator on the handle, recorded before the first lookup, which all
// lookups depend on: the tape comes to it when all of them have been.
type fused struct {
	handle  *dtensor.Tensor
	update  func(rows *dtensor.Rows) error
	gate    *dtensor.Tensor // of the tape of the last lookup
	arrived []*dtensor.Rows
}

// input returns what a lookup in the table is recorded to depend on.
func (t *Table) input() *dtensor.Tensor {
	f := t.fused
	if (f != nil || t.keys) && t.weight.Mesh().Replaying() && dtensor.Tracked(t.Param()) {
		refuse("Lookup", "%v is looked up in Recompute, which hides that it is trained; look it up before, and pass Recompute the rows", t)
	}
	if f == nil {
		if t.stored != nil && dtensor.Tracked(t.weight) {
			refuse("Lookup", "%s has a Store, and no optimizer changes its rows after the backward pass; Fuse one and pass Param to ValueAndGrad",
				t.stored.name)
		}
		return t.weight
	}
	switch {
	case !dtensor.Tracked(f.handle):
		if dtensor.Tracked(t.weight) {
			refuse("Lookup", "%v is fused, and ValueAndGrad got its Weight, so nothing would train it; pass its Param, or undo Fuse", t)
		}
		return f.handle
	case f.gate != nil && dtensor.Tracked(f.gate):
		return f.gate
	}
	f.arrived = nil
	f.gate = dtensor.Record("Fuse", f.handle.Detach(), []*dtensor.Tensor{f.handle}, func(*dtensor.Tensor) []dtensor.Grad {
		rows := dtensor.SumRows(f.arrived...)
		f.gate, f.arrived = nil, nil
		if by := t.weight.Mesh().LossScale(); by != 1 {
			refuse("Fuse", "the loss is multiplied by %v, and so is the gradient with which %v would be changed before an optim.Scaler sees it; "+
				"undo Fuse, or train without a Scaler", by, t)
		}
		var err error
		if t.stored != nil {
			err = t.stored.update("Fuse", rows, f.update)
		} else {
			err = f.update(rows)
		}
		if err != nil {
			fault.Throw(err)
		}
		return []dtensor.Grad{{}}
	})
	return f.gate
}

// take returns the gradient of what input returned, given that of the rows.
func (t *Table) take(rows *dtensor.Rows) dtensor.Grad {
	if t.fused == nil {
		return dtensor.Sparse(rows)
	}
	t.fused.arrived = append(t.fused.arrived, rows)
	return dtensor.Dense(t.fused.handle.Detach())
}
