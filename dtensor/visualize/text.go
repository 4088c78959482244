package visualize

import (
	"strings"
	"unicode/utf8"
)

// String draws the picture as text: a table for each panel, with one line for each band
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

// cells returns the lines of the panel's table, its head first.
func (p *panel) cells() [][]string {
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
	return lines
}

// write draws the panel's table.
func (p *panel) write(b *strings.Builder) {
	lines := p.cells()
	width := make([]int, len(lines[0]))
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
			b.WriteString(ruler(width) + "\n")
		}
	}
}

// ruler draws the line below the head of a table whose columns have these widths.
func ruler(width []int) string {
	parts := make([]string, len(width))
	for c, w := range width {
		parts[c] = strings.Repeat("─", w)
	}
	return strings.Join(parts, "─┼─")
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
