package launcher

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/internal/job"
)

// Words are taken out of a stream however it comes in pieces, and nothing else is.
func TestWordsAreTakenOut(t *testing.T) {
	for _, c := range []struct {
		name        string
		whole       bool
		stream      string // W is a word
		want        string
		heard, held int
	}{
		{"alone", false, "W", "", 1, 0},
		{"among lines", false, "a\nWb\n", "a\nb\n", 1, 0},
		{"after a line that goes on", false, "50 %W, 60 %\n", "50 %, 60 %\n", 1, 0},
		{"no newline", false, "prompt> ", "prompt> ", 0, 0},
		{"two", false, "WW", "", 2, 0},
		{"another job's", false, "\x1eother + 1 0 \"h\" \"\"\n", "\x1eother + 1 0 \"h\" \"\"\n", 0, 0},
		{"the character alone", false, "a\x1eb\nc", "a\x1eb\nc", 0, 0},
		{"cut off", false, "a\x1eb", "a\x1eb", 0, 0},
		{"tagged", true, "[1,0]<stderr>:a\n[1,0]<stderr>:W[1,1]<stderr>:b\n", "[1,0]<stderr>:a\n[1,1]<stderr>:b\n", 1, 0},
		{"tagged, no newline", true, "[1,0]<stderr>:a", "[1,0]<stderr>:a", 0, 0},
		{"long", false, strings.Repeat("x", 3*maxHeld) + "\n", strings.Repeat("x", 3*maxHeld) + "\n", 0, 0},
		{"long after the character", false, "\x1e" + strings.Repeat("x", 3*maxHeld), "\x1e" + strings.Repeat("x", 3*maxHeld), 0, 0},
	} {
		for _, step := range []int{1, 2, 7, 100, 1 << 20} {
			w := newWords(c.whole)
			text := strings.ReplaceAll(c.stream, "W", job.Word{Kind: job.Started, Rank: 1, Host: "h"}.Line(w.token))
			got, heard := "", 0
			for piece := range slices.Chunk([]byte(text), step) {
				w.quiet["h"] = 1
				got += string(w.filter(piece))
				if w.quiet["h"] == 0 {
					heard++
				}
			}
			got += string(w.rest())
			if got != c.want || (heard > 0) != (c.heard > 0) {
				t.Errorf("%s in pieces of %d: got %.80q, %d words; want %.80q, %d", c.name, step, got, heard, c.want, c.heard)
			}
		}
	}
}

func TestWhoFailed(t *testing.T) {
	started := func(rank int, host string) job.Word { return job.Word{Kind: job.Started, Rank: rank, Host: host} }
	ended := func(kind job.WordKind, rank, status int, host, text string) job.Word {
		return job.Word{Kind: kind, Rank: rank, Status: status, Host: host, Text: text}
	}
	for _, c := range []struct {
		name   string
		said   []job.Word
		want   string
		status int
	}{
		{"none started", nil, "", 0},
		{"all well", []job.Word{started(0, "a"), ended(job.Ended, 0, 0, "a", "")}, "", 0},
		{"the first of its own accord", []job.Word{started(0, "a"), started(1, "b"), ended(job.Dragged, 0, 1, "a", "rank 1 aborted: boom"), ended(job.Ended, 1, 1, "b", "boom")},
			"rank 1 on b failed: boom (exit code 1)", 1},
		{"the earlier of two", []job.Word{ended(job.Ended, 3, 4, "a", "x"), ended(job.Ended, 1, 1, "b", "y")}, "rank 3 on a failed: x (exit code 4)", 4},
		{"only followers", []job.Word{started(0, "a"), ended(job.Dragged, 0, 1, "a", "late")}, "rank 0 on a failed: late (exit code 1)", 1},
		{"a follower of a silent one", []job.Word{started(2, "b"), ended(job.Dragged, 0, 1, "a", "late\nby far")}, "no last word from rank 2 on b; rank 0 on a failed with it: late; by far", 0},
		{"a silent one, because of another", []job.Word{started(2, "b"), ended(job.Ended, 0, 1, "a", "boom")}, "rank 0 on a failed: boom (exit code 1)", 1},
		{"silent", []job.Word{started(0, "a"), started(1, "a"), started(2, "b"), started(3, "b"), ended(job.Ended, 0, 0, "a", "")}, "no last word from rank 1 on a and ranks 2-3 on b", 0},
	} {
		h := &handover{words: newWords(false)}
		for _, w := range c.said {
			h.words.take(w)
		}
		if text, status, _ := h.failure(); text != c.want || status != c.status {
			t.Errorf("%s: got %q, %d; want %q, %d", c.name, text, status, c.want, c.status)
		}
		if got, want := h.words.allWell(), c.name == "all well"; got != want {
			t.Errorf("%s: all well: %v", c.name, got)
		}
	}
	if text, _, ok := (&handover{}).failure(); ok || text != "" {
		t.Errorf("without words: %q", text)
	}
}

// A rank that has failed ends the job when its launcher has not within the grace period.
func TestFailedRankEndsTheJob(t *testing.T) {
	h := &handover{words: newWords(false), opts: &options{grace: 3 * time.Second}}
	h.words.take(job.Word{Kind: job.Started, Rank: 0, Host: "a"})
	h.words.take(job.Word{Kind: job.Dragged, Rank: 2, Host: "a", Status: 1})
	for range 6 {
		if _, over := h.look(); over {
			t.Fatal("over, though no rank has failed of its own accord")
		}
	}
	h.words.take(job.Word{Kind: job.Ended, Rank: 1, Host: "a", Status: 1})
	for n := 1; n <= 4; n++ {
		if _, over := h.look(); over != (n == 4) {
			t.Errorf("look %d after the failure: over is %v", n, over)
		}
	}
}

func TestLostHosts(t *testing.T) {
	w := newWords(false)
	looks := int(silence/lookInterval) + 1
	w.take(job.Word{Kind: job.Started, Rank: 0, Host: "a"})
	w.take(job.Word{Kind: job.Started, Rank: 1, Host: "b"})
	for range looks - 1 {
		w.take(job.Word{Kind: job.Alive, Rank: 0, Host: "a"})
		if lost := w.look(); len(lost) > 0 {
			t.Fatalf("%v is lost too early", lost)
		}
	}
	if lost := w.look(); !slices.Equal(lost, []string{"b"}) {
		t.Errorf("lost are %v, want b", lost)
	}
	w.take(job.Word{Kind: job.Ended, Rank: 1, Host: "b"})
	for range looks {
		w.take(job.Word{Kind: job.Alive, Rank: 0, Host: "a"})
		if lost := w.look(); len(lost) > 0 {
			t.Errorf("%v is lost after its ranks have ended", lost)
		}
	}
}
