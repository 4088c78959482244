package progress

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// line is a status as plain text.
func (m *Meter) line(now time.Time) string {
	return strings.Join(append(m.parts(now), Duration(now.Sub(m.start))+" elapsed"), "  ")
}

// bar is a status in less than the given number of columns: as much of the
// text as fits, and a bar if at least ten columns are free.
func (m *Meter) bar(now time.Time, columns int) string {
	const least = 10
	parts := m.parts(now)
	for len(parts) > 1 && width(parts) >= columns {
		parts = parts[:len(parts)-1]
	}
	text := strings.Join(parts, "  ")
	if utf8.RuneCountInString(text) >= columns {
		return string([]rune(text)[:max(0, columns-1)])
	}
	free := min(columns-1-utf8.RuneCountInString(text)-len("  []"), 40)
	if free < least || m.options.Steps <= 0 && m.options.Limit <= 0 {
		return text
	}
	full := int(m.share(now) * float64(free))
	drawn := "[" + strings.Repeat("=", full) + strings.Repeat(" ", free-full) + "]"
	if 0 < full && full < free {
		drawn = "[" + strings.Repeat("=", full-1) + ">" + strings.Repeat(" ", free-full) + "]"
	}
	return drawn + "  " + text
}

// width returns the columns of parts joined by two spaces.
func width(parts []string) int {
	return utf8.RuneCountInString(strings.Join(parts, "  "))
}

// parts are the pieces of a status, the most important first.
func (m *Meter) parts(now time.Time) []string {
	step := fmt.Sprintf("step %d", m.last.Step)
	if m.options.Steps > 0 {
		total := fmt.Sprint(m.options.Steps)
		step = fmt.Sprintf("step %*d/%s", len(total), m.last.Step, total)
	}
	parts := []string{step, fmt.Sprintf("loss %.4f", m.last.Loss)}
	if left, ok := m.left(now); ok {
		parts = append(parts, Duration(left)+" left")
	}
	rate := m.marks[0].rate(m.marks[len(m.marks)-1])
	return append(parts, Count(rate)+" "+m.options.Unit+"/s")
}

// Duration formats a time to be read at a glance: 0.4s, 12s, 3m05s, 2h07m.
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Duration(-d)
	case d < 9950*time.Millisecond:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	seconds := int(d.Round(time.Second) / time.Second)
	switch {
	case seconds < 60:
		return fmt.Sprintf("%ds", seconds)
	case seconds < 3600:
		return fmt.Sprintf("%dm%02ds", seconds/60, seconds%60)
	}
	minutes := int(d.Round(time.Minute) / time.Minute)
	return fmt.Sprintf("%dh%02dm", minutes/60, minutes%60)
}

// Count formats a number with three digits and a unit: 7, 950, 12.3k, 4.56M.
func Count(n float64) string {
	for _, u := range []struct {
		factor float64
		name   string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(n) >= u.factor*0.9995 {
			x := n / u.factor
			digits := 2 - min(2, int(math.Log10(math.Abs(x)*1.0005)))
			return fmt.Sprintf("%.*f%s", digits, x, u.name)
		}
	}
	return fmt.Sprintf("%.0f", n)
}
