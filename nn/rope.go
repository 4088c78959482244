package nn

import (
	"fmt"
	"math"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// A RopeConfig describes rotary positions. HeadDim and Positions are needed.
type RopeConfig struct {
	HeadDim   int     // D, even
	Positions int     // how many there are
	Theta     float64 // the base of the wavelengths; 0: 10000
	Factor    float64 // divides positions, "linear" scaling; 0: 1

	// Llama 3 divides by Factor only the frequencies whose wavelength is longer than
	// Original/LowFreq positions. It leaves those shorter than Original/HighFreq as they
	// are, and interpolates between the two. Original 0: all are divided.
	Original          int
	LowFreq, HighFreq float64
}

// A Rope rotates pairs of features of queries and keys by angles that grow with the
// position, so that a score depends on the distance of its two positions: Su et al.,
// RoFormer, 2021. Feature i is paired with feature i + D/2, as in Llama.
type Rope struct {
	cos, sin *dtensor.Tensor // [Positions, D] R
}

// NewRope makes the tables of cosines and sines.
func NewRope(init *Init, c RopeConfig) *Rope {
	if c.HeadDim < 2 || c.HeadDim%2 != 0 || c.Positions < 1 {
		fault.Throw(fmt.Errorf("nn: NewRope: %d features of a head and %d positions; the first has to be even, both positive",
			c.HeadDim, c.Positions))
	}
	n, d := c.Positions, c.HeadDim
	cos, sin := make([]float32, n*d), make([]float32, n*d)
	for i := range d / 2 {
		f := c.frequency(i)
		for t := range n {
			// the angle is rounded to float32 as in others' models
			s, c := math.Sincos(float64(float32(t) * float32(f)))
			cos[t*d+i], sin[t*d+i] = float32(c), float32(s)
			cos[t*d+i+d/2], sin[t*d+i+d/2] = float32(c), float32(s)
		}
	}
	table := func(list []float32) *dtensor.Tensor {
		t := dtensor.Distribute(init.mesh, tensor.FromSlice(init.mesh.Device(), list, n, d), init.mesh.Every(layout.Replicate())...)
		dtensor.Keep(t)
		return t
	}
	return &Rope{cos: table(cos), sin: table(sin)}
}

// frequency returns how far position 1 rotates pair i, in radians.
func (c *RopeConfig) frequency(i int) float64 {
	theta, factor := c.Theta, c.Factor
	if theta == 0 {
		theta = 10000
	}
	if factor == 0 {
		factor = 1
	}
	f := 1 / math.Pow(theta, 2*float64(i)/float64(c.HeadDim))
	if c.Original == 0 {
		return f / factor
	}
	turns := float64(c.Original) * f / (2 * math.Pi) // in the original context
	keep := min(max((turns-c.LowFreq)/(c.HighFreq-c.LowFreq), 0), 1)
	return f * (keep + (1-keep)/factor)
}

// Rotate returns x with every position rotated; before is the first position of x.
//
//	x [B, H, T, D]   →   [B, H, T, D]   in x's layout
func (r *Rope) Rotate(x *dtensor.Tensor, before int) *dtensor.Tensor {
	t, d := x.Dim(2), x.Dim(3)
	switch {
	case d != r.cos.Dim(1):
		fault.Throw(fmt.Errorf("nn: Rope.Rotate: heads of %d features, x %v, but the tables are of %d; make them with HeadDim %[1]d",
			d, x.Layout(), r.cos.Dim(1)))
	case before+t > r.cos.Dim(0):
		fault.Throw(fmt.Errorf("nn: Rope.Rotate: positions %d to %d of %v, but the tables are %v; make more Positions",
			before, before+t, x.Layout(), r.cos.Shape()))
	}
	cos, sin := like(r.cos.Narrow(0, before, t), x), like(r.sin.Narrow(0, before, t), x)
	half := x.Split(3, d/2, d/2)
	turned := dtensor.Cat(3, half[1].Neg(), half[0]) // each feature's partner
	return x.Mul(cos).Add(turned.Mul(sin))
}
