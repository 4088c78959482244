package rowstore

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// Rows that lose their slots are written together, wherever they are in the table.
func TestWritesAreSequential(t *testing.T) {
	const rows, slots, ids, steps = 1 << 14, 1 << 10, 256, 100
	m := &memory{}
	w := newTwin(t, m, rows, slots)
	rng := rand.New(rand.NewPCG(3, 3))
	written := 0 // rows, at least
	for range steps {
		list := make([]int64, 0, ids)
		for _, row := range rng.Perm(rows)[:ids] {
			list = append(list, int64(row))
		}
		if err := w.hold(list, true); err != nil {
			t.Fatal(err)
		}
		written += ids
	}
	if err := w.Sync(); err != nil {
		t.Fatal(err)
	}
	written -= slots
	if m.writes > 4*steps || w.Stats().BytesWritten < written*w.record {
		t.Errorf("%d writes for %d rows of %d steps; each step is to make some", m.writes, written, steps)
	}
}

// The file does not grow without end, and moving rows loses none, whichever operation of the file fails.
func TestDeadRecordsAreCleaned(t *testing.T) {
	const rows, slots, steps = 640, 64, 400
	for failAt := 0; failAt < 3000; failAt += 97 {
		m := &memory{failAt: failAt}
		w := newTwin(t, m, rows, slots)
		rng := rand.New(rand.NewPCG(uint64(failAt), 4))
		moved := 0
		for range steps {
			list := someRows(rng, rows, 30)
			if err := w.hold(list, true); err != nil && !errors.Is(err, errInjected) {
				t.Fatalf("failing at %d: %v", failAt, err)
			}
			if w.cleaning != nil {
				moved++
			}
		}
		m.mend() // a Sync that fails says that rows are lost
		if err := errors.Join(w.Sync(), w.whole(rows)); err != nil {
			t.Fatalf("failing at %d: %v", failAt, err)
		}
		if most := 2 * rows * w.record; len(m.bytes) > most || moved == 0 {
			t.Errorf("failing at %d: a file of %d bytes for %d rows, after %d cleanings; want at most %d", failAt, len(m.bytes), rows, moved, most)
		}
		live := 0
		for segment, n := range w.log.live {
			if live += int(n); n < 0 {
				t.Errorf("segment %d has %d live records", segment, n)
			}
		}
		if live != w.log.written {
			t.Errorf("failing at %d: %d records live, of %d rows", failAt, live, w.log.written)
		}
	}
}

// A record that does not say whose it is stays where it is: only its row is lost, and it is named.
func TestCleaningKeepsDamagedRecords(t *testing.T) {
	const rows, slots = 640, 64
	m := &memory{}
	w := newTwin(t, m, rows, slots)
	if err := errors.Join(w.fill(rows), w.Sync()); err != nil {
		t.Fatal(err)
	}
	at, ok := w.log.find(100)
	if !ok {
		t.Fatal("row 100 is not in the file")
	}
	m.mu.Lock()
	m.bytes[at*w.record+12] ^= 0xff
	m.mu.Unlock()
	rng := rand.New(rand.NewPCG(5, 5))
	for range 400 {
		list := someRows(rng, rows, 30)
		for i := range list {
			if list[i] == 100 {
				list[i] = 101
			}
		}
		if err := w.hold(list, true); err != nil {
			t.Fatal(err)
		}
	}
	err := w.hold([]int64{100}, false)
	if e, ok := errors.AsType[*Error](err); !ok || e.Row != 1100 {
		t.Errorf("row 100: %v", err)
	}
}
