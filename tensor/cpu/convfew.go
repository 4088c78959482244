package cpu

import (
	"github.com/gorun-spmd/gorun/internal/simd"
)

// few reports whether the channels of a group are so few, one as a rule, that a product is not worth packing its factors: elements
// of the window are multiplied with all positions, one after another.
func (c *convolution[T]) few() bool { return c.In*c.Out <= 4 }

// fewLine is how many positions are added up at once: they stay in the first cache.
const fewLine = 2048

// eachLine calls f for windows that are side by side in the image, with what is between those of two rows: their first, how far it
// is from the first of all, and their rows and columns.
func (s *slide) eachLine(f func(first, at, rows, cols int)) {
	rows := max(1, fewLine/s.row[1])
	for d := range s.count[0] {
		for h := 0; h < s.count[1]; h += rows {
			for w := 0; w < s.count[2]; w += fewLine {
				f((d*s.count[1]+h)*s.count[2]+w, d*s.row[0]+h*s.row[1]+w, min(rows, s.count[1]-h), min(fewLine, s.count[2]-w))
			}
		}
	}
}

// applyFew is apply for one image.
func (f *filter[T]) applyFew(s *slide, x, y []T, ld int, line []T) {
	for o := range f.out {
		s.eachLine(func(first, at, rows, cols int) {
			sum := line[:(rows-1)*s.row[1]+cols]
			clear(sum)
			for tap, from := range s.taps {
				for i := range f.in {
					simd.Axpy(sum, f.w[f.at(tap, i, o)], x[i*s.plane+from+at:][:len(sum)])
				}
			}
			simd.CopyRows(y[o*ld+first:], s.count[2], sum, s.row[1], rows, cols)
		})
	}
}

// fewWeights computes W where it is few.
func (c *convolution[T]) fewWeights(k *Kernels) {
	m, s := c.strided()
	each := c.In * m.all()
	workers := min(c.threads, c.Groups)
	all, free := room[T](k, workers*(each+fewLine))
	defer free()
	parallel(workers, ParallelFrom, 1, func(lo, hi int) {
		for worker := lo; worker < hi; worker++ {
			x, line := all[worker*(each+fewLine):][:each], all[worker*(each+fewLine)+each:][:fewLine]
			clear(x)
			for g := worker * c.Groups / workers; g < (worker+1)*c.Groups/workers; g++ {
				w := c.w[g*c.weights:][:c.weights]
				clear(w)
				for b := range c.Batch {
					fill(&m, x, c.x[b*c.inAll+g*c.fromAll:], c.In)
					for o := range c.Out {
						y := c.y[b*c.outAll+g*c.toAll+o*c.ny:]
						s.eachLine(func(first, at, rows, cols int) {
							sum := line[:(rows-1)*s.row[1]+cols]
							clear(sum)
							simd.CopyRows(sum, s.row[1], y[first:], s.count[2], rows, cols)
							for tap, from := range s.taps {
								for i := range c.In {
									w[(o*c.In+i)*c.nk+tap] += sumOfProducts(sum, x[i*s.plane+from+at:][:len(sum)])
								}
							}
						})
					}
				}
			}
		}
	})
}

// sumOfProducts is dot, with vector instructions where there are some.
func sumOfProducts[T float](a, b []T) T {
	if x, ok := any(a).([]float32); ok {
		return T(simd.Dot(x, any(b).([]float32)))
	}
	return dot(a, b)
}
