package nn

import (
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// fusible reports whether the kernels of windows compute what is made of x and of weight, nil for none: the device has them, and of x
// at most the batch is divided, and the channels where there is no weight. With SameBits the operators are used that they stand for,
// which keep the order of sums. The kernels take x and weight widened.
func fusible(x, weight *dtensor.Tensor) bool {
	if x.Mesh().SameBits() || !x.DType().Float() || !tensor.HasWindows(x.Mesh().Device()) {
		return false
	}
	if weight != nil && (weight.DType() != x.DType() || !whole(weight)) {
		return false
	}
	for _, p := range x.Placements() {
		if !p.IsReplicate() && !p.Shards(0) && (weight != nil || !p.Shards(1)) {
			return false
		}
	}
	return true
}

// manyChannels is from how many channels of a group on a product of a narrow type with patches in memory takes less time than one of
// float32 that packs them, where the processor has instructions for it.
const manyChannels = 128

// convolves is fusible for a convolution by ws whose groups have a number of channels.
func (ws windows) convolves(x, weight *dtensor.Tensor, channels int) bool {
	return fusible(x, weight) && (!x.DType().Narrow() || channels < manyChannels && ws.gather())
}

// gather reports whether patches are more than x as it lies.
func (ws windows) gather() bool {
	for _, w := range ws {
		if w.Kernel > 1 || w.Stride > 1 || w.Padding > 0 {
			return true
		}
	}
	return false
}

// widened is x in the type in which kernels compute.
func widened(x *dtensor.Tensor) *dtensor.Tensor { return x.Cast(x.DType().Wide()) }

// whole reports whether all ranks have all of x.
func whole(x *dtensor.Tensor) bool {
	for _, p := range x.Placements() {
		if !p.IsReplicate() {
			return false
		}
	}
	return true
}

// over returns ws for positions of these sizes, as kernels take them; ok is false if one is smaller than its window.
func (ws windows) over(sizes []int) (over []kernel.Window, ok bool) {
	ok = true
	for d, w := range ws {
		n := w.count(sizes[d])
		over = append(over, w.sized(sizes[d], n))
		ok = ok && n > 0
	}
	return over, ok
}

// sized is w as kernels take it, where it takes count of size positions.
func (w Window) sized(size, count int) kernel.Window {
	return kernel.Window{Size: size, Count: count, Kernel: w.Kernel, Stride: w.Stride, Padding: w.Padding, Dilation: w.Dilation}
}

// counts returns how many positions each window has.
func counts(ws []kernel.Window) []int {
	var list []int
	for _, w := range ws {
		list = append(list, w.Count)
	}
	return list
}

// perBatch returns the tensor of a shape whose batch is divided as that of x, and of which each rank computes its part.
func perBatch(x *dtensor.Tensor, shape []int, local func() *tensor.Tensor) *dtensor.Tensor {
	return computed(x, shape, batchOf(x), local)
}

// summed returns the tensor of a shape of which each rank computes its part of a sum over the batch of x.
func summed(x *dtensor.Tensor, shape []int, local func() *tensor.Tensor) *dtensor.Tensor {
	places := x.Mesh().Every(layout.Replicate())
	for axis, p := range x.Placements() {
		if p.Shards(0) {
			places[axis] = layout.Partial(layout.Sum)
		}
	}
	return computed(x, shape, places, local)
}

func computed(x *dtensor.Tensor, shape []int, places []layout.Placement, local func() *tensor.Tensor) *dtensor.Tensor {
	part := x.Local() // which does not count outside the mesh
	if x.Mesh().Inside() {
		part = local()
	}
	y, err := dtensor.FromLocal(x.Mesh(), part, shape, places...)
	dtensor.Check(err)
	return y
}

// convolve is the convolution of x and a weight by one kernel, as composed computes it.
func convolve(x, weight *dtensor.Tensor, groups int, ws []kernel.Window, composed func() *dtensor.Tensor) *dtensor.Tensor {
	shape := append([]int{x.Dim(0), weight.Dim(0)}, counts(ws)...)
	y := perBatch(x, shape, func() *tensor.Tensor { return tensor.Conv(x.Local(), weight.Local(), groups, ws) })
	return recordConv("Conv", y, x, weight, composed,
		func(gy *tensor.Tensor) *tensor.Tensor { return tensor.ConvInput(gy, weight.Local(), groups, ws) },
		func(gy *tensor.Tensor) *tensor.Tensor { return tensor.ConvWeight(x.Local(), gy, groups, ws) })
}

// convolveTransposed is the transposed convolution of x and a weight by one kernel, as composed computes it: ws are the windows over
// the result, of which x has the counts.
func convolveTransposed(x, weight *dtensor.Tensor, groups int, ws []kernel.Window, composed func() *dtensor.Tensor) *dtensor.Tensor {
	shape := []int{x.Dim(0), weight.Dim(1) * groups}
	for _, w := range ws {
		shape = append(shape, w.Size)
	}
	y := perBatch(x, shape, func() *tensor.Tensor { return tensor.ConvInput(x.Local(), weight.Local(), groups, ws) })
	return recordConv("ConvTranspose", y, x, weight, composed,
		func(gy *tensor.Tensor) *tensor.Tensor { return tensor.Conv(gy, weight.Local(), groups, ws) },
		func(gy *tensor.Tensor) *tensor.Tensor { return tensor.ConvWeight(gy, x.Local(), groups, ws) })
}

// recordConv records y, which an operator has made of x and a weight. ofX and ofWeight compute this rank's parts of their gradients.
func recordConv(op string, y, x, weight *dtensor.Tensor, composed func() *dtensor.Tensor,
	ofX, ofWeight func(gy *tensor.Tensor) *tensor.Tensor) *dtensor.Tensor {
	wantX, wantWeight := dtensor.Tracked(x), dtensor.Tracked(weight)
	return dtensor.RecordComposed(op, y, []*dtensor.Tensor{x, weight}, func(gy *dtensor.Tensor) []dtensor.Grad {
		grads := make([]dtensor.Grad, 2)
		if wantX {
			grads[0] = dtensor.Dense(perBatch(x, x.Shape(), func() *tensor.Tensor { return ofX(gy.Local()) }))
		}
		if wantWeight {
			grads[1] = dtensor.Dense(summed(x, weight.Shape(), func() *tensor.Tensor { return ofWeight(gy.Local()) }))
		}
		return grads
	}, composed)
}

// pooled is the pooling of x by one kernel, as composed computes it.
func pooled(x *dtensor.Tensor, mean bool, spans []kernel.Spans, composed func() *dtensor.Tensor) *dtensor.Tensor {
	shape := x.Shape()[:2]
	for _, s := range spans {
		shape = append(shape, len(s.From))
	}
	y := computed(x, shape, x.Placements(), func() *tensor.Tensor { return tensor.Pool(x.Local(), mean, spans) })
	if !dtensor.Tracked(x) {
		return y
	}
	values := y.Detach()
	return dtensor.RecordComposed("Pool", y, []*dtensor.Tensor{x}, func(gy *dtensor.Tensor) []dtensor.Grad {
		return []dtensor.Grad{dtensor.Dense(computed(x, x.Shape(), x.Placements(), func() *tensor.Tensor {
			return tensor.PoolGrad(gy.Local(), x.Local(), values.Local(), mean, spans)
		}))}
	}, composed)
}
