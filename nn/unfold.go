package nn

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// Unfold returns the elements of each window of signals, images or volumes, as torch.nn.functional.unfold does. The windows
// are in row-major order; L is how many there are: along each dimension ⌊(size + 2·Padding - Dilation·(K-1) - 1) / Stride⌋ + 1.
//
//	x [B, C, T]         →   [B, C·K, L]
//	x [B, C, H, W]      →   [B, C·K·K, L]
//	x [B, C, D, H, W]   →   [B, C·K·K·K, L]
//
// Batches may be sharded, S(0). Its gradient is Fold.
func Unfold(x *dtensor.Tensor, w Window) *dtensor.Tensor {
	w = w.filled("Unfold")
	if x.NDim() < 3 || x.NDim() > 5 {
		fault.Throw(fmt.Errorf("nn: Unfold: %v: it wants [batch, channels] and 1 to 3 dimensions of positions", x.Layout()))
	}
	y, ok := windows(slices.Repeat([]Window{w}, x.NDim()-2)).patches(x, 0)
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
	s := w.filled("Fold")
	elements, count, shape := 1, 1, []int(nil)
	for _, size := range sizes {
		n := s.count(size)
		elements, count, shape = elements*s.Kernel, count*n, append(shape, n)
	}
	if x.NDim() != 3 || len(sizes) < 1 || len(sizes) > 3 || min(count, elements) < 1 || x.Dim(1)%elements != 0 || x.Dim(2) != count {
		fault.Throw(fmt.Errorf("nn: Fold: %v is not what Unfold makes of positions %v by %+v: it wants [batch, channels·%d, %d]",
			x.Layout(), sizes, w, elements, count))
	}
	x = x.Reshape(append([]int{x.Dim(0), x.Dim(1) / elements, elements}, shape...)...)
	return windows(slices.Repeat([]Window{s}, len(sizes))).unpatch(x, sizes)
}
