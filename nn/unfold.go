package nn

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// A Window is what slides over each dimension of positions in an Unfold, or over one of a Conv or Pool. Kernel is needed.
type Window struct {
	Kernel   int // K: the size along each dimension
	Stride   int // how far it moves; 0: 1, of a Pool Kernel
	Padding  int // zeros on each side of each dimension
	Dilation int // how far apart its elements are; 0: 1
}

func (w Window) sliding(op string) sliding {
	w.Stride, w.Dilation = cmp.Or(w.Stride, 1), cmp.Or(w.Dilation, 1)
	if min(w.Kernel, w.Stride, w.Dilation) < 1 || w.Padding < 0 {
		fault.Throw(fmt.Errorf("nn: %s: %+v: Kernel, Stride and Dilation have to be positive, and Padding not negative", op, w))
	}
	return sliding{w.Kernel, w.Stride, w.Padding, w.Dilation}
}

// Unfold returns the elements of each window of signals, images or volumes, as torch.nn.functional.unfold does. The windows
// are in row-major order; L is how many there are: along each dimension ⌊(size + 2·Padding - Dilation·(K-1) - 1) / Stride⌋ + 1.
//
//	x [B, C, T]         →   [B, C·K, L]
//	x [B, C, H, W]      →   [B, C·K·K, L]
//	x [B, C, D, H, W]   →   [B, C·K·K·K, L]
//
// Batches may be sharded, S(0). Its gradient is Fold.
func Unfold(x *dtensor.Tensor, w Window) *dtensor.Tensor {
	s := w.sliding("Unfold")
	if x.NDim() < 3 || x.NDim() > 5 {
		fault.Throw(fmt.Errorf("nn: Unfold: %v: it wants [batch, channels] and 1 to 3 dimensions of positions", x.Layout()))
	}
	y, ok := slidings(slices.Repeat([]sliding{s}, x.NDim()-2)).patches(x, 0)
	if !ok {
		fault.Throw(fmt.Errorf("nn: Unfold: %v is smaller than the window", x.Layout()))
	}
	return y.Flatten(1, 2).Flatten(2, -1)
}

// Fold adds up the elements of windows where they were, as torch.nn.functional.fold does: it is the transpose of Unfold. sizes
// are those of the result's positions.
//
//	x [B, C·K, L]       T         →   [B, C, T]
//	x [B, C·K·K, L]     H, W      →   [B, C, H, W]
//	x [B, C·K·K·K, L]   D, H, W   →   [B, C, D, H, W]
func Fold(x *dtensor.Tensor, w Window, sizes ...int) *dtensor.Tensor {
	s := w.sliding("Fold")
	elements, windows, shape := 1, 1, []int(nil)
	for _, size := range sizes {
		n := s.windows(size)
		elements, windows, shape = elements*s.kernel, windows*n, append(shape, n)
	}
	if x.NDim() != 3 || len(sizes) < 1 || len(sizes) > 3 || min(windows, elements) < 1 || x.Dim(1)%elements != 0 || x.Dim(2) != windows {
		fault.Throw(fmt.Errorf("nn: Fold: %v is not what Unfold makes of positions %v by %+v: it wants [batch, channels·%d, %d]",
			x.Layout(), sizes, w, elements, windows))
	}
	x = x.Reshape(append([]int{x.Dim(0), x.Dim(1) / elements, elements}, shape...)...)
	return slidings(slices.Repeat([]sliding{s}, len(sizes))).unpatch(x, sizes)
}
