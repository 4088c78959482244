package checkpoint

import (
	"fmt"
	"hash/crc32"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/checkpoint/safetensors"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// Verify reads the checkpoint in the folder dir whole and returns an error that
// names the first file and byte, or tensor, that is not as the index says. It
// needs no ranks and no State.
func Verify(dir string) (err error) {
	defer fault.Locate(&err)
	if err := verify(osFS{}, dir); err != nil {
		return fmt.Errorf("checkpoint: Verify: %w", err)
	}
	return nil
}

func verify(fs fileSystem, dir string) error {
	text, err := readIndex(fs, dir)
	if err != nil {
		return err
	}
	x, err := decodeIndex(text)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, indexName), err)
	}
	r := newReader(fs, dir, false, x)
	defer r.close()
	var b []byte // one block at a time: nothing is kept
	for i := range x.Tensors {
		e := &x.Tensors[i]
		for j := range e.Chunks {
			if b, err = r.verifyChunk(e, &e.Chunks[j], b); err != nil {
				return err
			}
		}
	}
	for i := range x.Files {
		if err := r.verifyFile(i); err != nil {
			return fmt.Errorf("%s: %w", r.path(i), err)
		}
	}
	return nil
}

// verifyChunk reads the blocks of a chunk into b, which it returns to be used again.
func (r *reader) verifyChunk(e *tensorEntry, c *chunkEntry, b []byte) ([]byte, error) {
	if _, err := r.file(c.File); err != nil { // before memory is taken for its bytes
		return b, err
	}
	n := c.box().numel() * e.dtype().Size()
	b = resize(b, min(n, r.x.BlockBytes))
	for i := 0; i*r.x.BlockBytes < n; i++ {
		if err := r.block(b[:r.x.blockBytes(i, n)], e, c, i); err != nil {
			return b, err
		}
	}
	return b, nil
}

// verifyFile checks what the blocks do not cover: the header, and the checksum
// of the whole.
func (r *reader) verifyFile(i int) error {
	f, err := r.file(i)
	if err != nil {
		return err
	}
	want := r.x.Files[i]
	h, err := safetensors.ReadHeader(f, want.Bytes)
	if err != nil {
		return err
	}
	at := map[int]safetensors.Tensor{}
	for _, t := range h.Tensors {
		if t.Bytes > 0 {
			at[h.DataStart+t.Offset] = t
		}
	}
	for _, e := range r.x.Tensors {
		for _, c := range e.Chunks {
			if t, ok := at[c.At]; c.File == i && (!ok || t.DType != e.dtype() || !slices.Equal(t.Shape, c.Shape) ||
				!strings.HasPrefix(t.Name, e.Name)) {
				return fmt.Errorf("the header does not have tensor %q at byte %d, where the index has it", e.Name, c.At)
			}
		}
	}
	crc := uint32(0)
	b := make([]byte, min(1<<20, want.Bytes))
	for at := 0; at < want.Bytes; at += len(b) {
		b = b[:min(len(b), want.Bytes-at)]
		if n, err := f.ReadAt(b, int64(at)); n < len(b) {
			return fmt.Errorf("byte %d: %w", at+n, err)
		}
		crc = crc32.Update(crc, castagnoli(), b)
	}
	if got := fmt.Sprintf("%08x", crc); got != want.CRC32C {
		return fmt.Errorf("bytes 0 to %d: damaged, the CRC-32C is %s and not %s", want.Bytes, got, want.CRC32C)
	}
	return nil
}
