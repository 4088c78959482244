// Package phrase formats numbers, ranks and command lines for gorun's messages.
package phrase

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// Quote returns a command line that a shell would read as argv.
func Quote(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = a
		if a == "" || strings.ContainsAny(a, " \t\n\"'\\$`*?[]{}()<>|&;#~!") {
			words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// Ranges returns numbers, ascending or not, as "0-2,5".
func Ranges(numbers []int) string {
	var b strings.Builder
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(numbers[i]))
		if j > i {
			b.WriteString("-" + strconv.Itoa(numbers[j]))
		}
		i = j + 1
	}
	return b.String()
}

// Clean makes text from a rank fit for a line: each character that cannot be printed becomes "?".
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

// Printable makes text from a rank fit for one column of a table: it is Clean, and has at most 60 characters.
func Printable(text string) string {
	text = Clean(text)
	if runes := []rune(text); len(runes) > 60 {
		text = string(runes[:59]) + "…"
	}
	return text
}

// Ranks returns "rank 3" or "ranks 0-2,5".
func Ranks(ranks []int) string {
	if len(ranks) == 1 {
		return "rank " + Ranges(ranks)
	}
	return "ranks " + Ranges(ranks)
}

// FirstLine returns the first line of text that is not blank.
func FirstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// OneLine joins the lines of text.
func OneLine(text string) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ")
}

// Seconds returns a time with three digits and a unit: "12.5 ms". What is less than half a nanosecond is 0.
func Seconds(s float64) string {
	switch {
	case math.Abs(s) < 0.5e-9:
		return "0 µs"
	case s < 0.9995e-3:
		return fmt.Sprintf("%.3g µs", 1e6*s)
	case s < 0.9995:
		return fmt.Sprintf("%.3g ms", 1e3*s)
	case s < 100:
		return fmt.Sprintf("%.3g s", s)
	}
	return fmt.Sprintf("%.0f s", s)
}
