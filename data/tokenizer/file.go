package tokenizer

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gorun-spmd/gorun/data/internal/sealed"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// A tokenizer as bytes, all integers little-endian:
//
//	8 bytes    magic, with the version of this layout
//	uint32     number of merges
//	2 uint16   left and right of each merge
//	32 bytes   SHA-256 of all before it
const magic = "gorunbp1"

const headBytes = len(magic) + 4

// MarshalBinary returns the tokenizer as versioned, checksummed bytes. It returns an error
// for a tokenizer of Load: keep the file that was loaded.
func (t *Tokenizer) MarshalBinary() (_ []byte, err error) {
	defer fault.Locate(&err)
	if t.foreign != nil {
		return nil, errors.New("tokenizer: MarshalBinary: this tokenizer was read from files; keep those")
	}
	data := make([]byte, 0, headBytes+4*len(t.merges)+sealed.SumBytes)
	data = append(data, magic...)
	data = binary.LittleEndian.AppendUint32(data, uint32(len(t.merges)))
	for _, m := range t.merges {
		data = binary.LittleEndian.AppendUint16(data, uint16(m.left))
		data = binary.LittleEndian.AppendUint16(data, uint16(m.right))
	}
	return sealed.Seal(data), nil
}

// Parse returns the Tokenizer that MarshalBinary wrote. Damaged data, of any
// kind, is an error.
func Parse(data []byte) (_ *Tokenizer, err error) {
	defer fault.Locate(&err)
	t, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: Parse: %w; train again", err)
	}
	return t, nil
}

func parse(data []byte) (*Tokenizer, error) {
	body, err := sealed.Open(data, magic, headBytes, "tokenizer")
	if err != nil {
		return nil, err
	}
	count := int(binary.LittleEndian.Uint32(body[len(magic):]))
	body = body[headBytes:]
	if len(body) != 4*count {
		return nil, fmt.Errorf("%d bytes for %d merges, want %d", len(body), count, 4*count)
	}
	merges := make([]pair, count)
	for i := range merges {
		merges[i] = pair{
			left:  int32(binary.LittleEndian.Uint16(body[4*i:])),
			right: int32(binary.LittleEndian.Uint16(body[4*i+2:])),
		}
	}
	return build(merges)
}
