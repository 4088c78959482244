package optim

import "math"

// The constants of a line search: how much of the decrease that the slope promises is enough, how much of the slope may be
// left, and how many evaluations are made.
const (
	wolfeDecrease = 1e-4
	wolfeSlope    = 0.9
	wolfeMost     = 25
)

// search looks along the direction for a point that satisfies the strong Wolfe conditions: first for an interval that has
// one, going further and further, then inside. It begins at t, from where the parameters are, start, and leaves them at the
// point that it returns, with the number of evaluations. It makes torch's steps.
func (l *LBFGS) search(f Closure, t float64, start point, slope float64) (found point, evaluations int) {
	x, direction := copyOf(locals(l.params)), locals(l.direction)
	start.at, start.slope = 0, slope
	evaluate := func(t float64) point {
		l.move(x, t)
		p := l.evaluate(f)
		p.at, p.slope = t, l.dot(p.grad, direction)
		evaluations++
		return p
	}
	tooHigh := func(p point) bool { return p.loss > start.loss+wolfeDecrease*p.at*slope }
	flat := func(p point) bool { return math.Abs(p.slope) <= -wolfeSlope*slope }

	last, now := start, evaluate(t)
	low, high, done := start, now, false
	tries := 0
	for ; tries < wolfeMost; tries++ {
		if tooHigh(now) || tries > 1 && now.loss >= last.loss || !flat(now) && now.slope >= 0 {
			low, high = last, now
			break
		}
		if flat(now) {
			low, done = now, true
			break
		}
		next := between(last, now, now.at+0.01*(now.at-last.at), now.at*10)
		last, now = now, evaluate(next)
		low, high = start, now
	}
	if !done && low.loss > high.loss {
		low, high = high, low
	}
	longest, stuck := l.largest(direction), false
	for !done && tries < wolfeMost {
		from, to := min(low.at, high.at), max(low.at, high.at)
		if (to-from)*longest < l.config.ToleranceChange {
			break
		}
		// A point too near to an end of the interval is accepted once, and moved inside the second time.
		t, edge := between(low, high, from, to), 0.1*(to-from)
		near := min(to-t, t-from) < edge
		if near && (stuck || t >= to || t <= from) {
			if math.Abs(t-to) < math.Abs(t-from) {
				t = to - edge
			} else {
				t = from + edge
			}
			near = false
		}
		stuck = near
		now := evaluate(t)
		tries++
		if tooHigh(now) || now.loss >= low.loss {
			high = now
			if high.loss < low.loss {
				low, high = high, low
			}
			continue
		}
		if flat(now) {
			done = true
		} else if now.slope*(high.at-low.at) >= 0 {
			high = low
		}
		low = now
	}
	l.move(x, low.at)
	return low, evaluations
}

// between returns where the cubic has its minimum that has the values and slopes of a and b there, kept from least to most;
// the middle if it has none.
func between(a, b point, least, most float64) float64 {
	if a.at > b.at {
		a, b = b, a
	}
	d := a.slope + b.slope - 3*(a.loss-b.loss)/(a.at-b.at)
	square := d*d - a.slope*b.slope
	if !(square >= 0) {
		return (least + most) / 2
	}
	root := math.Sqrt(square)
	return min(max(b.at-(b.at-a.at)*((b.slope+root-d)/(b.slope-a.slope+2*root)), least), most)
}
