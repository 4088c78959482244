package tensor

// NewAbsent returns a tensor without memory: its elements are elsewhere. It has a type and a
// shape. Whatever asks for its elements throws a *UseError that says why.
func NewAbsent(dev Device, why string, dt DType, shape ...int) *Tensor {
	t := newTensor("NewAbsent", dev, dt, shape)
	t.absent = &why
	return t
}

// Absent returns why t has no memory; ok is false if it has some.
func (t *Tensor) Absent() (why string, ok bool) {
	if t.absent == nil {
		return "", false
	}
	return *t.absent, true
}
