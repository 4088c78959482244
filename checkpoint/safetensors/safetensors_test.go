package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/internal/dtype"
)

// raw returns a file with the header text and n bytes of data.
func raw(header string, n int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, n)...)
}

func read(b []byte) (*Header, error) { return ReadHeader(bytes.NewReader(b), len(b)) }

func TestRoundTrip(t *testing.T) {
	list := []Tensor{
		{Name: "b", DType: dtype.BFloat16, Shape: []int{3, 1}},
		{Name: "a \"quoted\" é", DType: dtype.Float32, Shape: []int{2, 2}},
		{Name: "empty", DType: dtype.Float64, Shape: []int{0, 7}},
		{Name: "flag", DType: dtype.Bool, Shape: []int{}},
		{Name: "ids", DType: dtype.Int64, Shape: []int{5}},
	}
	for dt := dtype.Float32; dt.Valid(); dt++ {
		list = append(list, Tensor{Name: dt.String(), DType: dt, Shape: []int{3}})
		if back, ok := ParseName(Name(dt)); !ok || back != dt {
			t.Errorf("%v is called %q, which is %v", dt, Name(dt), back)
		}
	}
	h, err := NewHeader(map[string]string{"format": "pt"}, list)
	if err != nil {
		t.Fatal(err)
	}
	file := append(h.Encode(), make([]byte, h.FileBytes-h.DataStart)...)
	got, err := read(file)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, h) {
		t.Errorf("read\n%+v\nwritten\n%+v", got, h)
	}
	if h.DataStart%8 != 0 {
		t.Errorf("the data begins at byte %d", h.DataStart)
	}
	for _, x := range h.Tensors {
		if x.Offset%x.DType.Size() != 0 {
			t.Errorf("%q begins at byte %d of the data", x.Name, x.Offset)
		}
	}
	if x, ok := got.Find("ids"); !ok || x.Bytes != 40 {
		t.Errorf("ids: %+v", x)
	}
	if _, ok := got.Find("none"); ok {
		t.Error("a tensor that is not there was found")
	}
}

// The example of the format's description, byte by byte as another program wrote it.
func TestForeignFile(t *testing.T) {
	h, err := read(raw(`{"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}}    `, 16))
	if err != nil {
		t.Fatal(err)
	}
	want := []Tensor{{Name: "test", DType: dtype.Int32, Shape: []int{2, 2}, Bytes: 16}}
	if !reflect.DeepEqual(h.Tensors, want) || h.DataStart != 8+64 {
		t.Errorf("got %+v, data at %d", h.Tensors, h.DataStart)
	}
	if h, err = read(raw("{}", 0)); err != nil || len(h.Tensors) != 0 {
		t.Errorf("a file of nothing: %v %v", h, err)
	}
}

func TestRefusals(t *testing.T) {
	one := func(fields string) string { return `{"x":{` + fields + `}}` }
	for _, c := range []struct {
		name string
		file []byte
		says string
	}{
		{"empty", nil, "byte 0: the file has 0 bytes"},
		{"short", []byte("1234567"), "byte 0: the file has 7 bytes"},
		{"header beyond the file", raw("{}", 0)[:9], "byte 0: the header has 2 bytes by its own account, but only 1"},
		{"gigantic header", binary.LittleEndian.AppendUint64(nil, 1<<62), "the format allows"},
		{"negative header", binary.LittleEndian.AppendUint64(nil, 1<<63+5), "the format allows"},
		{"no header", raw("", 0), "byte 8: the header does not begin with {"},
		{"space before", raw(" {}", 0), "byte 8: the header does not begin with {"},
		{"list", raw("[]", 0), "byte 8: "},
		{"not UTF-8", raw("{\"\xff\":{}}", 0), "byte 8: the header is not UTF-8"},
		{"cut JSON", raw(`{"x":{"dtype"`, 0), "no JSON"},
		{"after the end", raw(`{} {}`, 0), "byte 10: something follows"},
		{"zero padding", raw("{}\x00", 0), "byte 10: something follows"},
		{"unknown type of a place beyond", raw(one(`"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,2]`), 1), "the file ends here"},
		{"empty type", raw(one(`"dtype":"","shape":[1],"data_offsets":[0,1]`), 1), "lacks dtype"},
		{"no type", raw(one(`"shape":[1],"data_offsets":[0,1]`), 1), "lacks dtype"},
		{"no shape", raw(one(`"dtype":"U8","data_offsets":[0,1]`), 1), "lacks dtype, shape"},
		{"one offset", raw(one(`"dtype":"U8","shape":[1],"data_offsets":[0]`), 1), "lacks dtype, shape or two"},
		{"three offsets", raw(one(`"dtype":"U8","shape":[1],"data_offsets":[0,1,1]`), 1), "lacks dtype, shape or two"},
		{"field twice", raw(one(`"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]`), 1), `"dtype" appears twice`},
		{"strange field", raw(one(`"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":1`), 1), `a field "more"`},
		{"no name", raw(`{"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), "is empty"},
		{"name twice", raw(`{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2),
			`"x" appears twice`},
		{"negative size", raw(one(`"dtype":"U8","shape":[-1],"data_offsets":[0,1]`), 1), "has -1, which is not an integer"},
		{"fraction", raw(one(`"dtype":"U8","shape":[1.0],"data_offsets":[0,1]`), 1), "has 1.0, which"},
		{"text for a size", raw(one(`"dtype":"U8","shape":["1"],"data_offsets":[0,1]`), 1), "not an integer"},
		{"size too large", raw(one(`"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]`), 1), "not an integer"},
		{"product overflows", raw(one(`"dtype":"U8","shape":[4294967296,4294967296,16],"data_offsets":[0,0]`), 0), "does not take the 0 bytes"},
		{"product wraps with size", raw(one(`"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]`), 0), "does not take the 0 bytes"},
		{"size and offsets differ", raw(one(`"dtype":"F32","shape":[2],"data_offsets":[0,4]`), 4), "does not take the 4 bytes"},
		{"end before begin", raw(one(`"dtype":"F32","shape":[1],"data_offsets":[8,4]`), 8), "before it begins"},
		{"beyond the file", raw(one(`"dtype":"U8","shape":[9],"data_offsets":[0,9]`), 8), "the file ends here"},
		{"hole at the start", raw(one(`"dtype":"U8","shape":[1],"data_offsets":[1,2]`), 2), "nothing lies at bytes 0 to 1"},
		{"rest", raw(one(`"dtype":"U8","shape":[1],"data_offsets":[0,1]`), 3), "2 bytes follow"},
		{"overlap", raw(`{"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"y":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3),
			`"y" begins at byte 1`},
		{"metadata of numbers", raw(`{"__metadata__":{"a":1}}`, 0), "is not a string"},
		{"tensor of text", raw(`{"x":"y"}`, 0), `tensor "x"`},
	} {
		_, err := read(c.file)
		var malformed *FormatError
		if !errors.As(err, &malformed) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.says)
		}
	}
}

func TestNewHeaderRefuses(t *testing.T) {
	u8 := dtype.Uint8
	for says, list := range map[string][]Tensor{
		"is named \"\"":                 {{Name: "", DType: u8}},
		"__metadata__":                  {{Name: "__metadata__", DType: u8}},
		"two tensors":                   {{Name: "a", DType: u8}, {Name: "a", DType: u8}},
		"not UTF-8":                     {{Name: "\xff", DType: u8}},
		"no element type":               {{Name: "a"}},
		"negative or too large":         {{Name: "a", DType: u8, Shape: []int{-1}}},
		"shape [4611686018427387904 4]": {{Name: "a", DType: u8, Shape: []int{1 << 62, 4}}},
	} {
		if _, err := NewHeader(nil, list); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}

func TestIndex(t *testing.T) {
	files, err := ParseIndex([]byte(`{"metadata": {"total_size": 12},
		"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}`))
	if err != nil || len(files) != 2 || files["b"] != "model-00002-of-00002.safetensors" {
		t.Errorf("%v %v", files, err)
	}
	for _, c := range []struct{ text, says string }{
		{``, "no JSON"},
		{`{}`, "no weight_map"},
		{`{"weight_map": 3}`, "{ is expected"},
		{`{"weight_map": {"a": 3}}`, "not a string"},
		{`{"weight_map": {"a": "../b.safetensors"}}`, "plain name"},
		{`{"weight_map": {"a": "/etc/passwd"}}`, "plain name"},
		{`{"weight_map": {"a": "sub/b.safetensors"}}`, "plain name"},
		{`{"weight_map": {"a": "sub\\b.safetensors"}}`, "plain name"},
		{`{"weight_map": {"a": ".."}}`, "plain name"},
		{`{"weight_map": {"a": "."}}`, "plain name"},
		{`{"weight_map": {"a": ""}}`, "plain name"},
		{`{"weight_map": {"a": "x", "a": "y"}}`, `"a" appears twice`},
		{`{"weight_map": {"a": "x"}, "weight_map": {}}`, `"weight_map" appears twice`},
	} {
		if files, err := ParseIndex([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v %v, want %q", c.text, files, err, c.says)
		}
	}
}

// What is read without an error makes sense, and written again reads the same.
func FuzzHeader(f *testing.F) {
	f.Add(raw(`{"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}}    `, 16))
	f.Add(raw(`{"__metadata__":{"a":"b"},"x":{"dtype":"U8","shape":[],"data_offsets":[0,1]},`+
		`"y":{"dtype":"F64","shape":[0,3],"data_offsets":[1,1]}}`, 1))
	f.Add(raw(`{"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"x":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3))
	f.Add(binary.LittleEndian.AppendUint64(nil, 1<<40))
	f.Fuzz(func(t *testing.T, file []byte) {
		h, err := read(file)
		if err != nil {
			var malformed *FormatError
			if !errors.As(err, &malformed) || malformed.Byte < 0 || malformed.Byte > len(file) {
				t.Fatalf("%v of %d bytes", err, len(file))
			}
			return
		}
		end := 0
		for _, x := range h.Tensors {
			n, ok := Bytes(x.DType, x.Shape)
			if !ok || n != x.Bytes || x.Offset != end {
				t.Fatalf("%+v", x)
			}
			end += n
		}
		if h.DataStart+end != len(file) {
			t.Fatalf("the tensors end at byte %d of %d", h.DataStart+end, len(file))
		}
		again, err := read(append(h.Encode(), file[h.DataStart:]...))
		if err != nil || !reflect.DeepEqual(again.Tensors, h.Tensors) {
			t.Fatalf("written again: %v\n%+v\n%+v", err, again, h)
		}
	})
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata": {"total_size": 12}, "weight_map": {"a": "b.safetensors"}}`))
	f.Add([]byte(`{"weight_map": {"a": "../b"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		files, err := ParseIndex(text)
		for _, name := range files {
			if err == nil && (strings.ContainsAny(name, `/\`) || name == "." || name == ".." || name == "") {
				t.Fatalf("%q leads elsewhere", name)
			}
		}
	})
}
