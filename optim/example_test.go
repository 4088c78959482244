package optim_test

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/tensor"
)

// Ten steps towards the least (p-3)², p on two ranks.
func Example() {
	meshtest.Example(2, func(ctx context.Context, mesh *dtensor.Mesh) error {
		p := dtensor.Zeros(mesh, tensor.Float32, []int{4}, layout.Shard(0))
		params := []*dtensor.Tensor{p}
		opt := optim.NewSGD(params, optim.SGDConfig{})
		for range 10 {
			_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
				d := p.AddScalar(-3)
				return d.Mul(d).Sum(nil, false)
			}, params...)
			if err != nil {
				return err
			}
			if _, err := optim.ClipGradNorm(ctx, params, grads, 100); err != nil {
				return err
			}
			if err := opt.Step(grads, 0.25); err != nil {
				return err
			}
		}
		if mesh.Comm().Rank() == 0 {
			fmt.Printf("%.2f\n", tensor.ToSlice[float32](p.Local()))
		}
		return nil
	})
	// Output: [3.00 3.00]
}

// A line is fitted to points that lie on one, y = 2x + 1; half of the points are on each rank.
func ExampleLBFGS() {
	meshtest.Example(2, func(ctx context.Context, mesh *dtensor.Mesh) error {
		x := dtensor.Arange(mesh, tensor.Float32, 0, 6, layout.Replicate()).Reshape(6, 1).Redistribute(layout.Shard(0))
		y := x.Scale(2).AddScalar(1)
		w := dtensor.Zeros(mesh, tensor.Float32, []int{1, 1}, layout.Replicate())
		b := dtensor.Zeros(mesh, tensor.Float32, []int{1}, layout.Replicate())
		params := []*dtensor.Tensor{w, b}
		opt := optim.NewLBFGS(params, optim.LBFGSConfig{StrongWolfe: true})
		before, err := opt.Step(1, func() (*dtensor.Tensor, []dtensor.Grad, error) {
			return dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
				return x.Linear(w, b).Sub(y).Square().Mean(nil, false)
			}, params...)
		})
		if err == nil && mesh.Comm().Rank() == 0 {
			fmt.Printf("from a loss of %.2f to y = %.2fx + %.2f\n", before, w.Local().Item(), b.Local().Item())
		}
		return err
	})
	// Output: from a loss of 47.67 to y = 2.00x + 1.00
}

// The matrix has weight decay; the bias has none, and ten times the rate.
func ExampleNewGroups() {
	meshtest.Example(2, func(ctx context.Context, mesh *dtensor.Mesh) error {
		matrix := dtensor.Full(mesh, tensor.Float32, 1, []int{4, 2}, layout.Shard(0))
		bias := dtensor.Full(mesh, tensor.Float32, 1, []int{2}, layout.Replicate())
		params := []*dtensor.Tensor{matrix, bias}
		opt := optim.NewGroups(params,
			optim.Group{Params: []*dtensor.Tensor{matrix}, New: optim.With(optim.NewSGD, optim.SGDConfig{WeightDecay: 0.5})},
			optim.Group{Params: []*dtensor.Tensor{bias}, New: optim.With(optim.NewSGD, optim.SGDConfig{}), Rate: 10})
		_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			return matrix.Sum(nil, false).Add(bias.Sum(nil, false))
		}, params...)
		if err != nil {
			return err
		}
		if err := opt.Step(grads, 0.05); err != nil {
			return err
		}
		if mesh.Comm().Rank() == 0 {
			fmt.Printf("%.3f %.3f\n", tensor.ToSlice[float32](matrix.Local()), tensor.ToSlice[float32](bias.Local()))
		}
		return nil
	})
	// Output: [0.925 0.925 0.925 0.925] [0.500 0.500]
}
