package losscurve

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"
)

// falling is a plausible run of n steps.
func falling(n int) Curve {
	rng := rand.New(rand.NewPCG(1, 1))
	c := Curve{Title: "a run", Levels: []Level{{"unigram", 6.8}, {"gzip -9", 4.7}, {"bigram", 4.6}}}
	for i := range n {
		c.Train = append(c.Train, 4.5+5*math.Exp(-float64(i)/60)+0.2*rng.NormFloat64())
	}
	c.HeldOut = []Point{{n / 2, 5.5}, {n, 4.8}}
	return c
}

// render draws c with so many pixels per inch.
func render(t *testing.T, c Curve, dpi int) image.Image {
	t.Helper()
	var out bytes.Buffer
	if err := c.writePNG(&out, dpi); err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(&out)
	if err != nil {
		t.Fatal(err)
	}
	return picture
}

// count returns how many pixels have this colour.
func count(picture image.Image, c color.NRGBA) int {
	flat := image.NewRGBA(picture.Bounds())
	draw.Draw(flat, flat.Rect, picture, flat.Rect.Min, draw.Src)
	n := 0
	for at := 0; at < len(flat.Pix); at += 4 {
		if flat.Pix[at] == c.R && flat.Pix[at+1] == c.G && flat.Pix[at+2] == c.B {
			n++
		}
	}
	return n
}

func TestPictureHasAllParts(t *testing.T) {
	picture := render(t, falling(400), dpi)
	for name, c := range map[string]color.NRGBA{"training": blue, "held out": orange, "levels": grey} {
		if n := count(picture, c); n < 500 {
			t.Errorf("%s: %d pixels", name, n)
		}
	}
	bare := falling(400)
	bare.HeldOut, bare.Levels = nil, nil
	picture = render(t, bare, dpi)
	// The edges of black letters have every grey.
	if n, m := count(picture, orange), count(picture, grey); n > 0 || m > 50 {
		t.Errorf("without held-out losses and levels: %d and %d pixels of their colours", n, m)
	}
}

func TestShortAndOddCurves(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for name, c := range map[string]Curve{
		"one step":       {Train: []float64{9.7}},
		"two steps":      {Train: []float64{9.7, 9.6}, HeldOut: []Point{{2, 9.65}}},
		"constant":       {Train: []float64{3, 3, 3, 3, 3, 3}},
		"zero":           {Train: []float64{0, 0, 0}},
		"not finite":     {Train: []float64{9, nan, 8, inf, 7}, HeldOut: []Point{{3, nan}, {5, 7}}, Levels: []Level{{"x", inf}}},
		"finite once":    {Train: []float64{nan, 5, nan}},
		"held out later": {Train: []float64{5, 4}, HeldOut: []Point{{10, 4}}},
		"equal levels":   {Train: []float64{5, 4}, Levels: []Level{{"a", 4.5}, {"b", 4.5}, {"c", 4.5}}},
	} {
		if n := count(render(t, c, dpi/2), blue); n == 0 {
			t.Errorf("%s: no training loss in the picture", name)
		}
	}
	for _, train := range [][]float64{nil, {nan}, {inf, nan}} {
		err := Curve{Train: train}.WritePNG(&bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), "nothing to draw") {
			t.Errorf("losses %v: error %v", train, err)
		}
	}
}

func TestSave(t *testing.T) {
	path := filepath.Join(t.TempDir(), "loss.png")
	if err := os.WriteFile(path, []byte("an older picture"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := falling(20).Save(path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("what was saved: %v", err)
	}
	if got, want := picture.Bounds().Size(), image.Pt(8*dpi, 5*dpi); got != want {
		t.Errorf("size %v, want %v", got, want)
	}
	absent := filepath.Join(t.TempDir(), "absent", "loss.png")
	if err := falling(20).Save(absent); err == nil || !strings.Contains(err.Error(), absent) {
		t.Errorf("no such directory: error %v, want one with the path", err)
	}
}

func TestSmooth(t *testing.T) {
	for _, n := range []int{1, 2, 3, 10, 200} {
		var straight plotter.XYs
		for i := range n {
			straight = append(straight, plotter.XY{X: float64(i + 1), Y: 7 - 0.5*float64(i)})
		}
		for i, xy := range smooth(straight) {
			if math.Abs(xy.Y-straight[i].Y) > 1e-9 || xy.X != straight[i].X {
				t.Errorf("straight line of %d points: %v at point %d, want %v: no lag, no bend", n, xy, i, straight[i])
			}
		}
	}
	noisy := points(falling(400).Train)
	rough := func(xys plotter.XYs) (sum float64) {
		for i := 1; i < len(xys); i++ {
			sum += math.Abs(xys[i].Y - xys[i-1].Y)
		}
		return sum
	}
	if got, was := rough(smooth(noisy)), rough(noisy); got > was/8 {
		t.Errorf("the smoothed curve goes up and down by %.1f in total, the raw one by %.1f", got, was)
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		low, high, least float64
		want             string
	}{
		{0, 400, 1, "0 100 200 300 400"},
		{0, 1, 1, "0 1"},
		{0, 7, 1, "0 1 2 3 4 5 6 7"},
		{3.7, 10.2, 0, "4 5 6 7 8 9 10"},
		{9.65, 9.75, 0, "9.66 9.68 9.70 9.72 9.74"},
		{-0.05, 0.05, 0, "-0.04 -0.02 0.00 0.02 0.04"},
		{0, 12000, 1, "0 2000 4000 6000 8000 10000 12000"},
	} {
		var labels []string
		for _, tick := range ticks(c.low, c.high, c.least) {
			labels = append(labels, tick.Label)
		}
		if got := strings.Join(labels, " "); got != c.want {
			t.Errorf("ticks(%v, %v, %v) = %s, want %s", c.low, c.high, c.least, got, c.want)
		}
	}
}

func TestNamesOfCloseLevelsDoNotOverlap(t *testing.T) {
	c := falling(100)
	p, err := c.plot()
	if err != nil {
		t.Fatal(err)
	}
	if got := c.levels(); !slices.IsSortedFunc(got, func(a, b Level) int { return int(math.Copysign(1, a.Loss-b.Loss)) }) {
		t.Errorf("levels %v are not in order", got)
	}
	if p.Legend.XOffs > -40 {
		t.Errorf("the legend is %v from the right, on the names", -p.Legend.XOffs)
	}
}
