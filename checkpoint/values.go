package checkpoint

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"strings"

	"github.com/gorun-spmd/gorun/internal/object"
)

// gobValue is what the index has of a value that JSON cannot hold.
type gobValue struct {
	Gob []byte `json:"encoding/gob"`
}

// encodeValue returns what at points to as JSON, or where JSON would refuse or lose it as a gobValue.
func encodeValue(at any) (json.RawMessage, error) {
	var refused error
	if object.CheckJSON(reflect.TypeOf(at).Elem()) == nil {
		text, err := json.Marshal(at)
		if err == nil { // it has no circles
			err = object.CheckJSONValue(reflect.ValueOf(at).Elem())
		}
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
	if !bytes.HasPrefix(text, []byte(`{"encoding/gob":`)) {
		empty(reflect.ValueOf(at))
		return json.Unmarshal(text, at)
	}
	if v.Kind() == reflect.Map {
		v.Clear()
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

// empty removes from v what JSON may have left out because the saved value did not have it: entries of maps, elements, and fields
// with omitempty or omitzero. Package encoding/json would leave them as they are. What v points to stays where it is, and a field
// that the program has got since the save keeps its value.
func empty(v reflect.Value) {
	p := reflect.PointerTo(v.Type())
	if p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return // it sees to that itself
	}
	switch v.Kind() {
	case reflect.Map:
		v.Clear()
	case reflect.Slice:
		v.SetZero()
	case reflect.Pointer:
		if !v.IsNil() {
			empty(v.Elem())
		}
	case reflect.Interface:
		if v.Elem().Kind() == reflect.Pointer { // else JSON sets it anew
			empty(v.Elem())
		}
	case reflect.Array:
		for i := range v.Len() {
			empty(v.Index(i))
		}
	case reflect.Struct:
		for field, its := range v.Fields() {
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			embedded := field.Anonymous && its.Kind() == reflect.Struct // its own fields may be set
			switch {
			case name == "-" && options == "", !its.CanSet() && !embedded:
			case its.Kind() != reflect.Map && strings.Contains(options, "omit"):
				its.SetZero()
			default:
				empty(its)
			}
		}
	}
}
