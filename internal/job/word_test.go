package job

import (
	"strings"
	"testing"
)

func TestWordRoundTrip(t *testing.T) {
	for _, want := range []Word{
		{Kind: Placed, Rank: 3, Host: "node2"},
		{Kind: Started, Rank: 3, Host: "node2"},
		{Kind: Alive, Host: "a b\n"},
		{Kind: Ended, Rank: 1, Status: 143, Host: "node1", Text: "boom: \"x\"\nand\x1emore ü"},
		{Kind: Dragged, Rank: 7, Status: 1, Host: "n", Text: "rank 1 aborted: boom"},
		{Kind: Gone, Rank: 2, Status: 137, Host: "n"},
		{Kind: Stored, Rank: 1, Host: "n"},
	} {
		line := want.Line("t0k")
		if got, ok := ParseWord("t0k", strings.TrimSuffix(line, "\n")); !ok || got != want || strings.Count(line, "\n") != 1 {
			t.Errorf("%+v is written %q and read %+v, %v", want, line, got, ok)
		}
		if _, ok := ParseWord("other", line); ok {
			t.Errorf("%q is taken for another job's", line)
		}
	}
	long := Word{Kind: Ended, Host: "n", Text: strings.Repeat("ü", 5000)}
	if line := long.Line("t"); len(line) > maxWord+100 {
		t.Errorf("a line of %d bytes", len(line))
	} else if got, ok := ParseWord("t", line); !ok || !strings.HasPrefix(long.Text, strings.TrimRight(got.Text, "�")) {
		t.Errorf("cut off: %v %q", ok, got.Text)
	}
}

func FuzzParseWord(f *testing.F) {
	f.Add("\x1et + 1 0 \"h\" \"\"")
	f.Add("\x1et - 99999999999 1 \"h\" \"x\"")
	f.Fuzz(func(t *testing.T, line string) {
		if w, ok := ParseWord("t", line); ok {
			if again, ok := ParseWord("t", strings.TrimSuffix(w.Line("t"), "\n")); !ok || again.Rank != w.Rank || again.Kind != w.Kind ||
				again.Host != w.Host {
				t.Errorf("%q reads as %+v, which reads as %+v", line, w, again)
			}
		}
	})
}
