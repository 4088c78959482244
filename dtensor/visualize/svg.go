package visualize

import (
	"fmt"
	"html"
	"strings"
)

// SVG draws the picture as an SVG document. The width of a band of rows or columns is in
// proportion to its elements, but large enough for its labels.
func (p *Picture) SVG() string {
	d := p.draw()
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" `+
		`font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12" fill="#222">`+"\n", d.w, d.h)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", d.w, d.h)
	for _, m := range d.marks {
		if m.text == "" {
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="#%02x%02x%02x" stroke="#444"/>`+"\n",
				m.x, m.y, m.w, m.h, m.fill.R, m.fill.G, m.fill.B)
			continue
		}
		anchor := [...]string{"start", "middle", "end"}[int(2*m.at)]
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="%s" dy="0.35em">%s</text>`+"\n", m.x, m.y, anchor, html.EscapeString(m.text))
	}
	b.WriteString("</svg>\n")
	return b.String()
}
