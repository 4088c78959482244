package visualize

import (
	"strings"
	"unicode/utf8"
)

// String draws the picture as text: a table a panel, with one line for each band
// of rows and one column for each band of columns.
func (p *Picture) String() string {
	var b strings.Builder
	b.WriteString(p.Title + "\n")
	for _, panel := range p.panels() {
		b.WriteByte('\n')
		if panel.title != "" {
			b.WriteString(panel.title + "\n")
		}
		panel.write(&b)
	}
	if note := p.note(); note != "" {
		b.WriteString("\n" + note + "\n")
	}
	return b.String()
}

// write draws the panel's table.
func (p *panel) write(b *strings.Builder) {
	head := []string{""}
	for i := 1; i < len(p.columnCuts); i++ {
		head = append(head, span(p.columnCuts[i-1], p.columnCuts[i]-p.columnCuts[i-1]))
	}
	lines := [][]string{head}
	for i := 1; i < len(p.rowCuts); i++ {
		line := []string{span(p.rowCuts[i-1], p.rowCuts[i]-p.rowCuts[i-1])}
		if p.flat {
			line[0] = "rank"
		}
		for j := 1; j < len(p.columnCuts); j++ {
			line = append(line, p.at(p.rowCuts[i-1], p.columnCuts[j-1]))
		}
		lines = append(lines, line)
	}
	width := make([]int, len(head))
	for _, line := range lines {
		for c, text := range line {
			width[c] = max(width[c], utf8.RuneCountInString(text))
		}
	}
	for i, line := range lines {
		for c, text := range line {
			pad := strings.Repeat(" ", width[c]-utf8.RuneCountInString(text))
			switch {
			case c == 0:
				b.WriteString(pad + text)
			case c == len(line)-1:
				b.WriteString(" │ " + text)
			default:
				b.WriteString(" │ " + text + pad)
			}
		}
		b.WriteByte('\n')
		if i == 0 {
			for c, w := range width {
				if c > 0 {
					b.WriteString("─┼─")
				}
				b.WriteString(strings.Repeat("─", w))
			}
			b.WriteByte('\n')
		}
	}
}

// at returns the label of the region at an index.
func (p *panel) at(row, col int) string {
	for _, a := range p.regions {
		if a.row <= row && row < a.row+a.rows && a.col <= col && col < a.col+a.cols {
			return a.label
		}
	}
	return ""
}
