package tensor

import (
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Pool returns the largest element of each window of x, or its mean, as kernel.Pool says. spans has the windows of each dimension of
// positions, up to 3.
//
//	x [B, C, Size, …]   →   y [B, C, windows, …]
func Pool(x *Tensor, mean bool, spans []kernel.Spans) *Tensor {
	const op = "Pool"
	p := poolOf(op, x, mean, spans)
	shape := []int{x.dims[0], x.dims[1]}
	for _, s := range spans {
		shape = append(shape, len(s.From))
	}
	y := alloc(op, x.dev, x.dtype, shape)
	p.X, p.Y = x.ptr(op), y.addr
	windowsOf(op, x.dev).Pool(p)
	keepAlive(x)
	return y
}

// PoolGrad is the gradient of y = Pool(x, mean, spans), of means in no need of y.
func PoolGrad(dy, x, y *Tensor, mean bool, spans []kernel.Spans) *Tensor {
	const op = "PoolGrad"
	p := poolOf(op, x, mean, spans)
	wantSameType(op, x, dy)
	wantSameShape(op, dy, y)
	dx := allocLike(op, x)
	p.X, p.Y = x.ptr(op), y.ptr(op)
	windowsOf(op, x.dev).PoolGrad(kernel.PoolGrad{Pool: p, DX: dx.addr, DY: dy.ptr(op)})
	keepAlive(dy, x, y)
	return dx
}

// poolOf checks the operands and returns their sizes; the caller sets the addresses.
func poolOf(op string, x *Tensor, mean bool, spans []kernel.Spans) kernel.Pool {
	shape := x.Shape()
	fits := len(shape) == 2+len(spans) && len(spans) <= kernel.Positions
	p := kernel.Pool{DType: x.dtype, Mean: mean, Planes: 1}
	for d := range p.Spans {
		p.Spans[d] = kernel.Spans{Size: 1, From: []int{0}, To: []int{1}, Over: []int{1}, Step: 1}
	}
	for d, s := range spans {
		fits = fits && s.Size == shape[2+d] && s.Step >= 1 && len(s.To) == len(s.From) && len(s.Over) == len(s.From)
		for i := range s.From {
			fits = fits && s.From[i] >= 0 && s.To[i] <= s.Size
		}
	}
	if !fits {
		throwShape(op, "x %v and the windows %+v do not fit", x.brief(), spans)
	}
	copy(p.Spans[kernel.Positions-len(spans):], spans)
	p.Planes = shape[0] * shape[1]
	return p
}

// windowsOf returns the kernels of windows of a device.
func windowsOf(op string, dev Device) kernel.Windows {
	w, ok := dev.(kernel.Windows)
	if !ok {
		throwUse(op, "%v has no kernel for it", dev)
	}
	return w
}
