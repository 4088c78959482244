package serve

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"os"
	"unsafe"
)

// Write writes a table of rows of dim numbers with their keys, which are any integers. It
// replaces the file at path once the new one is complete and durable. It reads each row
// before it asks for the next, so rows may share memory.
//
// It returns an error for a repeated key and for a row of another length.
func Write(path string, dim int, rows iter.Seq2[int64, []float32]) error {
	var number [8]byte
	_, err := rand.Read(number[:])
	if err == nil {
		err = write(path, dim, binary.LittleEndian.Uint64(number[:]), rows)
	}
	if err != nil {
		return fmt.Errorf("serve: Write: %s: %w", path, err)
	}
	return nil
}

func write(path string, dim int, table uint64, rows iter.Seq2[int64, []float32]) error {
	if !littleEndian() {
		return errors.New("this machine is big-endian; tables are written and read on little-endian ones")
	}
	w, err := create(path, dim, table, 0)
	if err != nil {
		return err
	}
	defer w.discard()
	for key, row := range rows {
		if err := w.add(key, row); err != nil {
			return err
		}
	}
	if err := w.publish(nil); err != nil {
		return err
	}
	for i := uint64(1); ; i++ { // updates of the table before
		if err := os.Remove(updatePath(path, i)); err != nil {
			return nil // none is left; of one that is, the number differs
		}
	}
}

// Update writes the changes since the last Write or Update at path: the rows that are new
// or differ by a bit, and the removed keys. rows are all rows of the table, as for Write.
// It returns how many rows it wrote and keys it removed; if there are none, it writes no
// file.
//
// A reader takes a row from the last update that has it. Write again when updates have
// become many, or as large as the table.
func Update(path string, rows iter.Seq2[int64, []float32]) (changed, removed int, err error) {
	if changed, removed, err = update(path, rows); err != nil {
		return 0, 0, fmt.Errorf("serve: Update: %s: %w", path, err)
	}
	return changed, removed, nil
}

func update(path string, rows iter.Seq2[int64, []float32]) (changed, removed int, err error) {
	old, err := open(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; write all rows there before their changes: by Write, or Export of package embedding", err)
	}
	if err != nil {
		return 0, 0, err
	}
	defer old.release()
	last := uint64(len(old.layers))
	w, err := create(updatePath(path, last), old.dim, old.layers[0].h.Table, last)
	if err != nil {
		return 0, 0, err
	}
	defer w.discard()
	seen := make([][]uint64, len(old.layers)) // by layer: a bit for each row that the table still has
	for i := range seen {
		seen[i] = make([]uint64, (old.layers[i].h.Rows+63)/64)
	}
	for key, row := range rows {
		layer, at, ok := old.find(key)
		if ok {
			seen[layer][at/64] |= 1 << (at % 64)
			if len(row) == old.dim && bytes.Equal(bytesOf(row), bytesOf(old.layers[layer].row(at))) {
				continue
			}
		}
		if err := w.add(key, row); err != nil {
			return 0, 0, err
		}
	}
	var gone []int64
	for i, l := range old.layers {
		for at := range int(l.h.Rows) {
			if seen[i][at/64]>>(at%64)&1 == 0 && !l.isHidden(at) {
				gone = append(gone, l.key(at))
			}
		}
	}
	if w.h.Rows == 0 && len(gone) == 0 {
		return 0, 0, nil
	}
	return int(w.h.Rows), len(gone), w.publish(gone)
}

func bytesOf(row []float32) []byte {
	if len(row) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&row[0])), 4*len(row))
}

func updatePath(path string, update uint64) string { return fmt.Sprintf("%s.%d", path, update) }

// littleEndian reports whether this machine is little-endian, as files are.
func littleEndian() bool {
	x := math.Float32bits(1)
	return *(*byte)(unsafe.Pointer(&x)) == 0
}
