package corpus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/gorun-spmd/gorun/data/internal/sealed"
	"github.com/gorun-spmd/gorun/data/tokenizer"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// A dataset as bytes, all integers little-endian:
//
//	8 bytes     magic, with the version of this layout
//	4 uint64    sizes: bytes of Source, bytes of the tokenizer, tokens of Train, tokens of HeldOut
//	            Source, the tokenizer (its own format), Train and HeldOut as uint16
//	32 bytes    SHA-256 of all before it
const magic = "gorunds1"

const headBytes = len(magic) + 4*8

// MarshalBinary returns the dataset as versioned, checksummed bytes.
func (d *Dataset) MarshalBinary() (_ []byte, err error) {
	defer fault.Locate(&err)
	tok, err := d.Tokenizer.MarshalBinary()
	if err != nil {
		return nil, err
	}
	data := make([]byte, 0, headBytes+len(d.Source)+len(tok)+2*(len(d.Train)+len(d.HeldOut))+sealed.SumBytes)
	data = append(data, magic...)
	for _, n := range []int{len(d.Source), len(tok), len(d.Train), len(d.HeldOut)} {
		data = binary.LittleEndian.AppendUint64(data, uint64(n))
	}
	data = append(data, d.Source...)
	data = append(data, tok...)
	for _, ids := range [][]int32{d.Train, d.HeldOut} {
		for _, id := range ids {
			data = binary.LittleEndian.AppendUint16(data, uint16(id))
		}
	}
	return sealed.Seal(data), nil
}

// Parse returns the dataset that MarshalBinary wrote; data is not kept. Damaged
// data, of any kind, is an error.
func Parse(data []byte) (_ *Dataset, err error) {
	defer fault.Locate(&err)
	d, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("corpus: Parse: %w", err)
	}
	return d, nil
}

// open reads a dataset that Prepare left in the cache: its Path. The error only
// says what is wrong.
func open(path string) (*Dataset, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		var cause *fs.PathError
		if errors.As(err, &cause) {
			err = cause.Err
		}
		return nil, err
	}
	d, err := parse(data)
	if err != nil {
		return nil, err
	}
	d.Path, d.Cached = path, true
	return d, nil
}

func parse(data []byte) (*Dataset, error) {
	body, err := sealed.Open(data, magic, headBytes, "dataset")
	if err != nil {
		return nil, err
	}
	var sections [4][]byte
	rest := body[headBytes:]
	for i, width := range []uint64{1, 1, 2, 2} {
		n := binary.LittleEndian.Uint64(body[len(magic)+8*i:])
		if n > uint64(len(rest))/width {
			return nil, fmt.Errorf("section %d has %d elements, %d bytes are left for it", i, n, len(rest))
		}
		sections[i], rest = rest[:n*width], rest[n*width:]
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%d bytes too many", len(rest))
	}
	tok, err := tokenizer.Parse(sections[1])
	if err != nil {
		return nil, err
	}
	d := &Dataset{Source: string(sections[0]), Tokenizer: tok}
	if d.Train, d.TrainBytes, err = tokens(sections[2], tok); err != nil {
		return nil, fmt.Errorf("training part: %w", err)
	}
	if d.HeldOut, d.HeldOutBytes, err = tokens(sections[3], tok); err != nil {
		return nil, fmt.Errorf("held-out part: %w", err)
	}
	return d, nil
}

// tokens returns the ids in data and the bytes of text they stand for.
func tokens(data []byte, tok *tokenizer.Tokenizer) (ids []int32, textBytes int, err error) {
	lengths := make([]int, tok.VocabSize())
	for id := range lengths {
		lengths[id] = len(tok.Token(int32(id)))
	}
	ids = make([]int32, len(data)/2)
	for i := range ids {
		id := int(binary.LittleEndian.Uint16(data[2*i:]))
		if id >= len(lengths) {
			return nil, 0, fmt.Errorf("token %d is %d, the vocabulary has %d", i, id, len(lengths))
		}
		ids[i] = int32(id)
		textBytes += lengths[id]
	}
	return ids, textBytes, nil
}
