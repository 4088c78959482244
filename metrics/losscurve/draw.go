package losscurve

import (
	"fmt"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Size of the picture.
const (
	width  = 8 * vg.Inch
	height = 5 * vg.Inch
	margin = vg.Length(12)
	dpi    = 144
)

// Colours, from the Okabe-Ito palette that colour-blind readers can tell apart.
var (
	blue   = color.NRGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff}
	faint  = color.NRGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0x58}
	orange = color.NRGBA{R: 0xd5, G: 0x5e, B: 0x00, A: 0xff}
	grey   = color.NRGBA{R: 0x60, G: 0x60, B: 0x60, A: 0xff}
	pale   = color.NRGBA{R: 0xe6, G: 0xe6, B: 0xe6, A: 0xff}
)

// plot lays the curve out.
func (c Curve) plot() (*plot.Plot, error) {
	raw := points(c.Train)
	if len(raw) == 0 {
		return nil, fmt.Errorf("no finite loss among %d; there is nothing to draw", len(c.Train))
	}
	p := plot.New()
	style(p)
	p.Title.Text = c.Title
	p.X.Label.Text = "step"
	p.Y.Label.Text = "loss (nats per token)"
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = pale, pale
	p.Add(grid)

	if err := addTraining(p, raw); err != nil {
		return nil, err
	}
	heldOut := c.heldOut()
	if err := addHeldOut(p, heldOut); err != nil {
		return nil, err
	}
	last := raw[len(raw)-1].X
	for _, point := range heldOut {
		last = max(last, point.X)
	}
	levels := c.levels()
	for _, level := range levels {
		if err := addLevel(p, level, last); err != nil {
			return nil, err
		}
	}
	p.X.Min, p.X.Max = 0, last
	room := max(0.05*(p.Y.Max-p.Y.Min), 0.05)
	p.Y.Min, p.Y.Max = p.Y.Min-room, p.Y.Max+room
	return p, addNames(p, levels, last)
}

// addTraining draws the training loss: each step faintly, the trend above it.
func addTraining(p *plot.Plot, raw plotter.XYs) error {
	if len(raw) == 1 {
		return addDots(p, "training", raw, blue)
	}
	each, err := line(raw, faint, 0.8)
	if err != nil {
		return err
	}
	trend, err := line(smooth(raw), blue, 2)
	if err != nil {
		return err
	}
	p.Add(each, trend)
	p.Legend.Add("training, each step", each)
	p.Legend.Add("training, smoothed", trend)
	return nil
}

// addHeldOut draws the held-out losses, if there are any.
func addHeldOut(p *plot.Plot, heldOut plotter.XYs) error {
	if len(heldOut) == 0 {
		return nil
	}
	path, err := line(heldOut, orange, 1)
	if err != nil {
		return err
	}
	p.Add(path)
	return addDots(p, "held out", heldOut, orange)
}

func addDots(p *plot.Plot, name string, xys plotter.XYs, c color.Color) error {
	dots, err := plotter.NewScatter(xys)
	if err != nil {
		return err
	}
	dots.GlyphStyle = draw.GlyphStyle{Color: c, Radius: vg.Points(3.5), Shape: draw.CircleGlyph{}}
	p.Add(dots)
	p.Legend.Add(name, dots)
	return nil
}

// addLevel draws a dashed line across the picture.
func addLevel(p *plot.Plot, level Level, last float64) error {
	dashed, err := line(plotter.XYs{{X: 0, Y: level.Loss}, {X: last, Y: level.Loss}}, grey, 1)
	if err != nil {
		return err
	}
	dashed.Dashes = []vg.Length{vg.Points(5), vg.Points(4)}
	p.Add(dashed)
	return nil
}

// addNames writes the name of each level to the right of its line. If lines are close, the
// upper names move up, and the legend makes room. levels must be in ascending order and the
// range of p.Y final.
func addNames(p *plot.Plot, levels []Level, last float64) error {
	const (
		plotHeight = height - 96 // about what title, axis and margins leave
		lineHeight = vg.Length(12)
		nameGap    = vg.Length(6)
	)
	below := vg.Length(math.Inf(-1)) // the height of the name below
	for _, level := range levels {
		at := plotHeight * vg.Length((level.Loss-p.Y.Min)/(p.Y.Max-p.Y.Min))
		name, err := plotter.NewLabels(plotter.XYLabels{
			XYs:    plotter.XYs{{X: last, Y: level.Loss}},
			Labels: []string{level.Name},
		})
		if err != nil {
			return err
		}
		style := &name.TextStyle[0]
		style.Font = p.X.Tick.Label.Font
		style.Color = grey
		style.YAlign = text.YCenter
		raised := max(at, below+lineHeight)
		name.Offset = vg.Point{X: nameGap, Y: raised - at + vg.Points(2)}
		below = raised
		p.Add(name)
		p.Legend.XOffs = min(p.Legend.XOffs, -style.Width(level.Name)-nameGap-vg.Points(8))
	}
	return nil
}

// style sets fonts, ticks and the place of the legend.
func style(p *plot.Plot) {
	p.Title.Padding = vg.Points(10)
	for s, size := range map[*text.Style]vg.Length{
		&p.Title.TextStyle:   14,
		&p.X.Label.TextStyle: 11,
		&p.Y.Label.TextStyle: 11,
		&p.X.Tick.Label:      10,
		&p.Y.Tick.Label:      10,
		&p.Legend.TextStyle:  10,
	} {
		s.Font.Variant = "Sans"
		s.Font.Size = size
	}
	p.X.Padding, p.Y.Padding = 0, 0
	p.X.Label.Padding, p.Y.Label.Padding = vg.Points(4), vg.Points(4)
	p.X.Tick.Marker = plot.TickerFunc(func(low, high float64) []plot.Tick { return ticks(low, high, 1) })
	p.Y.Tick.Marker = plot.TickerFunc(func(low, high float64) []plot.Tick { return ticks(low, high, 0) })
	p.Legend.Top = true
	p.Legend.Padding = vg.Points(3)
	p.Legend.XOffs, p.Legend.YOffs = vg.Points(-8), vg.Points(-8)
}

// ticks marks the multiples of a round number in [low, high], between four and
// eleven of them; fewer if the number would be less than least.
func ticks(low, high, least float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/4)))
	for _, factor := range []float64{5, 2} {
		if (high-low)/(step*factor) >= 4 {
			step *= factor
			break
		}
	}
	step = max(step, least)
	digits := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	var marks []plot.Tick
	for i := math.Ceil(low/step) + 0; i*step <= high; i++ {
		marks = append(marks, plot.Tick{Value: i * step, Label: strconv.FormatFloat(i*step, 'f', digits, 64)})
	}
	return marks
}

func line(xys plotter.XYs, c color.Color, points float64) (*plotter.Line, error) {
	l, err := plotter.NewLine(xys)
	if err != nil {
		return nil, err
	}
	l.LineStyle = draw.LineStyle{Color: c, Width: vg.Points(points)}
	return l, nil
}
