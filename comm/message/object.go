package message

import (
	"unsafe"

	"github.com/gorun-spmd/gorun/comm/backend"
)

// A coded is a byte of an encoded value. It has a type of its own, so that no receive of other
// elements takes it, and calls are described as those of objects.
type coded = backend.Coded

func asCoded(data []byte) []coded {
	return unsafe.Slice((*coded)(unsafe.Pointer(unsafe.SliceData(data))), len(data))
}

func asBytes(data []coded) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(data))), len(data))
}
