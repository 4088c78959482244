// Package index has lists of numbers that the program writes and a device reads: rows to
// take, and where they go.
package index

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/tensor"
)

// A List is numbers that the program writes and a device reads. On a CPU they are
// written where the device reads them, outside Go's heap: lists as long as a batch
// would have the garbage collector run at every call.
type List[T int32 | int64] struct {
	Elems []T
	at    *tensor.Tensor // where they lie; nil: on Go's heap
}

// New returns n numbers of any value.
func New[T int32 | int64](dev tensor.Device, n int) List[T] {
	if !tensor.OnHost(dev) {
		return List[T]{Elems: make([]T, n)}
	}
	dt := tensor.Int64
	if unsafe.Sizeof(T(0)) == 4 {
		dt = tensor.Int32
	}
	t := tensor.New(dev, dt, n)
	return List[T]{tensor.Data[T](t), t}
}

// Tensor returns the first n numbers on the device.
func (l List[T]) Tensor(dev tensor.Device, n int) *tensor.Tensor {
	if l.at == nil {
		return tensor.FromSlice(dev, l.Elems[:n], n)
	}
	return tensor.Narrow(l.at, 0, 0, n)
}

// Free gives the memory back before the scope does.
func (l List[T]) Free() {
	if l.at != nil {
		l.at.Free()
	}
}
