package message

import (
	"bytes"
	"encoding/gob"
	"unsafe"
)

// An object is a byte of an encoded value. It has a type of its own, so that no receive of other
// elements takes it.
type object struct{ _ byte }

func encode(v any) ([]object, error) {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(v); err != nil {
		return nil, err
	}
	return unsafe.Slice((*object)(unsafe.Pointer(unsafe.SliceData(b.Bytes()))), b.Len()), nil
}

func decode(data []object, v any) error {
	return gob.NewDecoder(bytes.NewReader(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(data))), len(data)))).Decode(v)
}
