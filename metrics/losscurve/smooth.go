package losscurve

import (
	"math"

	"gonum.org/v1/plot/plotter"
)

// smooth returns xys with each Y replaced by the value there of a straight line
// fitted to the points around it, near ones weighing most (Cleveland 1979,
// "Robust Locally Weighted Regression", one pass). Unlike a moving average it
// neither lags behind a falling curve nor bends at the ends. xys must have
// ascending X.
func smooth(xys plotter.XYs) plotter.XYs {
	reach := max(2, len(xys)/20) // points on each side
	smoothed := make(plotter.XYs, len(xys))
	for i, at := range xys {
		from, to := max(0, i-reach), min(len(xys), i+reach+1)
		near := xys[from:to]
		span := max(at.X-near[0].X, near[len(near)-1].X-at.X) * (1 + 1e-9)
		smoothed[i] = plotter.XY{X: at.X, Y: fit(near, at.X, span)}
	}
	return smoothed
}

// fit returns the value at x of the weighted least-squares line through xys,
// with tricube weights (1−|d/span|³)³ for a distance d ≤ span.
func fit(xys plotter.XYs, x, span float64) float64 {
	var w, wd, wy, wdd, wdy float64
	for _, p := range xys {
		d := 0.0
		if span > 0 {
			d = (p.X - x) / span
		}
		weight := math.Pow(1-math.Pow(math.Abs(d), 3), 3)
		w += weight
		wd += weight * d
		wy += weight * p.Y
		wdd += weight * d * d
		wdy += weight * d * p.Y
	}
	if det := w*wdd - wd*wd; det > 1e-9*w*w {
		return (wdd*wy - wd*wdy) / det
	}
	return wy / w // all weight on one X: no slope to find
}
