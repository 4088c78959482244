package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/checkpoint/safetensors"
)

// sample is an index of one tensor in two chunks.
func sample() *index {
	sums := func(n int) string { return strings.Repeat("0123abcd", n) }
	return &index{Format: formatName, Version: 1, Step: 4, Ranks: 2, BlockBytes: 16, Properties: map[string]string{"a": "b"},
		Values: map[string]json.RawMessage{"step": json.RawMessage("4")},
		Files:  []fileEntry{{"rank-00000.safetensors", 100, sums(1)}, {"rank-00001.safetensors", 90, ""}},
		Tensors: []tensorEntry{{Name: "w", DType: "F32", Shape: []int{5, 2}, Layout: "S(0)", Chunks: []chunkEntry{
			{0, 64, []int{0, 0}, []int{3, 2}, sums(2)}, {1, 72, []int{3, 0}, []int{2, 2}, ""}}}}}
}

func TestIndexRoundTrip(t *testing.T) {
	text, err := sample().encode()
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(text) || bytes.Count(text, []byte("\n")) != 17 {
		t.Errorf("the index is\n%s", text)
	}
	got, err := decodeIndex(text)
	if err != nil || !reflect.DeepEqual(got, sample()) {
		t.Errorf("%v\n%+v\n%+v", err, got, sample())
	}
}

func TestIndexRefusals(t *testing.T) {
	for _, c := range []struct {
		says   string
		change func(x *index)
	}{
		{"version 2: this program reads up to version 1", func(x *index) { x.Version = 2 }},
		{"no index of a checkpoint", func(x *index) { x.Version = 0 }},
		{"no index of a checkpoint", func(x *index) { x.Format = "other" }},
		{"block_bytes is 0", func(x *index) { x.BlockBytes = 0 }},
		{"block_bytes", func(x *index) { x.BlockBytes = math.MaxInt }},
		{"step is -1", func(x *index) { x.Step = -1 }},
		{"plain name", func(x *index) { x.Files[0].Name = "../x" }},
		{"plain name", func(x *index) { x.Files[0].Name = "/x" }},
		{"plain name", func(x *index) { x.Files[0].Name = "" }},
		{"listed twice", func(x *index) { x.Files[1].Name = x.Files[0].Name }},
		{"-1 bytes", func(x *index) { x.Files[0].Bytes = -1 }},
		{"the checksum", func(x *index) { x.Files[0].CRC32C = "xyz" }},
		{"listed twice, or has no name", func(x *index) { x.Tensors[0].Name = "" }},
		{"listed twice", func(x *index) { x.Tensors = append(x.Tensors, x.Tensors[0]) }},
		{"that of a tensor", func(x *index) { x.Values["w"] = json.RawMessage("1") }},
		{`type "F31"`, func(x *index) { x.Tensors[0].DType = "F31" }},
		{"negative or too large", func(x *index) { x.Tensors[0].Shape = []int{-5, 2} }},
		{"negative or too large", func(x *index) { x.Tensors[0].Shape = []int{math.MaxInt, 2} }},
		{"not within the tensor", func(x *index) { x.Tensors[0].Chunks[0].Offset[0] = 3 }},
		{"not within the tensor", func(x *index) { x.Tensors[0].Chunks[0].Offset[0] = -1 }},
		{"not within the tensor", func(x *index) { x.Tensors[0].Chunks[0].Shape[0] = math.MaxInt }},
		{"is empty or", func(x *index) { x.Tensors[0].Chunks[0].Shape[0] = 0 }},
		{"dimensions", func(x *index) { x.Tensors[0].Chunks[0].Shape = []int{6} }},
		{"file 2; there are 2", func(x *index) { x.Tensors[0].Chunks[0].File = 2 }},
		{"file -1", func(x *index) { x.Tensors[0].Chunks[0].File = -1 }},
		{"at byte 77 are not within the 100", func(x *index) { x.Tensors[0].Chunks[0].At = 77 }},
		{"not within", func(x *index) { x.Tensors[0].Chunks[0].At = -1 }},
		{"not within", func(x *index) { x.Tensors[0].Chunks[0].At = math.MaxInt }},
		{"do not have 8 hex digits", func(x *index) { x.Tensors[0].Chunks[0].CRC32C = "01234567" }},
		{"16 bytes fewer", func(x *index) { x.Tensors[0].Chunks = x.Tensors[0].Chunks[:1] }},
		{"overlap", func(x *index) { x.Tensors[0].Chunks[1].Offset[0] = 2 }},
	} {
		x := sample()
		c.change(x)
		text, err := x.encode()
		if err != nil {
			t.Fatal(err)
		}
		_, err = decodeIndex(text)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("got %v, want %q", err, c.says)
			continue
		}
		// What is wrong with a file or a tensor comes with the byte where its line begins.
		at, entry := 0, errors.As(err, new(*entryError))
		if _, scanned := fmt.Sscanf(err.Error(), "byte %d:", &at); entry &&
			(scanned != nil || !bytes.HasPrefix(text[at:], []byte("{\"name\":")) || text[at-1] != ' ') {
			t.Errorf("%v: there is %.20q", err, text[at:])
		}
	}
	for _, c := range []struct{ body, says string }{
		{`{"format": "gorun checkpoint", "version": 1, "step": "x", `, "byte 56: "},
		{`{"format": "gorun checkpoint", ] `, "byte 32: "},
	} {
		if _, err := decodeIndex(fmt.Appendf(nil, "%s%s%s%s", c.body, sealBegin, sum([]byte(c.body)), sealEnd)); err == nil ||
			!strings.HasPrefix(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", c.body, err, c.says)
		}
	}
}

// An index that decodes is one that a reader can trust: every chunk lies in its
// file, and no file elsewhere. The body is sealed here, so that the fuzzer gets
// past the checksum.
func FuzzIndex(f *testing.F) {
	unminimized(f)
	text, err := sample().encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text[:len(text)-sealBytes])
	f.Add([]byte(`{"format": "gorun checkpoint", "version": 1, "block_bytes": 1, `))
	f.Fuzz(func(t *testing.T, body []byte) {
		x, err := decodeIndex(fmt.Appendf(bytes.Clone(body), "%s%s%s", sealBegin, sum(body), sealEnd))
		if err != nil {
			return
		}
		for _, e := range x.Tensors {
			left, _ := safetensors.Bytes(e.dtype(), e.Shape)
			for _, c := range e.Chunks {
				n := c.box().numel() * e.dtype().Size()
				if n <= 0 || c.At < 0 || c.At+n > x.Files[c.File].Bytes || c.At+n < 0 {
					t.Fatalf("%+v of %+v", c, e)
				}
				left -= n
			}
			if left != 0 {
				t.Fatalf("%+v", e)
			}
		}
		for _, f := range x.Files {
			if !safetensors.PlainName(f.Name) {
				t.Fatal(f.Name)
			}
		}
	})
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		name             string
		step, generation int
		ok               bool
	}{
		{"step-000123", 123, 0, true}, {"step-000123.4", 123, 4, true}, {"step-1234567", 1234567, 0, true},
		{"step-123", 0, 0, false}, {"step-000123.0", 0, 0, false}, {"step-000123.04", 0, 0, false}, {"step-000123.tmp", 0, 0, false},
		{"step--00001", 0, 0, false}, {"000123", 0, 0, false}, {"step-", 0, 0, false}, {"step-000123.-1", 0, 0, false}, {"notes", 0, 0, false},
	} {
		step, generation, ok := parseDir(c.name)
		if ok != c.ok || ok && (step != c.step || generation != c.generation) {
			t.Errorf("%s: %d %d %v", c.name, step, generation, ok)
		}
	}
}
