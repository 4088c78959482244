//go:build linux

package stdio

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/launcher/terminal"
)

func TestFinal(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"plain\n", "plain\n"},
		{"dos\r\n", "dos\r\n"},
		{"\r 1\x1b[K\r 2\x1b[K\n", " 2\n"},
		{"a\rb\nc\n\rd\re", "b\nc\ne"},
		{"10 %\r20 %\r\n", "20 %\r\n"},
		{"\x1b[Kkept: this line is not redrawn\n", "\x1b[Kkept: this line is not redrawn\n"},
	} {
		if got := string(final(nil, []byte(c.in))); got != c.want {
			t.Errorf("final(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func FuzzStatus(f *testing.F) {
	f.Add([]byte("\rbar \x1b[31m1\x1b[K\rbar 2\x1b[K\nend\r"), 20)
	f.Add([]byte("\x1b[\nm"), 12)
	f.Fuzz(func(t *testing.T, text []byte, columns int) {
		if n := bytes.Count(final(nil, text), []byte{'\n'}); n != bytes.Count(text, []byte{'\n'}) {
			t.Errorf("%q ends %d lines", text, n)
		}
		if got := terminal.Fit(nil, text, columns); bytes.ContainsAny(got, "\r\n\t") {
			t.Errorf("fit(%q) = %q leaves the line", text, got)
		}
		if over, ok := redrawn(text); ok && over > len(text) {
			t.Errorf("redrawn(%q) = %d", text, over)
		}
	})
}

// newLiveSink returns a sink that writes to a file as to a terminal of 30 columns.
func newLiveSink(t *testing.T) (s *sink, text func() string) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	s = &sink{&target{failed: func(_ string, err error) { t.Error(err) }, columns: func() int { return 30 }}, f, "out"}
	return s, func() string {
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

func TestStatusStaysBelowTheLines(t *testing.T) {
	s, text := newLiveSink(t)
	two, zero, p := []byte("two"), []byte("zero"), new(Pump)
	s.write(p, []byte("first\n"), false)
	s.setStatus(2, two, false)
	s.write(p, []byte("line\n"), false)
	s.setStatus(0, zero, false)
	s.setStatus(2, two, false)
	s.setStatus(0, nil, false)
	s.setStatus(0, nil, false)
	s.write(p, []byte("half"), true)
	s.setStatus(2, []byte("TWO"), false)
	s.write(p, []byte("more\n"), false)
	s.setStatus(2, nil, false)
	s.write(p, []byte("last\n"), false)
	const clear = terminal.EraseLine
	want := "first\n" + "two" + clear + "line\ntwo" + clear + "zero" + clear + "zero" + clear + "two" +
		clear + "half" + "\nmore\nTWO" + clear + "last\n"
	if got := text(); got != want {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

func TestPumpShowsWhatIsRedrawn(t *testing.T) {
	s, text := newLiveSink(t)
	p := &Pump{to: s, live: true, lines: splitter{limit: maxLine}, tail: new(tail)}
	feed := func(text string) {
		for len(text) > 0 {
			n := copy(p.lines.space(), text)
			p.accept([]byte(text[:n]))
			text = text[n:]
		}
	}
	feed("held")
	feed(" back\n\rbar 1\x1b[K")
	feed("\rbar 2\x1b[K")
	feed("\r\x1b[Ka line\n\rbar 3\x1b[K")
	for range 1000 {
		feed("\r" + strings.Repeat("x", 60) + "\r")
	}
	if len(p.lines.buf) > usualRead {
		t.Errorf("the splitter keeps %d bytes of states that are over", len(p.lines.buf))
	}
	feed("\rbar 4\x1b[K\nend")
	p.finish(p.lines.rest())
	got := text()
	const clear = terminal.EraseLine
	start := "held back\nbar 1" + clear + "bar 2" + clear + "a line\nbar 3" + clear + strings.Repeat("x", 29) + clear
	if !strings.HasPrefix(got, start) || !strings.HasSuffix(got, "x"+clear+"bar 4\nend") {
		t.Errorf("got %q … %q", got[:min(len(got), 200)], got[max(0, len(got)-80):])
	}
	if want := []string{"held back", "a line", "bar 4", "end"}; strings.Join(p.tail.lines(), "|") != strings.Join(want, "|") {
		t.Errorf("the tail is %q, want %q", p.tail.lines(), want)
	}
}
