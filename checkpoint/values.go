package checkpoint

import (
	"bytes"
	"encoding"
	"encoding/gob"
	"encoding/json"
	"reflect"
	"slices"

	"github.com/gorun-spmd/gorun/internal/object"
)

// gobValue is what the index has of a value that JSON cannot hold.
type gobValue struct {
	Gob []byte `json:"encoding/gob"`
}

// encodeValue returns what at points to as JSON, or where JSON would refuse or lose it as a gobValue.
func encodeValue(at any) (json.RawMessage, error) {
	var refused error
	if !lost(reflect.TypeOf(at).Elem(), map[reflect.Type]bool{}) {
		text, err := json.Marshal(at)
		if err == nil {
			return text, nil
		}
		refused = err // such as an infinite number
	}
	data, err := object.EncodeAt(reflect.ValueOf(at))
	switch {
	case err == nil:
		return json.Marshal(gobValue{data})
	case refused != nil:
		return nil, refused
	}
	return nil, err
}

// decodeValue is the inverse of encodeValue.
func decodeValue(text json.RawMessage, at any) error {
	v := reflect.ValueOf(at).Elem()
	if v.Kind() == reflect.Map {
		v.Clear() // else it would keep entries that the saved one has not
	}
	if !bytes.HasPrefix(text, []byte(`{"encoding/gob":`)) {
		return json.Unmarshal(text, at)
	}
	var g gobValue
	if err := json.Unmarshal(text, &g); err != nil {
		return err
	}
	fresh := reflect.New(v.Type()) // gob leaves fields alone that were zero
	if err := object.DecodeAt(g.Gob, fresh); err != nil {
		return err
	}
	if v.Kind() != reflect.Map || v.IsNil() {
		v.Set(fresh.Elem())
		return nil
	}
	for key, entry := range fresh.Elem().Seq2() {
		v.SetMapIndex(key, entry)
	}
	return nil
}

// lost reports whether JSON writes {} for a value of type t, or for a part of it, that encodes itself otherwise, as the
// generators of math/rand/v2 do. seen has the types that were looked at before.
func lost(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] || is[json.Marshaler](t) || is[encoding.TextMarshaler](t) {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return lost(t.Elem(), seen)
	case reflect.Struct:
		kept := false
		for _, f := range reflect.VisibleFields(t) {
			if !f.IsExported() && !f.Anonymous {
				continue
			}
			kept = true
			if lost(f.Type, seen) {
				return true
			}
		}
		return !kept && (is[encoding.BinaryMarshaler](t) || is[gob.GobEncoder](t))
	}
	return false
}

// is reports whether a pointer to a t is an I.
func is[I any](t reflect.Type) bool { return reflect.PointerTo(t).Implements(reflect.TypeFor[I]()) }

// hides reports whether t is a struct of unexported fields alone, which JSON and gob leave out.
func hides(t reflect.Type) bool {
	if t.Kind() != reflect.Struct || t.NumField() == 0 || is[json.Marshaler](t) || is[encoding.TextMarshaler](t) ||
		is[encoding.BinaryMarshaler](t) || is[gob.GobEncoder](t) {
		return false
	}
	return !slices.ContainsFunc(reflect.VisibleFields(t), reflect.StructField.IsExported)
}
