package dtensor

import (
	"fmt"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// empty is the shard of a result on a rank outside the mesh.
func (m *Mesh) empty(s *spec, dt tensor.DType) *Tensor {
	return wrap(s, tensor.New(m.eng.dev, dt, s.local...))
}

// part is a result of a layout and a type, of which f computes this rank's shard if it is in the mesh.
func (m *Mesh) part(s *spec, dt tensor.DType, f func() *tensor.Tensor) *Tensor {
	if m.outside() {
		return m.empty(s, dt)
	}
	return wrap(s, f())
}

// constant returns the tensor that every rank holds as a whole.
func (m *Mesh) constant(op string, whole *tensor.Tensor) *Tensor {
	return m.part(m.shapeSpec(op, whole.Shape()), whole.DType(), func() *tensor.Tensor { return whole })
}

// outside reports whether this rank holds no part of the mesh: operators then
// work out layouts and errors, and compute nothing.
func (m *Mesh) outside() bool { return m.coord == nil }

// sameMesh throws unless the operands are there and on one mesh.
func sameMesh(op string, ts ...*Tensor) *Mesh {
	for i, t := range ts {
		if t == nil || t.spec == nil {
			refuse(op, fmt.Sprintf("operand %d is nil", i), "give a tensor")
		}
		if t.spec.mesh != ts[0].spec.mesh {
			remedy := "move one of them with To"
			if t.spec.mesh.parent != ts[0].spec.mesh.parent { // which To refuses
				remedy = fromSub
			}
			refuse(op, fmt.Sprintf("operand %d is on mesh %v, operand 0 on another, %v", i, t.spec.mesh, ts[0].spec.mesh),
				remedy, operand("operand 0", ts[0]), operand(fmt.Sprintf("operand %d", i), t))
		}
	}
	return ts[0].spec.mesh
}

// sameType throws unless the operands have elements of one type.
func sameType(op string, ts ...*Tensor) {
	for i, t := range ts {
		if t.DType() == ts[0].DType() {
			continue
		}
		list := make([]Operand, len(ts))
		for k, t := range ts {
			list[k] = operand(fmt.Sprintf("operand %d", k), t)
		}
		refuse(op, fmt.Sprintf("operand %d holds %v, operand 0 %v", i, t.DType(), ts[0].DType()), "Cast one of them", list...)
	}
}

// wantIndex throws unless the tensor holds integers.
func wantIndex(op string, index *Tensor) {
	if !index.DType().Int() {
		refuse(op, "the index holds "+index.DType().String(), "Cast it to Int64", operand("index", index))
	}
}

// dim normalises a dimension that may count from the end; it throws if it is
// out of range.
func (t *Tensor) dim(op string, d int) int {
	n := len(t.there(op).spec.shape)
	if d < -n || d >= n {
		refuse(op, fmt.Sprintf("dim %d is out of range [%d, %d)", d, -n, n), "", operand("input", t))
	}
	if d < 0 {
		d += n
	}
	return d
}

// lift returns t, or a tensor without dimensions as one of one dimension of size 1:
// where an operator asks for a dimension it may be called 0 or -1, as in PyTorch.
func (t *Tensor) lift() *Tensor {
	if t.NDim() > 0 {
		return t
	}
	return t.Reshape(1)
}

// dims normalises a list of dimensions to a set, all for an empty list. Of a tensor
// without dimensions the set is empty and the list may say 0 or -1.
func (t *Tensor) dims(op string, list []int) (mask int) {
	if t.NDim() == 0 {
		if len(list) > 0 {
			t.lift().dims(op, list)
		}
		return 0
	}
	if len(list) == 0 {
		return 1<<t.NDim() - 1
	}
	for _, d := range list {
		d = t.dim(op, d)
		if mask>>d&1 != 0 {
			refuse(op, fmt.Sprintf("dim %d is named twice in %v", d, list), "name each once", operand("input", t))
		}
		mask |= 1 << d
	}
	return mask
}

// abort ends the communicator of the mesh and throws err: for an error that
// this rank alone can see, in an operator without communication.
func (m *Mesh) abort(err error) {
	if m.all != nil {
		m.all.Abort(err)
	}
	fault.Throw(err)
}

// BufferOf returns the memory of a tensor as collectives take it. The tensor must
// stay reachable for as long as the call lasts: see runtime.KeepAlive of Go.
func BufferOf(t *tensor.Tensor) comm.Buffer {
	return comm.Buffer{Ptr: t.Ptr(), Count: t.Numel(), DType: t.DType()}
}

var commOps = [...]comm.Op{layout.Sum: comm.Sum, layout.Avg: comm.Avg, layout.Prod: comm.Prod, layout.Min: comm.Min, layout.Max: comm.Max,
	layout.Nodes: comm.Sum}

func commOp(op layout.ReduceOp) comm.Op { return commOps[op] }
