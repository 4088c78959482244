//go:build linux

package control

import (
	"slices"
	"testing"
	"time"
)

func TestWaitsOfARank(t *testing.T) {
	launcher, ranks := create(t, 2)
	rank := ranks[1]
	if w := launcher.Waiting(1); len(w.Waits) != 0 || !w.Elsewhere {
		t.Errorf("a rank that does not wait: %+v", w)
	}
	front := Wait{Call: Call{Comm: 1, Seq: 9}, Since: time.Unix(5, 0), On: 0, Text: "Barrier", Site: "a.go:1", Attended: true}
	back := Wait{Call: Call{Comm: 2, Seq: 1}, Since: time.Unix(6, 0), On: 1, Text: "AllReduce", Site: "b.go:1"}
	first := rank.BeginWait(1, back)
	if w := launcher.Waiting(1); !slices.Equal(w.Waits, []Wait{back}) || !w.Elsewhere {
		t.Errorf("a wait that nobody attends to: %+v", w)
	}
	second := rank.BeginWait(1, front)
	if w := launcher.Waiting(1); !slices.Equal(w.Waits, []Wait{back, front}) || w.Elsewhere {
		t.Errorf("two waits: %+v", w)
	}
	rank.AttendWait(1, first, true)
	back.Attended = true
	rank.EndWait(1, second)
	if w := launcher.Waiting(1); !slices.Equal(w.Waits, []Wait{back}) || w.Elsewhere {
		t.Errorf("one wait: %+v", w)
	}
	rank.AttendWait(1, first, false)
	if w := launcher.Waiting(1); !w.Elsewhere {
		t.Errorf("a wait that nobody attends to any more: %+v", w)
	}
	rank.EndWait(1, first)
	if w := launcher.Waiting(1); len(w.Waits) != 0 {
		t.Errorf("still waiting: %+v", w)
	}
}

func TestQuestions(t *testing.T) {
	launcher, ranks := create(t, 2)
	rank := ranks[1]
	if n := rank.Question(1); n != 0 || launcher.OnlyWaits(1, 1) {
		t.Errorf("nothing asked: question %d", n)
	}
	for _, only := range []bool{true, false} {
		number := uint64(7)
		if !only {
			number = 8
		}
		launcher.Ask(1, number)
		if n := rank.Question(1); n != number || launcher.OnlyWaits(1, number) {
			t.Errorf("asked %d, before the answer: question %d", number, n)
		}
		rank.Answer(1, number, only)
		if n := rank.Question(1); n != 0 || launcher.OnlyWaits(1, number) != only || launcher.OnlyWaits(0, number) ||
			launcher.OnlyWaits(1, number-1) {
			t.Errorf("asked %d, after the answer %v: question %d", number, only, n)
		}
	}
}

func TestMoreWaitsThanAreRecorded(t *testing.T) {
	launcher, ranks := create(t, 1)
	var numbers []int
	for range maxWaits + 2 {
		numbers = append(numbers, ranks[0].BeginWait(0, Wait{Since: time.Unix(5, 0), Attended: true}))
	}
	if w := launcher.Waiting(0); len(w.Waits) != maxWaits || !w.Elsewhere {
		t.Errorf("%d waits, elsewhere %v", len(w.Waits), w.Elsewhere)
	}
	for _, n := range numbers {
		ranks[0].EndWait(0, n)
	}
	for range maxWaits {
		ranks[0].BeginWait(0, Wait{Since: time.Unix(5, 0), Attended: true})
	}
	if w := launcher.Waiting(0); len(w.Waits) != maxWaits || w.Elsewhere {
		t.Errorf("%d waits, elsewhere %v", len(w.Waits), w.Elsewhere)
	}
}

func TestCallsInWords(t *testing.T) {
	launcher, ranks := create(t, 1)
	if got := launcher.Describe(Call{What: 1}); got != "" {
		t.Errorf("without words: %q", got)
	}
	ranks[0].SetNames(Names{Kinds: []string{"Invalid", "AllReduce", "Broadcast"}, Ops: []string{"none", "sum"},
		DTypes: []string{"invalid", "float32"}, Rooted: 1 << 2})
	for want, c := range map[string]Call{
		"AllReduce sum float32[7]":        {What: 1 | 1<<8 | 1<<16, Count: 7},
		"Broadcast float32[8] root 3":     {What: 2 | 1<<16 | 3<<24, Count: 8},
		"AllReduce":                       {What: 1},
		"AllReduce float32[counts #0005]": {What: 1 | 1<<16, Count: vectorBit | 5},
	} {
		if got := launcher.Describe(c); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestMoves(t *testing.T) {
	launcher, ranks := create(t, 2)
	before, copied := launcher.Moves(1), launcher.Report(1, 1)
	ranks[1].Move(1)
	if launcher.Moves(1) == before || launcher.Moves(0) != before || launcher.Report(1, 1).Moves == copied.Moves {
		t.Errorf("%d moves, of rank 0 %d, before both had %d", launcher.Moves(1), launcher.Moves(0), before)
	}
	other, _ := create(t, 2)
	other.Copy(1, launcher.Report(1, 1))
	if got, want := other.Moves(1), launcher.Moves(1); got != want {
		t.Errorf("copied: %d moves, want %d", got, want)
	}
}
