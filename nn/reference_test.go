package nn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/tensor"
)

// A reference is one case of testdata/reference.json, which testdata/reference.py made
// with PyTorch: the result, and the gradients of its product with a wave.
type reference struct {
	Name   string
	Shape  []int
	Output []float64
	Grads  [][]float64
}

func references(t *testing.T) map[string]reference {
	t.Helper()
	text, err := os.ReadFile("testdata/reference.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []reference
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	all := map[string]reference{}
	for _, r := range list {
		all[r.Name] = r
	}
	return all
}

// wave makes sin(0.7·i + seed), as reference.py does.
func wave(mesh *dtensor.Mesh, seed float64, shape []int, p ...layout.Placement) *dtensor.Tensor {
	n := 1
	for _, s := range shape {
		n *= s
	}
	list := make([]float32, n)
	for i := range list {
		list[i] = float32(math.Sin(0.7*float64(i) + seed))
	}
	return dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), list, shape...), p...)
}

// again replaces a parameter by a wave in its layout.
func again(p **dtensor.Tensor, seed float64) *dtensor.Tensor {
	*p = wave((*p).Mesh(), seed, (*p).Shape(), (*p).Placements()...)
	return *p
}

// compare runs forward under ValueAndGrad and compares with a reference.
func compare(ctx context.Context, want reference, forward func() *dtensor.Tensor, params ...*dtensor.Tensor) error {
	var out *dtensor.Tensor
	_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		y := forward()
		out = y.Detach()
		dtensor.Keep(out)
		return y.Mul(wave(y.Mesh(), 9, y.Shape(), y.Mesh().Every(layout.Replicate())...)).Sum(nil, false)
	}, params...)
	if err != nil {
		return fmt.Errorf("%s: %w", want.Name, err)
	}
	if !slices.Equal(out.Shape(), want.Shape) {
		return fmt.Errorf("%s: the shape is %v, want %v", want.Name, out.Shape(), want.Shape)
	}
	check := func(what string, got *dtensor.Tensor, want []float64) error {
		for i, v := range tensor.ToSlice[float32](got.Full()) {
			if math.Abs(float64(v)-want[i]) > 2e-5*(1+math.Abs(want[i])) {
				return fmt.Errorf("%s: element %d is %v, want %v", what, i, v, want[i])
			}
		}
		return nil
	}
	if err := check(want.Name, out, want.Output); err != nil {
		return err
	}
	for i, g := range grads {
		if err := check(fmt.Sprintf("%s: gradient %d", want.Name, i), g.Dense(), want.Grads[i]); err != nil {
			return err
		}
	}
	return nil
}

// onMeshes runs f on meshes (dp, tp) of several sizes.
func onMeshes(t *testing.T, f func(ctx context.Context, mesh *dtensor.Mesh) error) {
	t.Helper()
	for _, size := range [][2]int{{1, 1}, {2, 1}, {1, 2}, {2, 2}, {1, 3}} {
		commtest.Run(t, size[0]*size[1], func(ctx context.Context, world *comm.Comm) error {
			mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: size[0]}, dtensor.Axis{Name: "tp", Size: size[1]})
			if err != nil {
				return err
			}
			if err := f(ctx, mesh); err != nil {
				return fmt.Errorf("mesh %v: %w", size, err)
			}
			return nil
		})
	}
}

// inOrder lists a map in the order of its keys, which is one on all ranks.
func inOrder[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

func batch() []layout.Placement { return []layout.Placement{layout.Shard(0), layout.Replicate()} }

func TestConvAgainstPyTorch(t *testing.T) {
	all := references(t)
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		for name, c := range inOrder(map[string]struct {
			x      []int
			config nn.ConvConfig
		}{
			"conv1d":        {[]int{2, 2, 7}, nn.ConvConfig{In: 2, Out: 3, Kernel: 3}},
			"conv1d padded": {[]int{2, 2, 6}, nn.ConvConfig{In: 2, Out: 4, Kernel: 3, Stride: 2, Padding: 1, Dilation: 2, Groups: 2}},
			"conv2d":        {[]int{2, 2, 5, 4}, nn.ConvConfig{In: 2, Out: 3, Kernel: 3}},
			"conv2d padded": {[]int{2, 4, 5, 6}, nn.ConvConfig{In: 4, Out: 4, Kernel: 3, Stride: 2, Padding: 2, Dilation: 2, Groups: 4}},
			"conv2d each": {[]int{2, 2, 5, 6}, nn.ConvConfig{In: 2, Out: 4, Groups: 2,
				Each: []nn.Window{{Kernel: 3, Padding: 1, Dilation: 2}, {Kernel: 2, Stride: 2}}}},
			"conv3d":        {[]int{2, 2, 3, 4, 2}, nn.ConvConfig{In: 2, Out: 3, Kernel: 2}},
			"conv3d padded": {[]int{3, 2, 3, 2, 4}, nn.ConvConfig{In: 2, Out: 2, Kernel: 2, Stride: 2, Padding: 1, Dilation: 2, Groups: 2}},
		}) {
			c.config.Bias = true
			kinds := []func(*nn.Init, nn.ConvConfig) *nn.Conv{nn.NewConv1d, nn.NewConv2d, nn.NewConv3d}
			conv := kinds[len(c.x)-3](nn.NewInit(mesh, 1), c.config)
			w, b := again(&conv.Weight, 2), again(&conv.Bias, 3)
			for _, other := range []layout.Placement{layout.Replicate(), layout.Shard(1), layout.Shard(2)} {
				x := wave(mesh, 1, c.x, layout.Shard(0), other)
				if err := compare(ctx, all[name], func() *dtensor.Tensor { return conv.Forward(x) }, x, w, b); err != nil {
					return fmt.Errorf("x as %v: %w", other, err)
				}
			}
		}
		return nil
	})
}

func TestConvTransposeAgainstPyTorch(t *testing.T) {
	all := references(t)
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		for name, c := range inOrder(map[string]struct {
			x      []int
			config nn.ConvConfig
		}{
			"convtranspose1d": {[]int{2, 2, 4}, nn.ConvConfig{In: 2, Out: 3, Kernel: 3}},
			"convtranspose1d padded": {[]int{2, 2, 5},
				nn.ConvConfig{In: 2, Out: 4, Kernel: 3, Stride: 2, Padding: 1, OutputPadding: 1, Groups: 2, Dilation: 2}},
			"convtranspose1d short": {[]int{3, 2, 1}, nn.ConvConfig{In: 2, Out: 2, Kernel: 1, Stride: 3, OutputPadding: 2}},
			"convtranspose2d":       {[]int{2, 2, 3, 2}, nn.ConvConfig{In: 2, Out: 3, Kernel: 3}},
			"convtranspose2d padded": {[]int{2, 4, 3, 4},
				nn.ConvConfig{In: 4, Out: 4, Kernel: 3, Stride: 2, Padding: 2, OutputPadding: 1, Groups: 4, Dilation: 2}},
			"convtranspose2d each": {[]int{2, 2, 3, 4}, nn.ConvConfig{In: 2, Out: 4, Groups: 2,
				Each: []nn.Window{{Kernel: 3, Padding: 1, Dilation: 2}, {Kernel: 2, Stride: 3}}}},
			"convtranspose3d": {[]int{2, 2, 2, 3, 2}, nn.ConvConfig{In: 2, Out: 2, Kernel: 2}},
			"convtranspose3d padded": {[]int{3, 2, 2, 1, 3},
				nn.ConvConfig{In: 2, Out: 2, Kernel: 3, Stride: 2, Padding: 1, OutputPadding: 1, Groups: 2}},
		}) {
			c.config.Bias = true
			kinds := []func(*nn.Init, nn.ConvConfig) *nn.ConvTranspose{nn.NewConvTranspose1d, nn.NewConvTranspose2d, nn.NewConvTranspose3d}
			conv := kinds[len(c.x)-3](nn.NewInit(mesh, 1), c.config)
			w, b := again(&conv.Weight, 2), again(&conv.Bias, 3)
			for _, other := range []layout.Placement{layout.Replicate(), layout.Shard(1), layout.Shard(2)} {
				x := wave(mesh, 1, c.x, layout.Shard(0), other)
				if err := compare(ctx, all[name], func() *dtensor.Tensor { return conv.Forward(x) }, x, w, b); err != nil {
					return fmt.Errorf("x as %v: %w", other, err)
				}
			}
		}
		return nil
	})
}

// What OutputPadding adds stands at the end of a dimension: with less of it in one dimension the result is the same, but shorter.
func TestOutputPaddingOfEachDimension(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		x := wave(mesh, 1, []int{2, 2, 3, 4}, batch()...)
		config := nn.ConvConfig{In: 2, Out: 3, Kernel: 3, Stride: 3, OutputPadding: 2, Bias: true}
		alike := nn.NewConvTranspose2d(nn.NewInit(mesh, 1), config)
		config.OutputPadding, config.EachOutputPadding = 0, []int{2, 1}
		each := nn.NewConvTranspose2d(nn.NewInit(mesh, 1), config)
		return dtensor.Try(ctx, mesh, func() {
			got, want := each.Forward(x).Full(), alike.Forward(x).Full()
			want = tensor.Narrow(want, 3, 0, want.Dim(3)-1)
			if !slices.Equal(got.Shape(), want.Shape()) || !slices.Equal(tensor.ToSlice[float32](got), tensor.ToSlice[float32](want)) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	})
}

func TestPoolAgainstPyTorch(t *testing.T) {
	all := references(t)
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		for name, c := range inOrder(map[string]struct {
			x    []int
			pool *nn.Pool
		}{
			"maxpool1d":         {[]int{2, 3, 7}, nn.NewMaxPool1d(nn.PoolConfig{Kernel: 2})},
			"maxpool1d dilated": {[]int{2, 2, 9}, nn.NewMaxPool1d(nn.PoolConfig{Kernel: 3, Stride: 2, Padding: 1, Dilation: 2})},
			"maxpool2d":         {[]int{4, 2, 6, 5}, nn.NewMaxPool2d(nn.PoolConfig{Kernel: 2})},
			"maxpool2d ties":    {[]int{2, 2, 6, 7}, nn.NewMaxPool2d(nn.PoolConfig{Kernel: 3, Stride: 2, Padding: 1})},
			"maxpool2d each": {[]int{4, 2, 6, 5}, nn.NewMaxPool2d(nn.PoolConfig{
				Each: []nn.Window{{Kernel: 3, Stride: 2, Padding: 1}, {Kernel: 2, Dilation: 2}}})},
			"avgpool2d each": {[]int{2, 2, 6, 5}, nn.NewAvgPool2d(nn.PoolConfig{
				Each: []nn.Window{{Kernel: 1}, {Kernel: 3, Stride: 2, Padding: 1}}})},
			"maxpool3d":            {[]int{2, 2, 4, 5, 3}, nn.NewMaxPool3d(nn.PoolConfig{Kernel: 2})},
			"maxpool3d ties":       {[]int{3, 2, 3, 4, 5}, nn.NewMaxPool3d(nn.PoolConfig{Kernel: 3, Stride: 2, Padding: 1})},
			"avgpool3d":            {[]int{3, 2, 3, 4, 5}, nn.NewAvgPool3d(nn.PoolConfig{Kernel: 2, Stride: 1, Padding: 1})},
			"avgpool1d":            {[]int{2, 3, 7}, nn.NewAvgPool1d(nn.PoolConfig{Kernel: 3, Stride: 1, Padding: 1})},
			"maxpool2d ceil":       {[]int{2, 2, 6, 7}, nn.NewMaxPool2d(nn.PoolConfig{Kernel: 3, Stride: 2, Padding: 1, Ceil: true})},
			"maxpool1d ceil":       {[]int{2, 2, 7}, nn.NewMaxPool1d(nn.PoolConfig{Kernel: 2, Stride: 3, Padding: 1, Dilation: 2, Ceil: true})},
			"maxpool1d ceil short": {[]int{2, 2, 2}, nn.NewMaxPool1d(nn.PoolConfig{Kernel: 3, Stride: 2, Ceil: true})},
			"avgpool2d ceil":       {[]int{2, 2, 6, 5}, nn.NewAvgPool2d(nn.PoolConfig{Kernel: 3, Stride: 2, Padding: 1, Ceil: true})},
			"avgpool2d without padding": {[]int{2, 2, 6, 5},
				nn.NewAvgPool2d(nn.PoolConfig{Kernel: 3, Stride: 2, Padding: 1, ExcludePadding: true})},
			"avgpool3d ceil without padding": {[]int{2, 1, 4, 5, 3},
				nn.NewAvgPool3d(nn.PoolConfig{Kernel: 2, Stride: 3, Padding: 1, Ceil: true, ExcludePadding: true})},
			"avgpool2d": {[]int{4, 2, 6, 5}, nn.NewAvgPool2d(nn.PoolConfig{Kernel: 3, Stride: 2, Padding: 1})},
		}) {
			for _, channels := range []layout.Placement{layout.Replicate(), layout.Shard(1)} {
				x := wave(mesh, 1, c.x, layout.Shard(0), channels)
				if strings.Contains(name, "ties") {
					x = quarters(x)
				}
				if err := compare(ctx, all[name], func() *dtensor.Tensor { return c.pool.Forward(x) }, x); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func TestMaxUnpoolAgainstPyTorch(t *testing.T) {
	all := references(t)
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		for name, c := range inOrder(map[string]struct {
			x    []int
			pool *nn.Pool
		}{
			"maxunpool1d":        {[]int{2, 3, 7}, nn.NewMaxPool1d(nn.PoolConfig{Kernel: 2})},
			"maxunpool2d":        {[]int{4, 2, 6, 5}, nn.NewMaxPool2d(nn.PoolConfig{Kernel: 2})},
			"maxunpool2d padded": {[]int{2, 2, 7, 6}, nn.NewMaxPool2d(nn.PoolConfig{Kernel: 3, Stride: 2, Padding: 1})},
			"maxunpool2d ceil":   {[]int{2, 2, 5, 7}, nn.NewMaxPool2d(nn.PoolConfig{Kernel: 2, Ceil: true})},
			"maxunpool3d":        {[]int{2, 2, 4, 5, 3}, nn.NewMaxPool3d(nn.PoolConfig{Kernel: 2})},
		}) {
			for _, channels := range []layout.Placement{layout.Replicate(), layout.Shard(1)} {
				x := wave(mesh, 1, c.x, layout.Shard(0), channels)
				for what, f := range inOrder(map[string]func() *dtensor.Tensor{
					"": func() *dtensor.Tensor {
						y, index := c.pool.ForwardWithIndex(x)
						return nn.MaxUnpool(y, index, c.x[2:]...)
					},
					" index": func() *dtensor.Tensor {
						y, index := c.pool.ForwardWithIndex(x)
						return index.Cast(tensor.Float32).Add(y.Scale(0))
					},
				}) {
					if err := compare(ctx, all[name+what], f, x); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
}

func TestUnfoldAgainstPyTorch(t *testing.T) {
	all := references(t)
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		for name, c := range inOrder(map[string]struct {
			x, y []int
			w    nn.Window
		}{
			"fold":        {[]int{2, 3, 4, 5}, []int{2, 12, 12}, nn.Window{Kernel: 2}},
			"fold padded": {[]int{3, 2, 6, 5}, []int{3, 18, 4}, nn.Window{Kernel: 3, Stride: 2, Padding: 1, Dilation: 2}},
		}) {
			for _, other := range []layout.Placement{layout.Replicate(), layout.Shard(1), layout.Shard(2)} {
				x, y := wave(mesh, 1, c.x, layout.Shard(0), other), wave(mesh, 2, c.y, layout.Shard(0), other)
				if err := compare(ctx, all["un"+name], func() *dtensor.Tensor { return nn.Unfold(x, c.w) }, x); err != nil {
					return fmt.Errorf("x as %v: %w", other, err)
				}
				if err := compare(ctx, all[name], func() *dtensor.Tensor { return nn.Fold(y, c.w, c.x[2:]...) }, y); err != nil {
					return fmt.Errorf("y as %v: %w", other, err)
				}
			}
		}
		// Of a signal and of a volume each element comes back as often as it is in a window.
		for _, shape := range [][]int{{2, 2, 7}, {1, 2, 3, 4, 3}} {
			x, w := wave(mesh, 1, shape, layout.Shard(0), layout.Replicate()), nn.Window{Kernel: 3, Padding: 1}
			y := nn.Fold(nn.Unfold(x, w), w, shape[2:]...)
			ones := dtensor.Full(mesh, tensor.Float32, 1, shape, batch()...)
			got := tensor.ToSlice[float32](y.Full())
			if want := tensor.ToSlice[float32](x.Mul(nn.Fold(nn.Unfold(ones, w), w, shape[2:]...)).Full()); !near(got, want) {
				return fmt.Errorf("%v: %v, want %v", shape, got, want)
			}
		}
		for says, f := range inOrder(map[string]func(){
			"Kernel, Stride and Dilation": func() { nn.Unfold(wave(mesh, 1, []int{2, 2, 3}, batch()...), nn.Window{}) },
			"smaller than the window":     func() { nn.Unfold(wave(mesh, 1, []int{2, 2, 3}, batch()...), nn.Window{Kernel: 4}) },
			"it wants [batch, channels·3, 0]": func() {
				nn.Fold(wave(mesh, 1, []int{2, 3, 1}, batch()...), nn.Window{Kernel: 3, Stride: 2}, 2)
			},
			"it wants [batch, channels·4, 9]": func() {
				nn.Fold(wave(mesh, 1, []int{2, 8, 8}, batch()...), nn.Window{Kernel: 2}, 4, 4)
			},
		}) {
			if err := dtensor.Try(ctx, mesh, f); err == nil || !strings.Contains(err.Error(), says) {
				return fmt.Errorf("got %v, want %q", err, says)
			}
		}
		return nil
	})
}

// quarters rounds x to multiples of 1/4, so that many elements are equal.
func quarters(x *dtensor.Tensor) *dtensor.Tensor { return x.Scale(4).Round().Scale(0.25) }

func TestGroupNormAgainstPyTorch(t *testing.T) {
	all := references(t)
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		for name, c := range inOrder(map[string]struct {
			x      []int
			groups int
		}{"groupnorm": {[]int{4, 6}, 3}, "groupnorm2d": {[]int{2, 4, 3, 2}, 2}, "groupnorm one": {[]int{3, 3, 5}, 3}}) {
			for _, channels := range []layout.Placement{layout.Replicate(), layout.Shard(1)} {
				n := nn.NewGroupNorm(nn.NewInit(mesh, 1), c.groups, c.x[1])
				x, w, b := wave(mesh, 1, c.x, layout.Shard(0), channels), again(&n.Weight, 2), again(&n.Bias, 3)
				if err := compare(ctx, all[name], func() *dtensor.Tensor { return n.Forward(x) }, x, w, b); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// What a BatchNorm returns of float64 is as exact as float64.
func TestBatchNormOfFloat64(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		n := nn.NewBatchNorm(nn.NewInit(mesh, 1), 3)
		x := wave(mesh, 1, []int{6, 3}, batch()...).Cast(tensor.Float64)
		_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			y := n.Forward(x)
			means, squares := y.Mean([]int{0}, false), y.Square().Mean([]int{0}, false)
			want := x.Var([]int{0}, 0, false)
			want = want.Div(want.AddScalar(n.Eps))
			off := means.Abs().Add(squares.Sub(want).Abs()).Sum(nil, false).Detach()
			if got := off.Item(); got > 1e-12 {
				dtensor.Throw(fmt.Errorf("mean and variance are off by %v", got))
			}
			return y.Sum(nil, false)
		}, n.Weight)
		return err
	})
}

func TestBatchNormAgainstPyTorch(t *testing.T) {
	all := references(t)
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		for name, shape := range inOrder(map[string][]int{"batchnorm1d": {6, 3}, "batchnorm2d": {4, 3, 2, 2}}) {
			n := nn.NewBatchNorm(nn.NewInit(mesh, 1), 3)
			x, w, b := wave(mesh, 1, shape, batch()...), again(&n.Weight, 2), again(&n.Bias, 3)
			if err := compare(ctx, all[name], func() *dtensor.Tensor { return n.Forward(x) }, x, w, b); err != nil {
				return err
			}
			// without gradients: by the running averages, which that one step moved
			var y []float32
			err := dtensor.Try(ctx, mesh, func() {
				y = slices.Clone(tensor.ToSlice[float32](n.Forward(wave(mesh, 4, shape, batch()...)).Full()))
			})
			if err != nil {
				return err
			}
			for i, v := range all[name+" eval"].Output {
				if math.Abs(float64(y[i])-v) > 2e-5 {
					return fmt.Errorf("%s evaluated: element %d is %v, want %v", name, i, y[i], v)
				}
			}
		}
		return nil
	})
}

// An encoder's block, with norms after or before, whose tensors have the names and the fused projection of PyTorch's.
func TestEncoderAgainstPyTorch(t *testing.T) {
	const b, positions, c, hidden = 2, 3, 4, 6
	all := references(t)
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		for _, sequence := range []bool{false, true} {
			for name, post := range inOrder(map[string]bool{"encoder": true, "encoder norm first": false}) {
				block := nn.NewBlock(nn.NewInit(mesh, 1), nn.BlockConfig{Width: c, Heads: 2, Hidden: hidden, Bias: true, LayerNorm: true,
					Bidirectional: true, PostNorm: post, TensorAxis: "tp", Sequence: sequence})
				x, in := wave(mesh, 1, []int{b, positions, c}, batch()...), nn.AttentionInput{}
				if post { // sequence i has i + 1 positions
					mask := []bool{true, false, false, true, true, false}
					in.Mask = dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), mask, b, 1, 1, positions), batch()...)
				}
				params := []*dtensor.Tensor{x, wave(mesh, 2, []int{3 * c, c}, mesh.Every(layout.Replicate())...),
					wave(mesh, 3, []int{3 * c}, mesh.Every(layout.Replicate())...)}
				a, mlp := block.Attention, block.MLP
				norm1, norm2 := block.Norm1.(*nn.LayerNorm), block.Norm2.(*nn.LayerNorm)
				for i, p := range []**dtensor.Tensor{&a.Out.Weight, &a.Out.Bias, &mlp.Up.Weight, &mlp.Up.Bias, &mlp.Down.Weight, &mlp.Down.Bias,
					&norm1.Weight, &norm1.Bias, &norm2.Weight, &norm2.Bias} {
					params = append(params, again(p, float64(4+i)))
				}
				if err := compare(ctx, all[name], func() *dtensor.Tensor {
					for i, l := range []*nn.Linear{a.Q, a.K, a.V} {
						l.Weight = params[1].Narrow(0, i*c, c).Redistribute(a.Out.Weight.Transpose(0, 1).Placements()...)
						l.Bias = params[2].Narrow(0, i*c, c).Redistribute(l.Weight.Placements()...)
					}
					return block.ForwardWith(x, in)
				}, params...); err != nil {
					return fmt.Errorf("Sequence %v: %w", sequence, err)
				}
			}
		}
		return nil
	})
}

// A Parameter has the name that Join gives it.
func TestParameter(t *testing.T) {
	commtest.Run(t, 1, func(ctx context.Context, world *comm.Comm) error {
		mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: 1})
		if err != nil {
			return err
		}
		init := nn.NewInit(mesh, 1)
		token := init.Normal(1, []int{1, 1, 4}, "", layout.Replicate())
		var got []string
		for name, p := range nn.Join([]string{"token", "norm"}, nn.Parameter{Value: token}, nn.NewRMSNorm(init, 4)) {
			if got = append(got, name); name == "token" && p != token {
				return fmt.Errorf("token is %v, want %v", p, token)
			}
		}
		if want := []string{"token", "norm.weight"}; !slices.Equal(got, want) {
			return fmt.Errorf("got %v, want %v", got, want)
		}
		return nil
	})
}

// BERT's layers have the names of Hugging Face's file.
func TestBERTNames(t *testing.T) {
	commtest.Run(t, 1, func(ctx context.Context, world *comm.Comm) error {
		mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: 1})
		if err != nil {
			return err
		}
		block := nn.NewBlock(nn.NewInit(mesh, 1), nn.BlockConfig{Width: 4, Heads: 2, Bias: true, LayerNorm: true, Bidirectional: true,
			PostNorm: true, Names: nn.BERTNames})
		got := map[string]bool{}
		for name := range block.Params() {
			got[name] = true
		}
		for _, layer := range []string{"attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
			"attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"} {
			if !got[layer+".weight"] || !got[layer+".bias"] {
				return fmt.Errorf("%s is missing in %v", layer, got)
			}
		}
		if len(got) != 16 {
			return fmt.Errorf("%d names, want 16: %v", len(got), got)
		}
		return nil
	})
}

func TestAttentionAgainstPyTorch(t *testing.T) {
	all := references(t)
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		for name, c := range inOrder(map[string]struct {
			b, t, s, heads, groups, d int
			cross, mask, causal       bool
			bias, norm                bool
			scale                     float64
		}{
			"attention grouped":      {2, 4, 4, 4, 2, 3, false, false, true, false, false, 0},
			"attention cross":        {2, 3, 5, 2, 1, 4, true, false, false, false, false, 0},
			"attention masked":       {2, 4, 4, 3, 3, 2, false, true, true, false, false, 0},
			"attention cross masked": {1, 3, 5, 2, 2, 2, true, true, false, false, false, 0},
			"attention biased":       {2, 4, 4, 3, 3, 2, false, true, true, true, false, 1},
			"attention cross biased": {2, 3, 5, 4, 2, 2, true, false, false, true, true, 0},
			"attention normed":       {2, 4, 4, 4, 2, 3, false, false, true, false, true, 0.3},
		}) {
			width := c.heads * c.d
			a := nn.NewAttention(nn.NewInit(mesh, 1), nn.AttentionConfig{Width: width, Heads: c.heads, KVHeads: c.groups,
				Bidirectional: !c.causal, QKNorm: c.norm, Scale: c.scale, TensorAxis: "tp"})
			x := wave(mesh, 1, []int{c.b, c.t, width}, batch()...)
			params := []*dtensor.Tensor{x}
			for i, l := range []*nn.Linear{a.Q, a.K, a.V, a.Out} {
				params = append(params, again(&l.Weight, float64(3+i)))
			}
			if c.norm {
				params = append(params, again(&a.QNorm.Weight, 7), again(&a.KNorm.Weight, 8))
			}
			var in nn.AttentionInput
			if c.bias {
				in.Bias = wave(mesh, 10, []int{c.heads, c.t, c.s}, layout.Replicate(), layout.Shard(0)) // as the heads lie
				params = append(params, in.Bias)
			}
			if c.cross {
				in.Memory = wave(mesh, 2, []int{c.b, c.s, width}, batch()...)
			}
			if c.mask {
				hidden := 0
				if c.causal {
					hidden = 1
				}
				allowed := make([]bool, c.t*c.s)
				for k := range allowed {
					allowed[k] = (k/c.s+2*(k%c.s))%3 != hidden
				}
				in.Mask = dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), allowed, c.t, c.s), mesh.Every(layout.Replicate())...)
			}
			if err := compare(ctx, all[name], func() *dtensor.Tensor { return a.ForwardWith(x, in) }, params...); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestMoEAgainstPyTorch(t *testing.T) {
	all := references(t)
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		for name, c := range inOrder(map[string]struct {
			b, t   int
			config nn.MoEConfig
		}{
			"moe":      {2, 6, nn.MoEConfig{Width: 4, Hidden: 5, Experts: 4, Capacity: 4}},
			"moe full": {4, 3, nn.MoEConfig{Width: 4, Hidden: 5, Experts: 3, Capacity: 0.8}}, // some tokens do not fit
		}) {
			for _, axis := range []string{"", "dp", "tp"} {
				c.config.Axis = axis
				m := nn.NewMoE(nn.NewInit(mesh, 1), c.config)
				x := wave(mesh, 1, []int{c.b, c.t, 4}, batch()...)
				params := []*dtensor.Tensor{x, again(&m.Router.Weight, 2), again(&m.Up, 3), again(&m.Down, 4)}
				err := compare(ctx, all[name], func() *dtensor.Tensor {
					y, balance := m.Forward(x)
					return y.Add(balance)
				}, params...)
				if err != nil {
					return fmt.Errorf("experts over %q: %w", axis, err)
				}
			}
		}
		return nil
	})
}
