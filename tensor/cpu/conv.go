package cpu

import (
	"runtime"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/gemm"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A convolution is a product of the weight and the patches that the windows cover. The patches are written to no memory but the
// blocks in which the product packs them (gemm.Made), from an image: x with zeros around it, so that each element of a patch is
// there, and with the elements that a stride takes side by side.

// Conv computes Y.
func (c *Kernels) Conv(v kernel.Conv) {
	if v.DType == dtype.Float64 {
		forward[float64](c, &v)
	} else {
		forward[float32](c, &v)
	}
}

// ConvInput computes X.
func (c *Kernels) ConvInput(v kernel.Conv) {
	if v.DType == dtype.Float64 {
		backward[float64](c, &v)
	} else {
		backward[float32](c, &v)
	}
}

// ConvWeight computes W.
func (c *Kernels) ConvWeight(v kernel.Conv) {
	if v.DType == dtype.Float64 {
		weights[float64](c, &v)
	} else {
		weights[float32](c, &v)
	}
}

// A convolution of one type.
type convolution[T float] struct {
	*kernel.Conv
	x, w, y         []T
	nx, ny, nk      int // positions of x and y, elements of a window
	inAll, outAll   int // elements of an image of x and of y
	fromAll, toAll  int // elements of a group's part of them
	weights         int // elements of a group's weight
	threads, images int // goroutines, and images that each does at once
}

func newConvolution[T float](v *kernel.Conv) *convolution[T] {
	c := &convolution[T]{Conv: v}
	c.nx, c.ny, c.nk = v.Sizes()
	c.fromAll, c.toAll, c.weights = v.In*c.nx, v.Out*c.ny, v.Out*v.In*c.nk
	c.inAll, c.outAll = v.Groups*c.fromAll, v.Groups*c.toAll
	c.x, c.w, c.y = sliceOf[T](v.X, v.Batch*c.inAll), sliceOf[T](v.W, v.Groups*c.weights), sliceOf[T](v.Y, v.Batch*c.outAll)
	c.images = max(1, min(v.Batch, 1024/max(1, min(c.nx, c.ny))))
	work, worth := float64(v.Batch)*float64(v.Groups)*float64(c.weights)*float64(c.ny), float64(gemm.ThreadWork)
	if c.few() {
		worth = ParallelFrom
	}
	c.threads = max(1, int(min(work/worth, float64(runtime.GOMAXPROCS(0)))))
	return c
}

// room returns n elements of scratch memory.
func room[T float](k *Kernels, n int) (x []T, free func()) {
	ref := k.Scratch(max(1, n) * int(unsafe.Sizeof(T(0))))
	return sliceOf[T](ref.Block.Ptr(), n), ref.Free
}

// byTaps returns the weight with the elements of a window first, in each group: [Groups, kernel, Out, In].
func (c *convolution[T]) byTaps(k *Kernels) (w []T, free func()) {
	w, free = room[T](k, len(c.w))
	for g := range c.Groups {
		for o := range c.Out {
			simd.Transpose(w[g*c.weights+o*c.In:], c.Out*c.In, c.w[g*c.weights+o*c.In*c.nk:], c.nk, c.In, c.nk)
		}
	}
	return w, free
}

// eachTap calls f for each element of a window with its number and where it is.
func (c *convolution[T]) eachTap(f func(i int, k [kernel.Positions]int)) {
	w := &c.Windows
	for i := range c.nk {
		f(i, [...]int{i / (w[1].Kernel * w[2].Kernel), i / w[2].Kernel % w[1].Kernel, i % w[2].Kernel})
	}
}

// turns calls f for some images of one group at a time, on several goroutines, each with room of its own for what each image has, and
// with a line where the weights are few.
func (c *convolution[T]) turns(k *Kernels, each int, f func(group, first, images int, room, line []T)) {
	sets := ints.DivUp(c.Batch, c.images)
	workers, size, lines := min(c.threads, sets*c.Groups), c.images*each, 0
	if c.few() {
		lines = fewLine
	}
	all, free := room[T](k, workers*(size+lines))
	defer free()
	parallel(workers, ParallelFrom, 1, func(lo, hi int) {
		for worker := lo; worker < hi; worker++ {
			room := all[worker*(size+lines):][:size+lines]
			clear(room[:size])
			var line []T
			if lines > 0 {
				line = room[size:]
			}
			for turn := worker * sets * c.Groups / workers; turn < (worker+1)*sets*c.Groups/workers; turn++ {
				first := turn % sets * c.images
				f(turn/sets, first, min(c.images, c.Batch-first), room[:size], line)
			}
		}
	})
}

// A filter is the weight of a group as the factor of the patches of a slide: from in channels to out ones.
type filter[T float] struct {
	w               []T
	in, out         int
	inStep, outStep int // between elements of w
	which           []int
}

// at returns where the weight of a tap is from input i to output o.
func (f *filter[T]) at(tap, i, o int) int { return f.which[tap]*f.in*f.out + i*f.inStep + o*f.outStep }

// pack packs the filter, transposed: its rows are the taps' channels, its columns the outputs.
func (f *filter[T]) pack(dst []T, width, p, j, rows, cols int) {
	for ; cols > 0; cols, j, dst = cols-width, j+width, dst[min(len(dst), width*rows):] {
		for r := 0; r < rows; {
			tap, channel := (p+r)/f.in, (p+r)%f.in
			some, from := min(f.in-channel, rows-r), f.w[f.at(tap, channel, j):]
			if f.outStep == 1 {
				simd.CopyPanel(dst[r*width:], width, from, f.inStep, some, min(width, cols))
			} else {
				simd.Transpose(dst[r*width:], width, from, f.outStep, min(width, cols), some)
			}
			r += some
		}
	}
}

// apply does y = f·patches for images that lie stride elements apart. In y, [out, images, positions], a row is ld elements long.
func (f *filter[T]) apply(s *slide, images int, x []T, stride int, y []T, ld int, line []T) {
	n := s.positions()
	if line != nil {
		for i := range images {
			f.applyFew(s, x[i*stride:], y[i*n:], ld, line)
		}
		return
	}
	gemm.Made(f.out, images*n, len(s.taps)*f.in, f.pack, pack(s, x, stride), 0, y, ld)
}

// forward computes Y.
func forward[T float](k *Kernels, v *kernel.Conv) {
	c := newConvolution[T](v)
	if len(c.y) == 0 {
		return
	}
	m, s := c.strided()
	byTap, free := c.byTaps(k)
	defer free()
	each, part := c.In*m.all(), c.Out*c.ny
	if m.same() {
		each = 0
	}
	if c.images == 1 {
		part = 0
	}
	c.turns(k, each+part, func(g, first, images int, room, line []T) {
		from, stride := lay(&m, room, c.x[first*c.inAll+g*c.fromAll:], images, c.inAll, c.In)
		f := filter[T]{byTap[g*c.weights:], c.In, c.Out, 1, c.In, s.which}
		to := c.y[first*c.outAll+g*c.toAll:]
		if part == 0 {
			f.apply(&s, images, from, stride, to, c.ny, line)
			return
		}
		all := room[c.images*each:]
		f.apply(&s, images, from, stride, all, images*c.ny, line)
		for i := range images {
			simd.CopyRows(to[i*c.outAll:], c.ny, all[i*c.ny:], images*c.ny, c.Out, c.ny)
		}
	})
}

// strided returns the images of x, in which the elements that a stride takes are side by side, and the windows over them.
func (c *convolution[T]) strided() (m image, s slide) {
	s.channels = c.In
	for d, w := range c.Windows {
		m.low[d], m.step[d], m.from[d], s.count[d] = w.Padding, w.Stride, w.Size, w.Count
		m.size[d] = ints.DivUp(max(w.Span(), w.Padding+w.Size), w.Stride)
	}
	s.plane, s.row = m.all(), m.row()
	c.eachTap(func(i int, at [kernel.Positions]int) {
		remainder, offset := 0, 0
		for d, w := range c.Windows {
			i := at[d] * w.Dilation
			remainder, offset = remainder*w.Stride+i%w.Stride, offset+i/w.Stride*s.row[d]
		}
		s.taps, s.which = append(s.taps, remainder*m.each()+offset), append(s.which, i)
	})
	return m, s
}

// backward computes X: the elements of x whose places have one remainder by the strides are a convolution of y, of the elements of
// the windows that are there.
func backward[T float](k *Kernels, v *kernel.Conv) {
	c := newConvolution[T](v)
	if len(c.x) == 0 {
		return
	}
	phases := c.phases()
	m := image{step: [...]int{1, 1, 1}}
	for d, w := range c.Windows {
		high := 0
		for _, p := range phases {
			m.low[d], high = max(m.low[d], -p.first[d]), max(high, p.last[d]+1-w.Count)
		}
		m.from[d], m.size[d] = w.Count, m.low[d]+w.Count+high
	}
	byTap, free := c.byTaps(k)
	defer free()
	each, most := c.Out*m.all(), 0
	if m.same() {
		each = 0
	}
	if c.images > 1 || len(phases) > 1 || phases[0].count != [...]int{c.Windows[0].Size, c.Windows[1].Size, c.Windows[2].Size} {
		for _, p := range phases {
			most = max(most, c.In*p.positions())
		}
	}
	for i := range phases {
		phases[i].place(&m, c.Out)
	}
	c.turns(k, each+most, func(g, first, images int, room, line []T) {
		from, stride := lay(&m, room, c.y[first*c.outAll+g*c.toAll:], images, c.outAll, c.Out)
		to, part := c.x[first*c.inAll+g*c.fromAll:], room[c.images*each:]
		for i := range phases {
			p := &phases[i]
			n := p.positions()
			f := filter[T]{byTap[g*c.weights:], c.Out, c.In, c.In, 1, p.which}
			if most == 0 {
				f.apply(&p.slide, images, from, stride, to, n, line)
				continue
			}
			f.apply(&p.slide, images, from, stride, part, images*n, line)
			for i := range images {
				c.scatter(p, to[i*c.inAll:], part[i*n:], images*n)
			}
		}
	})
}

// A phase is the elements of x whose places have one remainder by the strides, as windows over y.
type phase struct {
	slide
	at          [][kernel.Positions]int // where it is in y for element 0 of x's
	begin       [kernel.Positions]int   // the first element of x
	first, last [kernel.Positions]int   // the smallest and the largest place of y
}

// phases returns those that have elements.
func (c *convolution[T]) phases() []phase {
	var list []phase
	w := &c.Windows
	for a := range w[0].Stride {
		for b := range w[1].Stride {
			for e := range w[2].Stride {
				p := phase{begin: [...]int{a, b, e}}
				for d := range w {
					p.count[d] = max(0, ints.DivUp(w[d].Size-p.begin[d], w[d].Stride))
				}
				if p.positions() == 0 {
					continue
				}
				c.eachTap(func(i int, k [kernel.Positions]int) {
					var at [kernel.Positions]int
					for d := range w {
						place := p.begin[d] + w[d].Padding - k[d]*w[d].Dilation
						if place%w[d].Stride != 0 {
							return
						}
						at[d] = place / w[d].Stride
					}
					p.which, p.at = append(p.which, i), append(p.at, at)
					for d := range w {
						p.first[d], p.last[d] = min(p.first[d], at[d]), max(p.last[d], at[d]+p.count[d]-1)
					}
				})
				list = append(list, p)
			}
		}
	}
	return list
}

// place finds the taps in an image of y.
func (p *phase) place(m *image, channels int) {
	p.channels, p.plane, p.row = channels, m.all(), m.row()
	for _, at := range p.at {
		tap := 0
		for d := range at {
			tap += (at[d] + m.low[d]) * p.row[d]
		}
		p.taps = append(p.taps, tap)
	}
}

// scatter writes a phase of x, [In, …] with ld elements between channels, to x.
func (c *convolution[T]) scatter(p *phase, x, part []T, ld int) {
	w, n := &c.Windows, p.count
	for i := range c.In {
		x, part := x[i*c.nx:], part[i*ld:]
		for a := range n[0] {
			for b := range n[1] {
				from := part[(a*n[1]+b)*n[2]:][:n[2]]
				to := x[((p.begin[0]+a*w[0].Stride)*w[1].Size+p.begin[1]+b*w[1].Stride)*w[2].Size+p.begin[2]:]
				if w[2].Stride == 1 {
					copy(to, from)
					continue
				}
				for i, v := range from {
					to[i*w[2].Stride] = v
				}
			}
		}
	}
}
