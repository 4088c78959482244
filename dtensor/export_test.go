package dtensor

import "github.com/gorun-spmd/gorun/dtensor/layout"

// A Move is a redistribution of elements of Size bytes.
type Move struct {
	From, To layout.Layout
	Size     int
	Cause    string
	Packed   bool // it shares a collective with the packed moves before and after it
}

// Watch tells f of every redistribution on this rank before it is carried out;
// nil ends it.
func (m *Mesh) Watch(f func(Move)) {
	if f == nil {
		m.eng.observe = nil
		return
	}
	m.eng.observe = func(from, to *spec, size int, cause string, packed bool) {
		f(Move{from.layout, to.layout, size, cause, packed})
	}
}

// CumprodOfOperators is Cumprod by other operators, of x that is R.
func (x *Tensor) CumprodOfOperators(dim int) *Tensor { return x.cumprod(dim) }
