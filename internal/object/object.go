// Package object writes Go values of any type as bytes, as package encoding/gob does, and reads them.
package object

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"reflect"
)

// Encode returns the bytes of v: what its type is made of, and what EncodeAt returns.
func Encode[T any](v T) ([]byte, error) {
	return encodeAt(signatureOf(reflect.TypeFor[T]()), reflect.ValueOf(&v))
}

// EncodeAt returns the bytes of what at points to. Before those that gob writes is whether that is a nil pointer or a nil
// interface, which gob does not take. Fields that gob would leave out are an error.
func EncodeAt(at reflect.Value) ([]byte, error) { return encodeAt("", at) }

// encodeAt is EncodeAt of what follows a signature.
func encodeAt(signature string, at reflect.Value) ([]byte, error) {
	if err := checkPointers(at.Elem()); err != nil { // so there are no circles in what follows
		return nil, err
	}
	if err := gobs.writesValue(at.Elem(), map[reflect.Type]bool{}); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString(signature)
	to := gob.NewEncoder(&b)
	v := at.Elem()
	null := (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) && v.IsNil()
	if err := to.Encode(null); err != nil || null {
		return b.Bytes(), err
	}
	for v.Kind() == reflect.Pointer { // gob panics over a pointer to a pointer to what encodes itself, such as a *big.Int
		if v.IsNil() {
			return nil, fmt.Errorf("gob: a pointer to a nil %v", at.Type().Elem())
		}
		at, v = v, v.Elem()
	}
	if err := to.EncodeValue(at); err != nil { // by its address: gob then sends the type of what an interface holds
		return nil, err
	}
	return b.Bytes(), nil
}

// Decode returns the value that Encode was given. It is a new one: gob leaves fields and entries of a
// map as they are that are not in data, such as numbers that are 0. A value of a type that is made of something else is an error.
func Decode[T any](data []byte) (T, error) {
	var v, none T
	data, err := withoutSignature(data, reflect.TypeFor[T]())
	if err != nil {
		return none, err
	}
	if err := DecodeAt(data, reflect.ValueOf(&v)); err != nil {
		return none, err
	}
	return v, nil
}

// DecodeAt sets what at points to, a zero value, to the one that was encoded.
func DecodeAt(data []byte, at reflect.Value) error {
	from := gob.NewDecoder(bytes.NewReader(data))
	var null bool
	if err := from.Decode(&null); err != nil || null {
		return err
	}
	return from.DecodeValue(at)
}
