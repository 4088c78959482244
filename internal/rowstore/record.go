package rowstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A record is a row in the file: its fields, and a CRC-32C of its number and these.
const sumBytes = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal sets the sum of a record.
func seal(record []byte, row int) {
	data := record[:len(record)-sumBytes]
	binary.LittleEndian.PutUint32(record[len(data):], sum(data, row))
}

// sum returns the sum of the data of a row.
func sum(data []byte, row int) uint32 {
	var number [8]byte
	binary.LittleEndian.PutUint64(number[:], uint64(row)+1)
	return crc32.Update(crc32.Checksum(number[:], castagnoli), castagnoli, data)
}

// check returns an error unless the record is one of that row.
func check(record []byte, row int) error {
	data := record[:len(record)-sumBytes]
	got, want := sum(data, row), binary.LittleEndian.Uint32(record[len(data):])
	if got != want {
		return fmt.Errorf("the record is damaged, its CRC-32C is %08x and not %08x; load the last checkpoint, and look at the disk", got, want)
	}
	return nil
}

// readRecords reads the records of consecutive rows.
func (s *Store) readRecords(b []byte, row int) error {
	at := row * s.record
	n, err := s.file.ReadAt(b, int64(at))
	if n == len(b) {
		return nil
	}
	row += n / s.record
	if err == nil || errors.Is(err, io.EOF) {
		err = fmt.Errorf("the file ends at byte %d and the row at %d; it is cut off, so load the last checkpoint", at+n, (row+1)*s.record)
	}
	return s.wrap(row, err)
}

// writeRecords writes the records of consecutive rows.
func (s *Store) writeRecords(b []byte, row int) error {
	n, err := s.file.WriteAt(b, int64(row*s.record))
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return s.wrap(row+n/s.record, err)
	}
	return nil
}
