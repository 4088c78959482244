package tensor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A convCase is a convolution of [batch, groups·in, size, …] to groups·out channels.
type convCase struct {
	batch, groups, in, out int
	windows                []kernel.Window // without counts
}

// convCases are some of each kind, and random ones.
func convCases() []convCase {
	w := func(size, kernelSize, stride, padding, dilation int) kernel.Window {
		return kernel.Window{Size: size, Kernel: kernelSize, Stride: stride, Padding: padding, Dilation: dilation}
	}
	list := []convCase{
		{2, 1, 3, 5, []kernel.Window{w(7, 3, 1, 0, 1)}},
		{2, 1, 40, 20, []kernel.Window{w(9, 3, 1, 1, 1), w(35, 3, 1, 1, 1)}},
		{40, 2, 4, 3, []kernel.Window{w(5, 3, 2, 1, 1), w(5, 3, 2, 1, 1)}}, // many images at once
		{2, 1, 3, 20, []kernel.Window{w(40, 7, 2, 3, 1), w(38, 7, 2, 3, 1)}},
		{2, 5, 1, 1, []kernel.Window{w(60, 3, 1, 1, 1), w(70, 3, 1, 1, 1)}}, // depthwise
		{2, 3, 1, 2, []kernel.Window{w(11, 3, 2, 1, 2), w(9, 5, 3, 4, 1)}},
		{1, 2, 1, 1, []kernel.Window{w(5000, 5, 1, 2, 1)}},
		{1, 1, 2, 2, []kernel.Window{w(4, 2, 1, 1, 1), w(6, 3, 1, 0, 2), w(50, 3, 2, 1, 1)}},
		{2, 2, 300, 4, []kernel.Window{w(3, 1, 1, 0, 1), w(4, 1, 1, 0, 1)}}, // 1x1
		{2, 1, 5, 4, []kernel.Window{w(7, 1, 2, 0, 1), w(8, 1, 3, 0, 1)}},
		{0, 1, 3, 5, []kernel.Window{w(7, 3, 1, 0, 1)}},
		{1, 1, 2, 3, []kernel.Window{w(6, 2, 4, 0, 1)}}, // windows with gaps
	}
	rng := rand.New(rand.NewPCG(7, 1))
	for range 60 {
		c := convCase{1 + rng.IntN(3), 1 + rng.IntN(3), 1 + rng.IntN(6), 1 + rng.IntN(6), nil}
		for range 1 + rng.IntN(3) {
			c.windows = append(c.windows, w(1+rng.IntN(9), 1+rng.IntN(3), 1+rng.IntN(3), rng.IntN(3), 1+rng.IntN(2)))
		}
		list = append(list, c)
	}
	return list
}

// naiveConv calls f for each product of a convolution, with the places of its factors and of the sum.
func naiveConv(c convCase, f func(x, w, y int)) {
	var size, kernels, count [3]int
	ws := [3]kernel.Window{}
	for d := range ws {
		ws[d] = kernel.Window{Size: 1, Count: 1, Kernel: 1, Stride: 1, Dilation: 1}
	}
	copy(ws[3-len(c.windows):], c.windows)
	for d, w := range ws {
		size[d], kernels[d], count[d] = w.Size, w.Kernel, w.Count
	}
	at := func(sizes [3]int, i int) [3]int {
		return [3]int{i / (sizes[1] * sizes[2]), i / sizes[2] % sizes[1], i % sizes[2]}
	}
	nx, nk, ny := ints.Product(size[:]), ints.Product(kernels[:]), ints.Product(count[:])
	for b := range c.batch {
		for o := range c.groups * c.out {
			for i := range c.in {
				for p := range ny {
					for k := range nk {
						place, inside := 0, true
						position, element := at(count, p), at(kernels, k)
						for d, w := range ws {
							v := position[d]*w.Stride - w.Padding + element[d]*w.Dilation
							inside = inside && v >= 0 && v < w.Size
							place = place*w.Size + v
						}
						if inside {
							f((b*c.groups*c.in+o/c.out*c.in+i)*nx+place, (o*c.in+i)*nk+k, (b*c.groups*c.out+o)*ny+p)
						}
					}
				}
			}
		}
	}
}

func testConv[T float32 | float64](t *testing.T, dev Device, rounding float64) {
	rng := rand.New(rand.NewPCG(3, 4))
	normal := func(shape ...int) (*Tensor, []T) {
		list := make([]T, ints.Product(shape))
		for i := range list {
			list[i] = T(rng.NormFloat64())
		}
		return FromSlice(dev, list, shape...), list
	}
	for _, c := range convCases() {
		xs, ws, ys := []int{c.batch, c.groups * c.in}, []int{c.groups * c.out, c.in}, []int{c.batch, c.groups * c.out}
		fits := true
		for d := range c.windows {
			w := &c.windows[d]
			beyond := w.Size + 2*w.Padding - w.Dilation*(w.Kernel-1) - 1
			fits = fits && beyond >= 0
			w.Count = beyond/w.Stride + 1
			xs, ws, ys = append(xs, w.Size), append(ws, w.Kernel), append(ys, w.Count)
		}
		if !fits {
			continue
		}
		x, xv := normal(xs...)
		w, wv := normal(ws...)
		y, yv := normal(ys...)
		if !HasWindows(dev) {
			t.Fatalf("%v has no kernels of windows", dev)
		}
		conv, input, weight := make([]float64, len(yv)), make([]float64, len(xv)), make([]float64, len(wv))
		naiveConv(c, func(i, j, k int) {
			conv[k] += float64(xv[i]) * float64(wv[j])
			input[i] += float64(yv[k]) * float64(wv[j])
			weight[j] += float64(xv[i]) * float64(yv[k])
		})
		for name, r := range map[string]struct {
			got   *Tensor
			want  []float64
			shape []int
			terms int
		}{
			"Conv":       {Conv(x, w, c.groups, c.windows), conv, ys, len(wv)},
			"ConvInput":  {ConvInput(y, w, c.groups, c.windows), input, xs, len(wv)},
			"ConvWeight": {ConvWeight(x, y, c.groups, c.windows), weight, ws, len(yv)},
		} {
			if !slices.Equal(r.got.Shape(), r.shape) {
				t.Fatalf("%s of %+v has the shape %v, want %v", name, c, r.got.Shape(), r.shape)
			}
			for i, v := range ToSlice[T](r.got) { // the error of a sum is below its terms times the rounding of each
				if off := math.Abs(float64(v) - r.want[i]); !(off <= rounding*float64(8+r.terms)) {
					t.Fatalf("%s of %+v: element %d is %v, want %v", name, c, i, v, r.want[i])
				}
			}
		}
	}
}

func TestConv(t *testing.T) {
	for _, threads := range []int{1, 3} {
		t.Run(fmt.Sprint(threads, " threads"), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads))
			testConv[float32](t, NewCPU(nil), 1e-6)
			testConv[float64](t, NewCPU(nil), 1e-14)
		})
	}
}
