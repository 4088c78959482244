package object

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"strings"
	"sync"
)

// package gob leaves out fields that the receiver's type does not have, and leaves those alone that the sender's has not. So Encode
// writes before a value what its type is made of, and Decode compares:
//
//	8 bytes: a hash of what the type is made of   1 byte: the length of the text   the text: the type's name and its beginning
var signatures sync.Map // of types: by reflect.Type, a string

// maxText is the length of the text in a signature.
const maxText = 200

// signatureOf returns what is written of a type.
func signatureOf(t reflect.Type) string {
	if s, ok := signatures.Load(t); ok {
		return s.(string)
	}
	made := gobs.made(t, nil)
	h := fnv.New64a()
	h.Write([]byte(made))
	text := t.String()
	if text != made {
		text += " " + made
	}
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText-len("…")], "") + "…"
	}
	s := string(append(binary.LittleEndian.AppendUint64(nil, h.Sum64()), byte(len(text)))) + text
	signatures.Store(t, s)
	return s
}

// withoutSignature returns what follows the signature in data, or an error unless it is that of t.
func withoutSignature(data []byte, t reflect.Type) ([]byte, error) {
	own := signatureOf(t)
	if len(data) < 9 || len(data) < 9+int(data[8]) {
		return nil, errors.New("it is too short")
	}
	theirs, rest := data[:9+int(data[8])], data[9+int(data[8]):]
	if string(theirs[:8]) != own[:8] {
		return nil, fmt.Errorf("it is %s, and this rank takes %s", theirs[9:], own[9:])
	}
	return rest, nil
}

// made returns what gob writes of a type: the names of fields and the kinds of what is in them. Numbers of a kind are alike in any
// size, and a pointer is like what it points to. outer are the types that t is in.
func (f *form) made(t reflect.Type, outer []reflect.Type) string {
	for i, o := range outer {
		if o == t {
			return fmt.Sprintf("↑%d", len(outer)-i)
		}
	}
	outer = append(outer, t)
	of := func(t reflect.Type) string { return f.made(t, outer) }
	switch {
	case t.Kind() == reflect.Pointer:
		return of(t.Elem())
	case f.writesItself(t):
		return t.String()
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return "bytes"
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "int"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return "uint"
	case reflect.Float32, reflect.Float64:
		return "float"
	case reflect.Complex64, reflect.Complex128:
		return "complex"
	case reflect.Slice:
		return "[]" + of(t.Elem())
	case reflect.Array:
		return fmt.Sprintf("[%d]%s", t.Len(), of(t.Elem()))
	case reflect.Map:
		return "map[" + of(t.Key()) + "]" + of(t.Elem())
	case reflect.Struct:
		var fields []string
		for i := range t.NumField() {
			if field := t.Field(i); !f.leavesOut(field) {
				fields = append(fields, field.Name+" "+of(field.Type))
			}
		}
		return "{" + strings.Join(fields, "; ") + "}"
	}
	return t.Kind().String()
}
