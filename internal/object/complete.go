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

// CheckJSONValue is CheckJSON for the type of v and for those of what interfaces in v hold.
func CheckJSONValue(v reflect.Value) error { return jsons.writesValue(v, map[reflect.Type]bool{}) }

// writesValue returns an error if f leaves out a field of the type of v, or of what an interface in v holds. Types that are in seen
// were found to be written.
func (f *form) writesValue(v reflect.Value, seen map[reflect.Type]bool) error {
	t := v.Type()
	if err := f.writesAll(t, seen); err != nil || !f.holds(t, map[reflect.Type]bool{}, reflect.Interface) {
		return err
	}
	switch t.Kind() {
	case reflect.Interface, reflect.Pointer:
		if !v.IsNil() {
			return f.writesValue(v.Elem(), seen)
		}
	case reflect.Map:
		for key, entry := range v.Seq2() {
			if err := f.writesValue(key, seen); err != nil {
				return err
			}
			if err := f.writesValue(entry, seen); err != nil {
				return err
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if err := f.writesValue(v.Index(i), seen); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for i := range t.NumField() {
			if f.leavesOut(t.Field(i)) {
				continue
			}
			if err := f.writesValue(v.Field(i), seen); err != nil {
				return err
			}
		}
	}
	return nil
}

// holds reports whether f writes something of the kinds in values of t, beside those of types in seen.
func (f *form) holds(t reflect.Type, seen map[reflect.Type]bool, kinds ...reflect.Kind) bool {
	if seen[t] || f.writesItself(t) {
		return false
	}
	seen[t] = true
	if slices.Contains(kinds, t.Kind()) {
		return true
	}
	switch t.Kind() {
	case reflect.Map:
		return f.holds(t.Key(), seen, kinds...) || f.holds(t.Elem(), seen, kinds...)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return f.holds(t.Elem(), seen, kinds...)
	case reflect.Struct:
		for i := range t.NumField() {
			if !f.leavesOut(t.Field(i)) && f.holds(t.Field(i).Type, seen, kinds...) {
				return true
			}
		}
	}
	return false
}

// writesItself reports whether values of t say how they are written.
func (f *form) writesItself(t reflect.Type) bool {
	return slices.ContainsFunc(f.itself, func(i reflect.Type) bool { return t.Implements(i) || reflect.PointerTo(t).Implements(i) })
}

// leavesOut reports whether f leaves out a field that has nothing, or is left out on purpose.
func (f *form) leavesOut(field reflect.StructField) bool {
	return field.Name == "_" || field.Type.Size() == 0 || f.tag != "" && field.Tag.Get(f.tag) == "-"
}

// writesAll returns an error if f leaves out a field of t, or of a type in it that is not in seen.
func (f *form) writesAll(t reflect.Type, seen map[reflect.Type]bool) error {
	if seen[t] || f.writesItself(t) {
		return nil
	}
	seen[t] = true
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

// writes returns an error if f leaves out the field of t, or something in it.
func (f *form) writes(t reflect.Type, field reflect.StructField, seen map[reflect.Type]bool) error {
	if f.leavesOut(field) {
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
