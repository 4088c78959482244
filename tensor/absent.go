package tensor

import "github.com/gorun-spmd/gorun/internal/mem"

// NewAbsent returns a tensor without memory: its elements are elsewhere. It has a type and a
// shape. Whatever asks for its elements throws a *UseError that says why.
func NewAbsent(dev Device, why string, dt DType, shape ...int) *Tensor {
	t := newTensor("NewAbsent", dev, dt, shape)
	t.block = mem.Gone(why)
	return t
}

// Absent returns why t has no memory; ok is false if it has or had some.
func (t *Tensor) Absent() (why string, ok bool) {
	if t.block == nil {
		return "", false
	}
	why = t.block.Why()
	return why, why != ""
}

// throwGone throws why t, which is not alive, has no memory.
func (t *Tensor) throwGone(op string) {
	if why, ok := t.Absent(); ok {
		throwUse(op, "%v: %s", t.brief(), why)
	}
	throwUse(op, "%v is used after its scope closed or it was freed; pass it to Keep before, and have one goroutine at a time compute",
		t.brief())
}
