package rowstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A memory is a file system of one file, which fails at a given operation.
type memory struct {
	mu     sync.Mutex
	bytes  []byte
	calls  int
	writes int
	failAt int           // this call of all fails, and with always those after it too; 0: none
	always bool          // see failAt
	limit  int           // bytes that the disk has; 0: enough
	wait   chan struct{} // reads wait for it; nil: they do not
}

var errInjected = errors.New("injected")

func (m *memory) step() error {
	m.calls++
	if m.failAt > 0 && (m.calls == m.failAt || m.always && m.calls > m.failAt) {
		return errInjected
	}
	return nil
}

// mend lets no operation fail from now on.
func (m *memory) mend() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failAt = 0
}

func (m *memory) Create(string) (File, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m, "memory", m.step()
}

func (m *memory) ReadAt(b []byte, at int64) (int, error) {
	if m.wait != nil {
		<-m.wait
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.step(); err != nil {
		return 0, err
	}
	n := 0
	if int(at) < len(m.bytes) {
		n = copy(b, m.bytes[at:])
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (m *memory) WriteAt(b []byte, at int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.step(); err != nil {
		return 0, err
	}
	m.writes++
	end := int(at) + len(b)
	if m.limit > 0 && end > m.limit {
		return 0, syscall.ENOSPC
	}
	if end > len(m.bytes) {
		m.bytes = append(m.bytes, make([]byte, end-len(m.bytes))...)
	}
	return copy(m.bytes[at:], b), nil
}

func (m *memory) Sync() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.step()
}

func (m *memory) Close() error { return nil }

// A twin is a store beside a map of what it should hold. Field 0 has 8 bytes, field 1 has 4.
type twin struct {
	*Store
	data, sums []byte
	want       map[int][2]uint64
	at         map[int64]int64 // where rows have been
}

func fresh(row int, data []byte) { binary.LittleEndian.PutUint64(data, uint64(row)*7+1) }

// begin makes field 1 one more than field 0 at first.
func begin(first, data []byte) {
	binary.LittleEndian.PutUint32(data, uint32(binary.LittleEndian.Uint64(first))+1)
}

func newTwin(t testing.TB, files Files, rows, slots int) *twin {
	t.Helper()
	w := &twin{data: make([]byte, 8*slots), sums: make([]byte, 4*slots), want: map[int][2]uint64{}, at: map[int64]int64{}}
	var err error
	w.Store, err = New(Config{Table: "users", Number: func(row int) int { return 1000 + row }, Rows: rows, Slots: slots, Fresh: fresh,
		Files: files, Folder: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	w.AddField(w.data, 8, nil)
	w.AddField(w.sums, 4, begin)
	return w
}

func (w *twin) expect(row int) [2]uint64 {
	if v, ok := w.want[row]; ok {
		return v
	}
	return [2]uint64{uint64(row)*7 + 1, uint64(row)*7 + 2}
}

func (w *twin) slot(slot int64) [2]uint64 {
	return [2]uint64{binary.LittleEndian.Uint64(w.data[8*slot:]), uint64(binary.LittleEndian.Uint32(w.sums[4*slot:]))}
}

// hold looks rows up, compares them, and with change changes them.
func (w *twin) hold(rows []int64, change bool) error {
	slots := make([]int64, len(rows))
	for i, row := range rows {
		slots[i] = -1
		if at, ok := w.at[row]; ok {
			slots[i] = at
		}
	}
	if err := w.Hold(rows, slots, !change); err != nil {
		return err
	}
	for i, row := range rows {
		w.at[row] = slots[i]
		if got, want := w.slot(slots[i]), w.expect(int(row)); got != want {
			return fmt.Errorf("row %d is %v, want %v", row, got, want)
		}
	}
	if !change {
		return nil
	}
	for i, row := range rows {
		if slices.Index(rows, row) < i {
			continue
		}
		v := w.expect(int(row))
		v[0], v[1] = v[0]*3+1, v[1]+1
		binary.LittleEndian.PutUint64(w.data[8*slots[i]:], v[0])
		binary.LittleEndian.PutUint32(w.sums[4*slots[i]:], uint32(v[1]))
		w.want[int(row)] = v
	}
	note := w.Change
	if len(rows)%3 == 0 { // within a step
		note = w.Touch
	}
	if !note(rows, slots) {
		return errors.New("rows lost their slots since Hold")
	}
	return nil
}

// ahead prefetches rows.
func (w *twin) ahead(rows []int64) {
	slots := make([]int64, len(rows))
	w.Prefetch(rows, slots)
	for i, row := range rows {
		if at := slots[i]; at >= 0 {
			if *w.tag(int(at)) != uint32(row)+1 {
				panic(fmt.Sprintf("row %d is not to be in slot %d, as Prefetch says, but row %d", row, at, int(*w.tag(int(at)))-1))
			}
			w.at[row] = at
		}
	}
}

// whole compares all rows as a checkpoint reads them.
func (w *twin) whole(rows int) error {
	data, sums := make([]byte, 8*rows), make([]byte, 4*rows)
	if err := errors.Join(w.ReadRows(0, 0, data), w.ReadRows(1, 0, sums)); err != nil {
		return err
	}
	for row := range rows {
		got := [2]uint64{binary.LittleEndian.Uint64(data[8*row:]), uint64(binary.LittleEndian.Uint32(sums[4*row:]))}
		if want := w.expect(row); got != want {
			return fmt.Errorf("row %d is saved as %v, want %v", row, got, want)
		}
	}
	return nil
}

// placed checks that rows are in sets where they are found.
func (w *twin) placed() error {
	away := make([]int, len(w.sets))
	for slot := range w.c.Slots {
		row := int(*w.tag(slot)) - 1
		if row < 0 {
			continue
		}
		first, second := w.setsOf(row)
		if at := slot / Ways; at != first {
			if away[first]++; at != second {
				return fmt.Errorf("row %d is in set %d, and may be in %d and %d", row, at, first, second)
			}
		}
		if at, ok := w.find(row); !ok || at != slot {
			return fmt.Errorf("row %d is in slot %d, and found in %d, %v", row, slot, at, ok)
		}
	}
	for at, n := range away {
		if its := int(w.states[at].away); its != min(n, 255) && its != 255 {
			return fmt.Errorf("%d rows of set %d are in their second one, and it counts %d", n, at, its)
		}
	}
	return nil
}

func someRows(rng *rand.Rand, rows, most int) []int64 {
	list := make([]int64, rng.IntN(most+1))
	for i := range list {
		list[i] = int64(float64(rows) * rng.Float64() * rng.Float64())
	}
	return list
}

// run does random things with the store. Errors for which tolerate is true change nothing.
func (w *twin) run(rng *rand.Rand, rows, calls int, tolerate func(error) bool) error {
	for range calls {
		var err error
		switch rng.IntN(8) {
		case 0, 1, 2:
			err = w.hold(someRows(rng, rows, 12), true)
		case 3, 4:
			err = w.hold(someRows(rng, rows, 12), false)
		case 5, 6:
			w.ahead(someRows(rng, rows, 40))
		case 7:
			n := 1 + rng.IntN(rows)
			first := rng.IntN(rows - n + 1)
			b := make([]byte, 4*n)
			for i := range n {
				binary.LittleEndian.PutUint32(b[4*i:], uint32(i))
			}
			if err = w.WriteRows(1, first, b); err == nil {
				for i := range n {
					v := w.expect(first + i)
					w.want[first+i] = [2]uint64{v[0], uint64(i)}
				}
			} else if tolerate(err) { // some rows are written: bring all to one state, as loading again does
				for range 10 {
					if err = w.WriteRows(1, first, b); err == nil {
						break
					}
				}
				if err != nil {
					return nil
				}
				for i := range n {
					v := w.expect(first + i)
					w.want[first+i] = [2]uint64{v[0], uint64(i)}
				}
			}
		}
		if err != nil && !tolerate(err) {
			return err
		}
	}
	return nil
}

func never(error) bool { return false }

func TestStoreAgainstAMap(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		rows := 1 + rng.IntN(400)
		w := newTwin(t, &memory{}, rows, Ways*(1+rng.IntN(6)))
		w.call = lastCall - uint32(rng.IntN(200)) // calls are counted anew on the way
		if err := errors.Join(w.run(rng, rows, 200, never), w.placed(), w.whole(rows), w.Sync(), w.whole(rows), w.Close()); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func TestStoreInAFolder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	w := newTwin(t, nil, 300, 32)
	if err := errors.Join(w.run(rng, 300, 200, never), w.Sync(), w.whole(300)); err != nil {
		t.Fatal(err)
	}
	if names, err := os.ReadDir(w.c.Folder); err != nil || len(names) != 0 {
		t.Errorf("the folder has %v, %v; the file is to have no name", names, err)
	}
	if s := w.Stats(); s.Hits == 0 || s.Wanted <= s.Hits || s.Ahead == 0 || s.BytesRead == 0 || s.BytesWritten == 0 {
		t.Errorf("statistics %+v", s)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// Each operation fails once, and then each and all after it: an error names table and file, no row
// is wrong, and when the disk works again all is there.
func TestStoreWithFailingFile(t *testing.T) {
	const rows, calls = 120, 60
	for _, always := range []bool{false, true} {
		for at := 2; ; at += 5 {
			rng := rand.New(rand.NewPCG(9, 1))
			m := &memory{failAt: at, always: always}
			w := newTwin(t, m, rows, 32)
			injected := func(err error) bool {
				e, ok := errors.AsType[*Error](err)
				return ok && errors.Is(err, errInjected) && e.Table == "users" && e.File == "memory"
			}
			if err := w.run(rng, rows, calls, injected); err != nil {
				t.Fatalf("failing at %d: %v", at, err)
			}
			m.mu.Lock()
			made := m.calls
			m.failAt = 0
			m.mu.Unlock()
			if made < at {
				break
			}
			if always {
				continue // WriteRows may have stopped half way
			}
			if err := errors.Join(w.Sync(), w.whole(rows)); err != nil {
				t.Fatalf("after a failure at %d: %v", at, err)
			}
		}
	}
}

// fill changes all rows, some at a time.
func (w *twin) fill(rows int) error { return w.fillFrom(0, rows) }

// fillFrom changes the rows from one on, some at a time.
func (w *twin) fillFrom(first, rows int) error {
	for ; first < rows; first += 8 {
		var list []int64
		for row := first; row < min(first+8, rows); row++ {
			list = append(list, int64(row))
		}
		if err := w.hold(list, true); err != nil {
			return err
		}
	}
	return nil
}

func TestStoreOnAFullDisk(t *testing.T) {
	const rows = 400
	m := &memory{limit: 100 * 16}
	w := newTwin(t, m, rows, 64)
	err := w.fill(rows)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), `table "users", row 1`) {
		t.Fatalf("got %v", err)
	}
	var held int64 = -1 // a row in memory is still found
	for slot := range w.c.Slots {
		if tag := *w.tag(slot); tag != 0 && *w.word(slot)&flying == 0 {
			held = int64(tag) - 1
		}
	}
	if err := w.hold([]int64{held}, true); err != nil {
		t.Errorf("row %d, which is in memory: %v", held, err)
	}
	m.mu.Lock()
	m.limit = 0
	m.mu.Unlock()
	if err := errors.Join(w.fill(rows), w.whole(rows)); err != nil {
		t.Errorf("when there is room again: %v", err)
	}
}

func TestStoreWithDamagedRecords(t *testing.T) {
	const rows = 200
	const size = 20 // of a record
	for name, damage := range map[string]func(m *memory, at int){
		"a bit":     func(m *memory, at int) { m.bytes[at+3] ^= 4 },
		"its owner": func(m *memory, at int) { m.bytes[at+12] ^= 1 },
		"truncated": func(m *memory, at int) { m.bytes = m.bytes[:at+5] },
		"swapped":   func(m *memory, at int) { copy(m.bytes[at:at+size], bytes.Clone(m.bytes[:size])) },
		"zeros":     func(m *memory, at int) { clear(m.bytes[at : at+size]) },
	} {
		m := &memory{}
		w := newTwin(t, m, rows, 32)
		// Row 7 leaves memory after all others that are looked up below.
		if err := errors.Join(w.fill(rows), w.hold([]int64{7}, true), w.fillFrom(160, rows), w.Sync()); err != nil {
			t.Fatal(err)
		}
		if _, held := w.find(7); held {
			t.Fatal("row 7 is in memory")
		}
		at, ok := w.log.find(7)
		if !ok {
			t.Fatal("row 7 is not in the file")
		}
		damage(m, at*size)
		err := w.hold([]int64{5, 7, 150}, false)
		if e, ok := errors.AsType[*Error](err); !ok || e.Row != 1007 {
			t.Errorf("%s: looked up: %v", name, err)
		}
		w.Prefetch([]int64{7, 3}, make([]int64, 2))
		if err := w.hold([]int64{3}, true); err != nil {
			t.Errorf("%s: the next batch: %v", name, err)
		}
		if err := w.hold([]int64{7}, true); err == nil {
			t.Errorf("%s: after a prefetch there is no error", name)
		}
		if err := w.ReadRows(1, 0, make([]byte, 4*rows)); err == nil || !strings.Contains(err.Error(), "row 1007 in memory") {
			t.Errorf("%s: saved: %v", name, err)
		}
	}
}

func TestStoreWithMoreRowsThanSlots(t *testing.T) {
	w := newTwin(t, &memory{}, 200, 32)
	var list []int64
	for row := range 40 {
		list = append(list, int64(row))
	}
	if err := w.hold(list, true); !errors.Is(err, ErrFull) {
		t.Errorf("40 rows in 32 slots: %v", err)
	}
	most := newTwin(t, &memory{}, 20000, 4096)
	rng := rand.New(rand.NewPCG(2, 2))
	for range 20 { // nearly as many rows as slots
		list := make([]int64, 0, 4096*85/100)
		for _, row := range rng.Perm(20000)[:cap(list)] {
			list = append(list, int64(row))
		}
		if err := most.hold(list, true); err != nil {
			t.Fatalf("%d rows in 4096 slots: %v", len(list), err)
		}
	}
	if err := errors.Join(most.placed(), most.whole(20000)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.hold(list[:10], true), w.hold(list[8:20], true), w.whole(200)); err != nil {
		t.Error(err)
	}
}

func TestStoreOnASlowDisk(t *testing.T) {
	m := &memory{}
	w := newTwin(t, m, 200, 32)
	if err := errors.Join(w.fill(200), w.Sync()); err != nil {
		t.Fatal(err)
	}
	m.wait = make(chan struct{})
	w.c.Patience = time.Millisecond
	const says = `table "users", row 1003 in memory: reading it has taken 1ms`
	if err := w.hold([]int64{3}, true); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v", err)
	}
	if err := w.hold([]int64{199}, true); err != nil {
		t.Errorf("a row in memory: %v", err)
	}
	close(m.wait)
	w.c.Patience = time.Minute
	if err := w.hold([]int64{3}, true); err != nil {
		t.Errorf("when the disk answers again: %v", err)
	}
}

// Of ids that follow Zipf's law nearly as many rows are found as if the slots held those that are used most, and never others.
func TestStoreKeepsTheMostUsedRows(t *testing.T) {
	const rows, slots, ids, steps = 1 << 16, 1 << 12, 512, 2000
	w := newTwin(t, &memory{}, rows, slots)
	zipf := rand.NewZipf(rand.New(rand.NewPCG(7, 0)), 1.05, 1, rows-1)
	var before Stats
	best := 0
	for step := range steps {
		if step == steps/2 {
			before, best = w.Stats(), 0
		}
		batch := make([]int64, ids)
		for i := range batch {
			batch[i] = int64(zipf.Uint64())
		}
		slices.Sort(batch)
		batch = slices.Compact(batch)
		most, _ := slices.BinarySearch(batch, slots)
		best += most
		at := make([]int64, len(batch))
		if err := w.Store.Hold(batch, at, true); err != nil {
			t.Fatal(err)
		}
		w.Change(batch, at)
	}
	s := w.Stats()
	wanted, found := s.Wanted-before.Wanted, s.Hits-before.Hits
	if found < best*93/100 {
		t.Errorf("%d of %d rows were found, at best %d", found, wanted, best)
	}
}

// Change says whether rows kept their slots.
func TestChange(t *testing.T) {
	w := newTwin(t, &memory{}, 400, 32)
	rows, slots := []int64{3, 50, 399}, make([]int64, 3)
	if err := w.Hold(rows, slots, true); err != nil {
		t.Fatal(err)
	}
	if !w.Change(rows, slots) || w.Change([]int64{3, 50, 398}, slots) {
		t.Error("it takes rows for others")
	}
	if err := w.fill(300); err != nil {
		t.Fatal(err)
	}
	if w.Change(rows, slots) {
		t.Error("rows 3, 50 and 399 kept their slots, and 300 others passed through 32")
	}
}

// Loading the first field of rows that were never changed does not compute what they were, unless another field follows from it.
func TestWriteRowsOfANewStore(t *testing.T) {
	const rows = 200
	for _, derived := range []bool{false, true} {
		begun, computed := begin, 0
		if !derived {
			begun = nil
		}
		s, err := New(Config{Rows: rows, Slots: Ways, Files: &memory{}, Fresh: func(row int, data []byte) {
			computed++
			fresh(row, data)
		}})
		if err != nil {
			t.Fatal(err)
		}
		s.AddField(make([]byte, 8*Ways), 8, nil)
		s.AddField(make([]byte, 4*Ways), 4, begun)
		loaded, got, sums := make([]byte, 8*rows), make([]byte, 8*rows), make([]byte, 4*rows)
		for i := range loaded {
			loaded[i] = byte(i * 31)
		}
		if err := errors.Join(s.WriteRows(0, 0, loaded), s.ReadRows(0, 0, got), s.ReadRows(1, 0, sums)); err != nil {
			t.Fatal(err)
		}
		want := 0
		if derived {
			want = rows
		}
		if computed != want || !bytes.Equal(got, loaded) {
			t.Errorf("derived %v: %d rows were computed, want %d; rows are as loaded: %v", derived, computed, want, bytes.Equal(got, loaded))
		}
		for row := range rows {
			want := uint32(0)
			if derived {
				want = uint32(row)*7 + 2
			}
			if sum := binary.LittleEndian.Uint32(sums[4*row:]); sum != want {
				t.Fatalf("derived %v: field 1 of row %d is %d, want %d", derived, row, sum, want)
			}
		}
	}
}

// On one processor a prefetch reads at once what keeps nobody waiting, and not when the rest of the step has emptied the caches.
func TestPrefetchOnOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const rows, tries = 640, 32
	w := newTwin(t, &memory{}, rows, 64)
	if err := w.fill(rows); err != nil {
		t.Fatal(err)
	}
	read := 0
	for i := range tries {
		w.ahead([]int64{int64(8 * i), int64(8*i + 3), int64(8*i + 5)})
		if len(w.flights) != 1 {
			t.Fatalf("%d prefetches are being read", len(w.flights))
		}
		select {
		case <-w.flights[0].done:
			read++
		default:
		}
		if err := w.hold([]int64{int64(8 * i)}, true); err != nil {
			t.Fatal(err)
		}
	}
	if read < tries/2 { // the scheduler may turn to the caller first, now and then
		t.Errorf("%d of %d prefetches had been read when they returned", read, tries)
	}
}
