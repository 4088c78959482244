// Package snapshot is the memory in which the ranks of a job leave their state, so that the
// job can go on after a rank has died. The launcher makes it and outlives the ranks.
//
// A rank has two slots, and writes them in turn. A snapshot is the slots of all ranks that
// have its number; it is complete when each of them has. Until then the one before counts:
//
//	each rank:  data → description → entry, with checksums
//	all ranks:  meet, before any of them begins the next
//
// So a rank that dies at whatever point of its copy leaves the last complete snapshot whole.
//
// What is costly to make, as tables of a text, is kept beside them under a name ([Keep]).
//
// The memory is one file without a name, with a fixed place for each slot of each rank. It is
// sparse: pages are taken as they are written.
package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// MaxRanks is how many ranks may have slots.
const MaxRanks = 4096

// SlotBytes is the most that one rank can keep of a snapshot.
const SlotBytes = 1 << 40

// The memory, from its start: slot 0 of all ranks, then slot 1. A slot has its entry in its
// first page, the data behind it, and then the description.
const (
	page       = 4096
	entryWords = 8
	entryBytes = 8*entryWords + 4 // and their CRC-32C
	totalBytes = 2 * MaxRanks * SlotBytes
)

// A Memory is what snapshots are kept in: a file, or in tests one that fails.
type Memory interface {
	io.ReaderAt
	io.WriterAt
}

// A Snapshot is a complete one.
type Snapshot struct {
	Sequence int // from 1; the next one has the next number
	Step     int
	Parts    []Part // by rank
}

// A Part is what one rank has kept.
type Part struct {
	At, Bytes        int64 // of its data in the memory
	DescriptionBytes int64
	descriptionSum   uint32
}

// entry is what a slot says of itself.
type entry struct {
	sequence, attempt, step, ranks uint64
	bytes, descriptionBytes        uint64
	descriptionSum                 uint64
}

func (e *entry) words() [entryWords]uint64 {
	return [entryWords]uint64{magic, e.sequence, e.attempt, e.step, e.ranks, e.bytes, e.descriptionBytes, e.descriptionSum}
}

// magic tells an entry of this layout from anything else.
const magic = 0x31746f6c736e7572

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// slotAt returns where a slot of a rank begins. The slot of a snapshot is its number modulo 2.
func slotAt(sequence, rank int) int64 { return (int64(sequence%2)*MaxRanks + int64(rank)) * SlotBytes }

// readEntry returns the entry at the start of a slot; ok is false if there is none or it is torn.
func readEntry(m Memory, at int64) (e entry, ok bool, err error) {
	var b [entryBytes]byte
	if _, err := m.ReadAt(b[:], at); err != nil {
		return e, false, fmt.Errorf("snapshot: reading an entry at byte %d: %w", at, err)
	}
	var w [entryWords]uint64
	for i := range w {
		w[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	if w[0] != magic || binary.LittleEndian.Uint32(b[8*entryWords:]) != crc32.Checksum(b[:8*entryWords], castagnoli()) {
		return e, false, nil
	}
	return entry{w[1], w[2], w[3], w[4], w[5], w[6], w[7]}, true, nil
}

// Last returns the last complete snapshot; ok is false if there is none.
func Last(m Memory) (last Snapshot, ok bool, err error) {
	all, err := Complete(m)
	if err != nil || len(all) == 0 {
		return Snapshot{}, false, err
	}
	return all[0], true, nil
}

// Complete returns the complete snapshots, at most two, the last one first.
func Complete(m Memory) (all []Snapshot, err error) {
	for slot := range 2 {
		s, complete, err := read(m, slot)
		if err != nil {
			return nil, err
		}
		if complete {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b Snapshot) int { return b.Sequence - a.Sequence })
	return all, nil
}

// read returns the snapshot in one slot of all ranks, if it is complete: all entries say the
// same. The attempt tells those of ranks that died before others of the same number.
func read(m Memory, slot int) (s Snapshot, ok bool, err error) {
	var first entry
	for rank := 0; rank == 0 || rank < int(first.ranks); rank++ {
		at := slotAt(slot, rank)
		e, ok, err := readEntry(m, at)
		if err != nil || !ok {
			return Snapshot{}, false, err
		}
		if rank == 0 {
			first = e
			s.Sequence, s.Step = int(e.sequence), int(e.step)
		}
		same := e.sequence == first.sequence && e.attempt == first.attempt && e.step == first.step && e.ranks == first.ranks
		if !same || e.ranks > MaxRanks || int(e.sequence%2) != slot || e.bytes > SlotBytes-page || e.descriptionBytes > SlotBytes-page-e.bytes {
			return Snapshot{}, false, nil
		}
		s.Parts = append(s.Parts, Part{At: at + page, Bytes: int64(e.bytes), DescriptionBytes: int64(e.descriptionBytes),
			descriptionSum: uint32(e.descriptionSum)})
	}
	return s, true, nil
}

// Description reads what a rank has written about its part, and checks it.
func (p *Part) Description(m Memory) ([]byte, error) {
	b := make([]byte, p.DescriptionBytes)
	if _, err := m.ReadAt(b, p.At+p.Bytes); err != nil {
		return nil, fmt.Errorf("snapshot: reading %d bytes at %d: %w", len(b), p.At+p.Bytes, err)
	}
	if crc32.Checksum(b, castagnoli()) != p.descriptionSum {
		return nil, errors.New("snapshot: the description of a part is damaged: its CRC-32C differs")
	}
	return b, nil
}

// A Writer writes the part of one rank.
type Writer struct {
	m     Memory
	slot  int64
	at    int64
	entry entry
}

// Begin begins the part of rank, of ranks, of the snapshot with this number. All ranks must
// have finished the one before. attempt tells this start of the job from others.
func Begin(m Memory, sequence, attempt, step, rank, ranks int) *Writer {
	slot := slotAt(sequence, rank)
	return &Writer{m: m, slot: slot, at: slot + page,
		entry: entry{sequence: uint64(sequence), attempt: uint64(attempt), step: uint64(step), ranks: uint64(ranks)}}
}

// Write appends to the data.
func (w *Writer) Write(b []byte) (n int, err error) {
	if w.entry.bytes+uint64(len(b)) > SlotBytes-page {
		return 0, fmt.Errorf("snapshot: a rank's part is more than %d bytes; use more ranks", int64(SlotBytes-page))
	}
	n, err = w.m.WriteAt(b, w.at)
	w.at += int64(n)
	w.entry.bytes += uint64(n)
	return n, err
}

// Finish writes the description, and the entry that makes the part count.
func (w *Writer) Finish(description []byte) error {
	if _, err := w.m.WriteAt(description, w.at); err != nil {
		return err
	}
	w.entry.descriptionBytes = uint64(len(description))
	w.entry.descriptionSum = uint64(crc32.Checksum(description, castagnoli()))
	var b []byte
	for _, word := range w.entry.words() {
		b = binary.LittleEndian.AppendUint64(b, word)
	}
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli()))
	_, err := w.m.WriteAt(b, w.slot)
	return err
}
