package serve

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"unsafe"
)

// headerBytes is the offset of the rows, a multiple of the page size of common systems.
const headerBytes = 4096

// A header is the first page of a file.
type header struct {
	Magic   [8]byte
	Version uint32
	Dim     uint32
	Rows    uint64 // that are in the file
	Removed uint64 // the number of removed keys, which follow the keys of the rows
	Slots   uint64 // of the hash table, a power of two; 0: the keys are 0, 1, 2, …
	Table   uint64 // the number that Write chose for the table; its updates have it too
	Update  uint64 // 0: all rows, 1: the first update, …
	Bytes   uint64 // of the file
	DataCRC uint32 // CRC-32C of all behind the header
	CRC     uint32 // of what is before
}

var magic = [8]byte{'g', 'o', 'r', 'u', 'n', 't', 'b', 'l'}

const (
	version   = 1
	crcAt     = 8 + 2*4 + 6*8 + 4 // of header.CRC
	mostRows  = math.MaxUint32 - 1
	mostSlots = 1 << 33
)

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// encode returns the page.
func (h header) encode() []byte {
	b := make([]byte, 0, headerBytes)
	b, err := binary.Append(b, binary.LittleEndian, h)
	if err != nil {
		panic(err) // a header has numbers only
	}
	binary.LittleEndian.PutUint32(b[crcAt:], crc32.Checksum(b[:crcAt], castagnoli()))
	return b[:headerBytes]
}

// keysAt and slotsAt return the offsets of the keys and of the hash table.
func (h *header) keysAt() uint64 { return headerBytes + (h.Rows*uint64(h.Dim)*4+7)/8*8 }

func (h *header) slotsAt() uint64 {
	if h.Slots == 0 {
		return h.keysAt()
	}
	return h.keysAt() + (h.Rows+h.Removed)*8
}

// decode reads the header of a file of size bytes.
func decode(b []byte, size uint64) (h header, err error) {
	if len(b) < headerBytes || [8]byte(b) != magic {
		return h, errors.New("it is no table that Write or Update has written, or is cut off in its header")
	}
	if _, err := binary.Decode(b, binary.LittleEndian, &h); err != nil {
		return h, err
	}
	switch {
	case h.Version != version:
		return h, fmt.Errorf("it has version %d of the format and this program reads %d; export it anew, or build the program anew",
			h.Version, version)
	case h.CRC != crc32.Checksum(b[:crcAt], castagnoli()):
		return h, errors.New("its header is damaged: the checksum differs")
	case h.Dim == 0 || h.Rows > mostRows || h.Removed > mostRows || h.Slots > mostSlots || h.Slots&(h.Slots-1) != 0 ||
		h.Rows*uint64(h.Dim) > math.MaxInt64/8 || h.Slots == 0 && (h.Removed > 0 || h.Update > 0) ||
		h.Slots > 0 && h.Slots <= h.Rows+h.Removed:
		return h, fmt.Errorf("its header has sizes that no table has: %d rows of %d, %d removed, %d slots", h.Rows, h.Dim, h.Removed, h.Slots)
	case h.Bytes != size || h.slotsAt()+4*h.Slots != size:
		return h, fmt.Errorf("it has %d bytes and should have %d; it is cut off, so export it again", size, h.Bytes)
	}
	return h, nil
}

// mix spreads keys over the slots: the last step of SplitMix64.
func mix(key int64) uint64 {
	x := uint64(key)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// A writer writes one file.
type writer struct {
	path   string
	f      *os.File
	out    *bufio.Writer
	sum    hash.Hash32
	h      header
	keys   []int64
	inTurn bool // the keys so far are 0, 1, 2, …
}

// create begins a file that publish will rename to path.
func create(path string, dim int, table, update uint64) (*writer, error) {
	if dim < 1 || dim > 1<<20 {
		return nil, fmt.Errorf("rows have %d numbers; give 1 to %d", dim, 1<<20)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp*")
	if err != nil {
		return nil, err
	}
	w := &writer{path: path, f: f, sum: crc32.New(castagnoli()), inTurn: update == 0}
	w.h = header{Magic: magic, Version: version, Dim: uint32(dim), Table: table, Update: update}
	w.out = bufio.NewWriterSize(io.MultiWriter(f, w.sum), 1<<20)
	_, err = f.Seek(headerBytes, io.SeekStart)
	return w, err
}

// add writes a row.
func (w *writer) add(key int64, row []float32) error {
	if len(row) != int(w.h.Dim) {
		return fmt.Errorf("the row of key %d has %d numbers and the table %d", key, len(row), w.h.Dim)
	}
	if len(w.keys) == mostRows {
		return fmt.Errorf("a table has at most %d rows", mostRows)
	}
	w.inTurn = w.inTurn && key == int64(len(w.keys))
	w.keys = append(w.keys, key)
	w.h.Rows++
	return writeNumbers(w.out, row)
}

// writeNumbers writes numbers in little-endian order.
func writeNumbers[T float32 | int64 | uint32](out io.Writer, list []T) error {
	if len(list) == 0 {
		return nil
	}
	_, err := out.Write(unsafe.Slice((*byte)(unsafe.Pointer(&list[0])), len(list)*int(unsafe.Sizeof(list[0]))))
	return err
}

// publish writes what follows the rows, makes the file durable and gives it its name.
func (w *writer) publish(removed []int64) error {
	if pad := w.h.keysAt() - headerBytes - w.h.Rows*uint64(w.h.Dim)*4; pad > 0 {
		if _, err := w.out.Write(make([]byte, pad)); err != nil {
			return err
		}
	}
	if !w.inTurn {
		keys := append(w.keys, removed...)
		w.h.Removed, w.h.Slots = uint64(len(removed)), 8
		for w.h.Slots < 2*uint64(len(keys)) {
			w.h.Slots *= 2
		}
		slots, err := hashTable(keys, w.h.Slots)
		if err != nil {
			return err
		}
		if err := writeNumbers(w.out, keys); err != nil {
			return err
		}
		if err := writeNumbers(w.out, slots); err != nil {
			return err
		}
	}
	if err := w.out.Flush(); err != nil {
		return err
	}
	w.h.DataCRC, w.h.Bytes = w.sum.Sum32(), w.h.slotsAt()+4*w.h.Slots
	if _, err := w.f.WriteAt(w.h.encode(), 0); err != nil {
		return err
	}
	if err := w.f.Chmod(0o644); err != nil {
		return err
	}
	if err := w.f.Sync(); err != nil {
		return err
	}
	if err := w.f.Close(); err != nil {
		return err
	}
	if err := os.Rename(w.f.Name(), w.path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(w.path))
}

// hashTable returns a hash table of n slots: the number of a key plus one, or 0 if free.
func hashTable(keys []int64, n uint64) ([]uint32, error) {
	slots := make([]uint32, n)
	for i, key := range keys {
		at := mix(key) & (n - 1)
		for slots[at] != 0 {
			if keys[slots[at]-1] == key {
				return nil, fmt.Errorf("key %d is there twice; give each key once", key)
			}
			at = (at + 1) & (n - 1)
		}
		slots[at] = uint32(i + 1)
	}
	return slots, nil
}

// discard removes a file that was not published.
func (w *writer) discard() {
	_ = w.f.Close() // it is removed, so nothing of it counts
	_ = os.Remove(w.f.Name())
}
