package meta

import (
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

var _ kernel.Windows = (*Device)(nil)

// Conv counts a product of each weight and position, and so do the gradients.
func (d *Device) Conv(c kernel.Conv)       { d.convolves("Conv", c) }
func (d *Device) ConvInput(c kernel.Conv)  { d.convolves("ConvInput", c) }
func (d *Device) ConvWeight(c kernel.Conv) { d.convolves("ConvWeight", c) }

func (d *Device) convolves(name string, c kernel.Conv) {
	x, y, window := c.Sizes()
	weights, matrices := c.Groups*c.Out*c.In*window, c.Batch*c.Groups
	d.product(name, c.DType, 2*c.Batch*y*weights, (matrices*(c.In*x+c.Out*y)+weights)*c.DType.Size(), matrices)
}

// Pool counts an operation for each element.
func (d *Device) Pool(p kernel.Pool) { d.elements("Pool", p.DType, poolElements(&p), 1, 2) }

// PoolGrad counts an operation for each element.
func (d *Device) PoolGrad(p kernel.PoolGrad) {
	d.elements("PoolGrad", p.DType, poolElements(&p.Pool), 1, 3)
}

func poolElements(p *kernel.Pool) int {
	n := p.Planes
	for i := range p.Spans {
		n *= p.Spans[i].Size
	}
	return n
}

var _ kernel.Channels = (*Device)(nil)

// ChannelMoments counts, and so do the other kernels of channels.
func (d *Device) ChannelMoments(n kernel.ChannelNorm)  { d.channels("ChannelMoments", n, 5, 1) }
func (d *Device) ChannelNorm(n kernel.ChannelNorm)     { d.channels("ChannelNorm", n, 2, 2) }
func (d *Device) ChannelNormSums(n kernel.ChannelNorm) { d.channels("ChannelNormSums", n, 5, 2) }
func (d *Device) ChannelNormGrad(n kernel.ChannelNorm) { d.channels("ChannelNormGrad", n, 7, 3) }

func (d *Device) channels(name string, n kernel.ChannelNorm, flops, operands int) {
	d.elements(name, dtype.Float32, n.Batch*n.Channels*n.Positions, flops, operands)
}
