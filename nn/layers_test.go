package nn_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// llamaBlock is a block with all that Llama has, and Qwen2's biases and Qwen3's norms.
func llamaBlock(mesh *dtensor.Mesh, sequence bool) *nn.Block {
	init := nn.NewInit(mesh, 7)
	rope := nn.NewRope(init, nn.RopeConfig{HeadDim: 4, Positions: 16})
	return nn.NewBlock(init, nn.BlockConfig{Width: 12, Heads: 4, KVHeads: 2, HeadDim: 4, Hidden: 10, Gated: true, QKVBias: true, QKNorm: true,
		Rope: rope, Scale: 0.7, TensorAxis: "tp", Sequence: sequence, Names: nn.LlamaNames})
}

// near reports whether two lists differ by rounding alone.
func near(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(a, b float32) bool { return math.Abs(float64(a-b)) <= 1e-5*(1+math.Abs(float64(b))) })
}

// A block fed a few positions at a time, with a cache, computes what it computes of all.
func TestKVCache(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		return dtensor.Try(ctx, mesh, func() {
			block := llamaBlock(mesh, false)
			x := wave(mesh, 1, []int{2, 9, 12}, batch()...)
			want := tensor.ToSlice[float32](block.Forward(x).Full())
			var cache nn.KVCache
			var pieces []*dtensor.Tensor
			for _, piece := range x.Split(1, 4, 1, 3, 1) { // several, one, several after others, one
				pieces = append(pieces, block.ForwardWith(piece, nn.AttentionInput{Cache: &cache}))
			}
			if got := tensor.ToSlice[float32](dtensor.Cat(1, pieces...).Full()); !near(got, want) || cache.Len() != 9 {
				dtensor.Throw(fmt.Errorf("with a cache of %d: %v, want %v", cache.Len(), got, want))
			}
		})
	})
}

// A cache that forgets positions, and whose sequences are selected, is that of the texts that are left.
func TestKVCacheOfBeams(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		return dtensor.Try(ctx, mesh, func() {
			block := llamaBlock(mesh, false)
			x, next := wave(mesh, 1, []int{3, 5, 12}, batch()...), wave(mesh, 2, []int{4, 3, 12}, batch()...)
			index := dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), []int64{2, 0, 0, 1}, 4), mesh.Every(layout.Replicate())...)
			whole := dtensor.Cat(1, x.Narrow(1, 0, 3).IndexSelect(0, index), next)
			want := tensor.ToSlice[float32](block.Forward(whole).Narrow(1, 3, 3).Full())
			caches := make(nn.KVCaches, 1)
			caches.Select(index) // of nothing
			forward := func(x *dtensor.Tensor) *dtensor.Tensor {
				return block.ForwardWith(x, nn.AttentionInput{Cache: caches.At(0)})
			}
			forward(x)
			caches.Truncate(3)
			caches.Select(index)
			first := forward(next.Narrow(1, 0, 2))
			got := tensor.ToSlice[float32](dtensor.Cat(1, first, forward(next.Narrow(1, 2, 1))).Full())
			if !near(got, want) || caches.Len() != 6 {
				dtensor.Throw(fmt.Errorf("with a cache of %d: %v, want %v", caches.Len(), got, want))
			}
			caches.Truncate(0)
			if got := tensor.ToSlice[float32](forward(x).Full()); !near(got, tensor.ToSlice[float32](block.Forward(x).Full())) {
				dtensor.Throw(fmt.Errorf("begun again: %v", got))
			}
		})
	})
}

// Cross attention with a cache computes the keys and values of the memory once, and those of the beams are selected.
func TestKVCacheOfMemory(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		return dtensor.Try(ctx, mesh, func() {
			a := nn.NewAttention(nn.NewInit(mesh, 1), nn.AttentionConfig{Width: 12, Heads: 6, KVHeads: 3, QKNorm: true, TensorAxis: "tp"})
			x, memory := wave(mesh, 1, []int{3, 4, 12}, batch()...), wave(mesh, 2, []int{3, 5, 12}, batch()...)
			mask := wave(mesh, 3, []int{3, 1, 1, 5}, batch()...).CompareScalar(kernel.OpLt, 0.9)
			want := tensor.ToSlice[float32](a.ForwardWith(x, nn.AttentionInput{Memory: memory, Mask: mask}).Full())
			var cache nn.KVCache
			var pieces []*dtensor.Tensor
			for _, piece := range x.Split(1, 2, 1, 1) {
				pieces = append(pieces, a.ForwardWith(piece, nn.AttentionInput{Memory: memory, Mask: mask, Cache: &cache}))
			}
			if got := tensor.ToSlice[float32](dtensor.Cat(1, pieces...).Full()); !near(got, want) || cache.Len() != 5 {
				dtensor.Throw(fmt.Errorf("with a cache of %d: %v, want %v", cache.Len(), got, want))
			}
			index := dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), []int64{1, 1, 0}, 3), mesh.Every(layout.Replicate())...)
			memory = memory.IndexSelect(0, index)
			cache.Select(index)
			want = tensor.ToSlice[float32](a.ForwardWith(x, nn.AttentionInput{Memory: memory}).Full())
			got := tensor.ToSlice[float32](a.ForwardWith(x, nn.AttentionInput{Memory: memory, Cache: &cache}).Full())
			if !near(got, want) {
				dtensor.Throw(fmt.Errorf("selected: %v, want %v", got, want))
			}
		})
	})
}

// A mask of numbers, which PyTorch adds, is refused, and a mask or a bias that does not fit the scores, before the cache has new
// positions.
func TestMasksAreRefused(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		a := nn.NewAttention(nn.NewInit(mesh, 1), nn.AttentionConfig{Width: 4, Heads: 2})
		x := wave(mesh, 1, []int{2, 3, 4}, batch()...)
		var cache nn.KVCache
		if err := dtensor.Try(ctx, mesh, func() { a.ForwardWith(x, nn.AttentionInput{Cache: &cache}) }); err != nil {
			return err
		}
		numbers := func(shape ...int) *dtensor.Tensor { return wave(mesh, 2, shape, mesh.Every(layout.Replicate())...) }
		mask := func(shape ...int) *dtensor.Tensor { return numbers(shape...).CompareScalar(kernel.OpGt, 0) }
		for _, c := range []struct {
			want string
			in   nn.AttentionInput
		}{
			{"or add numbers as Bias", nn.AttentionInput{Mask: numbers(3, 3)}},
			{"nn: Attention: the Mask is bool [2, 3] R", nn.AttentionInput{Mask: mask(2, 3)}},
			{"broadcasts to [2 2 3 6]", nn.AttentionInput{Mask: mask(2, 1, 1, 3), Cache: &cache}},
			{"of padding [2, 1, 1, 6]", nn.AttentionInput{Mask: mask(5, 1, 6), Cache: &cache}},
			{"the Bias is float32 [3, 1, 3]", nn.AttentionInput{Bias: numbers(3, 1, 3)}},
			{"the Mask is bool [1, 1, 1, 1, 3]", nn.AttentionInput{Mask: mask(1, 1, 1, 1, 3)}},
			{"broadcasts to [2 2 3 5]", nn.AttentionInput{Mask: mask(4), Memory: numbers(2, 5, 4)}},
			{"Memory is float32 [2, 5, 6] R", nn.AttentionInput{Memory: numbers(2, 5, 6)}},
		} {
			err := dtensor.Try(ctx, mesh, func() { a.ForwardWith(x, c.in) })
			if err == nil || !strings.Contains(err.Error(), c.want) || cache.Len() != 3 {
				return fmt.Errorf("got %v, want %q; the cache has %d positions", err, c.want, cache.Len())
			}
		}
		for _, shape := range [][]int{{3, 4}, {2, 3, 5}, {1, 2, 3, 4}} {
			err := dtensor.Try(ctx, mesh, func() { a.Forward(numbers(shape...)) })
			if err == nil || !strings.Contains(err.Error(), "give it the shape [batch, positions, 4 features]") {
				return fmt.Errorf("attention of x %v: %v", shape, err)
			}
		}
		return dtensor.Try(ctx, mesh, func() { a.ForwardWith(x, nn.AttentionInput{Mask: mask(2, 1, 1, 6).LogicalNot(), Cache: &cache}) })
	})
}

// With the positions divided, a block has the same values and gradients. Every
// all-reduce is an all-gather and a reduce-scatter.
func TestSequenceParallel(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		step := func(sequence bool) (map[string][]float32, comm.Stats, error) {
			block := llamaBlock(mesh, sequence)
			place := batch()
			if sequence {
				place[1] = layout.Shard(1)
			}
			x := wave(mesh, 1, []int{2, 5, 12}, place...)
			params := append(nn.Tensors(block.Params()), x)
			recorder := mesh.Comm().Record()
			value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return block.Forward(x).Square().Sum(nil, false) }, params...)
			recorder.Stop()
			if err != nil {
				return nil, comm.Stats{}, err
			}
			all := map[string][]float32{"loss": tensor.ToSlice[float32](value.Full())}
			for i, g := range grads {
				all[fmt.Sprint("gradient ", i)] = tensor.ToSlice[float32](g.Dense().Full())
			}
			return all, recorder.Stats(), nil
		}
		want, _, err := step(false)
		if err != nil {
			return err
		}
		got, stats, err := step(true)
		if err != nil {
			return err
		}
		for name := range inOrder(want) {
			if !near(got[name], want[name]) {
				return fmt.Errorf("%s is %v, want %v", name, got[name], want[name])
			}
		}
		if tp := mesh.Axes()[1].Size; mesh.Size() == tp && tp > 1 {
			gathers, scatters := stats.Kinds[comm.AllGatherVKind].Calls+stats.Kinds[comm.AllGatherKind].Calls,
				stats.Kinds[comm.ReduceScatterVKind].Calls+stats.Kinds[comm.ReduceScatterKind].Calls
			if gathers != 4 || scatters != 4 {
				return fmt.Errorf("%d all-gathers and %d reduce-scatters: %v", gathers, scatters, stats)
			}
		}
		return nil
	})
}

// A Dropout is a module of a Sequential, as in PyTorch.
func TestDropoutInSequential(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		linear := nn.NewLinear(nn.NewInit(mesh, 1), 3, 40, true, nn.Style{})
		model := nn.Sequential{linear, nn.Dropout{P: 0.5, Seed: 3}}
		x := wave(mesh, 1, []int{2, 3}, batch()...)
		if got := len(nn.Tensors(model.Params())); got != 2 {
			return fmt.Errorf("%d parameters, want 2", got)
		}
		var rest, training []float32
		if err := dtensor.Try(ctx, mesh, func() {
			rest = slices.Clone(tensor.ToSlice[float32](model.Forward(x).Sub(linear.Forward(x)).Full()))
		}); err != nil {
			return err
		}
		_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			y := model.Forward(x)
			training = slices.Clone(tensor.ToSlice[float32](y.Full()))
			return y.Sum(nil, false)
		}, nn.Tensors(model.Params())...)
		if err == nil && (slices.ContainsFunc(rest, func(v float32) bool { return v != 0 }) || !slices.Contains(training, 0)) {
			err = fmt.Errorf("at rest it changes %v, while training it gives %v", rest, training)
		}
		return err
	})
}

// A Dropout of Channels drops all of a channel or nothing, the same ones on every mesh.
func TestDropoutOfChannels(t *testing.T) {
	var want []float32
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		x := dtensor.Full(mesh, tensor.Float32, 1, []int{5, 6, 2, 3}, layout.Shard(0), layout.Shard(1))
		var got []float32
		_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			y := nn.Dropout{P: 0.5, Seed: 3, Channels: true}.Forward(x)
			got = slices.Clone(tensor.ToSlice[float32](y.Full()))
			return y.Sum(nil, false)
		}, x)
		if err != nil {
			return err
		}
		if !slices.Equal(got, tensor.ToSlice[float32](grads[0].Dense().Full())) {
			return fmt.Errorf("the gradient of the sum of ones is not what is left of them")
		}
		dropped := 0
		for channel := range slices.Chunk(got, 6) {
			if slices.Max(channel) != slices.Min(channel) || channel[0] != 0 && channel[0] != 2 {
				return fmt.Errorf("a channel is %v", channel)
			}
			if channel[0] == 0 {
				dropped++
			}
		}
		if mesh.Size() == 1 {
			want = got
		}
		if dropped < 8 || dropped > 22 || !slices.Equal(got, want) {
			return fmt.Errorf("%d of 30 channels are dropped; those dropped on one rank: %v", dropped, slices.Equal(got, want))
		}
		return nil
	})
}

// Dropout drops about a share P, other elements each time, the same on every mesh, and
// nothing where there are no gradients.
func TestDropout(t *testing.T) {
	var want []float32
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		d := nn.Dropout{P: 0.25, Seed: 3}
		x := dtensor.Full(mesh, tensor.Float32, 1, []int{40, 50}, batch()...)
		mesh.StartKeys(5)
		var first, second []float32
		_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			a, b := d.Forward(x), d.Forward(x)
			first, second = slices.Clone(tensor.ToSlice[float32](a.Full())), slices.Clone(tensor.ToSlice[float32](b.Full()))
			return a.Sum(nil, false)
		}, x)
		if err != nil {
			return err
		}
		zeros := 0
		for _, v := range first {
			if v == 0 {
				zeros++
			} else if v != float32(1/0.75) {
				return fmt.Errorf("an element is %v", v)
			}
		}
		if zeros < 400 || zeros > 600 || slices.Equal(first, second) {
			return fmt.Errorf("%d of 2000 elements are dropped; the same twice: %v", zeros, slices.Equal(first, second))
		}
		if mesh.Size() == 1 {
			want = first
		}
		if !slices.Equal(first, want) {
			return fmt.Errorf("other elements are dropped than on one rank")
		}
		if d.Forward(x) != x {
			return fmt.Errorf("it drops without gradients")
		}
		_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return nn.Dropout{P: 1}.Forward(x).Sum(nil, false) }, x)
		if err != nil {
			return err
		}
		if local := tensor.ToSlice[float32](grads[0].Dense().Local()); slices.ContainsFunc(local, func(v float32) bool { return v != 0 }) {
			return fmt.Errorf("a Dropout of all has the gradient %v", local)
		}
		return nil
	})
}

// A layer that cannot be made or applied says what to change.
func TestLayerRefusals(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		init := nn.NewInit(mesh, 1)
		x := dtensor.Zeros(mesh, tensor.Float32, []int{2, 3, 4}, batch()...)
		for _, c := range []struct {
			says string
			f    func()
		}{
			{"not a multiple of 5 heads", func() { nn.NewAttention(init, nn.AttentionConfig{Width: 12, Heads: 5}) }},
			{"not a multiple of 3 heads of keys", func() { nn.NewAttention(init, nn.AttentionConfig{Width: 12, Heads: 4, KVHeads: 3}) }},
			{"has to be even", func() { nn.NewRope(init, nn.RopeConfig{HeadDim: 3, Positions: 2}) }},
			{"but the tables are of 6; make them with HeadDim 4", func() {
				nn.NewRope(init, nn.RopeConfig{HeadDim: 6, Positions: 9}).Rotate(x.Unsqueeze(1), 0)
			}},
			{"make more Positions", func() {
				nn.NewRope(init, nn.RopeConfig{HeadDim: 4, Positions: 2}).Rotate(x.Unsqueeze(1), 0)
			}},
			{"multiples of Groups", func() { nn.NewConv1d(init, nn.ConvConfig{In: 3, Out: 4, Kernel: 1, Groups: 2}) }},
			{"ConvTranspose alone", func() { nn.NewConv1d(init, nn.ConvConfig{In: 3, Out: 4, Kernel: 1, OutputPadding: 1}) }},
			{"below Stride 2 or Dilation 1", func() {
				nn.NewConvTranspose1d(init, nn.ConvConfig{In: 3, Out: 4, Kernel: 1, Stride: 2, OutputPadding: 2})
			}},
			{"ConvTranspose alone", func() { nn.NewConv1d(init, nn.ConvConfig{In: 3, Out: 4, Kernel: 1, EachOutputPadding: []int{0}}) }},
			{"give 1, one for each dimension", func() {
				nn.NewConvTranspose1d(init, nn.ConvConfig{In: 3, Out: 4, Kernel: 1, Stride: 2, EachOutputPadding: []int{1, 0}})
			}},
			{"beside OutputPadding 1", func() {
				nn.NewConvTranspose1d(init, nn.ConvConfig{In: 3, Out: 4, Kernel: 1, Stride: 2, OutputPadding: 1, EachOutputPadding: []int{1}})
			}},
			{"nothing is left", func() { nn.NewConvTranspose1d(init, nn.ConvConfig{In: 3, Out: 4, Kernel: 2, Padding: 3}).Forward(x) }},
			{"ConvTranspose2d.Forward", func() { nn.NewConvTranspose2d(init, nn.ConvConfig{In: 3, Out: 4, Kernel: 2}).Forward(x) }},
			{"has no channels", func() { nn.Dropout{P: 0.5, Channels: true}.Forward(x.Reshape(-1)) }},
			{"smaller than the kernel", func() { nn.NewConv1d(init, nn.ConvConfig{In: 3, Out: 4, Kernel: 5}).Forward(x) }},
			{"it wants [batch, 2 channels] and 1 dimension of positions", func() {
				nn.NewConv1d(init, nn.ConvConfig{In: 2, Out: 4, Kernel: 1}).Forward(x)
			}},
			{"it wants [batch, 2 channels]", func() { nn.NewBatchNorm(init, 2).Forward(x) }},
			{"a batch of two or more", func() {
				_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
					return nn.NewBatchNorm(init, 4).Forward(x.Reshape(-1).Narrow(0, 0, 4).Reshape(1, 4)).Sum(nil, false)
				}, x)
				dtensor.Check(err)
			}},
			{"it wants [batch, 2 channels]", func() { nn.NewGroupNorm(init, 1, 2).Forward(x) }},
			{"cannot be divided into 3 groups", func() { nn.NewGroupNorm(init, 3, 4) }},
			{"smaller than the window", func() { nn.NewMaxPool1d(nn.PoolConfig{Kernel: 5}).Forward(x) }},
			{"2 dimensions of positions", func() { nn.NewAvgPool2d(nn.PoolConfig{Kernel: 1}).Forward(x) }},
			{"half of Kernel", func() { nn.NewMaxPool2d(nn.PoolConfig{Kernel: 2, Padding: 2}) }},
			{"have to be positive", func() { nn.NewMaxPool1d(nn.PoolConfig{}) }},
			{"give either Size or Scale", func() { nn.NewUpsample(nn.UpsampleConfig{Scale: 2, Size: []int{2}}) }},
			{"give either Size or Scale", func() { nn.NewUpsample(nn.UpsampleConfig{Size: []int{0}}) }},
			{"Cubic, of which give one", func() { nn.NewUpsample(nn.UpsampleConfig{Scale: 2, Linear: true, Cubic: true}) }},
			{"AlignCorners goes with Linear", func() { nn.NewUpsample(nn.UpsampleConfig{Scale: 2, AlignCorners: true}) }},
			{"with Scale 0.1 none", func() { nn.NewUpsample(nn.UpsampleConfig{Scale: 0.1}).Forward(x) }},
			{"as many dimensions", func() { nn.NewUpsample(nn.UpsampleConfig{Size: []int{2, 2}}).Forward(x) }},
			{"it wants [batch, 2 channels]", func() { nn.NewPReLU(init, 2).Forward(x) }},
			{"give 1, a Window for each dimension", func() { nn.NewConv1d(init, nn.ConvConfig{In: 3, Out: 4, Each: make([]nn.Window, 2)}) }},
			{"no Kernel, Stride", func() { nn.NewMaxPool1d(nn.PoolConfig{Kernel: 2, Each: []nn.Window{{Kernel: 2}}}) }},
			{"a mean has no Dilation", func() { nn.NewAvgPool1d(nn.PoolConfig{Kernel: 2, Dilation: 2}) }},
		} {
			if err := dtensor.Try(ctx, mesh, c.f); err == nil || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "nn: ") {
				return fmt.Errorf("got %v, want %q", err, c.says)
			}
		}
		return nil
	})
}

// A layer refuses settings and inputs that it cannot use, by its name.
func TestRefusals(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		init := nn.NewInit(mesh, 1)
		x := wave(mesh, 1, []int{2, 3}, batch()...)
		linear := nn.NewLinear(init, 3, 3, false, nn.Style{})
		for want, f := range map[string]func(){
			"nn: Dropout: P is NaN":                  func() { nn.Dropout{P: math.NaN()}.Forward(x) },
			"nn: Dropout: P is -1":                   func() { nn.Dropout{P: -1}.Forward(x) },
			"nn: NewConv2d: ":                        func() { nn.NewConv2d(init, nn.ConvConfig{In: 1, Out: 1, Kernel: 1, Stride: -1}) },
			"nn: NewConv1d: ":                        func() { nn.NewConv1d(init, nn.ConvConfig{In: 1, Out: 1, Kernel: 1, Groups: -1}) },
			"nn: NewAttention: width 6 with 0 heads": func() { nn.NewBlock(init, nn.BlockConfig{Width: 6}) },
			"nn: NewAttention: width 0 with 2 heads": func() { nn.NewBlock(init, nn.BlockConfig{Heads: 2}) },
			"nn: NewAttention: QKNorm with Names": func() {
				nn.NewBlock(init, nn.BlockConfig{Width: 6, Heads: 2, QKNorm: true, Names: nn.BERTNames})
			},
			"nn: NewLinears: the activation":      func() { nn.NewLinears(init, nil, 3, 4, 5) },
			"nn: Sequential.Forward: module 1 of": func() { nn.Sequential{linear, nil}.Forward(x) },
			"nn: layer \"1\" is nil":              func() { nn.Tensors(nn.Sequential{linear, nil}.Params()) },
			"nn: Join: 1 names for 2 layers":      func() { nn.Join([]string{"a"}, linear, linear) },
			"nn: KVCache.Truncate: 1 of 0":        func() { make(nn.KVCaches, 2).Truncate(1) },
			"nn: NewMaxPool2d: ExcludePadding":    func() { nn.NewMaxPool2d(nn.PoolConfig{Kernel: 2, ExcludePadding: true}) },
			"nn: Pool.ForwardWithIndex: it is":    func() { nn.NewAvgPool1d(nn.PoolConfig{Kernel: 2}).ForwardWithIndex(x) },
			"nn: MaxUnpool: x ":                   func() { nn.MaxUnpool(x.Unsqueeze(0), x.Unsqueeze(0), 4) },
			"nn: KVCaches.At: layer 2 of":         func() { make(nn.KVCaches, 2).At(2) },
			"dtensor: Axes: the mesh is nil":      func() { nn.NewLinear(nn.NewInit(nil, 1), 2, 3, true, nn.Style{}) },
			"dtensor: Placements: the tensor is":  func() { linear.Forward(nil) },
		} {
			if err := dtensor.Try(ctx, mesh, f); err == nil || !strings.HasPrefix(err.Error(), want) {
				return fmt.Errorf("got %v, want %q", err, want)
			}
		}
		return nil
	})
}

// An expert with room for all tokens takes all.
func TestMoEWithoutALimit(t *testing.T) {
	onMeshes(t, func(ctx context.Context, mesh *dtensor.Mesh) error {
		return dtensor.Try(ctx, mesh, func() {
			forward := func(capacity float64) []float32 {
				m := nn.NewMoE(nn.NewInit(mesh, 1), nn.MoEConfig{Width: 4, Hidden: 4, Experts: 3, Axis: "dp", Capacity: capacity})
				y, _ := m.Forward(wave(mesh, 1, []int{2, 3, 4}, batch()...))
				return tensor.ToSlice[float32](y.Full())
			}
			if all, some := forward(math.Inf(1)), forward(3); !slices.Equal(all, some) {
				dtensor.Throw(fmt.Errorf("without a limit %v, with room for all %v", all, some))
			}
		})
	})
}
