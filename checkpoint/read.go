package checkpoint

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
)

// maxOpen is how many files a reader holds open.
const maxOpen = 64

// A reader reads blocks of the files of an index, and checks them.
type reader struct {
	fs     fileSystem
	dir    string
	follow bool // symbolic links
	x      *index
	open   map[int]file
}

func newReader(fs fileSystem, dir string, follow bool, x *index) *reader {
	return &reader{fs: fs, dir: dir, follow: follow, x: x, open: map[int]file{}}
}

func (r *reader) close() {
	for _, f := range r.open {
		f.Close() // it was read only
	}
	clear(r.open)
}

func (r *reader) path(i int) string { return filepath.Join(r.dir, r.x.Files[i].Name) }

// file opens a file of the index and compares its size.
func (r *reader) file(i int) (file, error) {
	if f := r.open[i]; f != nil {
		return f, nil
	}
	if len(r.open) >= maxOpen {
		r.close()
	}
	f, err := r.fs.Open(r.path(i), r.follow)
	if err != nil {
		return nil, err
	}
	n, err := f.Size()
	if want := r.x.Files[i].Bytes; err == nil && n != want {
		err = fmt.Errorf("%s: it has %d bytes, the index says %d; it is cut off or of another checkpoint", r.path(i), n, want)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	r.open[i] = f
	return f, nil
}

// blockBytes is the size of block i of a chunk of n bytes.
func (x *index) blockBytes(i, n int) int { return min(x.BlockBytes, n-i*x.BlockBytes) }

// block reads block i of a chunk, which has len(b) bytes, and checks it.
func (r *reader) block(b []byte, e *tensorEntry, c *chunkEntry, i int) error {
	return asDamage(r.readBlock(b, e, c, i))
}

func (r *reader) readBlock(b []byte, e *tensorEntry, c *chunkEntry, i int) error {
	f, err := r.file(c.File)
	if err != nil {
		return fmt.Errorf("tensor %q: %w", e.Name, err)
	}
	at := c.At + i*r.x.BlockBytes
	if n, err := f.ReadAt(b, int64(at)); n < len(b) {
		if err == nil || errors.Is(err, io.EOF) {
			err = fmt.Errorf("the file ends at byte %d; it is cut off", at+n)
		}
		return fmt.Errorf("%s: tensor %q, bytes %d to %d: %w", r.path(c.File), e.Name, at, at+len(b), err)
	}
	if c.CRC32C == "" {
		return nil
	}
	if got, want := fmt.Sprintf("%08x", crc32.Checksum(b, castagnoli())), c.CRC32C[8*i:8*i+8]; got != want {
		return fmt.Errorf("%s: tensor %q, bytes %d to %d: damaged, the CRC-32C is %s and not %s; use another checkpoint", r.path(c.File), e.Name,
			at, at+len(b), got, want)
	}
	return nil
}

// readIndex reads the text of the index of the checkpoint in the folder dir.
func readIndex(fs fileSystem, dir string) ([]byte, error) {
	text, err := readFile(fs, filepath.Join(dir, indexName), false, maxIndexBytes)
	return text, asDamage(err)
}

// readFile reads a small file whole. One of more than most bytes is an error.
func readFile(fs fileSystem, name string, follow bool, most int) ([]byte, error) {
	f, err := fs.Open(name, follow)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		return nil, err
	}
	if n > most {
		return nil, fmt.Errorf("%s: it has %d bytes, and may have %d at most", name, n, most)
	}
	b := make([]byte, n)
	if got, err := f.ReadAt(b, 0); got < n {
		if err == nil || errors.Is(err, io.EOF) {
			err = fmt.Errorf("the file ends at byte %d of %d", got, n)
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}
