package object

import (
	"encoding"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
)

// A form is a way to write values that leaves out some fields of structs.
type form struct {
	name     string
	itself   []reflect.Type // interfaces of types that say how they are written
	methods  string         // of one of them
	embedded bool           // an embedded struct is written whatever its name
	tag      string         // of a field that is left out on purpose
}

var (
	gobs = form{name: "encoding/gob", methods: "GobEncode and GobDecode",
		itself: []reflect.Type{reflect.TypeFor[gob.GobEncoder](), reflect.TypeFor[encoding.BinaryMarshaler]()}}
	jsons = form{name: "encoding/json", methods: "MarshalJSON and UnmarshalJSON, or the field the tag json:\"-\"", embedded: true, tag: "json",
		itself: []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()}}
)

// CheckGob returns an error if package encoding/gob leaves out a field of t, or of a type in it.
func CheckGob(t reflect.Type) error { return gobs.writesAll(t, map[reflect.Type]bool{}) }

// CheckJSON returns an error if package encoding/json leaves out a field of t, or of a type in it, that has no tag that says so.
func CheckJSON(t reflect.Type) error { return jsons.writesAll(t, map[reflect.Type]bool{}) }

// writesAll returns an error if f leaves out a field of t, or of a type in it that is not in seen.
func (f *form) writesAll(t reflect.Type, seen map[reflect.Type]bool) error {
	if seen[t] {
		return nil
	}
	seen[t] = true
	if f.leaves(t) {
		return nil
	}
	switch t.Kind() {
	case reflect.Map:
		if err := f.writesAll(t.Key(), seen); err != nil {
			return err
		}
		return f.writesAll(t.Elem(), seen)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return f.writesAll(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if err := f.writes(t, t.Field(i), seen); err != nil {
				return err
			}
		}
	}
	return nil
}

// leaves reports whether f leaves it to t how its values are written.
func (f *form) leaves(t reflect.Type) bool {
	return slices.ContainsFunc(f.itself, func(i reflect.Type) bool { return t.Implements(i) || reflect.PointerTo(t).Implements(i) })
}

// writes returns an error if f leaves out the field of t, or something in it.
func (f *form) writes(t reflect.Type, field reflect.StructField, seen map[reflect.Type]bool) error {
	if field.Name == "_" || field.Type.Size() == 0 || f.tag != "" && field.Tag.Get(f.tag) == "-" {
		return nil
	}
	if !field.IsExported() && !(f.embedded && field.Anonymous && field.Type.Kind() == reflect.Struct) {
		return fmt.Errorf("%s would leave out the field %s of %v, whose name begins with no capital letter; "+
			"give it one, or give %[3]v the methods %s", f.name, field.Name, t, f.methods)
	}
	if k := field.Type.Kind(); k == reflect.Func || k == reflect.Chan {
		return fmt.Errorf("%s does not write the field %s of %v, of type %v; leave it out of the type", f.name, field.Name, t, field.Type)
	}
	return f.writesAll(field.Type, seen)
}
