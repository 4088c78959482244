package rowstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A record is a row in the file: its fields, its number in four bytes, and a CRC-32C of these.
const (
	ownerBytes = 4
	sumBytes   = 4
	endBytes   = ownerBytes + sumBytes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal sets the number and the sum of a record.
func seal(record []byte, row int) {
	binary.LittleEndian.PutUint32(record[len(record)-endBytes:], uint32(row))
	binary.LittleEndian.PutUint32(record[len(record)-sumBytes:], sum(record))
}

// owner returns the row whose record it says it is.
func owner(record []byte) int { return int(binary.LittleEndian.Uint32(record[len(record)-endBytes:])) }

// sum returns the sum of a record.
func sum(record []byte) uint32 { return crc32.Checksum(record[:len(record)-sumBytes], castagnoli) }

// check returns an error unless the record is one of that row.
func (s *Store) check(record []byte, row int) error {
	const remedy = "load the last checkpoint, and look at the disk"
	got, want := sum(record), binary.LittleEndian.Uint32(record[len(record)-sumBytes:])
	switch its := owner(record); {
	case got != want:
		return s.wrap(row, fmt.Errorf("the record is damaged, its CRC-32C is %08x and not %08x; %s", got, want, remedy))
	case its != row:
		return s.wrap(row, fmt.Errorf("the record is damaged, it is that of row %d; %s", s.c.Number(its), remedy))
	}
	return nil
}

// readRecords reads consecutive records from number at on; row is whose the last one is, -1 if that is not known.
func (s *Store) readRecords(b []byte, at, row int) error {
	begin := at * s.record
	n, err := s.file.ReadAt(b, int64(begin))
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = fmt.Errorf("the file ends at byte %d and the record at %d; it is cut off, so load the last checkpoint", begin+n, begin+len(b))
	}
	return s.wrap(row, err)
}

// writeRecords writes consecutive records from number at on, which are those of rows.
func (s *Store) writeRecords(b []byte, at int, rows []int) error {
	n, err := s.file.WriteAt(b, int64(at*s.record))
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return s.wrap(rows[min(n/s.record, len(rows)-1)], err)
	}
	return nil
}
