package embedding

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/tensor"
)

// A list is numbers that the program writes and a device reads. On a CPU they are
// written where the device reads them, outside Go's heap: lists as long as a batch
// would have the garbage collector run at every call.
type list[T int32 | int64] struct {
	elems []T
	at    *tensor.Tensor // where they lie; nil: on Go's heap
}

// newList returns n numbers of any value.
func newList[T int32 | int64](dev tensor.Device, n int) list[T] {
	if _, ok := dev.(*tensor.CPU); !ok {
		return list[T]{elems: make([]T, n)}
	}
	dt := tensor.Int64
	if unsafe.Sizeof(T(0)) == 4 {
		dt = tensor.Int32
	}
	t := tensor.New(dev, dt, n)
	return list[T]{tensor.Data[T](t), t}
}

// tensor returns the first n numbers on the device.
func (l list[T]) tensor(dev tensor.Device, n int) *tensor.Tensor {
	if l.at == nil {
		return tensor.FromSlice(dev, l.elems[:n], n)
	}
	return tensor.Narrow(l.at, 0, 0, n)
}

// free gives the memory back before the scope does.
func (l list[T]) free() {
	if l.at != nil {
		l.at.Free()
	}
}
