package nn

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// A List has layers whose names are their indices, from 0 on, as in torch.nn.ModuleList.
type List[L Layer] []L

// Params lists the parameters of the layers: "0.weight", …
func (l List[L]) Params() Params {
	names, layers := l.named()
	return Join(names, layers...)
}

// Buffers lists the buffers of the layers that are Buffered.
func (l List[L]) Buffers() Params {
	names, layers := l.named()
	return JoinBuffers(names, layers...)
}

func (l List[L]) named() (names []string, layers []Layer) {
	for i, layer := range l {
		names, layers = append(names, strconv.Itoa(i)), append(layers, layer)
	}
	return names, layers
}

// A Sequential is a chain of modules, as torch.nn.Sequential: each takes the result of the
// one before.
//
//	nn.Sequential{nn.NewLinear(init, 13, 64, true, nn.Style{}), nn.Func((*dtensor.Tensor).Relu), …}
type Sequential []Module

// Forward returns the result of the last module, or x if there is none.
func (s Sequential) Forward(x *dtensor.Tensor) *dtensor.Tensor {
	for i, m := range s {
		if m == nil {
			fault.Throw(fmt.Errorf("nn: Sequential.Forward: module %d of %d is nil; leave it out", i, len(s)))
		}
		x = m.Forward(x)
	}
	return x
}

// Params lists the parameters of the modules, named by their indices from 0 on.
func (s Sequential) Params() Params { return List[Module](s).Params() }

// Buffers lists the buffers of the modules that are Buffered.
func (s Sequential) Buffers() Params { return List[Module](s).Buffers() }

// A Func is a function as a Module, which has no parameters.
type Func func(x *dtensor.Tensor) *dtensor.Tensor

// Forward returns f(x).
func (f Func) Forward(x *dtensor.Tensor) *dtensor.Tensor { return f(x) }

// Params lists nothing.
func (f Func) Params() Params { return func(func(string, *dtensor.Tensor) bool) {} }

// NewLinears makes linear layers with a bias, from each of the widths to the next, and puts
// the activation between each two: what torchvision and torchrec call an MLP, without an
// activation at its end. One layer takes two widths.
//
//	bottom := nn.NewLinears(init, (*dtensor.Tensor).Relu, 13, 512, 256, 64) // [B, 13] → [B, 64]
func NewLinears(init *Init, activation func(x *dtensor.Tensor) *dtensor.Tensor, widths ...int) Sequential {
	if activation == nil && len(widths) > 2 {
		fault.Throw(errors.New("nn: NewLinears: the activation is nil; give one, such as (*dtensor.Tensor).Relu"))
	}
	var s Sequential
	for i := 1; i < len(widths); i++ {
		if i > 1 {
			s = append(s, Func(activation))
		}
		s = append(s, NewLinear(init, widths[i-1], widths[i], true, Style{}))
	}
	return s
}
