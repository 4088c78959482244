package serve

import (
	"errors"
	"fmt"
	"hash/crc32"
	iofs "io/fs"
	"iter"
	"os"
	"sync"
	"unsafe"
)

// A Table is an exported table as it was when it was opened or reloaded. It does not
// change. Any number of goroutines may read it.
type Table struct {
	dim    int
	len    int
	layers []*layer // all rows, then the updates

	mu    sync.Mutex
	users int // the number of Views, plus one while the table is the current one; 0: unmapped
}

// A layer is one mapped file.
type layer struct {
	h      header
	path   string
	file   os.FileInfo
	memory []byte
	rows   []float32
	keys   []int64  // the keys of the rows, then the removed keys; nil: 0, 1, 2, …
	slots  []uint32 // of the hash table: the number of a key plus one, 0 for free ones
	hidden []uint64 // a bit for each row that an update has or removes; nil: none
}

// open maps a table and its updates.
func open(path string) (*Table, error) {
	for {
		t, err := openLayers(path)
		if err != nil {
			return nil, err
		}
		if now, err := os.Stat(path); err == nil && os.SameFile(now, t.layers[0].file) {
			return t, nil
		}
		t.release() // another Write has removed its updates
	}
}

func openLayers(path string) (t *Table, err error) {
	t = &Table{users: 1}
	defer func() {
		if err != nil {
			t.release()
			t = nil
		}
	}()
	for i := uint64(0); ; i++ {
		name := path
		if i > 0 {
			name = updatePath(path, i)
		}
		l, err := openLayer(name)
		switch {
		case i > 0 && errors.Is(err, iofs.ErrNotExist):
			t.hide()
			return t, nil
		case err != nil:
			return t, err
		case i > 0 && l.h.Table != t.layers[0].h.Table: // it is of the table before
			l.unmap()
			t.hide()
			return t, nil
		case l.h.Update != i || i > 0 && int(l.h.Dim) != t.dim:
			l.unmap()
			return t, fmt.Errorf("%s is update %d of rows of %d, where update %d is to be; it was renamed, so export the table again", name,
				l.h.Update, l.h.Dim, i)
		}
		t.dim, t.layers = int(l.h.Dim), append(t.layers, l)
	}
}

// openLayer maps a file.
func openLayer(path string) (*layer, error) {
	if !littleEndian() {
		return nil, errors.New("this machine is big-endian; tables are read on little-endian ones")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	size := info.Size()
	if size < headerBytes || size != int64(int(size)) {
		return nil, fmt.Errorf("%s has %d bytes, which no table has; it is cut off or no table", path, size)
	}
	memory, err := mapFile(f, int(size))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	l := &layer{path: path, file: info, memory: memory}
	if l.h, err = decode(memory, uint64(size)); err != nil {
		l.unmap()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	l.rows = numbers[float32](memory[headerBytes:], l.h.Rows*uint64(l.h.Dim))
	if l.h.Slots > 0 {
		l.keys = numbers[int64](memory[l.h.keysAt():], l.h.Rows+l.h.Removed)
		l.slots = numbers[uint32](memory[l.h.slotsAt():], l.h.Slots)
	}
	return l, nil
}

// numbers returns the first n numbers of b.
func numbers[T float32 | int64 | uint32](b []byte, n uint64) []T {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n)
}

func (l *layer) unmap() { unmapFile(l.memory) }

// find returns the number of a key. Keys numbered from h.Rows on are removed.
func (l *layer) find(key int64) (at int, ok bool) {
	if l.slots == nil {
		return int(key), key >= 0 && uint64(key) < l.h.Rows
	}
	mask := uint64(len(l.slots) - 1)
	for slot, left := mix(key)&mask, len(l.slots); left > 0; slot, left = (slot+1)&mask, left-1 {
		at := l.slots[slot]
		if at == 0 || uint64(at) > uint64(len(l.keys)) { // the latter if the file is damaged
			return 0, false
		}
		if l.keys[at-1] == key {
			return int(at - 1), true
		}
	}
	return 0, false
}

func (l *layer) row(at int) []float32 {
	d := int(l.h.Dim)
	return l.rows[at*d : (at+1)*d : (at+1)*d]
}

func (l *layer) key(at int) int64 {
	if l.keys == nil {
		return int64(at)
	}
	return l.keys[at]
}

// hide notes that an update has the key of a row.
func (l *layer) hide(at int) {
	if l.hidden == nil {
		l.hidden = make([]uint64, (l.h.Rows+63)/64)
	}
	l.hidden[at/64] |= 1 << (at % 64)
}

func (l *layer) isHidden(at int) bool { return l.hidden != nil && l.hidden[at/64]>>(at%64)&1 != 0 }

// hide marks the rows that an update replaces or removes, and counts the others.
func (t *Table) hide() {
	for i, l := range t.layers {
		t.len += int(l.h.Rows)
		for _, below := range t.layers[:i] {
			for _, key := range l.keys {
				if at, ok := below.find(key); ok && uint64(at) < below.h.Rows && !below.isHidden(at) {
					below.hide(at)
					t.len--
				}
			}
		}
	}
}

// find returns the layer of a key's row and the number of the row there.
func (t *Table) find(key int64) (layer, at int, ok bool) {
	for i := len(t.layers) - 1; i >= 0; i-- {
		l := t.layers[i]
		if at, ok := l.find(key); ok {
			return i, at, uint64(at) < l.h.Rows
		}
	}
	return 0, 0, false
}

// Dim returns how many numbers a row has.
func (t *Table) Dim() int { return t.dim }

// Len returns how many keys there are.
func (t *Table) Len() int { return t.len }

// Updates returns how many updates the table has.
func (t *Table) Updates() int { return len(t.layers) - 1 }

// Row returns the row of a key, in the memory of the file. Do not change it or use it after
// the View. ok is false if the table has no such key.
func (t *Table) Row(key int64) (row []float32, ok bool) {
	layer, at, ok := t.find(key)
	if !ok {
		return nil, false
	}
	return t.layers[layer].row(at), true
}

// All lists the keys and their rows, in no order.
func (t *Table) All() iter.Seq2[int64, []float32] {
	return func(yield func(int64, []float32) bool) {
		for _, l := range t.layers {
			for at := range int(l.h.Rows) {
				if !l.isHidden(at) && !yield(l.key(at), l.row(at)) {
					return
				}
			}
		}
	}
}

// Verify reads all of the files and compares their checksums.
func (t *Table) Verify() error {
	for _, l := range t.layers {
		if crc32.Checksum(l.memory[headerBytes:], castagnoli()) != l.h.DataCRC {
			return fmt.Errorf("serve: Verify: %s is damaged: the checksum differs; export it again", l.path)
		}
	}
	return nil
}

// use counts one more user, if the table is still mapped.
func (t *Table) use() (ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.users == 0 {
		return false
	}
	t.users++
	return true
}

// release counts one user less; the last one unmaps the files.
func (t *Table) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.users--; t.users == 0 {
		for _, l := range t.layers {
			l.unmap()
		}
	}
}
