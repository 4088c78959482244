package nn

import (
	"fmt"
	"iter"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// Params lists the parameters of a layer with their names, such as
// "attention.q.weight", in a fixed order that is the same on every rank.
type Params = iter.Seq2[string, *dtensor.Tensor]

// A Layer has parameters.
type Layer interface{ Params() Params }

// A Module is a Layer that maps one tensor to one.
type Module interface {
	Layer
	Forward(x *dtensor.Tensor) *dtensor.Tensor
}

// Tensors returns the parameters in order, as dtensor.ValueAndGrad and the optimizers take
// them.
func Tensors(params Params) []*dtensor.Tensor {
	var list []*dtensor.Tensor
	for _, p := range params {
		list = append(list, p)
	}
	return list
}

// A Parameter is one tensor as a Layer, as torch.nn.Parameter is: the token of a class, a temperature. Join gives it the name.
//
//	nn.Join([]string{"patch", "token", "blocks"}, m.patch, nn.Parameter{Value: m.token}, m.blocks) // "token", and not "token.weight"
type Parameter struct{ Value *dtensor.Tensor }

// Params lists the tensor, without a name.
func (p Parameter) Params() Params {
	return func(yield func(string, *dtensor.Tensor) bool) { yield("", p.Value) }
}

// A Buffered layer has tensors that are no parameters and that a checkpoint needs, such as the running averages of a
// BatchNorm. A List and a Sequential have those of their layers.
type Buffered interface {
	Layer
	Buffers() Params
}

// Join lists the parameters of several layers, each under its name, a dot and its
// layer's own, without the dot where one of these is empty. names and layers are of
// one length.
func Join(names []string, layers ...Layer) Params { return join("Join", names, layers, Layer.Params) }

// JoinBuffers lists the buffers of those of the layers that are Buffered, as Join lists parameters:
//
//	func (m *model) Params() nn.Params  { return nn.Join(names, m.stem, m.norm) }
//	func (m *model) Buffers() nn.Params { return nn.JoinBuffers(names, m.stem, m.norm) }
func JoinBuffers(names []string, layers ...Layer) Params {
	return join("JoinBuffers", names, layers, func(l Layer) Params {
		if b, ok := l.(Buffered); ok {
			return b.Buffers()
		}
		return Func(nil).Params()
	})
}

// join lists what of returns of each layer.
func join(call string, names []string, layers []Layer, of func(Layer) Params) Params {
	if len(names) != len(layers) {
		fault.Throw(fmt.Errorf("nn: %s: %d names for %d layers; give one for each", call, len(names), len(layers)))
	}
	return func(yield func(string, *dtensor.Tensor) bool) {
		for i, l := range layers {
			if l == nil {
				fault.Throw(fmt.Errorf("nn: layer %q is nil; give a layer, or leave it and its name out", names[i]))
			}
			for name, p := range of(l) {
				dot := "."
				if names[i] == "" || name == "" {
					dot = ""
				}
				if !yield(names[i]+dot+name, p) {
					return
				}
			}
		}
	}
}

// An Init makes parameters: each draws from a stream of its own, in the order
// in which they are made.
type Init struct {
	// DType is the type of the parameters made from now on: Float32, Float64 or BFloat16; 0
	// stands for Float32. See the package's section on types.
	DType tensor.DType

	mesh   *dtensor.Mesh
	seed   uint64
	stream uint64
}

// NewInit returns an Init for parameters on the mesh.
func NewInit(mesh *dtensor.Mesh, seed uint64) *Init { return &Init{mesh: mesh, seed: seed} }

// Normal makes a parameter of normal numbers with mean 0, drawn in float32 and cast to
// DType. It is placed by p on the named axis and replicated on the others, or on all if the
// name is empty.
func (in *Init) Normal(std float64, shape []int, axis string, p layout.Placement) *dtensor.Tensor {
	return in.drawn(dtensor.Normal(in.mesh, in.key(), 0, std, shape, in.place(axis, p)...))
}

// Fill makes a parameter whose elements are all v; see Normal.
func (in *Init) Fill(v float64, shape []int, axis string, p layout.Placement) *dtensor.Tensor {
	return dtensor.Full(in.mesh, in.dtype(), v, shape, in.place(axis, p)...)
}

// dtype is the type of a parameter that is made now.
func (in *Init) dtype() tensor.DType {
	switch {
	case in.DType == 0:
		return tensor.Float32
	case !in.DType.Float():
		fault.Throw(fmt.Errorf("nn: the DType of the Init is %v, which has no gradient; give Float32, Float64 or BFloat16", in.DType))
	}
	return in.DType
}

// place returns p for the named axis and R for all others.
func (in *Init) place(axis string, p layout.Placement) []layout.Placement {
	list := make([]layout.Placement, len(in.mesh.Axes()))
	if axis == "" {
		return list
	}
	i, ok := in.mesh.Axis(axis)
	if !ok {
		throwNoAxis(in.mesh, axis)
	}
	list[i] = p
	return list
}

func throwNoAxis(mesh *dtensor.Mesh, axis string) {
	fault.Throw(fmt.Errorf("nn: mesh %v has no axis %q; use one of its names, or none", mesh, axis))
}
