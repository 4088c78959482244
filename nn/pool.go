package nn

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A PoolConfig describes the windows of a Pool. Kernel, or Each, is needed.
type PoolConfig struct {
	Kernel   int // K: the size of a window along each dimension
	Stride   int // 0: Kernel, so that windows do not overlap
	Padding  int // elements on each side of each dimension, at most Kernel/2: zeros of a mean, which count; -∞ of a maximum
	Dilation int // how far apart a window's elements are; 0: 1; of a maximum only

	Ceil           bool // sizes are rounded up: ceil_mode. The last window may reach beyond x and its padding, where nothing counts
	ExcludePadding bool // of a mean: the padding does not count, count_include_pad=False

	// Each has the window of each dimension of positions, where they differ, in place of the above; nil: they are alike.
	Each []Window
}

// A Pool is the largest element, or the mean, of each window of signals, images or volumes, as torch.nn.MaxPool1d,
// MaxPool2d, MaxPool3d, AvgPool1d, AvgPool2d and AvgPool3d compute it. Batches and channels may be sharded, S(0) and S(1).
// Where the positions are sharded, SameBits is on, or on a GPU, it makes the windows first, which take K/Stride, (K/Stride)² or
// (K/Stride)³ times the memory of x.
type Pool struct {
	windows              windows
	mean, excludePadding bool
}

// NewMaxPool1d makes a Pool of the largest elements of signals [B, C, T].
func NewMaxPool1d(c PoolConfig) *Pool { return newPool("NewMaxPool1d", c, 1, false) }

// NewMaxPool2d makes a Pool of the largest elements of images [B, C, H, W].
func NewMaxPool2d(c PoolConfig) *Pool { return newPool("NewMaxPool2d", c, 2, false) }

// NewMaxPool3d makes a Pool of the largest elements of volumes [B, C, D, H, W].
func NewMaxPool3d(c PoolConfig) *Pool { return newPool("NewMaxPool3d", c, 3, false) }

// NewAvgPool1d makes a Pool of means of signals [B, C, T].
func NewAvgPool1d(c PoolConfig) *Pool { return newPool("NewAvgPool1d", c, 1, true) }

// NewAvgPool2d makes a Pool of means of images [B, C, H, W].
func NewAvgPool2d(c PoolConfig) *Pool { return newPool("NewAvgPool2d", c, 2, true) }

// NewAvgPool3d makes a Pool of means of volumes [B, C, D, H, W].
func NewAvgPool3d(c PoolConfig) *Pool { return newPool("NewAvgPool3d", c, 3, true) }

func newPool(op string, c PoolConfig, dims int, mean bool) *Pool {
	if c.ExcludePadding && !mean {
		fault.Throw(fmt.Errorf("nn: %s: ExcludePadding is of a mean; a maximum never counts the padding, leave it out", op))
	}
	p := &Pool{mean: mean, excludePadding: c.ExcludePadding}
	for _, w := range windowsOf(op, Window{Kernel: c.Kernel, Stride: c.Stride, Padding: c.Padding, Dilation: c.Dilation}, c.Each, dims) {
		w.Stride = cmp.Or(w.Stride, w.Kernel)
		if mean && cmp.Or(w.Dilation, 1) != 1 {
			fault.Throw(fmt.Errorf("nn: %s: %+v: a mean has no Dilation", op, w))
		}
		if w.Padding > w.Kernel/2 {
			fault.Throw(fmt.Errorf("nn: %s: %+v: Padding has to be from 0 to half of Kernel", op, w))
		}
		w = w.filled(op)
		w.ceil = c.Ceil
		p.windows = append(p.windows, w)
	}
	return p
}

// Forward returns what x has in each window, in x's type. Sizes become
// ⌊(size + 2·Padding - Dilation·(K-1) - 1) / Stride⌋ + 1; with Ceil ⌈…⌉ + 1, less a window that would begin behind x.
//
//	x [B, C, T]         →   [B, C, T']            1d
//	x [B, C, H, W]      →   [B, C, H', W']        2d
//	x [B, C, D, H, W]   →   [B, C, D', H', W']    3d
//
// The gradient of a maximum goes to the first of the elements that equal it, and NaN is larger than all.
func (p *Pool) Forward(x *dtensor.Tensor) *dtensor.Tensor {
	if spans, ok := p.spans(x); ok && fusible(x, nil) {
		wide := widened(x)
		return pooled(wide, p.mean, spans, func() *dtensor.Tensor { return p.composed(wide) }).Cast(x.DType())
	}
	return p.composed(x)
}

// composed is Forward by operators.
func (p *Pool) composed(x *dtensor.Tensor) *dtensor.Tensor {
	y := p.patches("Pool.Forward", x)
	if p.mean {
		return p.meanOf(y, x)
	}
	return y.Gather(2, y.Detach().Argmax(2, true)).Squeeze(2)
}

// spans returns the windows over x, as kernels take them; ok is false if x has none of them.
func (p *Pool) spans(x *dtensor.Tensor) (spans []kernel.Spans, ok bool) {
	if x.NDim() != 2+len(p.windows) {
		return nil, false
	}
	for d, w := range p.windows {
		s := kernel.Spans{Size: x.Dim(2 + d), Step: w.Dilation}
		counts := w.elements(s.Size, !p.excludePadding)
		for i := range w.count(s.Size) {
			from := i*w.Stride - w.Padding
			to := min(s.Size, from+w.Dilation*(w.Kernel-1)+1)
			if from < 0 {
				from += ints.RoundUp(-from, w.Dilation)
			}
			s.From, s.To, s.Over = append(s.From, from), append(s.To, to), append(s.Over, int(counts[i]))
		}
		if len(s.From) == 0 {
			return nil, false
		}
		spans = append(spans, s)
	}
	return spans, true
}

// meanOf returns the means of windows of x.
func (p *Pool) meanOf(windows, x *dtensor.Tensor) *dtensor.Tensor {
	if !p.excludePadding && !p.windows[0].ceil {
		return windows.Mean([]int{2}, false)
	}
	y := widened(windows).Sum([]int{2}, false)
	for d, w := range p.windows {
		counts := w.elements(x.Dim(2+d), !p.excludePadding)
		shape := slices.Repeat([]int{1}, len(p.windows)-d)
		shape[0] = len(counts)
		y = y.Div(everywhere(x.Mesh(), counts).Cast(y.DType()).Reshape(shape...))
	}
	return y.Cast(x.DType())
}

// patches returns the elements of each window: see windows.patches.
func (p *Pool) patches(op string, x *dtensor.Tensor) *dtensor.Tensor {
	if dims := len(p.windows); x.NDim() != dims+2 {
		fault.Throw(fmt.Errorf("nn: %s: %v: it wants [batch, channels] and %s of positions", op, x.Layout(), ints.Counted(dims, "dimension")))
	}
	fill := math.Inf(-1)
	if p.mean {
		fill = 0
	}
	y, ok := p.windows.patches(x, fill)
	if !ok {
		fault.Throw(fmt.Errorf("nn: %s: %v is smaller than the window", op, x.Layout()))
	}
	return y
}

// Params lists nothing.
func (p *Pool) Params() Params { return Func(nil).Params() }
