// Command pipeline measures a training step of blocks that are divided into two stages of
// equal work, 1F1B.
//
//	GOMAXPROCS=1 gorun -np 1 ./bench/pipeline     both stages on one rank
//	GOMAXPROCS=1 gorun -np 2 ./bench/pipeline     each stage on one of two ranks
//
// Four blocks of 256 features and 4 heads, 16 parts of a batch of 2 texts of 128 tokens.
// "gflops" counts the products of all ranks.
package main

import (
	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/tensor"
)

func main() {
	measure.Main(func(b *measure.Bench) error { return run(b, size{B: 2, T: 128, C: 256, Parts: 16}) })
}

// size is B texts of T tokens in each of Parts parts, and C features.
type size struct{ B, T, C, Parts int }

func run(b *measure.Bench, s size) error {
	const stages, blocks = 2, 2 // blocks of each stage
	n := min(stages, b.World.Size())
	var meshes []*dtensor.Mesh
	for i := range n {
		mesh, err := dtensor.NewMeshOf(b.World, []int{i}, dtensor.Axis{Name: "tp", Size: 1})
		if err != nil {
			return err
		}
		meshes = append(meshes, mesh)
	}
	var list []dtensor.Stage
	var params []*dtensor.Tensor
	for i := range stages {
		mesh := meshes[i%n]
		var layers []*nn.Block
		for range blocks {
			block := nn.NewBlock(nn.NewInit(mesh, 1), nn.BlockConfig{Width: s.C, Heads: 4, Bias: true})
			layers, params = append(layers, block), append(params, nn.Tensors(block.Params())...)
		}
		first := dtensor.Normal(mesh, dtensor.Key{Seed: 1}, 0, 1, []int{s.B, s.T, s.C}, layout.Replicate())
		list = append(list, dtensor.Stage{Mesh: mesh, Shape: first.Shape(), DType: tensor.Float32, Placements: first.Placements(),
			Forward: func(part int, h *dtensor.Tensor) *dtensor.Tensor {
				if i == 0 {
					h = first
				}
				for _, l := range layers {
					h = l.Forward(h)
				}
				if i == stages-1 {
					h = h.Square().Mean(nil, false)
				}
				return h
			}})
	}
	p, err := dtensor.NewPipeline(b.Context(), b.World, list...)
	if err != nil {
		return err
	}
	return b.CaseErr("1F1B", func() error {
		_, _, err := p.ValueAndGrad(b.Context(), s.Parts, params...)
		return err
	}, func(t measure.Timing) []measure.Field {
		tokens := s.Parts * s.B * s.T
		return []measure.Field{measure.Rate("gflops", stages*blocks*6*tokens*(12*s.C*s.C+2*s.T*s.C), t)}
	})
}
