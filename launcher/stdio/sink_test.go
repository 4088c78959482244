//go:build linux

package stdio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patienceOfTest is how long a test waits for an event before it fails.
const patienceOfTest = 30 * time.Second

// A rig is a few pumps that write to one file.
type rig struct {
	t      *testing.T
	file   *os.File
	sink   *sink
	failed []error
	pumps  []*Pump
	ends   []*os.File // where the ranks write
	wait   sync.WaitGroup
}

func newRig(t *testing.T, ranks int, change func(*Pump)) *rig {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, file: file}
	r.sink = &sink{&target{failed: func(_ string, err error) { r.failed = append(r.failed, err) }}, file, "out"}
	for i := range ranks {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		if err := unix.SetNonblock(p[0], true); err != nil {
			t.Fatal(err)
		}
		m := &Pump{rank: i, from: os.NewFile(uintptr(p[0]), "pipe"), to: r.sink, lines: splitter{limit: maxLine}}
		if change != nil {
			change(m)
		}
		r.pumps = append(r.pumps, m)
		r.ends = append(r.ends, os.NewFile(uintptr(p[1]), "pipe"))
		r.wait.Go(m.Run)
	}
	return r
}

// text closes the ranks' ends and returns the text that arrived.
func (r *rig) text() string {
	for _, f := range r.ends {
		f.Close()
	}
	r.wait.Wait()
	text, err := os.ReadFile(r.file.Name())
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// TestLinesAreNeverMangled lets four ranks write lines of every length up to the
// longest, in writes of odd sizes.
func TestLinesAreNeverMangled(t *testing.T) {
	r := newRig(t, 4, nil)
	lengths := []int{1, 2, 100, 4095, 4096, 4097, 65536, 200000, maxLine - 1}
	var writers sync.WaitGroup
	for i, f := range r.ends {
		writers.Go(func() {
			for _, n := range lengths {
				text := strings.Repeat(fmt.Sprint(i), n) + "\n"
				for len(text) > 0 {
					k := min(len(text), 50021*(i+1))
					if _, err := io.WriteString(f, text[:k]); err != nil {
						t.Error(err)
					}
					text = text[k:]
				}
			}
		})
	}
	writers.Wait()
	got := make([][]int, 4)
	for line := range strings.Lines(r.text()) {
		line = strings.TrimSuffix(line, "\n")
		if strings.Trim(line, line[:1]) != "" {
			t.Fatalf("a line of %d bytes is mangled", len(line))
		}
		rank := line[0] - '0'
		got[rank] = append(got[rank], len(line))
	}
	for i := range got {
		if !slices.Equal(got[i], lengths) {
			t.Errorf("lines of rank %d have %v bytes, want %v", i, got[i], lengths)
		}
	}
}

// TestBytesComeThrough: a stream is passed on byte for byte, whatever its lines are, even
// if others write to the same file.
func TestBytesComeThrough(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, length := range []int{maxLine - 2, maxLine - 1, maxLine, maxLine + 1, 3*maxLine + 5} {
		want := make([]byte, length)
		for i := range want {
			want[i] = byte(random.Uint32())
			if want[i] == '\n' {
				want[i] = 0
			}
		}
		for _, end := range []string{"", "\n", "\n\nend", "\n" + string(want)} {
			r := newRig(t, 2, nil)
			if _, err := r.ends[0].Write(append(want[:length:length], end...)); err != nil {
				t.Fatal(err)
			}
			if got := r.text(); got != string(want)+end {
				t.Errorf("a line of %d bytes with %d after it became %d bytes", length, len(end), len(got))
			}
		}
	}
}

// TestLongLinesStayWhole: other writers wait for the end of a line of any length.
func TestLongLinesStayWhole(t *testing.T) {
	for _, g := range []tag{{}, {text: "tag "}} {
		r := newRig(t, 3, func(p *Pump) { p.tag = g })
		r.sink.target.hold = time.Hour
		const length = 3*maxLine + 100
		var writers sync.WaitGroup
		for i, f := range r.ends {
			writers.Go(func() {
				for range 3 {
					if _, err := io.WriteString(f, strings.Repeat(fmt.Sprint(i), length)+"\nshort\n"); err != nil {
						t.Error(err)
					}
				}
				f.Close()
			})
		}
		writers.Wait()
		n := 0
		for line := range strings.Lines(r.text()) {
			n++
			text, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), g.text)
			if !ok || text != "short" && text != strings.Repeat(text[:1], length) {
				t.Errorf("a line of %d bytes is mangled: %q", len(line), line[:10])
			}
		}
		if n != 18 {
			t.Errorf("%d lines, want 18", n)
		}
	}
}

// TestALongLineDoesNotHoldOthersForEver: a rank ends its line only when it has heard of another
// rank, and the other rank can write. Nothing is added to the text of both.
func TestALongLineDoesNotHoldOthersForEver(t *testing.T) {
	r := newRig(t, 3, nil)
	r.sink.target.hold = time.Millisecond
	length := int64(maxLine)
	awaitSize := func() {
		t.Helper()
		for end := time.Now().Add(patienceOfTest); ; time.Sleep(time.Millisecond) {
			info, err := r.file.Stat()
			if err != nil || time.Now().After(end) {
				t.Fatalf("the file does not reach %d bytes: %v", length, err)
			}
			if info.Size() == length {
				return
			}
		}
	}
	fmt.Fprint(r.ends[0], strings.Repeat("0", maxLine))
	awaitSize()
	length += int64(len("one\n"))
	fmt.Fprint(r.ends[1], "one\n")
	awaitSize()
	fmt.Fprint(r.ends[2], "two")
	r.ends[2].Close()
	length += int64(len("two"))
	awaitSize()
	r.ends[0].Close() // this ends no line that is rank 2's
	for r.pumps[0].from.SetReadDeadline(time.Time{}) == nil {
		time.Sleep(time.Millisecond)
	}
	fmt.Fprint(r.ends[1], "last")
	if got, want := r.text(), strings.Repeat("0", maxLine)+"one\ntwo\nlast"; got != want {
		t.Errorf("got %d bytes that end in %q, want %d", len(got), got[max(0, len(got)-20):], len(want))
	}
}

// TestFilesOfRanksHaveNothingAdded: a file of --output has exactly the bytes of the rank's two
// streams, even if one ends without a newline.
func TestFilesOfRanksHaveNothingAdded(t *testing.T) {
	r := newRig(t, 2, nil)
	r.sink.target.plain = true
	for _, f := range r.ends {
		fmt.Fprint(f, "ab")
	}
	if got := r.text(); got != "abab" {
		t.Errorf("got %q, want abab", got)
	}
}

// TestLastLines checks that lines that are never ended are kept, each on its own.
func TestLastLines(t *testing.T) {
	r := newRig(t, 3, nil)
	for i, f := range r.ends {
		fmt.Fprintf(f, "whole %d\nhalf %d", i, i)
	}
	lines := strings.Split(r.text(), "\n")
	slices.Sort(lines)
	if want := []string{"half 0", "half 1", "half 2", "whole 0", "whole 1", "whole 2"}; !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q", lines, want)
	}
}

func TestTags(t *testing.T) {
	both := Tagging{Who: true, When: true}
	r := newRig(t, 2, func(p *Pump) { p.tag = both.of(p.rank, "stdout", false) })
	for i, f := range r.ends {
		fmt.Fprintf(f, "a\n\nb %d", i)
	}
	text := r.text()
	form := regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} \[[01]\]<stdout>: (a|b \d|)\n?$`)
	n := 0
	for line := range strings.Lines(text) {
		n++
		if !form.MatchString(line) {
			t.Errorf("line %q", line)
		}
	}
	if n != 6 {
		t.Errorf("%d lines, want 6: %q", n, text)
	}
}

func TestTagsInColour(t *testing.T) {
	g := Tagging{Who: true}.of(1, "stderr", true)
	if got, want := string(g.append(nil, []byte("x\n"), time.Time{})), "\x1b[33m[1]<stderr>:\x1b[0m x\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestRawIsByteExact: the output of a single rank is passed on as it comes.
func TestRawIsByteExact(t *testing.T) {
	r := newRig(t, 1, func(p *Pump) { p.raw = true; p.tail = new(tail) })
	want := strings.Repeat("no newline ", maxLine/4) + "\x00\xff\r\n\n partial"
	if _, err := io.WriteString(r.ends[0], "prompt> "); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patienceOfTest); ; time.Sleep(time.Millisecond) { // at once, before the line ends
		if info, err := r.file.Stat(); err == nil && info.Size() > 0 || time.Now().After(end) {
			break
		}
	}
	if _, err := io.WriteString(r.ends[0], want); err != nil {
		t.Fatal(err)
	}
	if got := r.text(); got != "prompt> "+want {
		t.Errorf("%d bytes became %d", len(want)+8, len(got))
	}
	if got := r.pumps[0].tail.lines(); len(got) == 0 || got[len(got)-1] != " partial" {
		t.Errorf("the tail is %q", got)
	}
}

// TestDrain: when the ranks are gone, a process that still holds the pipe is not waited for.
func TestDrain(t *testing.T) {
	r := newRig(t, 2, nil)
	fmt.Fprint(r.ends[0], strings.Repeat("0\n", 20000), "end")
	for _, p := range r.pumps {
		p.Drain()
	}
	r.wait.Wait()
	text, err := os.ReadFile(r.file.Name())
	if want := strings.Repeat("0\n", 20000) + "end"; err != nil || string(text) != want {
		t.Errorf("%d bytes, %v, want %d", len(text), err, len(want))
	}
	for _, f := range r.ends {
		f.Close()
	}
}

func TestFailingWritesAreReportedOnce(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	r := newRig(t, 2, nil)
	r.sink.file = full
	for _, f := range r.ends {
		for range 3 {
			fmt.Fprint(f, strings.Repeat("x\n", 40000)) // must not block
		}
	}
	r.text()
	if len(r.failed) != 1 || !errors.Is(r.failed[0], unix.ENOSPC) {
		t.Errorf("reported: %v, want ENOSPC once", r.failed)
	}
}

// TestNonBlockingFiles: another process that shares gorun's output or input may make it
// non-blocking, as ssh does. Nothing is lost.
func TestNonBlockingFiles(t *testing.T) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	in, out := os.NewFile(uintptr(p[0]), "in"), os.NewFile(uintptr(p[1]), "out")
	defer in.Close()
	if err := errors.Join(unix.SetNonblock(p[0], true), unix.SetNonblock(p[1], true)); err != nil {
		t.Fatal(err)
	}
	text := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
	s := &sink{&target{failed: func(_ string, err error) { t.Error(err) }}, out, "out"}
	go func() {
		time.Sleep(10 * time.Millisecond)
		s.say(text)
		out.Close()
	}()
	var got []byte
	var err error
	buf, input := make([]byte, 4096), foreground{file: in}
	for err == nil {
		var n int
		n, err = input.Read(buf)
		got = append(got, buf[:n]...)
	}
	if err != io.EOF || !bytes.Equal(got, text) {
		t.Errorf("%d bytes of %d, %v", len(got), len(text), err)
	}
}

func TestStandardSinksShareOneFile(t *testing.T) {
	dir := t.TempDir()
	a, err := os.Create(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := os.OpenFile(a.Name(), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.Create(filepath.Join(dir, "b"))
	if err != nil {
		t.Fatal(err)
	}
	if x, y := standardSinks(a, again, nil); x.target != y.target {
		t.Error("two descriptors of one file are two targets")
	}
	if x, y := standardSinks(a, b, nil); x.target == y.target {
		t.Error("two files are one target")
	}
}
