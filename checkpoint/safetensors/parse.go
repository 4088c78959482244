package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"
)

// A FormatError says where a file or an index breaks the format.
type FormatError struct {
	Byte    int // in the file
	Problem string
}

// Error names the byte.
func (e *FormatError) Error() string {
	return fmt.Sprintf("safetensors: byte %d: %s", e.Byte, e.Problem)
}

// ReadHeader reads and checks the header of a file of fileBytes bytes. Its error
// is a *FormatError, or that of reading.
func ReadHeader(r io.ReaderAt, fileBytes int) (*Header, error) {
	if fileBytes < 8 {
		return nil, &FormatError{0, fmt.Sprintf("the file has %d bytes, fewer than the 8 of the header's size; "+
			"it is cut off or no safetensors file", fileBytes)}
	}
	var size [8]byte
	if err := readFull(r, size[:], 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(size[:])
	switch {
	case n > MaxHeaderBytes:
		return nil, &FormatError{0, fmt.Sprintf("the header has %d bytes by its own account; the format allows %d", n, MaxHeaderBytes)}
	case int(n) > fileBytes-8:
		return nil, &FormatError{0, fmt.Sprintf("the header has %d bytes by its own account, but only %d follow in the file; it is cut off", n,
			fileBytes-8)}
	}
	text := make([]byte, n)
	if err := readFull(r, text, 8); err != nil {
		return nil, err
	}
	return parse(text, fileBytes)
}

func readFull(r io.ReaderAt, b []byte, at int) error {
	n, err := r.ReadAt(b, int64(at))
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return &FormatError{at + n, "the file ends here; it is cut off"}
	}
	return err
}

// parse reads the text of a header that begins at byte 8 of the file.
func parse(text []byte, fileBytes int) (*Header, error) {
	p := &parser{json.NewDecoder(bytes.NewReader(text)), 8}
	p.UseNumber()
	if !utf8.Valid(text) {
		return nil, &FormatError{8, "the header is not UTF-8"}
	}
	if len(text) == 0 || text[0] != '{' {
		return nil, &FormatError{8, "the header does not begin with {"}
	}
	h := &Header{DataStart: 8 + len(text), FileBytes: fileBytes}
	err := p.object("header", func(name string) error {
		if name == metadataKey {
			h.Metadata = map[string]string{}
			return p.object(metadataKey, func(key string) error {
				value, err := p.text(metadataKey + " " + strconv.Quote(key))
				h.Metadata[key] = value
				return err
			})
		}
		t, err := p.tensor(name)
		h.Tensors = append(h.Tensors, t)
		return err
	})
	if err != nil {
		return nil, err
	}
	if rest := bytes.TrimRight(text[p.InputOffset():], " "); len(rest) > 0 {
		return nil, p.problem("something follows the header's }")
	}
	return h, h.place(p)
}

// place orders the tensors by their bytes and checks that these cover the data
// once.
func (h *Header) place(p *parser) error {
	slices.SortStableFunc(h.Tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Bytes, b.Bytes))
	})
	data := h.FileBytes - h.DataStart
	end := 0
	for _, t := range h.Tensors {
		switch {
		case t.Offset < end:
			return p.problem("tensor %q begins at byte %d of the data, inside the one before it, which ends at %d", t.Name, t.Offset, end)
		case t.Offset > end:
			return p.problem("nothing lies at bytes %d to %d of the data, before tensor %q", end, t.Offset, t.Name)
		case t.Bytes > data-end:
			return &FormatError{h.FileBytes, fmt.Sprintf("the file ends here, before tensor %q does, at byte %d; it is cut off", t.Name,
				h.DataStart+t.Offset+t.Bytes)}
		}
		end += t.Bytes
	}
	if end != data {
		return &FormatError{h.DataStart + end, fmt.Sprintf("%d bytes follow the last tensor", data-end)}
	}
	return nil
}

// A parser reads a header token by token, to see names that appear twice.
type parser struct {
	*json.Decoder
	start int // of the text in the file
}

func (p *parser) problem(format string, args ...any) error {
	return &FormatError{p.start + int(p.InputOffset()), fmt.Sprintf(format, args...)}
}

// next returns the next token.
func (p *parser) next() (json.Token, error) {
	token, err := p.Token()
	if err != nil {
		return nil, p.problem("this is no JSON: %v", err)
	}
	return token, nil
}

// object calls member for each name of an object, which must read its value.
func (p *parser) object(what string, member func(name string) error) error {
	if err := p.delim('{', what); err != nil {
		return err
	}
	seen := map[string]bool{}
	for p.More() {
		token, err := p.next()
		if err != nil {
			return err
		}
		name, ok := token.(string)
		switch {
		case !ok:
			return p.problem("a name is expected in %s", what)
		case name == "":
			return p.problem("a name in %s is empty", what)
		case seen[name]:
			return p.problem("%q appears twice in %s", name, what)
		}
		seen[name] = true
		if err := member(name); err != nil {
			return err
		}
	}
	return p.delim('}', what)
}

func (p *parser) delim(want json.Delim, what string) error {
	token, err := p.next()
	if err == nil && token != want {
		err = p.problem("%v is expected for %s, not %v", want, what, token)
	}
	return err
}

func (p *parser) text(what string) (string, error) {
	token, err := p.next()
	if err != nil {
		return "", err
	}
	s, ok := token.(string)
	if !ok {
		return "", p.problem("%s is not a string", what)
	}
	return s, nil
}

// ints reads a list of integers that are not negative.
func (p *parser) ints(what string) ([]int, error) {
	if err := p.delim('[', what); err != nil {
		return nil, err
	}
	list := []int{}
	for p.More() {
		token, err := p.next()
		if err != nil {
			return nil, err
		}
		number, _ := token.(json.Number)
		n, err := strconv.ParseUint(string(number), 10, 63)
		if err != nil {
			return nil, p.problem("%s has %v, which is not an integer from 0 to 2⁶³-1", what, token)
		}
		list = append(list, int(n))
	}
	return list, p.delim(']', what)
}

// tensor reads the value that follows a tensor's name.
func (p *parser) tensor(name string) (Tensor, error) {
	t := Tensor{Name: name}
	var offsets []int
	what := "tensor " + strconv.Quote(name)
	err := p.object(what, func(field string) (err error) {
		switch field {
		case "dtype":
			var text string
			if text, err = p.text("the dtype of " + what); err != nil {
				return err
			}
			var ok bool
			if t.DType, ok = ParseName(text); !ok {
				t.Other = text
			}
		case "shape":
			t.Shape, err = p.ints("the shape of " + what)
		case "data_offsets":
			offsets, err = p.ints("data_offsets of " + what)
		default:
			err = p.problem("%s has a field %q", what, field)
		}
		return err
	})
	switch {
	case err != nil:
		return t, err
	case !t.DType.Valid() && t.Other == "" || t.Shape == nil || len(offsets) != 2:
		return t, p.problem("%s lacks dtype, shape or two data_offsets", what)
	case offsets[1] < offsets[0]:
		return t, p.problem("%s ends at byte %d of the data, before it begins at %d", what, offsets[1], offsets[0])
	}
	t.Offset, t.Bytes = offsets[0], offsets[1]-offsets[0]
	if n, ok := Bytes(t.DType, t.Shape); t.Other == "" && (!ok || n != t.Bytes) {
		return t, p.problem("%s of %s %v does not take the %d bytes from %d to %d", what, Name(t.DType), t.Shape, t.Bytes, offsets[0], offsets[1])
	}
	return t, nil
}
