package nn

import (
	"cmp"
	"fmt"
	"math"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// A ConvConfig describes a Conv or a ConvTranspose. In, Out and Kernel, or Each, are needed.
type ConvConfig struct {
	In, Out  int // channels
	Kernel   int // K: its size along each dimension
	Stride   int // 0: 1
	Padding  int // zeros on each side of each dimension; of a ConvTranspose elements of the result that are left out there
	Dilation int // how far apart the kernel's elements are; 0: 1
	Groups   int // channels are divided into so many groups that do not mix; 0: 1
	Bias     bool

	// Each has the window of each dimension of positions, where they differ, in place of Kernel, Stride, Padding and
	// Dilation; nil: they are alike. A kernel of 3 rows and 1 column is []Window{{Kernel: 3, Padding: 1}, {Kernel: 1}}.
	Each []Window

	// OutputPadding is how many elements a ConvTranspose's result has more at the end of each dimension. It is less than the
	// larger of Stride and Dilation.
	OutputPadding int
	// EachOutputPadding has that of each dimension of positions, where they differ, in place of OutputPadding; nil: they are alike.
	EachOutputPadding []int
}

// A Conv is the cross-correlation of signals, images or volumes with kernels, as torch.nn.Conv1d,
// Conv2d and Conv3d compute it. Batches may be sharded, S(0). It is a matrix product with the
// patches of x that the kernel covers. On a CPU no memory has them, unless another dimension is sharded, SameBits is on, or x is
// of a narrow type and has 128 channels in a group or more: then they take K, K² or K³ times the memory of x.
type Conv struct {
	Weight  *dtensor.Tensor // [Out, In/Groups, K], [Out, In/Groups, K, K] or [Out, In/Groups, K, K, K]
	Bias    *dtensor.Tensor // [Out]; nil: none
	config  ConvConfig
	windows windows
}

// NewConv1d makes a Conv of signals [B, In, T], with weights of standard deviation
// 1/√(In/Groups·K) and a bias of zeros.
func NewConv1d(init *Init, c ConvConfig) *Conv { return newConv(init, "NewConv1d", c, 1) }

// NewConv2d makes a Conv of images [B, In, H, W]; see NewConv1d.
func NewConv2d(init *Init, c ConvConfig) *Conv { return newConv(init, "NewConv2d", c, 2) }

// NewConv3d makes a Conv of volumes [B, In, D, H, W]; see NewConv1d.
func NewConv3d(init *Init, c ConvConfig) *Conv { return newConv(init, "NewConv3d", c, 3) }

func newConv(init *Init, op string, c ConvConfig, dims int) *Conv {
	c, ws := c.filled(op, dims)
	if c.OutputPadding != 0 || c.EachOutputPadding != nil {
		fault.Throw(fmt.Errorf("nn: %s: OutputPadding is %d and EachOutputPadding %v; a ConvTranspose alone has them", op, c.OutputPadding,
			c.EachOutputPadding))
	}
	weight, bias := c.params(init, ws, c.Out, c.In/c.Groups)
	return &Conv{weight, bias, c, ws}
}

// filled returns c with its defaults, and its windows. It throws for numbers that make no convolution.
func (c ConvConfig) filled(op string, dims int) (ConvConfig, windows) {
	c.Groups = cmp.Or(c.Groups, 1)
	if min(c.In, c.Out, c.Groups) < 1 || c.In%c.Groups != 0 || c.Out%c.Groups != 0 {
		fault.Throw(fmt.Errorf("nn: %s: %+v: In, Out and Groups have to be positive, and channels multiples of Groups", op, c))
	}
	var ws windows
	for _, w := range windowsOf(op, Window{Kernel: c.Kernel, Stride: c.Stride, Padding: c.Padding, Dilation: c.Dilation}, c.Each, dims) {
		ws = append(ws, w.filled(op))
	}
	return c, ws
}

// params makes the weight, [first, second, K, …], and the bias, nil for none.
func (c ConvConfig) params(init *Init, ws windows, first, second int) (weight, bias *dtensor.Tensor) {
	shape := []int{first, second}
	for _, w := range ws {
		shape = append(shape, w.Kernel)
	}
	weight = init.Normal(1/math.Sqrt(float64(c.In/c.Groups*ws.elements())), shape, "", layout.Replicate())
	if c.Bias {
		bias = init.Fill(0, []int{c.Out}, "", layout.Replicate())
	}
	return weight, bias
}

// signal throws unless x is a batch of as many dimensions of positions as dims says, of c's channels.
func (c ConvConfig) signal(op string, dims int, x *dtensor.Tensor) {
	if x.NDim() != dims+2 || x.Dim(1) != c.In {
		fault.Throw(fmt.Errorf("nn: %s%dd.Forward: %v: it wants [batch, %d channels] and %s of positions",
			op, dims, x.Layout(), c.In, ints.Counted(dims, "dimension")))
	}
}

// addBias adds a bias, if there is one, to the channels of y, in y's type.
func addBias(y, bias *dtensor.Tensor) *dtensor.Tensor {
	if bias == nil {
		return y
	}
	return y.Add(like(bias, y).Reshape(perChannel("addBias", y, bias.Numel())...))
}

// Forward returns the convolution of x, in x's type, whose sizes become
// ⌊(size + 2·Padding - Dilation·(K-1) - 1) / Stride⌋ + 1.
//
//	x [B, In, T]         →   [B, Out, T']            Conv1d
//	x [B, In, H, W]      →   [B, Out, H', W']        Conv2d
//	x [B, In, D, H, W]   →   [B, Out, D', H', W']    Conv3d
func (v *Conv) Forward(x *dtensor.Tensor) *dtensor.Tensor {
	c, dims := v.config, v.Weight.NDim()-2
	c.signal("Conv", dims, x)
	weight := like(v.Weight, x)
	ws, ok := v.windows.over(x.Shape()[2:])
	if !ok {
		fault.Throw(fmt.Errorf("nn: Conv%dd.Forward: %v is smaller than the kernel", dims, x.Layout()))
	}
	if !v.windows.convolves(x, weight, c.In/c.Groups) {
		return addBias(v.composed(x, weight, counts(ws)), v.Bias)
	}
	in, by := widened(x), widened(weight)
	y := convolve(in, by, c.Groups, ws, func() *dtensor.Tensor { return v.composed(in, by, counts(ws)) })
	return addBias(y.Cast(x.DType()), v.Bias)
}

// composed is the convolution of x and a weight by operators, with as many positions as sizes say.
func (v *Conv) composed(x, weight *dtensor.Tensor, sizes []int) *dtensor.Tensor {
	c := v.config
	patches, _ := v.windows.patches(x, 0)
	batch, window := x.Dim(0), patches.Dim(2)
	patches = patches.Reshape(batch, c.Groups, c.In/c.Groups*window, ints.Product(sizes))
	weight = weight.Reshape(c.Groups, c.Out/c.Groups, c.In/c.Groups*window)
	// The weight is the left factor, so that the patches keep the order of their elements.
	return dtensor.Einsum("gok,bgkn->bgon", weight, patches).Reshape(append([]int{batch, c.Out}, sizes...)...)
}

// Params lists weight and bias.
func (v *Conv) Params() Params { return weightAndBias(v.Weight, v.Bias) }
