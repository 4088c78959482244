package safetensors

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/gorun-spmd/gorun/internal/dtype"
)

// MaxHeaderBytes is the size above which a header is refused, the same as in the
// reference implementation.
const MaxHeaderBytes = 100_000_000

// metadataKey is the only name in a header that is not the name of a tensor.
const metadataKey = "__metadata__"

// A Tensor is one entry of a header.
type Tensor struct {
	Name   string
	DType  dtype.DType // Invalid for one of another type, which Other names
	Shape  []int
	Offset int // of its first byte, from the start of the data
	Bytes  int
	Other  string // the header's word for an element type that package tensor does not have, such as F8_E4M3; else ""
}

// A Header lists the tensors of a file and their offsets.
type Header struct {
	Metadata map[string]string // free text by key; may be nil
	Tensors  []Tensor          // in the order of their bytes; do not modify

	// DataStart is where the data begins in the file: a tensor's first byte is at
	// DataStart + Offset.
	DataStart int
	// FileBytes is the size of the whole file.
	FileBytes int
}

// NewHeader returns the header of a file with the given tensors, whose Offset
// and Bytes it sets. Tensors with larger elements come first, and those of one
// size by name, as in the reference implementation, so that each is aligned to
// its element size in the file. It returns an error for a name that is empty,
// reserved, not UTF-8 or given twice, and for a type or shape that makes no sense.
func NewHeader(metadata map[string]string, tensors []Tensor) (*Header, error) {
	list := slices.Clone(tensors)
	slices.SortStableFunc(list, func(a, b Tensor) int {
		if d := cmp.Compare(b.DType.Size(), a.DType.Size()); d != 0 {
			return d
		}
		return cmp.Compare(a.Name, b.Name)
	})
	seen := map[string]bool{}
	at := 0
	for i := range list {
		t := &list[i]
		switch {
		case t.Name == "" || t.Name == metadataKey:
			return nil, fmt.Errorf("safetensors: NewHeader: a tensor is named %q; give it another name", t.Name)
		case !utf8.ValidString(t.Name):
			return nil, fmt.Errorf("safetensors: NewHeader: the name %q is not UTF-8; give the tensor another name", t.Name)
		case seen[t.Name]:
			return nil, fmt.Errorf("safetensors: NewHeader: two tensors are named %q; give one another name", t.Name)
		case !t.DType.Valid():
			return nil, fmt.Errorf("safetensors: NewHeader: tensor %q has no element type", t.Name)
		}
		seen[t.Name] = true
		n, ok := Bytes(t.DType, t.Shape)
		if !ok || n > math.MaxInt-at {
			return nil, fmt.Errorf("safetensors: NewHeader: tensor %q has shape %v, which is negative or too large", t.Name, t.Shape)
		}
		t.Offset, t.Bytes = at, n
		at += n
	}
	h := &Header{Metadata: metadata, Tensors: list}
	start := len(h.Encode())
	if start-8 > MaxHeaderBytes || at > math.MaxInt-start {
		return nil, fmt.Errorf("safetensors: NewHeader: the header of %d tensors has %d bytes; the format allows %d, so write several files",
			len(list), start-8, MaxHeaderBytes)
	}
	h.DataStart, h.FileBytes = start, start+at
	return h, nil
}

// Find returns the tensor of that name, and whether there is one.
func (h *Header) Find(name string) (t Tensor, ok bool) {
	for _, t := range h.Tensors {
		if t.Name == name {
			return t, true
		}
	}
	return Tensor{}, false
}

// An entry is a tensor as the header spells it.
type entry struct {
	DType   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets [2]int `json:"data_offsets"`
}

// Encode returns the beginning of the file, up to the data: the size and the
// header, with spaces up to a multiple of 8 bytes.
func (h *Header) Encode() []byte {
	b := append(make([]byte, 8), '{')
	if len(h.Metadata) > 0 {
		b = appendMember(b, metadataKey, h.Metadata)
	}
	for _, t := range h.Tensors {
		b = appendMember(b, t.Name, entry{cmp.Or(t.Other, Name(t.DType)), append([]int{}, t.Shape...), [2]int{t.Offset, t.Offset + t.Bytes}})
	}
	b = append(b, '}')
	for len(b)%8 != 0 {
		b = append(b, ' ')
	}
	binary.LittleEndian.PutUint64(b, uint64(len(b)-8))
	return b
}

// appendMember appends one member of a JSON object whose beginning is b.
func appendMember(b []byte, key string, value any) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	for i, v := range []any{key, value} {
		text, err := json.Marshal(v)
		if err != nil {
			panic(err) // strings and integers always encode
		}
		if i == 1 {
			b = append(b, ':')
		}
		b = append(b, text...)
	}
	return b
}

// Bytes returns the size of a tensor; ok is false if a size is negative or the
// product overflows.
func Bytes(dt dtype.DType, shape []int) (n int, ok bool) {
	n = dt.Size()
	for _, s := range shape {
		if s < 0 {
			return 0, false
		}
		if s == 0 {
			n = 0
		}
	}
	for _, s := range shape {
		if n != 0 && s > math.MaxInt/n {
			return 0, false
		}
		n *= s
	}
	return n, true
}
