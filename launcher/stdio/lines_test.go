//go:build linux

package stdio

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// split feeds stream to a splitter in reads of the given sizes, over and over, and
// returns the pieces.
func split(stream []byte, limit int, sizes []byte) []string {
	s := splitter{limit: limit}
	var pieces []string
	for i := 0; len(stream) > 0; i++ {
		room := s.space()
		n := min(len(room), len(stream))
		if len(sizes) > 0 {
			n = min(n, int(sizes[i%len(sizes)])+1)
		}
		copy(room, stream[:n])
		stream = stream[n:]
		if lines := s.take(n); len(lines) > 0 {
			pieces = append(pieces, string(lines))
		}
	}
	if rest := s.rest(); len(rest) > 0 {
		pieces = append(pieces, string(rest))
	}
	return pieces
}

// FuzzSplitter checks that the pieces together are the stream, and that a piece without a
// newline at its end is the last one or as long as the limit.
func FuzzSplitter(f *testing.F) {
	f.Add([]byte("a\nbb\n\nccc"), uint8(10), []byte{0})
	f.Add([]byte("aaaaaaaaaaaaaaaaaaaaaaaa\nb"), uint8(8), []byte{3, 0, 90})
	f.Add([]byte(strings.Repeat("x", 9000)+"\n"+strings.Repeat("y\n", 9000)), uint8(255), []byte{})
	f.Fuzz(func(t *testing.T, stream []byte, limit uint8, sizes []byte) {
		l := max(int(limit), 1)
		pieces := split(stream, l, sizes)
		if got := strings.Join(pieces, ""); got != string(stream) {
			t.Fatalf("%q became %q", stream, got)
		}
		for i, p := range pieces {
			if !strings.HasSuffix(p, "\n") && i+1 < len(pieces) && (len(p) != l || strings.Contains(p, "\n")) {
				t.Errorf("limit %d: piece %d of %d is half a line: %q", l, i, len(pieces), p)
			}
		}
	})
}

func TestSplitterKeepsAMebibyte(t *testing.T) {
	line := strings.Repeat("x", maxLine-1) + "\n"
	if got := split([]byte(line), maxLine, nil); len(got) != 1 || got[0] != line {
		t.Errorf("a line of %d bytes became %d pieces", len(line), len(got))
	}
	if got := split([]byte("x"+line), maxLine, nil); len(got) != 2 || len(got[0]) != maxLine || got[1] != "\n" {
		t.Errorf("a line of %d bytes became %d pieces", maxLine+1, len(got))
	}
}

// TestSplitterReadsMore checks that reads of a fast stream grow, up to a bound.
func TestSplitterReadsMore(t *testing.T) {
	s := splitter{limit: maxLine}
	line := bytes.Repeat([]byte("0123456789abcde\n"), maxLine/16)
	for range 20 {
		room := s.space()
		s.take(copy(room, line))
	}
	if n := len(s.buf); n != usualRead {
		t.Errorf("reads are of %d bytes, want %d", n, usualRead)
	}
}

// Go's runtime says in these words that it could not make a thread, with cgo, without it and with neither.
func TestTailOfTooManyTasks(t *testing.T) {
	for line, want := range map[string]bool{
		"runtime/cgo: pthread_create failed: Resource temporarily unavailable\nSIGABRT: abort\n":       true,
		"fakecgo: pthread_create failed: 11\nSIGABRT: abort\n":                                         true,
		"runtime: failed to create new OS thread (have 5 already; errno=11)\nfatal error: newosproc\n": true,
		"panic: resource temporarily unavailable\n":                                                    false,
	} {
		var tl tail
		tl.add([]byte(line))
		if tl.tasks != want {
			t.Errorf("%q: %v, want %v", line, tl.tasks, want)
		}
	}
}

func TestTailQuotesACrash(t *testing.T) {
	for text, want := range map[string]string{
		"no crash\n": "",
		"before\npanic: boom\n\ngoroutine 1 [running]:\n":               "panic: boom",
		"panic: boom [recovered, repanicked]\n\ngoroutine 1 [running]:": "panic: boom",
		"fatal error: all goroutines are asleep - deadlock!\n":          "fatal error: all goroutines are asleep - deadlock!",
		"panic: main.list [recovered 1 of 2]: x\n":                      "panic: main.list [recovered 1 of 2]: x",
	} {
		var tl tail
		tl.add([]byte(text))
		if got := tl.crashed(); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestTail(t *testing.T) {
	number := func(from, to int) string {
		var b strings.Builder
		for i := from; i <= to; i++ {
			fmt.Fprintf(&b, "line %d\n", i)
		}
		return b.String()
	}
	long := strings.Repeat("z", tailBytes)
	for _, c := range []struct {
		name string
		add  []string
		want []string
	}{
		{"nothing", nil, nil},
		{"one", []string{"a\n"}, []string{"a"}},
		{"unterminated", []string{"a\n", "b"}, []string{"a", "b"}},
		{"the last ten", []string{number(1, 30)}, strings.Split(strings.TrimSpace(number(21, 30)), "\n")},
		{"in pieces", []string{number(1, 5), number(6, 12)}, strings.Split(strings.TrimSpace(number(3, 12)), "\n")},
		{"no half line", []string{long + "\n", "end\n"}, []string{"end"}},
		{"one endless line", []string{long + long}, []string{long}},
		{"panic", []string{"before\n", "panic: x\n\ngoroutine 1 [running]:\n" + number(1, 20), number(21, 900)},
			append([]string{"panic: x", "", "goroutine 1 [running]:"}, strings.Split(strings.TrimSpace(number(1, 7)), "\n")...)},
		{"panic in the middle of a line", []string{"no panic: here\n"}, []string{"no panic: here"}},
		{"second crash", []string{"panic: a\nfatal error: b\nc\n"}, []string{"fatal error: b", "c"}},
		{"not text", []string{"\xff\n"}, []string{"\uFFFD"}},
	} {
		var s tail
		for _, lines := range c.add {
			s.add([]byte(lines))
		}
		if got := s.lines(); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
