package tensor

import (
	"runtime"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
)

// OnHost reports whether the host reads and writes tensors of dev in place.
func OnHost(dev Device) bool { return dev.memory().OnHost }

// HostComputes reports whether the host computes with floating-point numbers of dev in place: they lie there and have elements.
func HostComputes(dev Device) bool {
	w := dev.memory().Watcher
	return OnHost(dev) && (w == nil || !w.WithoutFloats())
}

// Read returns the elements of t for reading: where they lie on a CPU, else a copy.
// The slice is valid while t is reachable and its scope is open, and must not be
// written to. It throws as ToSlice does.
func Read[T Elem](t *Tensor) []T {
	if OnHost(t.dev) {
		return Data[T](t)
	}
	return ToSlice[T](t)
}

// Edit calls f to change the elements of t: where they lie on a CPU, else in a copy
// that it writes back. It throws as ToSlice does.
func Edit[T Elem](t *Tensor, f func(elems []T)) {
	t.change("Edit")
	if OnHost(t.dev) {
		f(data[T](t, "Edit"))
		runtime.KeepAlive(t)
		return
	}
	s := ToSlice[T](t)
	f(s)
	if len(s) > 0 {
		t.dev.FromHost(t.ptr("Edit"), unsafe.Pointer(&s[0]), len(s)*dtype.Of[T]().Size())
	}
	runtime.KeepAlive(t)
}
