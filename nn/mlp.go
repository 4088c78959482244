package nn

import "github.com/gorun-spmd/gorun/dtensor"

// An MLPConfig describes an MLP.
type MLPConfig struct {
	Width  int // C: features of x
	Hidden int // features inside
	Bias   bool
	// Gated multiplies the activation of one linear layer by another one: with Silu it is
	// SwiGLU, as in Llama.
	Gated      bool
	Activation func(x *dtensor.Tensor) *dtensor.Tensor // such as (*dtensor.Tensor).GeluTanh; nil: Gelu, Silu if Gated
	TensorAxis string                                  // the mesh axis that divides the hidden features; "": none
	Names      Names                                   // of the linear layers; zero: gate, up, down
}

// An MLP is two linear layers with an activation between them; a gated one has a third.
type MLP struct {
	Up   *Linear // [Hidden, C], column-parallel
	Gate *Linear // the same, or nil
	Down *Linear // [C, Hidden], row-parallel

	activation func(x *dtensor.Tensor) *dtensor.Tensor
	names      Names
}

// NewMLP makes an MLP.
func NewMLP(init *Init, c MLPConfig) *MLP {
	col := Column(c.TensorAxis)
	m := &MLP{activation: c.Activation, names: c.Names}
	if c.Gated {
		m.Gate = NewLinear(init, c.Width, c.Hidden, c.Bias, col)
	}
	m.Up = NewLinear(init, c.Width, c.Hidden, c.Bias, col)
	m.Down = NewLinear(init, c.Hidden, c.Width, c.Bias, Row(c.TensorAxis))
	switch {
	case m.activation != nil:
	case c.Gated:
		m.activation = (*dtensor.Tensor).Silu
	default:
		m.activation = (*dtensor.Tensor).Gelu
	}
	return m
}

// Forward returns the MLP of x. It communicates once, to reduce the result.
//
//	x [..., C] R   →   [..., C] R   on the divided axis
func (m *MLP) Forward(x *dtensor.Tensor) *dtensor.Tensor { return reduced(m.partial(x), x) } // P(sum) → R

// partial is Forward before the reduction of its result.
func (m *MLP) partial(x *dtensor.Tensor) *dtensor.Tensor {
	h := m.Up.Forward(x) // [..., Hidden] S(last)
	if m.Gate != nil {
		h = m.activation(m.Gate.Forward(x)).Mul(h)
	} else {
		h = m.activation(h)
	}
	return m.Down.Forward(h)
}

// Params lists the parameters of the layers.
func (m *MLP) Params() Params {
	n := m.names.orDefault()
	if m.Gate == nil {
		return Join([]string{n.Up, n.Down}, m.Up, m.Down)
	}
	return Join([]string{n.Gate, n.Up, n.Down}, m.Gate, m.Up, m.Down)
}
