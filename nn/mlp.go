package nn

import "github.com/gorun-spmd/gorun/dtensor"

// An MLP is two linear layers with a GELU between them.
type MLP struct {
	Up   *Linear // [Hidden, C], column-parallel
	Down *Linear // [C, Hidden], row-parallel
}

// NewMLP makes an MLP whose hidden features are divided over an axis of the
// mesh; "": not divided.
func NewMLP(init *Init, width, hidden int, bias bool, axis string) *MLP {
	return &MLP{Up: NewLinear(init, width, hidden, bias, Column(axis)), Down: NewLinear(init, hidden, width, bias, Row(axis))}
}

// Forward returns the MLP of x. It communicates once, to reduce the result.
//
//	x [..., C] R   →   [..., C] R   on the divided axis
func (m *MLP) Forward(x *dtensor.Tensor) *dtensor.Tensor {
	h := m.Up.Forward(x).Gelu()        // [..., Hidden] S(last)
	return m.Down.Forward(h).Reduced() // [..., C] P(sum) → R
}

// Params lists the parameters of both layers.
func (m *MLP) Params() Params { return Join([]string{"up", "down"}, m.Up, m.Down) }
