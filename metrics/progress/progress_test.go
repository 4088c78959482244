package progress

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// run lets a Meter see n steps of the given time, 100 tokens each, and returns
// what it wrote. A meter with columns writes to a terminal.
func run(t *testing.T, o Options, columns int, n int, each time.Duration) string {
	t.Helper()
	var out strings.Builder
	synctest.Test(t, func(*testing.T) {
		o.Unit = "lines"
		m := newMeter(&out, o, nil)
		if columns > 0 {
			m.columns = func() int { return columns }
		}
		for step := 1; step <= n; step++ {
			time.Sleep(each)
			m.Update(Status{Step: step, Loss: 10 / float64(step), Done: 100 * step})
		}
		m.Finish()
	})
	return out.String()
}

func TestLinesElsewhere(t *testing.T) {
	got := run(t, Options{Steps: 8}, 0, 8, 3*time.Second)
	want := []string{
		"step 1/8  loss 10.0000  21s left  33 lines/s  3.0s elapsed",
		"step 2/8  loss 5.0000  18s left  33 lines/s  6.0s elapsed",
	}
	lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	if len(lines) != 8 || !slices.Equal(lines[:2], want) {
		t.Errorf("got\n%swant 8 lines beginning with\n%s", got, strings.Join(want, "\n"))
	}
	if last := lines[len(lines)-1]; last != "step 8/8  loss 1.2500  0.0s left  33 lines/s  24s elapsed" {
		t.Errorf("last line %q", last)
	}
	if strings.ContainsAny(got, "\r\x1b") {
		t.Errorf("control characters in plain lines: %q", got)
	}
}

// The steps of an earlier run, from which this one goes on, took none of this one's time.
func TestTimeLeftOfARunThatGoesOn(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		var out strings.Builder
		m := newMeter(&out, Options{Steps: 103}, nil)
		for step := 101; step <= 102; step++ {
			time.Sleep(6 * time.Second)
			m.Update(Status{Step: step, Loss: 1, Done: 100 * (step - 100)})
		}
		const want = "step 101/103  loss 1.0000  17 /s  6.0s elapsed\nstep 102/103  loss 1.0000  6.0s left  17 /s  12s elapsed\n"
		if got := out.String(); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	})
}

func TestLinesAreFew(t *testing.T) {
	for _, c := range []struct {
		name  string
		o     Options
		steps int
		each  time.Duration
		want  int // the first, those between, the last
	}{
		{"short run: no more than one a second", Options{Steps: 300}, 300, 10 * time.Millisecond, 4},
		{"three minutes: every 5 s", Options{Steps: 1800}, 1800, 100 * time.Millisecond, 37},
		{"30 seconds: every 5 %", Options{Steps: 300}, 300, 100 * time.Millisecond, 21},
		{"by time", Options{Limit: 30 * time.Second}, 300, 100 * time.Millisecond, 21},
		{"no end: every 5 s", Options{}, 300, 100 * time.Millisecond, 7},
		{"one step", Options{Steps: 1}, 1, time.Millisecond, 1},
		{"no step", Options{Steps: 1}, 0, time.Millisecond, 0},
	} {
		got := strings.Count(run(t, c.o, 0, c.steps, c.each), "\n")
		if got < c.want-1 || got > c.want || c.want < 2 && got != c.want {
			t.Errorf("%s: %d lines, want %d or one less", c.name, got, c.want)
		}
	}
}

// screen returns the lines a terminal shows after out.
func screen(out string) []string {
	lines := []string{""}
	column := 0
	for out != "" {
		last := &lines[len(lines)-1]
		switch {
		case strings.HasPrefix(out, "\x1b[K"):
			*last = (*last)[:column]
			out = out[3:]
			continue
		case out[0] == '\r':
			column = 0
		case out[0] == '\n':
			lines, column = append(lines, ""), 0
		default:
			*last = (*last)[:column] + out[:1] + (*last)[min(column+1, len(*last)):]
			column++
		}
		out = out[1:]
	}
	return lines
}

func TestBarOnTerminal(t *testing.T) {
	got := screen(run(t, Options{Steps: 200}, 80, 150, 50*time.Millisecond))
	want := "]  step 150/200  loss 0.0667  2.5s left  2.00k lines/s"
	if len(got) != 2 || len(got[0]) != 79 || !strings.HasSuffix(got[0], want) {
		t.Errorf("screen %q (%d columns), want 79 that end with %q", got, len(got[0]), want)
	}
	filled := strings.Count(got[0], "=") + 1
	if whole := strings.IndexByte(got[0], ']') - 1; filled != whole*3/4 {
		t.Errorf("%d of %d columns filled, want three quarters", filled, whole)
	}
	full := screen(run(t, Options{Steps: 20}, 100, 20, time.Second))
	if want := "[" + strings.Repeat("=", 40) + "]  step 20/20"; !strings.HasPrefix(full[0], want) {
		t.Errorf("at the end %q, want %q …", full[0], want)
	}
}

func TestBarFitsEveryWidth(t *testing.T) {
	for columns := range 130 {
		for _, o := range []Options{{Steps: 1000}, {Limit: time.Minute}, {}} {
			lines := screen(run(t, o, max(1, columns), 12, time.Second))
			if len(lines) != 2 || len(lines[0]) >= max(1, columns) {
				t.Errorf("%d columns: %q is %d long", columns, lines, len(lines[0]))
			}
			if columns > 10 && !strings.HasPrefix(strings.TrimLeft(lines[0], "[=> ]"), "step ") {
				t.Errorf("%d columns: %q does not say the step", columns, lines[0])
			}
		}
	}
}

func TestBarIsRedrawnTenTimesASecond(t *testing.T) {
	out := run(t, Options{Steps: 3000}, 80, 3000, time.Millisecond) // three seconds
	if n := strings.Count(out, "\r"); n < 25 || n > 32 {
		t.Errorf("drawn %d times in 3 s, want about 30", n)
	}
}

func TestPrintlnIsAboveTheBar(t *testing.T) {
	for _, columns := range []int{0, 80} {
		var out strings.Builder
		m := newMeter(&out, Options{Steps: 2}, nil)
		if columns > 0 {
			m.columns = func() int { return columns }
		}
		m.Println("before")
		m.Update(Status{Step: 1, Loss: 1})
		m.Println("between")
		m.Update(Status{Step: 2, Loss: 1})
		m.Finish()
		lines := screen(out.String())
		at := slices.Index(lines, "between")
		if lines[0] != "before" || at < 0 || !strings.Contains(lines[len(lines)-2], "step 2/2") {
			t.Errorf("%d columns: screen %q", columns, lines)
		}
	}
}

func TestRateLeavesTheFirstStepOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter(&strings.Builder{}, Options{}, nil)
		if got := m.Rate(); got != 0 {
			t.Errorf("before any step: %v, want 0", got)
		}
		time.Sleep(10 * time.Second)
		m.Update(Status{Step: 1, Done: 100})
		if got := m.Rate(); got != 10 {
			t.Errorf("after one step of 10 s: %v, want 10", got)
		}
		for step := 2; step <= 100; step++ {
			time.Sleep(time.Second)
			m.Update(Status{Step: step, Done: 100 * step})
		}
		if got := m.Rate(); math.Abs(got-100) > 1e-9 {
			t.Errorf("after steps of 1 s: %v, want 100", got)
		}
	})
}

func TestTimeLeftIsTheSmaller(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Steps: 30, Limit: time.Hour}, "20s left"},
		{Options{Steps: 3000, Limit: 15 * time.Second}, "5.0s left"},
		{Options{Limit: 15 * time.Second}, "5.0s left"},
		{Options{Steps: 5}, "0.0s left"},
	} {
		if got := run(t, c.o, 0, 10, time.Second); !strings.Contains(got[strings.LastIndex(got, "step"):], c.want) {
			t.Errorf("%+v after 10 steps of 1 s: %q, want %q", c.o, got[strings.LastIndex(got, "step"):], c.want)
		}
	}
}

func TestAFileIsNoTerminal(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if m := New(f, Options{}); m.columns != nil {
		t.Errorf("a bar in a file")
	}
}

func TestFormats(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0.0s", 440 * time.Millisecond: "0.4s", 9940 * time.Millisecond: "9.9s", 9960 * time.Millisecond: "10s",
		59400 * time.Millisecond: "59s", 59600 * time.Millisecond: "1m00s", 185 * time.Second: "3m05s",
		3599600 * time.Millisecond: "1h00m", 127*time.Minute + 20*time.Second: "2h07m", -time.Minute: "-1m00s",
	} {
		if got := Duration(d); got != want {
			t.Errorf("Duration(%v) = %q, want %q", d, got, want)
		}
	}
	for n, want := range map[float64]string{
		0: "0", 7: "7", 950: "950", 999.6: "1.00k", 1234: "1.23k", 12345: "12.3k", 99960: "100k", 123456: "123k",
		999900: "1.00M", 4560000: "4.56M", 2e9: "2.00G",
	} {
		if got := Count(n); got != want {
			t.Errorf("Count(%v) = %q, want %q", n, got, want)
		}
	}
}
