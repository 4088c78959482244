// Package losscurve draws how the loss of a training run fell.
//
//	curve := losscurve.Curve{Train: losses, HeldOut: []losscurve.Point{{Step: 1000, Loss: 3.2}}}
//	err := curve.Save("loss.png")
package losscurve

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// A Curve holds the losses to draw, in nats per token. Those that are not finite are left
// out.
type Curve struct {
	Title   string
	Train   []float64 // Train[i] is the training loss of step i+1
	HeldOut []Point   // losses on the held-out text, by step
	Levels  []Level   // losses of simpler models on the held-out text
}

// A Point is the loss after a number of steps.
type Point struct {
	Step int
	Loss float64
}

// A Level is a loss that does not depend on training.
type Level struct {
	Name string
	Loss float64
}

// Save writes the picture to path as a PNG, replacing what was there.
func (c Curve) Save(path string) error {
	var picture bytes.Buffer
	if err := c.WritePNG(&picture); err != nil {
		return err
	}
	if err := os.WriteFile(path, picture.Bytes(), 0o644); err != nil {
		return fmt.Errorf("losscurve: Save: %w; name a file in a directory that can be written", err)
	}
	return nil
}

// WritePNG writes the picture to w. It needs at least one finite training loss.
func (c Curve) WritePNG(w io.Writer) error { return c.writePNG(w, dpi) }

// writePNG is WritePNG with dpi pixels per inch.
func (c Curve) writePNG(w io.Writer, dpi int) error {
	p, err := c.plot()
	if err != nil {
		return fmt.Errorf("losscurve: %w", err)
	}
	canvas := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi))
	p.Draw(draw.Crop(draw.New(canvas), margin, -margin, margin, -margin))
	if _, err := (vgimg.PngCanvas{Canvas: canvas}).WriteTo(w); err != nil {
		return fmt.Errorf("losscurve: WritePNG: %w", err)
	}
	return nil
}

// points returns the finite losses with their steps.
func points(losses []float64) plotter.XYs {
	var xys plotter.XYs
	for i, loss := range losses {
		if finite(loss) {
			xys = append(xys, plotter.XY{X: float64(i + 1), Y: loss})
		}
	}
	return xys
}

// heldOut returns the finite held-out losses.
func (c Curve) heldOut() plotter.XYs {
	var xys plotter.XYs
	for _, point := range c.HeldOut {
		if finite(point.Loss) {
			xys = append(xys, plotter.XY{X: float64(point.Step), Y: point.Loss})
		}
	}
	return xys
}

// levels returns the finite levels, lowest first.
func (c Curve) levels() []Level {
	levels := slices.DeleteFunc(slices.Clone(c.Levels), func(l Level) bool { return !finite(l.Loss) })
	slices.SortStableFunc(levels, func(a, b Level) int { return cmp.Compare(a.Loss, b.Loss) })
	return levels
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
