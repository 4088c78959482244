package nn_test

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/nn"
)

// Two ranks divide the heads of the attention and the hidden features of the MLP.
func ExampleBlock() {
	meshtest.Example(2, func(ctx context.Context, mesh *dtensor.Mesh) error {
		block := nn.NewBlock(nn.NewInit(mesh, 1), nn.BlockConfig{Width: 8, Heads: 2, TensorAxis: "tp"})
		x := dtensor.Normal(mesh, dtensor.Key{Seed: 2}, 0, 1, []int{2, 5, 8}, layout.Replicate()) // [B, T, C]
		y := block.Forward(x)
		if mesh.Comm().Rank() == 0 {
			for name, p := range block.Params() {
				fmt.Println(name, p.Layout())
			}
			fmt.Println(y.Layout())
		}
		return nil
	})
	// Output:
	// norm1.weight [8] R
	// attention.q.weight [8, 8] S(0)
	// attention.k.weight [8, 8] S(0)
	// attention.v.weight [8, 8] S(0)
	// attention.out.weight [8, 8] S(1)
	// norm2.weight [8] R
	// mlp.up.weight [32, 8] S(0)
	// mlp.down.weight [8, 32] S(1)
	// [2, 5, 8] R
}

// A block of Llama: its parameters have the names of Hugging Face's files. A text is
// continued one token at a time; the cache has what the block knows of those before.
func ExampleKVCache() {
	meshtest.Example(1, func(ctx context.Context, mesh *dtensor.Mesh) error {
		init := nn.NewInit(mesh, 1)
		rope := nn.NewRope(init, nn.RopeConfig{HeadDim: 4, Positions: 128})
		block := nn.NewBlock(init, nn.BlockConfig{Width: 8, Heads: 2, KVHeads: 1, Hidden: 16, Gated: true, Rope: rope, Names: nn.LlamaNames})
		for name, p := range block.Params() {
			fmt.Println(name, p.Shape())
		}
		text := dtensor.Normal(mesh, dtensor.Key{Seed: 2}, 0, 1, []int{1, 5, 8}, layout.Replicate()) // [B, T, C]
		next := dtensor.Normal(mesh, dtensor.Key{Seed: 3}, 0, 1, []int{1, 1, 8}, layout.Replicate())
		var cache nn.KVCache
		block.ForwardWith(text, nn.AttentionInput{Cache: &cache})
		y := block.ForwardWith(next, nn.AttentionInput{Cache: &cache})
		fmt.Println(y.Shape(), "after", cache.Len(), "positions")
		return nil
	})
	// Output:
	// input_layernorm.weight [8]
	// self_attn.q_proj.weight [8 8]
	// self_attn.k_proj.weight [4 8]
	// self_attn.v_proj.weight [4 8]
	// self_attn.o_proj.weight [8 8]
	// post_attention_layernorm.weight [8]
	// mlp.gate_proj.weight [16 8]
	// mlp.up_proj.weight [16 8]
	// mlp.down_proj.weight [8 16]
	// [1 1 8] after 6 positions
}
