package checkpoint

import (
	"bytes"
	"encoding/json"
	"reflect"

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
		v.Clear() // else it would keep entries that the saved one lacks
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
