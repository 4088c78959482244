package visualize

import (
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"strings"

	"golang.org/x/image/font"
	"golang.org/x/image/font/basicfont"
	"golang.org/x/image/math/fixed"
)

// PNG writes the picture as a PNG image, laid out as SVG does.
func (p *Picture) PNG(w io.Writer) error { return png.Encode(w, p.Image()) }

// Image draws the picture as an image.
func (p *Picture) Image() *image.RGBA {
	d := p.draw()
	img := image.NewRGBA(image.Rect(0, 0, d.w, d.h))
	draw.Draw(img, img.Bounds(), image.White, image.Point{}, draw.Src)
	for _, m := range d.marks {
		if m.text == "" {
			box := image.Rect(m.x, m.y, m.x+m.w+1, m.y+m.h+1)
			draw.Draw(img, box, image.Black, image.Point{}, draw.Src)
			draw.Draw(img, box.Inset(1), image.NewUniform(m.fill), image.Point{}, draw.Src)
			continue
		}
		writer := font.Drawer{Dst: img, Src: image.NewUniform(color.Black), Face: basicfont.Face7x13}
		text := strings.ReplaceAll(m.text, "…", "...") // the face has ASCII only
		width := writer.MeasureString(text)
		writer.Dot = fixed.Point26_6{X: fixed.I(m.x) - width.Mul(fixed.Int26_6(m.at*64)), Y: fixed.I(m.y + 4)}
		writer.DrawString(text)
	}
	return img
}
