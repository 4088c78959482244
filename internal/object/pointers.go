package object

import (
	"fmt"
	"reflect"
	"unsafe"
)

// checkPointers returns an error if encoding/gob would not write what a pointer in v points to: a zero that a field of a struct
// points to, for which it writes nothing, so that the field would arrive as nil; or a value that the pointer itself is part of.
func checkPointers(v reflect.Value) error {
	if !mayPoint(v.Type()) {
		return nil
	}
	return make(trail).follow(v)
}

// mayPoint reports whether values of t have pointers that gob follows.
func mayPoint(t reflect.Type) bool {
	return gobs.holds(t, map[reflect.Type]bool{}, reflect.Pointer, reflect.Interface)
}

// A trail has the pointers that lead to a value.
type trail map[place]bool

type place struct {
	at unsafe.Pointer
	of reflect.Type
}

// follow checks v and what is in it.
func (on trail) follow(v reflect.Value) error {
	if !v.IsValid() || gobs.writesItself(v.Type()) {
		return nil
	}
	switch v.Kind() {
	case reflect.Interface:
		return on.follow(v.Elem())
	case reflect.Pointer:
		p := place{v.UnsafePointer(), v.Type()}
		if on[p] {
			return fmt.Errorf("encoding/gob cannot write a %v that points to what it is part of; send the parts and which are joined", v.Type())
		}
		on[p] = true
		defer delete(on, p)
		return on.follow(v.Elem())
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			if err := on.follow(entries.Value()); err != nil {
				return err
			}
		}
	case reflect.Slice, reflect.Array:
		if !mayPoint(v.Type()) {
			return nil
		}
		for i := range v.Len() {
			if err := on.follow(v.Index(i)); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if !field.IsExported() {
				continue
			}
			if err := on.follow(v.Field(i)); err != nil {
				return err
			}
			if pointsToZero(v.Field(i)) {
				return fmt.Errorf("encoding/gob would leave out the field %s of %v, which points to a zero and would arrive as nil; "+
					"give it the type %v, or give %[2]v the methods %[4]s", field.Name, v.Type(), field.Type.Elem(), gobs.methods)
			}
		}
	}
	return nil
}

// pointsToZero reports whether v is a pointer to what gob does not write in a struct.
func pointsToZero(v reflect.Value) bool {
	if v.Kind() != reflect.Pointer || v.IsNil() || gobs.writesItself(v.Type()) {
		return false
	}
	switch v = v.Elem(); v.Kind() {
	case reflect.Pointer:
		return v.IsNil() || pointsToZero(v)
	case reflect.Struct, reflect.Array:
		return false
	case reflect.Slice:
		return v.Len() == 0
	}
	return v.IsZero()
}
