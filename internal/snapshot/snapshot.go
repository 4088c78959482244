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
// On several hosts each has such a memory, and another host has copies of its parts ([Copy]), in
// the same places: a snapshot is complete where some host that is left has each part ([Join]).
//
// What is costly to make, as tables of a text, is kept beside them under a name ([Keep]).
//
// The memory is one file without a name, with a fixed place for each slot of each rank. It is
// sparse: pages are taken as they are written.
package snapshot

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/gorun-spmd/gorun/internal/simd"
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
	Hosts            []int // whose memories have it, see Join
	descriptionSum   uint32
}

// An Entry is what a slot says of itself.
type Entry struct {
	Sequence, Attempt, Step, Ranks uint64
	Bytes, DescriptionBytes        uint64
	DescriptionSum                 uint64
	Rank                           int // whose slot it is; it is not written
}

func (e *Entry) words() [entryWords]uint64 {
	return [entryWords]uint64{magic, e.Sequence, e.Attempt, e.Step, e.Ranks, e.Bytes, e.DescriptionBytes, e.DescriptionSum}
}

// encode returns the entry as it is written.
func (e *Entry) encode() (b []byte) {
	for _, word := range e.words() {
		b = binary.LittleEndian.AppendUint64(b, word)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli()))
}

// magic tells an entry of this layout from anything else.
const magic = 0x31746f6c736e7572

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// slotAt returns where a slot of a rank begins. The slot of a snapshot is its number modulo 2.
func slotAt(sequence, rank int) int64 { return (int64(sequence%2)*MaxRanks + int64(rank)) * SlotBytes }

// readEntry returns the entry in a slot of a rank; ok is false if there is none or it is torn.
func readEntry(m Memory, sequence, rank int) (e Entry, ok bool, err error) {
	var b [entryBytes]byte
	at := slotAt(sequence, rank)
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
	e = Entry{w[1], w[2], w[3], w[4], w[5], w[6], w[7], rank}
	sound := e.Ranks <= MaxRanks && uint64(rank) < e.Ranks && int(e.Sequence%2) == sequence%2 && e.Bytes <= SlotBytes-page &&
		e.DescriptionBytes <= SlotBytes-page-e.Bytes
	return e, sound, nil
}

// Entries returns what the slots of a memory say of themselves: of one host's ranks, and of the
// other host's for which it keeps copies.
func Entries(m Memory) (all []Entry, err error) { return EntriesOf(m, MaxRanks) }

// EntriesOf is Entries for the first ranks alone, as many as the number says.
func EntriesOf(m Memory, ranks int) (all []Entry, err error) {
	for slot := range 2 {
		for rank, most := 0, ranks; rank < most; rank++ {
			e, ok, err := readEntry(m, slot, rank)
			if err != nil {
				return nil, err
			}
			if ok {
				all = append(all, e)
			}
			if rank == 0 && ok { // whose part is written with the others of a snapshot; on several hosts jobs do not grow
				most = min(ranks, int(e.Ranks))
			}
		}
	}
	return all, nil
}

// Last returns the last complete snapshot; ok is false if there is none.
func Last(m Memory) (last Snapshot, ok bool, err error) {
	all, err := Complete(m)
	if err != nil || len(all) == 0 {
		return Snapshot{}, false, err
	}
	return all[0], true, nil
}

// Complete returns the complete snapshots of one memory, the last one first.
func Complete(m Memory) (all []Snapshot, err error) {
	entries, err := Entries(m)
	return Join([][]Entry{entries}), err
}

// Join returns the complete snapshots in the memories of several hosts, the last one first: those
// of which some host has the part of each rank. The attempt tells apart parts of ranks that died
// and others of the same number.
func Join(hosts [][]Entry) (all []Snapshot) {
	type key struct{ sequence, attempt, step, ranks uint64 }
	parts := map[key][]Part{}
	var keys []key
	for host, entries := range hosts {
		for i := range entries {
			e := &entries[i]
			k := key{e.Sequence, e.Attempt, e.Step, e.Ranks}
			if parts[k] == nil {
				parts[k] = make([]Part, e.Ranks)
				keys = append(keys, k)
			}
			p := &parts[k][e.Rank]
			if len(p.Hosts) == 0 {
				*p = Part{At: slotAt(int(e.Sequence), e.Rank) + page, Bytes: int64(e.Bytes), DescriptionBytes: int64(e.DescriptionBytes),
					descriptionSum: uint32(e.DescriptionSum)}
			}
			p.Hosts = append(p.Hosts, host)
		}
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(b.sequence, a.sequence), cmp.Compare(b.attempt, a.attempt), cmp.Compare(b.step, a.step),
			cmp.Compare(b.ranks, a.ranks))
	})
	for _, k := range keys {
		if !slices.ContainsFunc(parts[k], func(p Part) bool { return len(p.Hosts) == 0 }) {
			all = append(all, Snapshot{Sequence: int(k.sequence), Step: int(k.step), Parts: parts[k]})
		}
	}
	return all
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
	pages []byte // of the slot's data, see Through; nil: it is written by calls
	entry Entry
}

// A Room is the pages of one slot of one rank in this process. The zero Room is empty.
type Room struct{ pages []byte }

// Begin begins the part of rank, of ranks, of the snapshot with this number. All ranks must
// have finished the one before. attempt tells this start of the job from others.
func Begin(m Memory, sequence, attempt, step, rank, ranks int) *Writer {
	slot := slotAt(sequence, rank)
	return &Writer{m: m, slot: slot, at: slot + page,
		entry: Entry{Sequence: uint64(sequence), Attempt: uint64(attempt), Step: uint64(step), Ranks: uint64(ranks)}}
}

// Through has the data, a number of bytes, copied to the pages of its slot, which room has or gets: system calls that
// write to one file wait for each other. Where there are no pages, Write makes calls, whose error says why.
func (w *Writer) Through(room *Room, bytes int) { w.pages = room.grow(w.m, w.slot+page, bytes) }

// Write appends to the data.
func (w *Writer) Write(b []byte) (n int, err error) {
	if w.entry.Bytes+uint64(len(b)) > SlotBytes-page {
		return 0, fmt.Errorf("snapshot: a rank's part is more than %d bytes; use more ranks", int64(SlotBytes-page))
	}
	if at := w.at - w.slot - page; at+int64(len(b)) <= int64(len(w.pages)) {
		n = len(b)
		mode := simd.Copying(2 * len(w.pages))
		mode.CopyAhead(w.pages[at:at+int64(n)], b)
		mode.Done()
	} else {
		n, err = w.m.WriteAt(b, w.at)
	}
	w.at += int64(n)
	w.entry.Bytes += uint64(n)
	return n, err
}

// Finish writes the description, and the entry that makes the part count.
func (w *Writer) Finish(description []byte) error {
	if _, err := w.m.WriteAt(description, w.at); err != nil {
		return err
	}
	w.entry.DescriptionBytes = uint64(len(description))
	w.entry.DescriptionSum = uint64(crc32.Checksum(description, castagnoli()))
	_, err := w.m.WriteAt(w.entry.encode(), w.slot)
	return err
}

// copyBlock is how much Copy copies at a time.
const copyBlock = 1 << 20

// Copy copies the part of a rank from its host's memory to another's, where it counts when all of
// it is there. Nobody writes to either slot meanwhile.
func Copy(from, to Memory, sequence, rank int) error {
	e, ok, err := readEntry(from, sequence, rank)
	if err == nil && (!ok || int(e.Sequence) != sequence) {
		err = fmt.Errorf("snapshot: there is no part of rank %d of snapshot %d to copy", rank, sequence)
	}
	if err != nil {
		return err
	}
	slot, all := slotAt(sequence, rank), int64(e.Bytes+e.DescriptionBytes)
	if _, err := to.WriteAt(make([]byte, entryBytes), slot); err != nil { // until all is there nothing is
		return err
	}
	b := make([]byte, min(all, copyBlock))
	for at := int64(0); at < all; at += copyBlock {
		b = b[:min(all-at, copyBlock)]
		if _, err := from.ReadAt(b, slot+page+at); err != nil {
			return fmt.Errorf("snapshot: reading %d bytes at %d: %w", len(b), slot+page+at, err)
		}
		if _, err := to.WriteAt(b, slot+page+at); err != nil {
			return err
		}
	}
	_, err = to.WriteAt(e.encode(), slot)
	return err
}

// Within returns an error if the bytes from at on are not all in the memory.
func Within(at int64, bytes int) error {
	if at < 0 || bytes < 0 || at > memoryEnds-int64(bytes) {
		return fmt.Errorf("snapshot: %d bytes at %d are not in the memory", bytes, at)
	}
	return nil
}
