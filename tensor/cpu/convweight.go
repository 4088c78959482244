package cpu

import (
	"github.com/gorun-spmd/gorun/internal/gemm"
	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// weights computes W: the sum over all positions of the product of y and the patches.
func weights[T float](k *Kernels, v *kernel.Conv) {
	c := newConvolution[T](v)
	if len(c.w) == 0 {
		return
	}
	if c.few() {
		c.fewWeights(k)
		return
	}
	f, free := newFactors(k, c)
	defer free()
	cols := c.nk * c.In
	sum, free := room[T](k, c.weights) // [Out, kernel·In]
	defer free()
	for f.group = range c.Groups {
		beta := T(0)
		for f.first = 0; f.first < c.Batch; f.first += c.images {
			some := min(c.images, c.Batch-f.first)
			f.fill(some)
			parallel(cols, c.Out*c.ny*some/(gemm.ThreadWork/ParallelFrom), 32, func(lo, hi int) {
				gemm.Made(c.Out, hi-lo, some*c.ny, f.packY, f.packPatches(lo), beta, sum[lo:], cols)
			})
			beta = 1
		}
		if c.Batch == 0 || c.ny == 0 {
			clear(sum)
		}
		for o := range c.Out {
			simd.Transpose(c.w[f.group*c.weights+o*cols:], c.nk, sum[o*cols:], c.In, c.nk, c.In)
		}
	}
}

// factors are those of the product that weights makes for some images of one group. The images of x have the channels last, so that
// neighbours in a patch are columns side by side.
type factors[T float] struct {
	c            *convolution[T]
	m            image
	row          [kernel.Positions]int // of m
	images       []T
	each         int   // elements of an image
	taps         []int // where each run of columns is in an image
	run          int   // columns side by side
	group, first int   // of which images
}

// newFactors returns those of c, with room for as many images as are multiplied at once.
func newFactors[T float](k *Kernels, c *convolution[T]) (f *factors[T], free func()) {
	w := &c.Windows
	f = &factors[T]{c: c, m: image{step: [...]int{1, 1, 1}}, run: c.In}
	for d := range w {
		f.m.low[d], f.m.from[d], f.m.size[d] = w[d].Padding, w[d].Size, max(w[d].Span(), w[d].Padding+w[d].Size)
	}
	f.row, f.each = f.m.row(), c.In*f.m.all()
	if w[2].Dilation == 1 {
		f.run *= w[2].Kernel
	}
	c.eachTap(func(i int, at [kernel.Positions]int) {
		if i*c.In%f.run == 0 {
			f.taps = append(f.taps, (at[0]*w[0].Dilation*f.row[0]+at[1]*w[1].Dilation*f.row[1]+at[2]*w[2].Dilation)*c.In)
		}
	})
	f.images, free = room[T](k, c.images*f.each)
	clear(f.images)
	return f, free
}

// fill writes some images of x to f's, but the zeros around them.
func (f *factors[T]) fill(some int) {
	c, w := f.c, &f.c.Windows
	lines := w[0].Size * w[1].Size
	parallel(some*lines, c.In*w[2].Size, 1, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			image, line := i/lines, i%lines
			at := (line/w[1].Size+f.m.low[0])*f.row[0] + (line%w[1].Size+f.m.low[1])*f.row[1] + f.m.low[2]
			x := c.x[(f.first+image)*c.inAll+f.group*c.fromAll+line*w[2].Size:]
			simd.Transpose(f.images[image*f.each+at*c.In:], c.In, x, c.nx, c.In, w[2].Size)
		}
	})
}

// packY packs y, transposed: [positions of all images, Out].
func (f *factors[T]) packY(dst []T, width, p, j, rows, cols int) {
	c := f.c
	for ; cols > 0; cols, j, dst = cols-width, j+width, dst[min(len(dst), width*rows):] {
		for r := 0; r < rows; {
			image, at := (p+r)/c.ny, (p+r)%c.ny
			n := min(c.ny-at, rows-r)
			y := c.y[(f.first+image)*c.outAll+f.group*c.toAll+j*c.ny+at:]
			simd.Transpose(dst[r*width:], width, y, c.ny, min(width, cols), n)
			r += n
		}
	}
}

// packPatches returns what packs the patches, from column lo on: [positions of all images, kernel·In].
func (f *factors[T]) packPatches(lo int) gemm.Packer[T] {
	return func(dst []T, width, p, j, rows, cols int) {
		j += lo
		for ; cols > 0; cols, j, dst = cols-width, j+width, dst[min(len(dst), width*rows):] {
			for n := 0; n < min(width, cols); {
				tap, at := (j+n)/f.run, (j+n)%f.run
				some := min(f.run-at, min(width, cols)-n)
				f.packRun(dst[n:], width, p, rows, f.taps[tap]+at, some)
				n += some
			}
		}
	}
}

// packRun packs cols columns side by side, which begin at an element of a patch, for rows positions from p on.
func (f *factors[T]) packRun(dst []T, width, p, rows, at, cols int) {
	c, w := f.c, &f.c.Windows
	for r := 0; r < rows; {
		image, position := (p+r)/c.ny, (p+r)%c.ny
		x, rest := position%w[2].Count, position/w[2].Count
		few := min(w[2].Count-x, rows-r)
		from := (rest/w[1].Count*w[0].Stride*f.row[0] + rest%w[1].Count*w[1].Stride*f.row[1] + x*w[2].Stride) * c.In
		simd.CopyPanel(dst[r*width:], width, f.images[image*f.each+from+at:], w[2].Stride*c.In, few, cols)
		r += few
	}
}
