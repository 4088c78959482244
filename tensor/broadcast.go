package tensor

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// loopOver returns the loop that walks contiguous arguments, broadcast to shape.
func loopOver(shape []int, args ...[]int) (l kernel.Loop) {
	var stride [3][kernel.MaxDims]int
	for k, arg := range args {
		step := 1
		for i := len(arg) - 1; i >= 0; i-- {
			d := i + len(shape) - len(arg)
			if arg[i] != 1 {
				stride[k][d] = step
			}
			step *= arg[i]
		}
	}
	for d, n := range shape {
		if n == 1 {
			continue
		}
		s := [3]int{stride[0][d], stride[1][d], stride[2][d]}
		if p := l.N - 1; p >= 0 && l.A[p] == s[0]*n && l.B[p] == s[1]*n && l.C[p] == s[2]*n {
			l.Size[p] *= n
			l.A[p], l.B[p], l.C[p] = s[0], s[1], s[2]
			continue
		}
		l.Size[l.N], l.A[l.N], l.B[l.N], l.C[l.N] = n, s[0], s[1], s[2]
		l.N++
	}
	if l.N == 0 { // one element
		l.N, l.Size[0] = 1, 1
	}
	return l
}

// broadcastSizes returns the sizes shape[:n] to which a and b broadcast. If they do not, it
// says which sizes differ.
func broadcastSizes(a, b []int) (shape [kernel.MaxDims]int, n int, differ string) {
	n = max(len(a), len(b))
	for i := 1; i <= n; i++ {
		da, db := 1, 1
		if i <= len(a) {
			da = a[len(a)-i]
		}
		if i <= len(b) {
			db = b[len(b)-i]
		}
		switch {
		case da == db || db == 1:
			shape[n-i] = da
		case da == 1:
			shape[n-i] = db
		default:
			return shape, n, fmt.Sprintf("sizes %d and %d of dimension %d differ and neither is 1", da, db, n-i)
		}
	}
	return shape, n, ""
}

// broadcastShape returns the shape to which a and b broadcast, and throws if they do not.
func broadcastShape(op string, a, b *Tensor) (shape [kernel.MaxDims]int, n int) {
	shape, n, differ := broadcastSizes(a.Shape(), b.Shape())
	if differ != "" {
		throwShape(op, "%v and %v do not broadcast: %s", a.brief(), b.brief(), differ)
	}
	return shape, n
}

// broadcastsTo reports whether from broadcasts to shape.
func broadcastsTo(from, shape []int) bool {
	if len(from) > len(shape) {
		return false
	}
	for i, n := range from {
		if n != 1 && n != shape[len(shape)-len(from)+i] {
			return false
		}
	}
	return true
}

// Expand returns x repeated to shape, to which x's shape broadcasts. It returns x
// itself if shape is x's.
func Expand(x *Tensor, shape ...int) *Tensor {
	const op = "Expand"
	if slices.Equal(shape, x.Shape()) {
		return x
	}
	if !broadcastsTo(x.Shape(), shape) {
		throwShape(op, "%v does not broadcast to %v", x.brief(), slices.Clone(shape))
	}
	y := alloc(op, x.dev, x.dtype, shape)
	x.dev.CopyLoop(x.dtype.Size(), y.addr, x.ptr(op), loopOver(shape, shape, x.Shape()))
	runtime.KeepAlive(x)
	return y
}
