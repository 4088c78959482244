package sample

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	bar      = "  │ " // before every line of a sample
	tabStop  = 4
	minWidth = 8 // of the text beside the bar, however narrow the terminal
)

// Format returns text with a bar to the left of every line, wrapped to a number of
// columns, and nothing in it that could disturb a terminal: tabs become spaces,
// bytes that are not UTF-8 become U+FFFD, and other control characters ␀ to ␡.
// Blank lines at the end are left out.
func Format(text []byte, columns int) string {
	width := max(minWidth, columns-utf8.RuneCountInString(bar))
	var out strings.Builder
	for line := range strings.Lines(strings.TrimRight(visible(text), " \t\n") + "\n") {
		runes := []rune(untab(strings.TrimSuffix(line, "\n")))
		for len(runes) > width {
			writeLine(&out, runes[:width])
			runes = runes[width:]
		}
		writeLine(&out, runes)
	}
	return out.String()
}

// writeLine writes one line without blanks at its end.
func writeLine(out *strings.Builder, runes []rune) {
	out.WriteString(strings.TrimRight(bar+string(runes), " "))
	out.WriteByte('\n')
}

// visible replaces what is not to be printed.
func visible(text []byte) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < ' ':
			return '␀' + r // U+2400 and on: the control pictures, in the order of ASCII
		case r == 0x7f:
			return '␡'
		case unicode.IsPrint(r):
			return r
		}
		return utf8.RuneError
	}, strings.ReplaceAll(string(text), "\r\n", "\n"))
}

// untab replaces the tabs of a line by spaces up to the next tab stop.
func untab(line string) string {
	var out strings.Builder
	column := 0
	for _, r := range line {
		if r == '\t' {
			n := tabStop - column%tabStop
			out.WriteString(strings.Repeat(" ", n))
			column += n
			continue
		}
		out.WriteRune(r)
		column++
	}
	return out.String()
}
