package mem

import (
	"os"
	"unsafe"
)

// Huge returns n zeros in memory of Go's. If they are many, huge pages are asked for, in which elements in random order are
// read sooner.
func Huge[T any](n int) []T {
	s := make([]T, n)
	p := unsafe.Pointer(unsafe.SliceData(s))
	page := uintptr(os.Getpagesize())
	if bytes, skip := uintptr(n)*unsafe.Sizeof(*new(T)), -uintptr(p)&(page-1); bytes > skip {
		preferHuge(unsafe.Add(p, skip), int((bytes-skip)&^(page-1)))
	}
	return s
}
