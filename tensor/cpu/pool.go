package cpu

import (
	"math"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Pool computes Y.
func (c *Kernels) Pool(p kernel.Pool) {
	if p.DType == dtype.Float64 {
		pool[float64](&p)
	} else {
		pool[float32](&p)
	}
}

// PoolGrad computes DX.
func (c *Kernels) PoolGrad(p kernel.PoolGrad) {
	if p.DType == dtype.Float64 {
		poolGrad[float64](&p)
	} else {
		poolGrad[float32](&p)
	}
}

// poolSizes returns the positions of a plane of x and of y.
func poolSizes(p *kernel.Pool) (x, y int) {
	x, y = 1, 1
	for i := range p.Spans {
		x, y = x*p.Spans[i].Size, y*len(p.Spans[i].From)
	}
	return x, y
}

// eachRowOf calls f for each row of windows of a plane: y is the place of its first, and lines lists where the rows of x begin that the
// windows have.
func eachRowOf(p *kernel.Pool, f func(y, over int, lines []int)) {
	depth, height, width := &p.Spans[0], &p.Spans[1], &p.Spans[2]
	var lines []int
	for d := range depth.From {
		for h := range height.From {
			lines = lines[:0]
			for i := depth.From[d]; i < depth.To[d]; i += depth.Step {
				for j := height.From[h]; j < height.To[h]; j += height.Step {
					lines = append(lines, (i*height.Size+j)*width.Size)
				}
			}
			f((d*len(height.From)+h)*len(width.From), depth.Over[d]*height.Over[h], lines)
		}
	}
}

// allOf reports whether a mean has one window, of all positions, and over how many elements it is.
func allOf(p *kernel.Pool) (over int, all bool) {
	over, all = 1, p.Mean
	for i := range p.Spans {
		s := &p.Spans[i]
		if len(s.From) != 1 || s.From[0] != 0 || s.To[0] != s.Size {
			return 0, false
		}
		over *= s.Over[0]
	}
	return over, all
}

// pool combines the rows of a window first, by vector instructions, and then what is in one of them.
func pool[T float](p *kernel.Pool) {
	nx, ny := poolSizes(p)
	xs, ys := sliceOf[T](p.X, p.Planes*nx), sliceOf[T](p.Y, p.Planes*ny)
	width := &p.Spans[2]
	combine, start := simd.Max[T], T(math.Inf(-1))
	if p.Mean {
		combine, start = simd.Add[T], 0
	}
	parallel(p.Planes, nx, 1, func(lo, hi int) {
		line := make([]T, width.Size)
		for c := lo; c < hi; c++ {
			x, y := xs[c*nx:][:nx], ys[c*ny:][:ny]
			if over, all := allOf(p); all {
				y[0] = sumOf(x) / T(over)
				continue
			}
			eachRowOf(p, func(first, over int, lines []int) {
				row := line
				switch len(lines) {
				case 0:
					simd.Fill(row, start)
				case 1:
					row = x[lines[0]:][:width.Size]
				default:
					combine(line, x[lines[0]:][:width.Size], x[lines[1]:][:width.Size])
					for _, at := range lines[2:] {
						combine(line, line, x[at:][:width.Size])
					}
				}
				to := y[first:][:len(width.From)]
				if p.Mean {
					sums(to, row, width, over)
				} else {
					largest(to, row, width)
				}
			})
		}
	})
}

// largest does y[i] = the largest of x in window i.
func largest[T float](y, x []T, s *kernel.Spans) {
	for i := range y {
		most := T(math.Inf(-1))
		for at := s.From[i]; at < s.To[i]; at += s.Step {
			most = max(most, x[at]) // NaN if one is
		}
		y[i] = most
	}
}

// long is from how many elements on a window is added up by vector instructions.
const long = 16

// sums does y[i] = the sum of x in window i, by its elements and over.
func sums[T float](y, x []T, s *kernel.Spans, over int) {
	for i := range y {
		var sum T
		if n := s.To[i] - s.From[i]; n >= long {
			sum = sumOf(x[s.From[i]:s.To[i]])
		} else {
			for _, v := range x[s.From[i]:max(s.From[i], s.To[i])] {
				sum += v
			}
		}
		y[i] = sum / T(over*s.Over[i])
	}
}

// sumOf is the sum of x, with vector instructions where there are some.
func sumOf[T float](x []T) (sum T) {
	if x, ok := any(x).([]float32); ok {
		return T(simd.Sum(x))
	}
	for _, v := range x {
		sum += v
	}
	return sum
}

func poolGrad[T float](p *kernel.PoolGrad) {
	nx, ny := poolSizes(&p.Pool)
	dxs, dys := sliceOf[T](p.DX, p.Planes*nx), sliceOf[T](p.DY, p.Planes*ny)
	xs, ys := sliceOf[T](p.X, p.Planes*nx), sliceOf[T](p.Y, p.Planes*ny)
	width := &p.Spans[2]
	parallel(p.Planes, nx, 1, func(lo, hi int) {
		line := make([]T, width.Size)
		for c := lo; c < hi; c++ {
			dx, dy := dxs[c*nx:][:nx], dys[c*ny:][:ny]
			if over, all := allOf(&p.Pool); all {
				simd.Fill(dx, dy[0]/T(over))
				continue
			}
			clear(dx)
			if p.Mean {
				eachRowOf(&p.Pool, func(first, over int, lines []int) {
					spread(line, dy[first:], width, over)
					for _, at := range lines {
						simd.AddTo(dx[at:][:width.Size], line)
					}
				})
				continue
			}
			x, y := xs[c*nx:][:nx], ys[c*ny:][:ny]
			eachRowOf(&p.Pool, func(first, _ int, lines []int) {
				for i := range width.From {
					handBack(dx, x, y[first+i], dy[first+i], width.From[i], width.To[i], width.Step, lines)
				}
			})
		}
	})
}

// spread writes what a row of dy adds to each row of dx.
func spread[T float](dx, dy []T, s *kernel.Spans, over int) {
	clear(dx)
	for i, from := range s.From {
		v := dy[i] / T(over*s.Over[i])
		for at := from; at < s.To[i]; at++ {
			dx[at] += v
		}
	}
}

// handBack adds dy to the first element of a window that is y, which may be NaN.
func handBack[T float](dx, x []T, y, dy T, from, to, step int, lines []int) {
	for _, line := range lines {
		for at := line + from; at < line+to; at += step {
			if v := x[at]; v == y || v != v {
				dx[at] += dy
				return
			}
		}
	}
}
