// Package index has lists of row numbers that the program writes and a device reads.
package index

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/tensor"
)

// A List holds numbers that the program writes and a device reads. On a CPU the program
// writes them where the device reads them, outside Go's heap: with lists as long as a batch
// on the heap, the garbage collector would run at every call.
type List[T int32 | int64] struct {
	Elems []T
	at    *tensor.Tensor // has the memory of Elems; nil: they are on Go's heap
}

// New returns a list of n numbers, which are not set.
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
