package message

import "unsafe"

// A coded is a byte of an encoded value. It has a type of its own, so that no receive of other
// elements takes it.
type coded struct{ _ byte }

func asCoded(data []byte) []coded {
	return unsafe.Slice((*coded)(unsafe.Pointer(unsafe.SliceData(data))), len(data))
}

func asBytes(data []coded) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(data))), len(data))
}
