//go:build linux

package control

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
	"unsafe"

	"golang.org/x/sys/unix"
)

// create returns a launcher's segment and a rank's for each of n ranks.
func create(t testing.TB, n int) (*Segment, []*Segment) {
	t.Helper()
	s, err := Create(n, Options{Cores: 2, ArenaBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSegment(t, s) })
	ranks := make([]*Segment, n)
	for r := range ranks {
		if ranks[r], err = Open(s.Files()[0], s.Files()[1], n, r); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeSegment(t, ranks[r]) })
	}
	return s, ranks
}

func closeSegment(t testing.TB, s *Segment) {
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestWhatOneWritesTheOthersRead(t *testing.T) {
	launcher, ranks := create(t, 3)
	if text, at := launcher.Error(1); text != "" || !at.IsZero() {
		t.Errorf("Error before SetError: %q at %v", text, at)
	}
	before := time.Now()
	ranks[1].SetError(1, "first")
	ranks[1].SetError(1, "second")
	if text, at := launcher.Error(1); text != "first" || at.Before(before) || time.Since(at) > time.Minute {
		t.Errorf("got %q at %v", text, at)
	}
	if !ranks[2].Join(2) || ranks[1].Join(2) || launcher.State(2) != Running {
		t.Errorf("state %v after rank 2 was joined twice", launcher.State(2))
	}
	ranks[2].SetState(2, Finished)
	if ranks[2].Join(2) {
		t.Error("a finished rank was joined again")
	}
	if got := launcher.State(2); got != Finished {
		t.Errorf("state %v, want %v", got, Finished)
	}
	if _, ended := ranks[0].HasEnded(2); ended {
		t.Error("rank 2 has ended too early")
	}
	alarm := ranks[0].Alarm().Load()
	launcher.Ended(2, "signal: killed")
	launcher.Ended(2, "again")
	if cause, ended := ranks[0].HasEnded(2); !ended || cause != "signal: killed" {
		t.Errorf("got %q, %v", cause, ended)
	}
	if ranks[0].Alarm().Load() == alarm {
		t.Error("Ended did not raise the alarm")
	}
}

func TestArenasAreShared(t *testing.T) {
	_, ranks := create(t, 2)
	p, bytes := ranks[0].Arena(1)
	q, _ := ranks[1].Arena(1)
	if bytes != 1<<20 {
		t.Fatalf("%d bytes", bytes)
	}
	*(*byte)(unsafe.Add(p, bytes-1)) = 7
	if got := *(*byte)(unsafe.Add(q, bytes-1)); got != 7 {
		t.Errorf("got %d, want 7", got)
	}
}

func TestRecorderKeepsTheLastCall(t *testing.T) {
	launcher, ranks := create(t, 1)
	for i := range uint64(ringCalls + 5) {
		ranks[0].Log(0, Call{Comm: 1, Seq: i + 1}, 8)
	}
	if last, ok := launcher.LastCall(0); !ok || last.Seq != ringCalls+5 || launcher.Calls(0) != ringCalls+5 {
		t.Errorf("call %v of %d, %v", last, launcher.Calls(0), ok)
	}
}

func TestNotesAreFoundByTheirStamp(t *testing.T) {
	_, ranks := create(t, 2)
	ranks[0].SetNote(0, 3, "hello")
	if text, ok := ranks[1].Note(0, 3); !ok || text != "hello" {
		t.Errorf("got %q, %v", text, ok)
	}
	if _, ok := ranks[1].Note(0, 4); ok {
		t.Error("found a note with another stamp")
	}
}

func TestRegionsDoNotOverlapAndEnd(t *testing.T) {
	_, ranks := create(t, 2)
	a, err := ranks[0].NewRegion(100)
	if err != nil {
		t.Fatal(err)
	}
	b, err := ranks[1].NewRegion(1)
	if err != nil {
		t.Fatal(err)
	}
	if b < a+100 || a%64 != 0 || b%64 != 0 {
		t.Errorf("regions at %d and %d", a, b)
	}
	if _, err := ranks[0].Region(a, 100); err != nil {
		t.Error(err)
	}
	if _, err := ranks[0].NewRegion(totalBytes); err == nil {
		t.Error("a region as large as the segment was made")
	}
	if _, err := ranks[0].NewRegion(64); err != nil {
		t.Errorf("after a refusal: %v", err)
	}
	for _, off := range []uint64{0, page, a + 1, totalBytes, 1 << 63} {
		if _, err := ranks[0].Region(off, 64); err == nil {
			t.Errorf("a region at %d was opened", off)
		}
	}
}

func TestFilesCannotShrink(t *testing.T) {
	s, _ := create(t, 1)
	for _, f := range s.Files() {
		if err := unix.Ftruncate(int(f.Fd()), 4096); err == nil {
			t.Errorf("%s was truncated", f.Name())
		}
		flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("%s is not closed on exec (%#x, %v)", f.Name(), flags, err)
		}
	}
}

func TestLimitedAddressSpaceMakesArenasSmaller(t *testing.T) {
	for _, test := range []struct {
		limit uint64
		ranks int
		want  int
	}{
		{unix.RLIM_INFINITY, 4, 8 << 40},
		{19 << 30, 2, 4 << 30},
		{3<<30 + 256<<20, 2, 64 << 20},
	} {
		if got, err := addressSpace(test.limit, test.ranks); err != nil || got != test.want {
			t.Errorf("%d bytes, %d ranks: got %d, %v, want %d", test.limit, test.ranks, got, err, test.want)
		}
	}
	want := "of 3327 MiB of address space, 2 ranks need 3328 MiB at least; raise the limit (ulimit -v)"
	if _, err := addressSpace(3327<<20, 2); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestOpenRefuses(t *testing.T) {
	s, _ := create(t, 2)
	other, _ := create(t, 1)
	plain, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if err := plain.Truncate(totalBytes); err != nil {
		t.Fatal(err)
	}
	f, g := s.Files(), other.Files()
	for _, c := range []struct {
		name    string
		control *os.File
		arenas  *os.File
		ranks   int
		rank    int
		want    string
	}{
		{"rank", f[0], f[1], 2, 2, "rank 2 of 2"},
		{"count", f[0], f[1], 1, 0, "2 ranks and the environment 1"},
		{"arenas as control", f[1], f[1], 2, 0, "bytes, not 1073741824; start the program with the same version of gorun, " +
			"and with nothing in between"},
		{"control as arenas", g[0], f[0], 1, 0, "gorun-control has 1073741824 bytes, not 1048576; start the program"},
		{"unsealed", plain, f[1], 2, 0, "not sealed"},
	} {
		if _, err := Open(c.control, c.arenas, c.ranks, c.rank); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	s.header().version++
	if _, err := Open(f[0], f[1], 2, 0); err == nil || !strings.Contains(err.Error(), "same version") {
		t.Errorf("version: got %v", err)
	}
	if _, err := Create(0, Options{}); err == nil {
		t.Error("0 ranks were created")
	}
}

// FuzzLauncherSurvives writes random bytes wherever a rank can write, and calls
// every method that a launcher calls.
func FuzzLauncherSurvives(f *testing.F) {
	f.Add(uint32(0), []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Add(uint32(page), []byte(strings.Repeat("\xff", int(blockStride))))
	f.Add(uint32(page+64), binary.LittleEndian.AppendUint64(nil, 1<<63))
	f.Fuzz(func(t *testing.T, at uint32, data []byte) {
		s, err := Create(2, Options{Cores: 1, ArenaBytes: page})
		if err != nil {
			t.Fatal(err)
		}
		defer closeSegment(t, s)
		at %= uint32(regionBase(2))
		copy(unsafe.Slice((*byte)(unsafe.Add(s.base, at)), regionBase(2)-uint64(at)), data)
		for r := range 2 {
			text, _ := s.Error(r)
			cause, _ := s.HasEnded(r)
			texts := []string{text, cause, s.State(r).String()}
			for _, w := range s.Waiting(r).Waits {
				texts = append(texts, w.Site, w.Text, s.Describe(w.Call))
				if w.On < 0 || w.On > 1 {
					t.Errorf("waits for rank %d", w.On)
				}
			}
			if c, ok := s.LastCall(r); ok {
				texts = append(texts, s.Describe(c))
			}
			for _, x := range texts {
				if !utf8.ValidString(x) || len(x) > 3*errorBytes {
					t.Errorf("%d bytes of text: %q", len(x), x)
				}
			}
			if s.Cores() < 1 {
				t.Errorf("out of range: %d cores", s.Cores())
			}
			s.Ended(r, "x")
		}
	})
}
