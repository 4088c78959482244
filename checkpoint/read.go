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

// A reader reads parts of the tensors of an index. It reads and checks whole
// blocks, each at most once for a box.
type reader struct {
	fs   fileSystem
	dir  string
	x    *index
	open map[int]file
	buf  []byte // one block
}

func newReader(fs fileSystem, dir string, x *index) *reader {
	return &reader{fs: fs, dir: dir, x: x, open: map[int]file{}}
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
	f, err := r.fs.Open(r.path(i))
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

// read fills dst, the memory of the box want, from the chunks that meet it.
func (r *reader) read(dst []byte, want box, e *tensorEntry) error {
	for i := range e.Chunks {
		if c := &e.Chunks[i]; c.box().overlaps(want) {
			if err := r.chunk(dst, want, e, c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *reader) chunk(dst []byte, want box, e *tensorEntry, c *chunkEntry) error {
	f, err := r.file(c.File)
	if err != nil {
		return fmt.Errorf("tensor %q: %w", e.Name, err)
	}
	elem := e.dtype().Size()
	total := c.box().numel() * elem
	blockBytes := r.x.BlockBytes
	loaded := -1 // which block is in buf
	var block []byte
	runs(c.box(), want, func(u run) bool {
		from, to, n := u.x*elem, u.y*elem, u.n*elem
		for n > 0 && err == nil {
			i := from / blockBytes
			begin, end := i*blockBytes, min(i*blockBytes+blockBytes, total)
			part := min(n, end-from)
			if part == end-begin { // a whole block: straight to where it belongs
				err = r.block(f, dst[to:to+part], e, c, i)
			} else {
				if loaded != i {
					if len(r.buf) < end-begin {
						r.buf = make([]byte, end-begin)
					}
					block, loaded = r.buf[:end-begin], i
					err = r.block(f, block, e, c, i)
				}
				copy(dst[to:to+part], block[from-begin:])
			}
			from, to, n = from+part, to+part, n-part
		}
		return err == nil
	})
	return err
}

// block reads block i of a chunk, which has len(b) bytes, and checks it.
func (r *reader) block(f file, b []byte, e *tensorEntry, c *chunkEntry, i int) error {
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
		return fmt.Errorf("%s: tensor %q, bytes %d to %d: damaged, the CRC-32C is %s and not %s; use another checkpoint", r.path(c.File), e.Name, at, at+len(b), got, want)
	}
	return nil
}

// readFile reads a small file whole.
func readFile(fs fileSystem, name string) ([]byte, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		return nil, err
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
