package launcher

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/internal/control"
)

// A scene is what some ranks do, and a watchdog that sees it.
type scene struct {
	ranks []sighting
	busy  []int
	now   time.Time
	dog   watchdog
}

// newScene has rank r wait for on[r], or compute if that is -1.
func newScene(on ...int) *scene {
	s := &scene{now: time.Unix(1000, 0)}
	for _, o := range on {
		it := sighting{waits: o >= 0}
		it.wait.On, it.wait.Since = max(0, o), s.now
		s.ranks = append(s.ranks, it)
	}
	s.dog = watchdog{
		limit: time.Minute,
		see:   func(r int) sighting { return s.ranks[r] },
		busy: func(ranks []int) bool {
			return slices.ContainsFunc(ranks, func(r int) bool { return slices.Contains(s.busy, r) })
		},
	}
	return s
}

// look looks after a second.
func (s *scene) look() *hang {
	s.now = s.now.Add(lookInterval)
	return s.dog.look(s.now, len(s.ranks))
}

// why looks n times and says what the last one found.
func (s *scene) why(n int) string {
	var h *hang
	for range n {
		if h != nil {
			return "too early"
		}
		h = s.look()
	}
	if h == nil {
		return ""
	}
	return fmt.Sprintf("%s; %v", h.why(), h.laggards)
}

func TestWatchdog(t *testing.T) {
	const circle = "rank 0 waits for rank 1 waits for rank 0; [0 1]"
	for _, c := range []struct {
		name   string
		on     []int
		change func(*scene)
		looks  int
		want   string
	}{
		{"one rank that computes", []int{-1}, nil, 100, ""},
		{"two for each other", []int{1, 0}, nil, 2, circle},
		{"seen once", []int{1, 0}, nil, 1, ""},
		{"behind a tail", []int{2, 0, 3, 4, 2}, nil, 2, "rank 2 waits for rank 3 waits for rank 4 waits for rank 2; [2 3 4]"},
		{"for itself", []int{-1, 1}, nil, 2, "rank 1 waits for itself; [1]"},
		{"all for one that computes", []int{3, 3, 3, -1}, nil, 59, ""},
		{"until the limit", []int{3, 3, 3, -1}, nil, 61, "nothing has moved for 1m0s (--hang-timeout); [3]"},
		{"without a limit", []int{1, -1}, func(s *scene) { s.dog.limit = 0 }, 1000, ""},
		{"nobody waits", []int{-1, -1}, nil, 1000, ""},
		{"a circle that is busy", []int{1, 0}, func(s *scene) { s.busy = []int{1} }, 10, ""},
		{"a stopped rank in a circle", []int{1, 0}, func(s *scene) { s.ranks[1].stopped = true }, 10, ""},
		{"for one that ended", []int{1, -1}, func(s *scene) { s.ranks[1].ended = true }, 2, "rank 0 waits for rank 1, which has ended; [0]"},
		{"ended while it waited", []int{1, 0}, func(s *scene) { s.ranks[0].ended, s.ranks[1].ended = true, true }, 100, ""},
		{"over two communicators", []int{1, 0}, func(s *scene) { s.ranks[0].wait.Comm = 7 }, 4, ""},
		{"over two communicators, for long", []int{1, 0}, func(s *scene) { s.ranks[0].wait.Comm = 7 }, 5, circle},
		{"two circles", []int{1, 0, 3, 2}, func(s *scene) { s.busy = []int{0} }, 2, "rank 2 waits for rank 3 waits for rank 2; [2 3]"},
	} {
		s := newScene(c.on...)
		if c.change != nil {
			c.change(s)
		}
		if got := s.why(c.looks); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestWatchdogSeesWhatMoves(t *testing.T) {
	s := newScene(1, 0, -1)
	s.look()
	s.ranks[0].wait.Since = s.now // another wait for the same rank
	if got := s.why(1); got != "" {
		t.Errorf("a new wait: %q", got)
	}
	s.ranks[0].wait.Seq++
	if got := s.why(1); got != "" {
		t.Errorf("another call: %q", got)
	}
	s.ranks[0].waits = false
	for range 3 * 60 { // rank 2 has calls of its own
		s.ranks[2].calls++
		if got := s.why(1); got != "" {
			t.Fatalf("while rank 2 works: %q", got)
		}
	}
	if got := s.why(60); got != "nothing has moved for 1m0s (--hang-timeout); [0 2]" {
		t.Errorf("when it does not: %q", got)
	}
}

func TestWatchdogForgetsTimeInWhichGorunDidNotRun(t *testing.T) {
	s := newScene(1, -1)
	s.look()
	s.now = s.now.Add(time.Hour)
	if got := s.why(59); got != "" {
		t.Errorf("after an hour in which gorun was stopped: %q", got)
	}
}

// TestTableOfAHang has alike ranks on one line.
func TestTableOfAHang(t *testing.T) {
	segment, err := control.Create(5, control.Options{ArenaBytes: 4096})
	if err != nil {
		t.Fatal(err)
	}
	defer segment.Close()
	s := newScene(3, 3, 3, -1, 0)
	for r := range s.ranks {
		s.ranks[r].wait.Text, s.ranks[r].wait.Site, s.ranks[r].wait.Seq, s.ranks[r].wait.Comm = "Barrier", "main.go:1", 7, 99
	}
	s.ranks[3].calls, s.ranks[3].stopped = 6, true
	s.ranks[4].wait.Text, s.ranks[4].wait.Comm = "Send\x1b[2J \xff"+strings.Repeat("x", 100), 98
	h := &hang{orphan: -1, seen: s.ranks}
	got := h.table(segment, s.now.Add(1500*time.Millisecond))
	want := `  rank  state              call                                                          number      at         waits for  since
  0-2   waits              Barrier                                                       group b #7  main.go:1  rank 3     1.5s ago
  3     stopped (SIGSTOP)  after 6 calls
  4     waits              Send?[2J �xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…  group a     main.go:1  rank 0     1.5s ago
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// FuzzSegment has a rank write anything into the segment, which the launcher then reads.
func FuzzSegment(f *testing.F) {
	f.Add([]byte{0xff}, uint32(0))
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x00"), uint32(64))
	f.Fuzz(func(t *testing.T, garbage []byte, at uint32) {
		const ranks, size = 3, 1 << 18
		segment, err := control.Create(ranks, control.Options{ArenaBytes: 4096})
		if err != nil {
			t.Fatal(err)
		}
		defer segment.Close()
		base, err := unix.MmapPtr(int(segment.Files()[0].Fd()), 0, nil, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.MunmapPtr(base, size) }()
		if len(garbage) > 0 {
			data := unsafe.Slice((*byte)(base), size)[4096:]
			for i := int(at) % len(data); i < len(data); i++ {
				data[i] = garbage[i%len(garbage)]
			}
		}
		a := &attempt{opts: &options{hangTimeout: time.Second}, segment: segment, plan: &plan{ranks: make([]place, ranks)}}
		dog := a.newWatchdog(&supervisor{outcome: outcome{ends: make([]end, ranks)}})
		now := time.Now()
		for range 3 {
			now = now.Add(lookInterval)
			if h := dog.look(now, ranks); h != nil {
				_ = h.why() + h.table(segment, now)
			}
		}
		_, _ = first(make([]end, ranks), now, segment.Error)
	})
}
