// Package object writes Go values of any type as bytes, as package encoding/gob does, and reads them.
package object

import (
	"bytes"
	"encoding/gob"
	"reflect"
)

// Encode returns the bytes of v. Before those that gob writes is whether v is a nil pointer or a nil
// interface, which gob does not take.
func Encode[T any](v T) ([]byte, error) {
	var b bytes.Buffer
	to := gob.NewEncoder(&b)
	at := reflect.ValueOf(&v).Elem()
	null := (at.Kind() == reflect.Pointer || at.Kind() == reflect.Interface) && at.IsNil()
	err := to.Encode(null)
	if err == nil && !null {
		err = to.Encode(&v) // by its address: gob then sends the type of what an interface holds
	}
	if err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Decode returns the value that Encode was given. It is a new one: gob leaves fields and entries of a
// map as they are that are not in data, such as numbers that are 0.
func Decode[T any](data []byte) (T, error) {
	var v, none T
	from := gob.NewDecoder(bytes.NewReader(data))
	var null bool
	if err := from.Decode(&null); err != nil || null {
		return none, err
	}
	if err := from.Decode(&v); err != nil {
		return none, err
	}
	return v, nil
}
