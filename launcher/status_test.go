package launcher

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
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

func TestFit(t *testing.T) {
	for _, c := range []struct {
		in      string
		columns int
		want    string
	}{
		{"0123456789", 11, "0123456789"},
		{"0123456789", 10, "012345678"},
		{"äöü€x", 4, "äöü"},
		{"\x1b[31mred\x1b[0m and more", 6, "\x1b[31mred\x1b[0m a\x1b[m"},
		{"up\x1b[A\x1b[2Jdown\x1b", 80, "updown"},
		{"tab\tbell\a", 80, "tabbell"},
		{"x", 1, ""},
		{"x", 0, ""},
		{"\x1b[", 80, ""},
	} {
		if got := string(fit(nil, []byte(c.in), c.columns)); got != c.want {
			t.Errorf("fit(%q, %d) = %q, want %q", c.in, c.columns, got, c.want)
		}
	}
}

func FuzzStatus(f *testing.F) {
	f.Add([]byte("\rbar \x1b[31m1\x1b[K\rbar 2\x1b[K\nend\r"), 20)
	f.Fuzz(func(t *testing.T, text []byte, columns int) {
		if n := bytes.Count(final(nil, text), []byte{'\n'}); n != bytes.Count(text, []byte{'\n'}) {
			t.Errorf("%q ends %d lines", text, n)
		}
		if got := fit(nil, text, columns); bytes.ContainsAny(got, "\r\n\t") {
			t.Errorf("fit(%q) = %q leaves the line", text, got)
		}
		if over, ok := redrawn(text); ok && over > len(text) {
			t.Errorf("redrawn(%q) = %d", text, over)
		}
	})
}

// newLiveSink is a sink that believes to be a terminal of 30 columns, in a file.
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
	two, zero := []byte("two"), []byte("zero")
	s.write([]byte("first\n"), false)
	s.setStatus(2, two, false)
	s.write([]byte("line\n"), false)
	s.setStatus(0, zero, false)
	s.setStatus(2, two, false)
	s.setStatus(0, nil, false)
	s.setStatus(0, nil, false)
	s.write([]byte("half"), true)
	s.setStatus(2, []byte("TWO"), false)
	s.write([]byte("more\n"), false)
	s.setStatus(2, nil, false)
	s.write([]byte("last\n"), false)
	const clear = eraseLine
	want := "first\n" + "two" + clear + "line\ntwo" + clear + "zero" + clear + "zero" + clear + "two" +
		clear + "half" + "\nmore\nTWO" + clear + "last\n"
	if got := text(); got != want {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

func TestPumpShowsWhatIsRedrawn(t *testing.T) {
	s, text := newLiveSink(t)
	p := &pump{to: s, live: true, lines: splitter{limit: maxLine}, tail: new(tail)}
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
	const clear = eraseLine
	start := "held back\nbar 1" + clear + "bar 2" + clear + "a line\nbar 3" + clear + strings.Repeat("x", 29) + clear
	if !strings.HasPrefix(got, start) || !strings.HasSuffix(got, "x"+clear+"bar 4\nend") {
		t.Errorf("got %q … %q", got[:min(len(got), 200)], got[max(0, len(got)-80):])
	}
	if want := []string{"held back", "a line", "bar 4", "end"}; strings.Join(p.tail.lines(), "|") != strings.Join(want, "|") {
		t.Errorf("the tail is %q, want %q", p.tail.lines(), want)
	}
}

func TestBarOnATerminal(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "go")
	s := onScreen(t, "-np", "2", "testrank", "0:err=\\r[=>  ] 1/2\x1b[K\\0", "1:out=a line of rank 1", "wait="+file, "0:err=\\r[====] 2/2")
	s.expect("[=>  ] 1/2")
	s.expect("a line of rank 1\r\n")
	touch(t, file)
	s.expect("[====] 2/2\r\n")
	s.exit(0)
}

// TestRanksLearnOfTheTerminal has gorun on a terminal of 80 columns.
func TestRanksLearnOfTheTerminal(t *testing.T) {
	t.Parallel()
	s := onScreen(t, "--tag-output", "-np", "2", "sh", "-c", `sleep 0.01; echo "<$GORUN_RANK:$GORUN_TERMINAL>"`)
	s.expect("<0:67>")
	s.exit(0)
	s = onScreen(t, "--output", t.TempDir(), "-np", "2", "sh", "-c", `[ "${GORUN_TERMINAL-none}" = none ]`)
	s.exit(0)
}
