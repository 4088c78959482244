package nn

import (
	"fmt"
	"math"
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
	Cubic        bool    // on cubics through the four nearest elements of each dimension, in place of Linear
	AlignCorners bool    // the first and last elements stay where they are, in place of the edges; of Linear and Cubic only
}

// An Upsample resizes signals or images, up or down, as torch.nn.Upsample and F.interpolate do with mode nearest, linear,
// bilinear, trilinear or bicubic, without antialias. Batches and channels may be sharded, S(0) and S(1).
type Upsample struct{ config UpsampleConfig }

// NewUpsample makes an Upsample of any number of dimensions.
func NewUpsample(c UpsampleConfig) *Upsample {
	if (len(c.Size) == 0) == (c.Scale == 0) || !(c.Scale >= 0) || slices.ContainsFunc(c.Size, func(n int) bool { return n < 1 }) {
		fault.Throw(fmt.Errorf("nn: NewUpsample: %+v: give either Size or Scale, above 0", c))
	}
	if c.AlignCorners && !c.Linear && !c.Cubic || c.Linear && c.Cubic {
		fault.Throw(fmt.Errorf("nn: NewUpsample: %+v: AlignCorners goes with Linear or Cubic, of which give one", c))
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
	y := widened(x)
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
	shape := slices.Repeat([]int{1}, x.NDim()-dim)
	shape[0] = size
	along := func(weights []float32) *dtensor.Tensor {
		return everywhere(x.Mesh(), weights).Cast(x.DType()).Reshape(shape...)
	}
	if c.Cubic {
		var sum *dtensor.Tensor
		for k := range 4 {
			from, weights := make([]int64, size), make([]float32, size)
			for i := range size {
				at := c.position(i, ratio)
				whole := math.Floor(float64(at))
				from[i] = int64(min(max(int(whole)-1+k, 0), n-1))
				weights[i] = cubic(float64(k) - 1 - (float64(at) - whole))
			}
			part := x.IndexSelect(dim, everywhere(x.Mesh(), from)).Mul(along(weights))
			if sum != nil {
				part = sum.Add(part)
			}
			sum = part
		}
		return sum
	}
	lower, upper, part := make([]int64, size), make([]int64, size), make([]float32, size)
	for i := range size {
		at := max(c.position(i, ratio), 0)
		lower[i] = int64(min(int(at), n-1))
		upper[i] = min(lower[i]+1, int64(n-1))
		part[i] = at - float32(lower[i])
	}
	low := x.IndexSelect(dim, everywhere(x.Mesh(), lower))
	if !c.Linear {
		return low
	}
	high := x.IndexSelect(dim, everywhere(x.Mesh(), upper))
	return low.Add(high.Sub(low).Mul(along(part)))
}

// position returns where among the positions of x that of a result is.
func (c UpsampleConfig) position(i int, ratio float32) float32 {
	if c.AlignCorners || !c.Linear && !c.Cubic {
		return float32(i) * ratio
	}
	return ratio*(float32(i)+0.5) - 0.5
}

// cubic returns the weight of an element at a distance of at most 2: the convolution kernel of Keys (1981) with a = -0.75.
func cubic(distance float64) float32 {
	const a = -0.75
	d := math.Abs(distance)
	if d <= 1 {
		return float32(((a+2)*d-(a+3))*d*d + 1)
	}
	return float32(((a*d-5*a)*d+8*a)*d - 4*a)
}

// everywhere returns a list that every rank has.
func everywhere[T tensor.Elem](mesh *dtensor.Mesh, list []T) *dtensor.Tensor {
	return dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), list, len(list)), mesh.Every(layout.Replicate())...)
}

// Params lists nothing.
func (u *Upsample) Params() Params { return Func(nil).Params() }
