package shm

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/simd"
)

// move copies n bytes.
func move(dst, src unsafe.Pointer, n int) {
	simd.Copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
}
