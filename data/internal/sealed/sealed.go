// Package sealed puts a checksum behind the bytes of a file, and checks it and the magic number before them.
package sealed

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
)

// SumBytes is the size of the checksum.
const SumBytes = sha256.Size

// Seal returns data with the SHA-256 of all of it appended.
func Seal(data []byte) []byte {
	sum := sha256.Sum256(data)
	return append(data, sum[:]...)
}

// Open returns what Seal was given. It has at least head bytes, of which the first are magic, or Open returns an error;
// what names the content in it.
func Open(data []byte, magic string, head int, what string) ([]byte, error) {
	if len(data) < head+SumBytes {
		return nil, fmt.Errorf("%d bytes are too few for a %s", len(data), what)
	}
	if !bytes.HasPrefix(data, []byte(magic)) {
		return nil, fmt.Errorf("the data begins with %q, want %q", data[:len(magic)], magic)
	}
	body, sum := data[:len(data)-SumBytes], data[len(data)-SumBytes:]
	if got := sha256.Sum256(body); !bytes.Equal(got[:], sum) {
		return nil, errors.New("the checksum does not match the content")
	}
	return body, nil
}
