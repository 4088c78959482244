package backend

import (
	"errors"
	"strings"
	"testing"
)

func TestErrorsNameRanksAndCalls(t *testing.T) {
	cause := errors.New("disk full")
	for want, ranks := range map[string][]int{"for rank 3,": {3}, "for ranks 1 and 2,": {1, 2}, "for ranks 1, 2 and 4,": {1, 2, 4}} {
		if got := Late(cause, ranks).Error(); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
	b, a := Party{Rank: 5, Call: "Barrier"}, Party{Rank: 1, Call: "Broadcast", Site: "a.go:1"}
	if got, want := Mismatch(b, a).Error(), "ranks disagree: rank 1 called Broadcast at a.go:1, rank 5 called Barrier; "+
		"make the same calls in the same order on all ranks"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, test := range []struct {
		a, b, siteB, want string
		factsB            uint32
	}{
		{"AllReduce sum float32[2] for Sum: [2] P", "AllReduce sum float32[3] for Sum: [2] P", "a.go:1",
			"; give as many elements on all ranks", 0},
		{"AllReduce sum float32[2]", "AllReduce sum float32[3]", "a.go:2", "; make the same calls in the same order on all ranks", 0},
		{"AllReduce sum float32[2]", "AllReduce max float32[2]", "a.go:1", "; make the same calls in the same order on all ranks", 0},
		{"AllGatherV float32[counts #3e57]", "AllGatherV float32[counts #30bf]", "a.go:1",
			"give the same list, or tensors of the same shape, on all ranks", 0},
		{"Recv float64[3]", "Send float64[2]", "", "; give Send and Recv as many elements of one type", 0},
		{"Recv float64[3]", "Send float64[3]", "", "; what they are of differs: give tensors of the same shape, and as many parts of the " +
			"batch, on both ranks", 1},
		{"Send float64[3]", "Barrier", "", "; make the same calls in the same order on all ranks", 0},
		{"Barrier", "Barrier", "a.go:1", "; make the same calls in the same order on all ranks", 0},
		{"AllReduce sum float32[1] for Sum", "AllReduce sum float32[1] for Sum", "a.go:1",
			"; what they are of differs: give tensors of the same shape and placements on all ranks, and parameters in one order", 1},
		{"AllReduce sum float32[1]", "AllReduce sum float32[2]", "a.go:1", "; give as many elements on all ranks", 1},
	} {
		err := Mismatch(Party{Rank: 0, Call: test.a, Site: "a.go:1"}, Party{Rank: 1, Call: test.b, Site: test.siteB, Facts: test.factsB})
		if !errors.Is(err, ErrMismatch) || !strings.HasSuffix(err.Error(), test.want) {
			t.Errorf("got %q, want an end of %q", err, test.want)
		}
	}
}

// A Party names what the call is of, in bounded length, and so does the error of two that differ there alone.
func TestMismatchOfSubjects(t *testing.T) {
	of := func(facts uint32, subject string) Party {
		c := Call{Kind: BarrierKind, Facts: facts, Subject: text(subject)}
		inner := c.Inner(BarrierKind, Buffer{}, Buffer{})
		p := inner.Party(int(facts))
		p.Site = "a.go:1"
		return p
	}
	want := "; rank 1's is of [4] R, rank 2's of [5] R; give the same on all ranks"
	if got := Mismatch(of(2, "[5] R"), of(1, "[4] R")).Error(); !strings.HasSuffix(got, want) {
		t.Errorf("got %q, want an end of %q", got, want)
	}
	if n := len(of(1, strings.Repeat("é", 1000)).Subject); n > 170 {
		t.Errorf("a party's subject has %d bytes", n)
	}
}

type text string

func (t text) String() string { return string(t) }
