package checkpoint

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

func (t *namedTensor) dtype() tensor.DType {
	if t.shards != nil {
		return t.shards.DType()
	}
	return t.tensor.DType()
}

func (t *namedTensor) shape() []int {
	if t.shards != nil {
		s := t.shards.Shape()
		return s[:]
	}
	return t.tensor.Shape()
}

func (t *namedTensor) mesh() *dtensor.Mesh {
	if t.shards != nil {
		return t.shards.Mesh()
	}
	return t.tensor.Mesh()
}

// layout describes how t lies, to read, in words that every rank has, those
// outside the mesh too.
func (t *namedTensor) layout() string {
	if t.shards != nil {
		return "shards on " + t.mesh().String()
	}
	return t.tensor.Layout().String() + " on " + t.mesh().String()
}

// A localPart is a box of a tensor that this rank holds.
type localPart struct {
	box  box
	data *tensor.Tensor
	rows dtensor.Stored // that has them; nil: data
}

// parts returns what this rank holds of t, without empty boxes. It throws if t's
// memory is gone.
func (t *namedTensor) parts() []localPart {
	if t.shards == nil {
		b, ok := local(t.tensor)
		if !ok {
			return nil
		}
		rows, _ := t.stored()
		return []localPart{{b, t.tensor.Local(), rows}}
	}
	var list []localPart
	for _, s := range t.shards.Shards() {
		if s.Data.Numel() > 0 {
			list = append(list, localPart{box{[]int{s.Offset[0], s.Offset[1]}, s.Data.Shape()}, s.Data, nil})
		}
	}
	return list
}

// boxes returns the boxes of parts.
func (t *namedTensor) boxes() []box {
	if t.shards == nil {
		if b, ok := local(t.tensor); ok {
			return []box{b}
		}
		return nil
	}
	var list []box
	for _, p := range t.parts() {
		list = append(list, p.box)
	}
	return list
}

// local returns the box of t that this rank holds; ok is false if it is empty.
func local(t *dtensor.Tensor) (b box, ok bool) {
	offset, ok := t.Offset()
	if !ok {
		return box{}, false
	}
	b = box{offset, t.LocalShape()}
	return b, b.numel() > 0
}

// hostBytes returns the memory of a tensor, which has elements; ok is false if
// the process cannot touch it.
func hostBytes(x *tensor.Tensor) (b []byte, ok bool) {
	if !tensor.OnHost(x.Device()) {
		return nil, false
	}
	return unsafe.Slice((*byte)(x.Ptr()), x.Bytes()), true
}

// castElems is how many elements are converted at a time.
const castElems = 1 << 20

// fillFrom copies bytes, elements of type dt, into x. It throws an error if x is of integers or Bool and an element is none of them.
func fillFrom(x *tensor.Tensor, b []byte, dt tensor.DType) {
	if dt == x.DType() {
		x.Device().FromHost(x.Ptr(), unsafe.Pointer(&b[0]), len(b))
		return
	}
	flat := x.Reshape(x.Numel())
	for at := 0; at < x.Numel(); at += castElems {
		n := min(castElems, x.Numel()-at)
		saved := tensor.New(x.Device(), dt, n)
		x.Device().FromHost(saved.Ptr(), unsafe.Pointer(&b[at*dt.Size()]), n*dt.Size())
		cast := tensor.Cast(saved, x.DType())
		if !x.DType().Float() {
			checkWhole(saved, cast)
		}
		tensor.CopyBox(flat, []int{at}, cast, []int{0}, []int{n})
	}
}

// checkWhole throws an error if an element has lost something in cast, its conversion to integers or Bool.
func checkWhole(saved, cast *tensor.Tensor) {
	as := saved.DType()
	if !as.Float() {
		as = tensor.Int64
	}
	before, after := tensor.Cast(saved, as), tensor.Cast(cast, as)
	if i := slices.Index(tensor.ToSlice[bool](tensor.Compare(kernel.OpNe, before, after)), true); i >= 0 {
		one := tensor.ToSlice[float64](tensor.Cast(tensor.Narrow(saved, 0, i, 1), tensor.Float64))[0]
		fault.Throw(fmt.Errorf("it has %v there, of %v, and would have %v here, of %v; load it into a tensor of %[2]v, and Cast that",
			one, saved.DType(), tensor.ToSlice[float64](tensor.Cast(tensor.Narrow(cast, 0, i, 1), tensor.Float64))[0], cast.DType()))
	}
}
