package nn

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// An UpsampleConfig describes an Upsample. Size or Scale is needed.
type UpsampleConfig struct {
	Size         []int   // of the result, along each dimension of positions
	Scale        float64 // ⌊size · Scale⌋ are the sizes of the result; 0: Size says them
	Linear       bool    // between the nearest elements of each dimension; else the nearest one before
	AlignCorners bool    // the first and last elements stay where they are, in place of the edges; of Linear only
}

// An Upsample resizes signals or images, up or down, as torch.nn.Upsample and F.interpolate do with mode nearest, linear,
// bilinear or trilinear. Batches and channels may be sharded, S(0) and S(1).
type Upsample struct{ config UpsampleConfig }

// NewUpsample makes an Upsample of any number of dimensions.
func NewUpsample(c UpsampleConfig) *Upsample {
	if (len(c.Size) == 0) == (c.Scale == 0) || !(c.Scale >= 0) || slices.ContainsFunc(c.Size, func(n int) bool { return n < 1 }) {
		fault.Throw(fmt.Errorf("nn: NewUpsample: %+v: give either Size or Scale, above 0", c))
	}
	if c.AlignCorners && !c.Linear {
		fault.Throw(fmt.Errorf("nn: NewUpsample: %+v: AlignCorners goes with Linear", c))
	}
	return &Upsample{config: c}
}

// Forward returns x [B, C, …] with other sizes of the dimensions from 2 on, in x's type.
func (u *Upsample) Forward(x *dtensor.Tensor) *dtensor.Tensor {
	dims := x.NDim() - 2
	if size := u.config.Size; dims < 1 || size != nil && len(size) != dims || slices.Contains(x.Shape()[2:], 0) {
		fault.Throw(fmt.Errorf("nn: Upsample.Forward: %v: it wants [batch, channels] and positions, of which Size %v has as many dimensions",
			x.Layout(), size))
	}
	y := x.Cast(x.DType().Wide())
	for d := range dims {
		y = u.along(y, d)
	}
	return y.Cast(x.DType())
}

// along resizes dimension 2+d of x.
func (u *Upsample) along(x *dtensor.Tensor, d int) *dtensor.Tensor {
	c, dim, n := u.config, 2+d, x.Dim(2+d)
	// PyTorch computes positions in float32 too.
	size, ratio := 0, float32(1/c.Scale)
	if c.Scale > 0 {
		size = int(float64(n) * c.Scale)
	} else {
		size = c.Size[d]
		ratio = float32(n) / float32(size)
	}
	if size < 1 {
		fault.Throw(fmt.Errorf("nn: Upsample.Forward: %v has %d positions, and with Scale %v none; give a larger one", x.Layout(), n, c.Scale))
	}
	if c.AlignCorners {
		ratio = float32(n-1) / float32(max(size-1, 1))
	}
	lower, upper, part := make([]int64, size), make([]int64, size), make([]float32, size)
	for i := range size {
		at := float32(i) * ratio
		if c.Linear && !c.AlignCorners {
			at = max(ratio*(float32(i)+0.5)-0.5, 0)
		}
		lower[i] = int64(min(int(at), n-1))
		upper[i] = min(lower[i]+1, int64(n-1))
		part[i] = at - float32(lower[i])
	}
	low := x.IndexSelect(dim, everywhere(x.Mesh(), lower))
	if !c.Linear {
		return low
	}
	shape := make([]int, x.NDim()-dim)
	for i := range shape {
		shape[i] = 1
	}
	shape[0] = size
	high := x.IndexSelect(dim, everywhere(x.Mesh(), upper))
	return low.Add(high.Sub(low).Mul(everywhere(x.Mesh(), part).Cast(x.DType()).Reshape(shape...)))
}

// everywhere returns a list that every rank has.
func everywhere[T int64 | float32](mesh *dtensor.Mesh, list []T) *dtensor.Tensor {
	return dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), list, len(list)), mesh.Every(layout.Replicate())...)
}

// Params lists nothing.
func (u *Upsample) Params() Params { return Func(nil).Params() }
