package checkpoint

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
)

// indexName is the file that makes a folder a checkpoint.
const indexName = "index.json"

// maxIndexBytes is the size above which an index is refused. One of that size has
// the checksums of 128 TiB, in blocks of 1 MiB.
const maxIndexBytes = 1 << 30

// What the format field of an index says, and the version that this package
// writes. A reader refuses versions above its own.
const (
	formatName    = "gorun checkpoint"
	formatVersion = 1
)

// An index says what a checkpoint holds and where. It is the text of index.json,
// and also what the header of a safetensors file is turned into to load it.
type index struct {
	Format     string                     `json:"format"`
	Version    int                        `json:"version"`
	Step       int                        `json:"step"`
	Ranks      int                        `json:"ranks"` // that wrote it
	Properties map[string]string          `json:"properties,omitempty"`
	Values     map[string]json.RawMessage `json:"values,omitempty"`
	BlockBytes int                        `json:"block_bytes"` // of a checksum
	Files      []fileEntry                `json:"files"`
	Tensors    []tensorEntry              `json:"tensors"`
	// Unread has the tensors of a plain model that are of types that package tensor does not have, with the file's words for these.
	Unread map[string]string `json:"unread,omitempty"`
}

// A fileEntry is one safetensors file beside the index.
type fileEntry struct {
	Name   string `json:"name"`
	Bytes  int    `json:"bytes"`
	CRC32C string `json:"crc32c"` // of the whole file, 8 hex digits; "" if unknown
}

// A tensorEntry is one tensor. Its chunks cover each of its elements once.
type tensorEntry struct {
	Name   string       `json:"name"`
	DType  string       `json:"dtype"`
	Shape  []int        `json:"shape"`
	Layout string       `json:"layout,omitempty"` // when it was saved, to read
	Chunks []chunkEntry `json:"chunks"`
}

// A chunkEntry is a box of a tensor, dense and row-major at one place of a file.
// Its bytes [i·BlockBytes, (i+1)·BlockBytes) have the checksum CRC32C[8i:8i+8],
// so that a reader can trust a part without reading the rest.
type chunkEntry struct {
	File   int    `json:"file"`   // index in Files
	At     int    `json:"at"`     // byte of the file
	Offset []int  `json:"offset"` // of the box in the tensor
	Shape  []int  `json:"shape"`  // of the box
	CRC32C string `json:"crc32c"` // 8 hex digits a block; "" if unknown
}

// castagnoli is the polynomial of CRC-32C, for which processors have
// instructions.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// sum returns the CRC-32C of b in hex.
func sum(b []byte) string { return fmt.Sprintf("%08x", crc32.Checksum(b, castagnoli())) }

// The last line of an index is the checksum of all bytes before it.
const (
	sealBegin = "\"crc32c\": \""
	sealEnd   = "\"\n}\n"
	sealBytes = len(sealBegin) + 8 + len(sealEnd)
)

// encode returns the text of index.json: a line for each field, file and tensor.
func (x *index) encode() ([]byte, error) {
	var lines lineWriter
	lines.field("format", x.Format)
	lines.field("version", x.Version)
	lines.field("step", x.Step)
	lines.field("ranks", x.Ranks)
	if len(x.Properties) > 0 {
		lines.field("properties", x.Properties)
	}
	if len(x.Values) > 0 {
		lines.field("values", x.Values)
	}
	if len(x.Unread) > 0 {
		lines.field("unread", x.Unread)
	}
	lines.field("block_bytes", x.BlockBytes)
	addList(&lines, "files", x.Files)
	addList(&lines, "tensors", x.Tensors)
	if lines.err != nil {
		return nil, lines.err
	}
	text := append([]byte("{\n "), lines.text...)
	return fmt.Appendf(text, "%s%s%s", sealBegin, sum(text), sealEnd), nil
}

// A lineWriter collects members of a JSON object.
type lineWriter struct {
	text []byte
	err  error // the first of encoding
}

func (w *lineWriter) value(v any, end string) {
	text, err := json.Marshal(v)
	if w.err == nil {
		w.err = err
	}
	w.text = append(append(w.text, text...), end...)
}

func (w *lineWriter) field(key string, v any) {
	w.text = fmt.Appendf(w.text, "%q: ", key)
	w.value(v, ",\n ")
}

// addList adds a list with a line for each element.
func addList[T any](w *lineWriter, key string, list []T) {
	w.text = fmt.Appendf(w.text, "%q: [", key)
	for i, v := range list {
		if i > 0 {
			w.text = append(w.text, ',')
		}
		w.text = append(w.text, "\n  "...)
		w.value(v, "")
	}
	w.text = append(w.text, "\n ],\n "...)
}

// A versionError says that a newer program wrote an index: that is no damage.
type versionError struct{ version int }

func (e *versionError) Error() string {
	return fmt.Sprintf("version %d: this program reads up to version %d; use a newer one", e.version, formatVersion)
}

// decodeIndex reads and checks the text of index.json.
func decodeIndex(text []byte) (*index, error) {
	body := len(text) - sealBytes
	if body < 0 {
		return nil, fmt.Errorf("it has %d bytes; it is cut off", len(text))
	}
	seal := text[body:]
	if !bytes.HasPrefix(seal, []byte(sealBegin)) || !bytes.HasSuffix(seal, []byte(sealEnd)) {
		return nil, fmt.Errorf("byte %d: it does not end with its checksum; it is cut off or was edited", body)
	}
	said := string(seal[len(sealBegin) : len(sealBegin)+8])
	if got := sum(text[:body]); got != said {
		return nil, fmt.Errorf("it is damaged: the CRC-32C of bytes 0 to %d is %s, and not %s as byte %d says", body, got, said,
			body+len(sealBegin))
	}
	x := new(index)
	if err := json.Unmarshal(text, x); err != nil {
		return nil, atByte(err)
	}
	if x.Format != formatName || x.Version < 1 {
		return nil, fmt.Errorf("format %q, version %d: this is no index of a checkpoint", x.Format, x.Version)
	}
	if x.Version > formatVersion {
		return nil, &versionError{x.Version}
	}
	if err := x.validate(); err != nil {
		if at, ok := errors.AsType[*entryError](err); ok {
			err = fmt.Errorf("byte %d: %w", elementAt(text, at.list, at.i), err)
		}
		return nil, err
	}
	return x, nil
}

// atByte names the byte of an error of encoding/json.
func atByte(err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("byte %d: %w", syntax.Offset, err)
	}
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("byte %d: %w", kind.Offset, err)
	}
	return err
}

// elementAt returns the byte where element i of a list in the text of an index
// begins; 0 if there is no such.
func elementAt(text []byte, list string, i int) int {
	d := json.NewDecoder(bytes.NewReader(text))
	token, err := d.Token()
	for err == nil && token != list {
		if token != json.Delim('{') { // the value of another member
			err = d.Decode(new(json.RawMessage))
		}
		if err == nil {
			token, err = d.Token()
		}
	}
	if err == nil {
		_, err = d.Token() // the list's [
	}
	for ; err == nil && i > 0; i-- {
		err = d.Decode(new(json.RawMessage))
	}
	if err != nil {
		return 0
	}
	at := int(d.InputOffset())
	return at + bytes.IndexByte(text[at:], '{')
}

// blockSums returns the checksums of the blocks of b.
func blockSums(b []byte, blockBytes int) string {
	var text []byte
	for len(b) > 0 {
		n := min(blockBytes, len(b))
		text = append(text, sum(b[:n])...)
		b = b[n:]
	}
	return string(text)
}

// validHex reports whether text is n checksums.
func validHex(text string, n int) bool {
	_, err := hex.DecodeString(text)
	return err == nil && len(text) == 8*n
}
