package snapshot

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/fnv"
)

// Behind the slots there is a place for each of so many hashes of names. A place has its head
// in its first page, and the bytes behind it:
//
//	8 bytes  magic
//	8 bytes  how many bytes there are
//	8 bytes  their CRC-32C
//	8 bytes  the length of the name, then the name
//	4 bytes  CRC-32C of all before it
const (
	places     = 1 << 12
	maxName    = 1 << 10
	magicPlace = 0x3174706b6e757267
	memoryEnds = totalBytes + places*SlotBytes + page
)

// placeAt returns where the bytes of a name are kept.
func placeAt(name string) int64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return totalBytes + int64(h.Sum64()%places)*SlotBytes
}

// Keep keeps bytes under a name for later attempts of the job. One rank calls it, while none
// reads.
func Keep(m Memory, name string, b []byte) error {
	if len(name) > maxName || len(b) > SlotBytes-page {
		return fmt.Errorf("snapshot: Keep: a name of %d bytes and %d bytes; at most %d and %d", len(name), len(b), maxName, SlotBytes-page)
	}
	at := placeAt(name)
	if _, err := m.WriteAt(make([]byte, 8), at); err != nil { // until all is there nothing is
		return err
	}
	if _, err := m.WriteAt(b, at+page); err != nil {
		return err
	}
	var head []byte
	for _, word := range []uint64{magicPlace, uint64(len(b)), uint64(crc32.Checksum(b, castagnoli())), uint64(len(name))} {
		head = binary.LittleEndian.AppendUint64(head, word)
	}
	head = append(head, name...)
	head = binary.LittleEndian.AppendUint32(head, crc32.Checksum(head, castagnoli()))
	_, err := m.WriteAt(head[8:], at+8)
	if err == nil {
		_, err = m.WriteAt(head[:8], at)
	}
	return err
}

// Kept returns what Keep kept under a name; ok is false if there is nothing, or it is damaged. Of a
// file it returns the memory itself, for reading.
func Kept(m Memory, name string) (b []byte, ok bool, err error) {
	head, at := make([]byte, 8*4+len(name)+4), placeAt(name)
	if _, err := m.ReadAt(head, at); err != nil {
		return nil, false, fmt.Errorf("snapshot: reading what is kept as %q: %w", name, err)
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(head[8*i:]) }
	said := head[:len(head)-4]
	if word(0) != magicPlace || word(3) != uint64(len(name)) || string(said[32:]) != name ||
		binary.LittleEndian.Uint32(head[len(said):]) != crc32.Checksum(said, castagnoli()) || word(1) > SlotBytes-page {
		return nil, false, nil
	}
	if b = mapped(m, at+page, int(word(1))); b == nil {
		b = make([]byte, word(1))
		if _, err := m.ReadAt(b, at+page); err != nil {
			return nil, false, fmt.Errorf("snapshot: reading what is kept as %q: %w", name, err)
		}
	}
	return b, uint64(crc32.Checksum(b, castagnoli())) == word(2), nil
}
