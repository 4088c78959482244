package cpu

import (
	"github.com/gorun-spmd/gorun/internal/gemm"
	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// weights computes W: the sum over all positions of the product of y and the patches. The images have the channels last, so that
// neighbours in a patch are columns side by side.
func weights[T float](k *Kernels, v *kernel.Conv) {
	c := newConvolution[T](v)
	if len(c.w) == 0 {
		return
	}
	if c.few() {
		c.fewWeights(k)
		return
	}
	w := &c.Windows
	m := image{step: [...]int{1, 1, 1}}
	for d := range w {
		m.low[d], m.from[d], m.size[d] = w[d].Padding, w[d].Size, max(w[d].Span(), w[d].Padding+w[d].Size)
	}
	row := m.row()
	var taps []int // where the columns' elements are, of each run of columns
	run := c.In    // columns side by side
	if w[2].Dilation == 1 {
		run *= w[2].Kernel
	}
	c.eachTap(func(i int, at [kernel.Positions]int) {
		if i*c.In%run == 0 {
			taps = append(taps, (at[0]*w[0].Dilation*row[0]+at[1]*w[1].Dilation*row[1]+at[2]*w[2].Dilation)*c.In)
		}
	})
	each := c.In * m.all()
	images, free := room[T](k, c.images*each)
	defer free()
	sum, free2 := room[T](k, c.weights) // [Out, kernel·In]
	defer free2()
	cols := c.nk * c.In
	clear(images)
	for g := range c.Groups {
		beta := T(0)
		for first := 0; first < c.Batch; first += c.images {
			some := min(c.images, c.Batch-first)
			lines := w[0].Size * w[1].Size
			parallel(some*lines, c.In*w[2].Size, 1, func(lo, hi int) {
				for i := lo; i < hi; i++ {
					line := i % lines
					to := images[i/lines*each:][((line/w[1].Size+m.low[0])*row[0]+(line%w[1].Size+m.low[1])*row[1]+m.low[2])*c.In:]
					simd.Transpose(to, c.In, c.x[(first+i/lines)*c.inAll+g*c.fromAll+line*w[2].Size:], c.nx, c.In, w[2].Size)
				}
			})
			// of y, transposed: [positions of all images, Out]
			rows := func(dst []T, width, p, j, rows, cols int) {
				for ; cols > 0; cols, j, dst = cols-width, j+width, dst[min(len(dst), width*rows):] {
					for r := 0; r < rows; {
						image, at := (p+r)/c.ny, (p+r)%c.ny
						n := min(c.ny-at, rows-r)
						simd.Transpose(dst[r*width:], width, c.y[(first+image)*c.outAll+g*c.toAll+j*c.ny+at:], c.ny, min(width, cols), n)
						r += n
					}
				}
			}
			parallel(cols, c.Out*c.ny*some/(gemm.ThreadWork/ParallelFrom), 32, func(lo, hi int) {
				columns := func(dst []T, width, p, j, rows, cols int) { // of the patches: [positions of all images, kernel·In]
					j += lo
					for ; cols > 0; cols, j, dst = cols-width, j+width, dst[min(len(dst), width*rows):] {
						for n := 0; n < min(width, cols); {
							tap, at := (j+n)/run, (j+n)%run
							most := min(run-at, min(width, cols)-n)
							for r := 0; r < rows; {
								image, position := (p+r)/c.ny, (p+r)%c.ny
								x, rest := position%w[2].Count, position/w[2].Count
								few := min(w[2].Count-x, rows-r)
								from := (rest/w[1].Count*w[0].Stride*row[0] + rest%w[1].Count*w[1].Stride*row[1] + x*w[2].Stride) * c.In
								simd.CopyPanel(dst[r*width+n:], width, images[image*each+from+taps[tap]+at:], w[2].Stride*c.In, few, most)
								r += few
							}
							n += most
						}
					}
				}
				gemm.Made(c.Out, hi-lo, some*c.ny, rows, columns, beta, sum[lo:], cols)
			})
			beta = 1
		}
		if c.Batch == 0 || c.ny == 0 {
			clear(sum)
		}
		for o := range c.Out {
			simd.Transpose(c.w[g*c.weights+o*cols:], c.nk, sum[o*cols:], c.In, c.nk, c.In)
		}
	}
}
