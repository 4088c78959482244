//go:build linux

package watchdog

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/internal/control"
)

// A scene is what some ranks do, and a watchdog that sees it.
type scene struct {
	ranks  []Sighting
	busy   []int
	acts   []int          // ranks with a goroutine that may act
	asked  map[int]uint64 // by rank: the latest question
	asking bool           // a rank that was asked in a look is busy in it
	calm   bool           // a rank that was asked before is not busy
	now    time.Time
	dog    Watchdog
}

// newScene has rank r wait for on[r], or compute if that is -1.
func newScene(on ...int) *scene {
	s := &scene{now: time.Unix(1000, 0), asked: map[int]uint64{}}
	for _, o := range on {
		it := Sighting{Waiting: control.Waiting{Elsewhere: o < 0}, Joined: true}
		if o >= 0 {
			it.Waits = []control.Wait{{On: o, Since: s.now, Attended: true}}
		}
		s.ranks = append(s.ranks, it)
	}
	s.dog = Watchdog{
		Limit: time.Minute, Circles: true,
		See: func(r int) Sighting {
			it := s.ranks[r]
			it.Waits = slices.Clone(it.Waits)
			return it
		},
		Busy: func(ranks []int) bool {
			return slices.ContainsFunc(ranks, func(r int) bool {
				return slices.Contains(s.busy, r) && !(s.calm && s.asked[r] > 0) || s.asking && s.asked[r] == s.dog.looks
			})
		},
		Ask: func(r int, number uint64) { s.asked[r] = number },
		OnlyWaits: func(r int, number uint64) bool {
			return number > 0 && s.asked[r] == number && !slices.Contains(s.acts, r)
		},
	}
	return s
}

// look looks after a second.
func (s *scene) look() *Hang {
	s.now = s.now.Add(Interval)
	return s.dog.Look(s.now, len(s.ranks))
}

// why looks n times and says what the last one found.
func (s *scene) why(n int) string {
	var h *Hang
	for range n {
		if h != nil {
			return "too early"
		}
		h = s.look()
	}
	if h == nil {
		return ""
	}
	return fmt.Sprintf("%s; %v", h.Why(), h.Laggards)
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
		{"without a limit", []int{1, -1}, func(s *scene) { s.dog.Limit = 0 }, 1000, ""},
		{"nobody waits", []int{-1, -1}, nil, 1000, ""},
		{"nobody waits, and a limit is given", []int{-1, -1},
			func(s *scene) { s.dog.Always = true }, 61, "nothing has moved for 1m0s (--hang-timeout); [0 1]"},
		{"nobody waits, and no limit is given", []int{-1, -1}, func(s *scene) { s.dog.Always, s.dog.Limit = true, 0 }, 1000, ""},
		{"nobody waits, and one program does not use package runtime", []int{-1, -1},
			func(s *scene) { s.dog.Always, s.ranks[1].Joined = true, false }, 1000, ""},
		{"a circle that is busy", []int{1, 0}, func(s *scene) { s.busy = []int{1} }, 10, ""},
		{"a circle that is busy until it is asked", []int{1, 0}, func(s *scene) { s.busy, s.calm = []int{0, 1}, true }, 5, circle},
		{"a stopped rank in a circle", []int{1, 0}, func(s *scene) { s.ranks[1].Stopped = true }, 10, ""},
		{"for one that ended", []int{1, -1}, func(s *scene) { s.ranks[1].Ended = true }, 2, "rank 0 waits for rank 1, which has ended; [0]"},
		{"ended while it waited", []int{1, 0}, func(s *scene) { s.ranks[0].Ended, s.ranks[1].Ended = true, true }, 100, ""},
		{"over two communicators", []int{1, 0}, func(s *scene) { s.ranks[0].Waits[0].Comm = 7 }, 4, ""},
		{"over two communicators, for long", []int{1, 0}, func(s *scene) { s.ranks[0].Waits[0].Comm = 7 }, 5, circle},
		{"over two communicators, and a goroutine of one rank sleeps", []int{1, 0},
			func(s *scene) { s.ranks[0].Waits[0].Comm, s.acts = 7, []int{0} }, 59, ""},
		{"within one, and a goroutine of one rank sleeps", []int{1, 0}, func(s *scene) { s.acts = []int{0} }, 2, circle},
		{"over two communicators, and ranks are busy when they are asked", []int{1, 0},
			func(s *scene) { s.ranks[0].Waits[0].Comm, s.asking = 7, true }, 5, circle},
		{"a circle that is ignored", []int{1, 0}, func(s *scene) { s.dog.Circles = false }, 60, ""},
		{"a circle that is ignored, until the limit", []int{1, 0},
			func(s *scene) { s.dog.Circles = false }, 61, "nothing has moved for 1m0s (--hang-timeout); [0 1]"},
		{"one that can do no more", []int{1, -1}, func(s *scene) { s.dog.Alone = true }, 12,
			"rank 1 can do nothing more: it is in no call, and its goroutines wait for each other; [1]"},
		{"all that can do no more", []int{-1, -1}, func(s *scene) { s.dog.Alone = true }, 12,
			"rank 0 can do nothing more: it is in no call, and its goroutines wait for each other; [0]"},
		{"one that may act", []int{1, -1}, func(s *scene) { s.dog.Alone, s.acts = true, []int{1} }, 59, ""},
		{"one that is busy", []int{1, -1}, func(s *scene) { s.dog.Alone, s.busy = true, []int{1} }, 59, ""},
		{"one that is stopped", []int{1, -1}, func(s *scene) { s.dog.Alone, s.ranks[1].Stopped = true, true }, 59, ""},
		{"one that cannot answer", []int{-1, -1},
			func(s *scene) { s.dog.Alone, s.ranks[0].Joined, s.ranks[1].Ended = true, false, true }, 59, ""},
		{"one that can do no more, which is ignored", []int{1, -1}, func(s *scene) { s.dog.Alone, s.dog.Circles = true, false }, 59, ""},
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
	s.ranks[0].Waits[0].Since = s.now // another wait for the same rank
	if got := s.why(1); got != "" {
		t.Errorf("a new wait: %q", got)
	}
	s.ranks[0].Waits[0].Seq++
	if got := s.why(1); got != "" {
		t.Errorf("another call: %q", got)
	}
	s.ranks[0].Waits, s.ranks[0].Elsewhere = nil, true
	for range 3 * 60 { // rank 2 has calls of its own
		s.ranks[2].Calls++
		if got := s.why(1); got != "" {
			t.Fatalf("while rank 2 works: %q", got)
		}
	}
	if got := s.why(60); got != "nothing has moved for 1m0s (--hang-timeout); [0 2]" {
		t.Errorf("when it does not: %q", got)
	}
}

// Over MPI a rank now and then does not know for whom it waits. That is no movement, though no circle either.
func TestARankThatForgetsForWhomItWaits(t *testing.T) {
	s := newScene(1, 0)
	for n := range 60 {
		s.ranks[0].Waits[0].On = control.Nobody + 2*((n+1)%2)
		if h := s.look(); h != nil {
			t.Fatalf("after %d looks: %s", n+1, h.Why())
		}
	}
	if got := s.why(1); got != "nothing has moved for 1m0s (--hang-timeout); [0 1]" {
		t.Errorf("at the limit: %q", got)
	}
	s.dog.Setting = "GORUN_HANG_TIMEOUT"
	if got := s.why(1); got != "nothing has moved for 1m1s (GORUN_HANG_TIMEOUT); [0 1]" {
		t.Errorf("with another setting: %q", got)
	}
}

func TestACircleCountsOnceNoGoroutineMayAct(t *testing.T) {
	s := newScene(1, 0)
	s.ranks[0].Waits[0].Comm, s.acts = 7, []int{1}
	if got := s.why(20); got != "" {
		t.Errorf("while a goroutine of rank 1 sleeps: %q", got)
	}
	s.acts = nil
	s.asked = map[int]uint64{} // not answered yet
	if got := s.why(1); got != "" {
		t.Errorf("before rank 1 has answered: %q", got)
	}
	if got, want := s.why(1), "rank 0 waits for rank 1 waits for rank 0; [0 1]"; got != want {
		t.Errorf("when it has Ended: %q, want %q", got, want)
	}
}

func TestPartsOfMessagesAreMovement(t *testing.T) {
	s := newScene(1, 0)
	s.ranks[0].Waits[0].Comm = 7
	for range 100 {
		s.ranks[1].Moves++
		if got := s.why(1); got != "" {
			t.Fatalf("while a message comes: %q", got)
		}
	}
	if got, want := s.why(4), "rank 0 waits for rank 1 waits for rank 0; [0 1]"; got != want {
		t.Errorf("when nothing comes any more: %q, want %q", got, want)
	}
}

func TestStepsAndSavesAreMovement(t *testing.T) {
	s := newScene(-1, -1)
	s.dog.Always = true
	for i := range 100 {
		if i%2 == 0 {
			s.ranks[0].Step++
		} else {
			s.ranks[1].Saved = s.now
		}
		if got := s.why(59); got != "" {
			t.Fatalf("got %q", got)
		}
	}
}

func TestWatchdogForgetsTimeInWhichGorunDidNotRun(t *testing.T) {
	s := newScene(1, -1)
	s.look()
	s.now = s.now.Add(time.Hour)
	if got := s.why(59); got != "" {
		t.Errorf("after an hour in which gorun was Stopped: %q", got)
	}
}

// TestTableOfAHang has alike ranks on one line.
func TestTableOfAHang(t *testing.T) {
	segment, err := control.Create(6, control.Options{ArenaBytes: 4096})
	if err != nil {
		t.Fatal(err)
	}
	defer segment.Close()
	rank, err := control.Open(segment.Files()[0], segment.Files()[1], 6, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer rank.Close()
	rank.SetNames(control.Names{Kinds: []string{"", "AllReduce"}, Ops: []string{"", "sum"}, DTypes: []string{"", "float32"}})
	s := newScene(3, 3, 3, -1, 0, -1)
	for r := range s.ranks {
		for i := range s.ranks[r].Waits {
			it := &s.ranks[r].Waits[i]
			it.Text, it.Site, it.Seq, it.Comm = "Barrier", "main.go:1", 7, 99
		}
	}
	s.ranks[2].Waits = append(s.ranks[2].Waits,
		control.Wait{Call: control.Call{Comm: 98, Seq: 2}, On: 4, Text: "AllGather", Site: "main.go:9", Since: s.now})
	s.ranks[3].Calls, s.ranks[3].Stopped = 6, true
	s.ranks[3].Last = control.Call{Comm: 99, Seq: 6, What: 1 | 1<<8 | 1<<16, Count: 10}
	s.ranks[4].Waits[0].Text, s.ranks[4].Waits[0].Comm = "Send\x1b[2J \xff"+strings.Repeat("x", 100), 98
	s.ranks[5].Ended = true
	h := &Hang{orphan: -1, stuck: -1, seen: s.ranks, since: slices.Repeat([]time.Time{s.now.Add(-time.Second)}, len(s.ranks))}
	got := h.Table(segment, s.now.Add(1500*time.Millisecond))
	want := `  rank  state              call                                                          number      at         waits for  since
  0-1   waits              Barrier                                                       group b #7  main.go:1  rank 3     1.5s ago
  2     waits              Barrier                                                       group b #7  main.go:1  rank 3     1.5s ago
        waits, async       AllGather                                                     group a #2  main.go:9  rank 4     1.5s ago
  3     stopped (SIGSTOP)  after AllReduce sum float32[10]                               group b #6                        2.5s ago
  4     waits              Send?[2J �xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…  group a     main.go:1  rank 0     1.5s ago
  5     ended              after no call                                                                                   2.5s ago
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A scene of which each rank's waits are written out.
func scenic(ranks ...Sighting) *scene {
	s := newScene(make([]int, len(ranks))...)
	s.ranks = ranks
	for r := range ranks {
		for i := range ranks[r].Waits {
			ranks[r].Waits[i].Since = s.now
		}
	}
	return s
}

// in is a wait in a communicator for a rank that a program attends to; async is one
// that it does not.
func in(comm uint64, on int) control.Wait {
	return control.Wait{Call: control.Call{Comm: comm}, On: on, Attended: true}
}

func async(comm uint64, on int) control.Wait {
	return control.Wait{Call: control.Call{Comm: comm}, On: on}
}

// waiting is a rank of which all that it does is to wait.
func waiting(waits ...control.Wait) Sighting {
	return Sighting{Waiting: control.Waiting{Waits: waits}}
}

// working is a rank whose program does something else beside its waits.
func working(waits ...control.Wait) Sighting {
	return Sighting{Waiting: control.Waiting{Waits: waits, Elsewhere: true}}
}

// TestWatchdogWithAsynchronousCalls: what goes on by itself neither hides a circle nor
// feigns one.
func TestWatchdogWithAsynchronousCalls(t *testing.T) {
	const circle = "rank 0 waits for rank 1 waits for rank 0; [0 1]"
	for _, c := range []struct {
		name  string
		scene *scene
		looks int
		want  string
	}{
		{"an asynchronous call waits for a rank that sleeps, and that for the program", scenic(working(async(1, 1)), waiting(in(2, 0))), 59, ""},
		{"both programs do something else", scenic(working(async(1, 1)), working(async(2, 0))), 59, ""},
		{"until the limit", scenic(working(async(1, 1)), working(async(2, 0))), 61, "nothing has moved for 1m0s (--hang-timeout); [0 1]"},
		{"both programs attend to calls that the other has not begun", scenic(waiting(in(1, 1)), waiting(in(2, 0))), 5, circle},
		{"a circle of blocking calls beside asynchronous ones that have a hope", scenic(
			waiting(async(9, 2), in(1, 1)), waiting(async(9, 2), in(1, 0)), working()), 2, circle},
		{"a circle of blocking calls behind whose ranks stand asynchronous ones", scenic(
			waiting(in(1, 1), async(9, 2)), waiting(in(1, 0)), working(async(9, 0))), 2, circle},
		{"an asynchronous circle within a communicator", scenic(working(async(1, 1)), working(async(1, 0))), 2, circle},
		{"one of two goroutines has a hope", scenic(
			waiting(in(1, 1), in(2, 2)), waiting(in(3, 0)), working()), 59, ""},
		{"a second goroutine is somewhere else", scenic(
			working(in(1, 1)), waiting(in(2, 0))), 59, ""},
		{"both goroutines are stuck", scenic(
			waiting(in(1, 1), in(2, 1)), waiting(in(3, 0))), 5, circle},
		{"different collectives of different communicators", scenic(
			waiting(in(1, 1)), waiting(in(2, 2)), waiting(in(3, 3)), working()), 59, ""},
		{"three ranks over three communicators", scenic(
			waiting(in(1, 1)), waiting(in(2, 2)), waiting(in(3, 0))), 5, "rank 0 waits for rank 1 waits for rank 2 waits for rank 0; [0 1 2]"},
		{"all attend, to more than is seen", scenic(working(in(1, 1)), working(in(2, 0))), 61,
			"nothing has moved for 1m0s (--hang-timeout); [0 1]"},
	} {
		if got := c.scene.why(c.looks); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestLongLinesOfRanks has many ranks wait in a line, the worst one for the graph.
func TestLongLinesOfRanks(t *testing.T) {
	on := make([]int, control.MaxRanks)
	for r := range on {
		on[r] = r - 1
	}
	s := newScene(on...)
	if got := s.why(3); got != "" {
		t.Errorf("a line behind a rank that computes: %q", got)
	}
	s.ranks[0] = waiting(in(0, control.MaxRanks-1))
	if got := s.why(2); !strings.HasPrefix(got, "rank 0 waits for rank 4095 waits for rank 4094 ") ||
		!strings.Contains(got, "… (4096 ranks)") {
		t.Errorf("a circle: %.200q", got)
	}
}
