package data

import (
	"encoding/binary"
	"fmt"

	"github.com/gorun-spmd/gorun/internal/fault"
)

// Tokens are the token ids in a file of little-endian integers of 2 or 4 bytes without a header, as
// nanoGPT and llm.c prepare them. The file is mapped: the system loads the pages that are read, once
// for all ranks of a host.
type Tokens struct {
	file
	width int
}

// OpenTokens opens a file of ids of width bytes, 2 or 4.
func OpenTokens(path string, width int) (_ *Tokens, err error) {
	defer fault.Locate(&err)
	if width != 2 && width != 4 {
		return nil, fmt.Errorf("data: OpenTokens: ids of %d bytes; give 2 or 4", width)
	}
	f, err := openFile(path)
	if err != nil {
		return nil, fmt.Errorf("data: OpenTokens: %w", err)
	}
	if n := len(f.bytes); n%width != 0 {
		f.Close()
		return nil, fmt.Errorf("data: OpenTokens: %s has %d bytes, which are no ids of %d; give the width that AppendTokens was given", path, n,
			width)
	}
	return &Tokens{f, width}, nil
}

// Len returns the number of ids.
func (t *Tokens) Len() int { return len(t.bytes) / t.width }

// At returns the id at a position from 0 to Len()-1. It throws for another one, and after Close.
func (t *Tokens) At(i int) int32 {
	t.want(i, t.Len())
	if t.width == 2 {
		return int32(binary.LittleEndian.Uint16(t.bytes[2*i:]))
	}
	return int32(binary.LittleEndian.Uint32(t.bytes[4*i:]))
}

// AppendTokens appends ids to the bytes of a file for OpenTokens. Each must fit in width bytes.
func AppendTokens(file []byte, ids []int32, width int) (_ []byte, err error) {
	defer fault.Locate(&err)
	for i, id := range ids {
		switch {
		case width == 2 && id>>16 == 0:
			file = binary.LittleEndian.AppendUint16(file, uint16(id))
		case width == 4 && id >= 0:
			file = binary.LittleEndian.AppendUint32(file, uint32(id))
		default:
			return nil, fmt.Errorf("data: AppendTokens: id %d at %d does not fit in %d bytes; give a width of 4, and no negative ids", id, i, width)
		}
	}
	return file, nil
}
