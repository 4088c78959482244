//go:build linux

package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// errDied is how a rank dies in the middle of a write.
var errDied = errors.New("died")

// mortal is a memory that lets so many bytes through, and no more.
type mortal struct {
	Memory
	left int
}

func (m *mortal) WriteAt(b []byte, at int64) (int, error) {
	n := min(len(b), m.left)
	m.left -= n
	if _, err := m.Memory.WriteAt(b[:n], at); err != nil {
		return 0, err
	}
	if n < len(b) {
		return n, errDied
	}
	return n, nil
}

func create(t *testing.T) Memory {
	t.Helper()
	f, err := Create()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func data(sequence, rank int) []byte {
	return bytes.Repeat([]byte{byte(16*sequence + rank)}, 5+3*rank*sequence%17)
}

// write writes one part.
func write(m Memory, sequence, attempt, rank, ranks int) error {
	w := Begin(m, sequence, attempt, 10*sequence, rank, ranks)
	for chunk := range slices.Chunk(data(sequence, rank), 4) {
		if _, err := w.Write(chunk); err != nil {
			return err
		}
	}
	return w.Finish(fmt.Append(nil, "part of ", rank, " in ", sequence))
}

// writeAll writes a whole snapshot.
func writeAll(t *testing.T, m Memory, sequence, attempt, ranks int) {
	t.Helper()
	for r := range ranks {
		if err := write(m, sequence, attempt, r, ranks); err != nil {
			t.Fatal(err)
		}
	}
}

// check compares the last complete snapshot.
func check(t *testing.T, m Memory, sequence, ranks int) {
	t.Helper()
	s, ok, err := Last(m)
	if err != nil || ok != (sequence > 0) {
		t.Fatalf("%v, %v; want snapshot %d", ok, err, sequence)
	}
	if s.Sequence != sequence || s.Step != 10*sequence || len(s.Parts) != ranks {
		t.Fatalf("snapshot %d of step %d and %d ranks, want %d of %d ranks", s.Sequence, s.Step, len(s.Parts), sequence, ranks)
	}
	for r, p := range s.Parts {
		b := make([]byte, p.Bytes)
		if _, err := m.ReadAt(b, p.At); err != nil || !bytes.Equal(b, data(sequence, r)) {
			t.Errorf("rank %d: data %v, %v", r, b, err)
		}
		if text, err := p.Description(m); err != nil || string(text) != fmt.Sprint("part of ", r, " in ", sequence) {
			t.Errorf("rank %d: description %q, %v", r, text, err)
		}
	}
}

func TestTheLastCompleteOneCounts(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 7} {
		m := create(t)
		check(t, m, 0, 0)
		for k := 1; k < 6; k++ {
			for r := range n {
				if err := write(m, k, 0, r, n); err != nil {
					t.Fatal(err)
				}
				if r < n-1 && k > 1 {
					check(t, m, k-1, n)
				}
			}
			check(t, m, k, n)
		}
	}
}

// A rank dies after each byte that it writes, before and after the others have written, and
// the next attempt writes the same snapshot, on fewer or more ranks.
func TestDeathAtEachByte(t *testing.T) {
	const n = 3
	for victim := range n {
		for bytes := 0; ; bytes++ {
			m := create(t)
			writeAll(t, m, 1, 0, n)
			writeAll(t, m, 2, 0, n)
			for r := range n {
				if r != victim {
					if err := write(m, 3, 0, r, n); err != nil {
						t.Fatal(err)
					}
				}
			}
			err := write(&mortal{m, bytes}, 3, 0, victim, n)
			if err == nil {
				check(t, m, 3, n)
				break
			}
			if !errors.Is(err, errDied) {
				t.Fatal(err)
			}
			check(t, m, 2, n)
			next := n - 1 + bytes%3
			for r := range next { // entries of the dead attempt are none of this one's
				check(t, m, 2, n)
				if err := write(m, 3, 1, r, next); err != nil {
					t.Fatal(err)
				}
			}
			check(t, m, 3, next)
		}
	}
}

func TestDamagedDescription(t *testing.T) {
	m := create(t)
	writeAll(t, m, 1, 0, 2)
	s, _, err := Last(m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.WriteAt([]byte{0}, s.Parts[1].At+s.Parts[1].Bytes); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Parts[1].Description(m); err == nil {
		t.Error("damage is not seen")
	}
}

// What is kept under a name is there after it was written whole, and not before.
func TestKeep(t *testing.T) {
	m := create(t)
	text := bytes.Repeat([]byte("kept"), 3000)
	is := func(name string, want []byte) {
		t.Helper()
		b, ok, err := Kept(m, name)
		if err != nil || ok != (want != nil) || ok && !bytes.Equal(b, want) {
			t.Fatalf("%q: %d bytes, %v, %v; want %d", name, len(b), ok, err, len(want))
		}
	}
	is("a", nil)
	for n := 0; ; n += 1 + n/7 {
		err := Keep(&mortal{m, n}, "a", text)
		if err == nil {
			break
		}
		if is("a", nil); !errors.Is(err, errDied) {
			t.Fatal(err)
		}
	}
	is("a", text)
	is("b", nil)
	for _, name := range []string{"", "b"} {
		if err := Keep(m, name, nil); err != nil {
			t.Fatal(err)
		}
		is(name, []byte{})
	}
	if _, err := m.WriteAt([]byte{0}, placeAt("a")+page+7); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := Kept(m, "a"); ok || err != nil {
		t.Errorf("damage is not seen: %v", err)
	}
	if err := Keep(m, "a", text[:5]); err != nil {
		t.Fatal(err)
	}
	is("a", text[:5])
}

// A copy in another host's memory counts when all of it is there, whatever was in its place.
func TestCopyThatIsCutOffAtEachByte(t *testing.T) {
	const n = 2
	from := create(t)
	writeAll(t, from, 1, 0, n)
	writeAll(t, from, 2, 0, n)
	writeAll(t, from, 3, 0, n)
	for bytes := 0; ; bytes++ {
		to := create(t)
		for _, sequence := range []int{1, 2} {
			for r := range n {
				if err := Copy(from, to, sequence+2*(sequence%2), r); err != nil {
					t.Fatal(err)
				}
			}
		}
		check(t, to, 3, n)
		writeAll(t, to, 1, 0, n) // as it was before
		err := Copy(from, &mortal{to, bytes}, 3, 0)
		entries, failed := Entries(to)
		if failed != nil {
			t.Fatal(failed)
		}
		there := false
		for _, e := range entries {
			there = there || e.Sequence == 3 && e.Rank == 0
		}
		if there != (err == nil) || err != nil && !errors.Is(err, errDied) {
			t.Fatalf("after %d bytes: %v, and there: %v", bytes, err, there)
		}
		if err == nil {
			if err := Copy(from, to, 3, 1); err != nil {
				t.Fatal(err)
			}
			check(t, to, 3, n)
			break
		}
		check(t, to, 2, n)
	}
	if err := Copy(from, create(t), 5, 0); err == nil {
		t.Error("a snapshot that is not there was copied")
	}
}

// Of hosts of which each has some parts, a snapshot is complete where each part is on some host.
// Random memories are compared with a plain search.
func TestJoin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	complete := 0
	for range 2000 {
		ranks, hosts := 1+r.IntN(3), make([][]Entry, 1+r.IntN(3))
		for h := range hosts {
			for rank := range ranks {
				for sequence := uint64(1); sequence < 4; sequence++ {
					if r.IntN(3) > 0 {
						hosts[h] = append(hosts[h], Entry{Sequence: sequence, Attempt: uint64(r.IntN(2)), Step: 10 * sequence,
							Ranks: uint64(ranks), Rank: rank})
					}
				}
			}
		}
		var want []string
		for sequence := 3; sequence > 0; sequence-- {
			for attempt := 1; attempt >= 0; attempt-- {
				text := fmt.Sprint(10 * sequence)
				for rank := range ranks {
					var on []int
					for h := range hosts {
						for _, e := range hosts[h] {
							if int(e.Sequence) == sequence && int(e.Attempt) == attempt && e.Rank == rank {
								on = append(on, h)
							}
						}
					}
					if on == nil {
						text = ""
						break
					}
					text += fmt.Sprint(on)
				}
				if text != "" {
					want = append(want, text)
				}
			}
		}
		var got []string
		for _, s := range Join(hosts) {
			text := fmt.Sprint(s.Step)
			for _, p := range s.Parts {
				text += fmt.Sprint(p.Hosts)
			}
			got = append(got, text)
		}
		if complete += len(got); !slices.Equal(got, want) {
			t.Fatalf("%v: %q, want %q", hosts, got, want)
		}
	}
	if complete < 100 {
		t.Errorf("only %d were complete", complete)
	}
}

// Drop gives the memory of one snapshot back, and leaves the other.
func TestDrop(t *testing.T) {
	const n = 3
	m := create(t).(*os.File)
	held := func() int64 {
		t.Helper()
		var is unix.Stat_t
		if err := unix.Fstat(int(m.Fd()), &is); err != nil {
			t.Fatal(err)
		}
		return is.Blocks
	}
	if err := Keep(m, "a", []byte("text")); err != nil {
		t.Fatal(err)
	}
	writeAll(t, m, 1, 0, n)
	one := held()
	writeAll(t, m, 2, 0, n)
	for _, sequence := range []int{3, 1} { // the same slots
		if err := Drop(m, sequence); err != nil {
			t.Fatal(err)
		}
		if check(t, m, 2, n); held() != one {
			t.Errorf("%d blocks, want %d", held(), one)
		}
	}
	if err := Drop(m, 2); err != nil {
		t.Fatal(err)
	}
	check(t, m, 0, 0)
	if b, ok, err := Kept(m, "a"); string(b) != "text" || !ok || err != nil {
		t.Errorf("%q, %v, %v", b, ok, err)
	}
}
