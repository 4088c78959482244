package visualize

import (
	"image/color"
	"math"
	"strconv"
	"strings"
)

// Sizes of a drawing, in pixels. Letters are 7 wide in the font of the PNG; the viewer of
// an SVG may have another font.
const (
	margin     = 16
	lineHeight = 18
	letter     = 7
	widest     = 480 // of a panel's regions
	tallest    = 320
	thinnest   = 24 // of a band, however few of the elements it has
	gap        = 28 // between panels
	tickWidth  = 48 // left of a panel, for row numbers
)

// A mark is a rectangle or a text of a drawing.
type mark struct {
	x, y, w, h int        // of a rectangle; a text has a position x, y only
	fill       color.RGBA // of a rectangle
	text       string     // "" for a rectangle; its middle is at y
	at         float64    // of a text: how much of it is left of x
}

// A drawing has the marks of a picture, for SVG and PNG.
type drawing struct {
	w, h  int
	marks []mark
}

// draw lays the picture out: the title, one panel below the other, and the note.
func (p *Picture) draw() *drawing {
	d := &drawing{}
	y := margin + lineHeight/2
	d.text(margin, y, 0, p.Title)
	y += lineHeight
	colors := map[string]color.RGBA{}
	for _, r := range p.Regions {
		if _, ok := colors[r.Label]; !ok {
			colors[r.Label] = shade(len(colors))
		}
	}
	for _, panel := range p.panels() {
		if panel.title != "" {
			d.text(margin, y, 0, panel.title)
			y += lineHeight
		}
		y = d.panel(&panel, y, colors) + gap
	}
	if note := p.note(); note != "" {
		d.text(margin, y, 0, note)
		y += lineHeight
	}
	d.h = y - lineHeight/2 + margin
	d.w += margin
	return d
}

// panel draws a panel from y on and returns where it ends.
func (d *drawing) panel(p *panel, y int, colors map[string]color.RGBA) int {
	xs, ys := scale(p.columnCuts, widest, p.widths()), scale(p.rowCuts, tallest, nil)
	left, top := margin+tickWidth, y+lineHeight/2
	for i, at := range xs {
		d.text(left+at, y, 0.5, strconv.Itoa(p.columnCuts[i]))
	}
	if !p.flat {
		for i, at := range ys {
			d.text(left-letter, top+at, 1, strconv.Itoa(p.rowCuts[i]))
		}
	}
	named := true // there is room to say what the numbers are
	for _, a := range p.regions {
		named = named && xs[index(p.columnCuts, a.col+a.cols)]-xs[index(p.columnCuts, a.col)] >= (len(whose(a.label))+2)*letter
	}
	for _, a := range p.regions {
		x0, x1 := xs[index(p.columnCuts, a.col)], xs[index(p.columnCuts, a.col+a.cols)]
		y0, y1 := ys[index(p.rowCuts, a.row)], ys[index(p.rowCuts, a.row+a.rows)]
		d.marks = append(d.marks, mark{x: left + x0, y: top + y0, w: x1 - x0, h: y1 - y0, fill: colors[a.label]})
		label := a.label
		if named {
			label = whose(label)
		}
		d.text(left+(x0+x1)/2, top+(y0+y1)/2, 0.5, label)
	}
	d.w = max(d.w, left+xs[len(xs)-1])
	return top + ys[len(ys)-1]
}

// whose returns the words before the numbers of a label that say they are ranks.
func whose(label string) string {
	if strings.ContainsAny(label, ",+") {
		return "ranks " + label
	}
	return "rank " + label
}

// widths returns how wide each band of columns must be for the labels in it.
func (p *panel) widths() []int {
	w := make([]int, len(p.columnCuts)-1)
	for _, a := range p.regions {
		first, end := index(p.columnCuts, a.col), index(p.columnCuts, a.col+a.cols)
		for i := first; i < end; i++ {
			w[i] = max(w[i], ((len(a.label)+2)*letter+end-first-1)/(end-first))
		}
	}
	return w
}

// text adds a text at x; at is the part of it that is left of x, from 0 to 1.
func (d *drawing) text(x, y int, at float64, text string) {
	d.marks = append(d.marks, mark{x: x, y: y, text: text, at: at})
	d.w = max(d.w, x+int((1-at)*float64(letter*len([]rune(text)))))
}

// scale returns the position of each cut. Bands are in proportion to their sizes and about
// length long together, but none is smaller than thinnest or its entry in least.
func scale(cuts []int, length int, least []int) []int {
	at := make([]int, len(cuts))
	total := cuts[len(cuts)-1]
	for i := 1; i < len(cuts); i++ {
		band := max(thinnest, (cuts[i]-cuts[i-1])*length/max(1, total))
		if least != nil {
			band = max(band, least[i-1])
		}
		at[i] = at[i-1] + band
	}
	return at
}

func index(cuts []int, cut int) int {
	for i, c := range cuts {
		if c == cut {
			return i
		}
	}
	panic("visualize: a region ends where there is no cut")
}

// shade returns the i-th colour. Hues are a golden section of the circle apart, so that a
// few colours differ clearly.
func shade(i int) color.RGBA {
	hue := math.Mod(0.55+float64(i)*0.6180339887498949, 1) * 6
	channel := func(shift float64) uint8 {
		// Lightness 0.78, saturation 0.65, as CSS defines hsl().
		k := math.Mod(shift+2*hue, 12)
		return uint8(math.Round(255 * (0.78 - 0.65*0.22*max(-1, min(k-3, 9-k, 1)))))
	}
	return color.RGBA{channel(0), channel(8), channel(4), 255}
}
