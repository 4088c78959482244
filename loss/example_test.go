package loss_test

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/tensor"
)

// exampleRanks runs f on two ranks; a program has its mesh from runtime.Main.
func exampleRanks(f func(ctx context.Context, mesh *dtensor.Mesh) error) { meshtest.Example(2, f) }

// Each rank has two of the four classes.
func ExampleCrossEntropy() {
	exampleRanks(func(ctx context.Context, mesh *dtensor.Mesh) error {
		x := tensor.FromSlice(mesh.Device(), []float32{0, 0, 0, 0, 9, 1, 1, 1}, 2, 4)
		logits := dtensor.Distribute(mesh, x, layout.Shard(1))
		targets := dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), []int64{3, -100}, 2), layout.Replicate())
		value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			return loss.CrossEntropy(logits, targets, loss.Options{}) // the second position is ignored
		}, logits)
		if err == nil && mesh.Comm().Rank() == 1 {
			fmt.Printf("%.4f %v\n", value.Local().Item(), grads[0].Dense().Local())
		}
		return err
	})
	// Output: 1.3863 float32[2 2]{0.25 -0.75 0 0}
}

// Two sequences of three frames, one on each rank. All classes are equally probable, and of the 27 paths of classes
// 5 become "1 2" and 6 become "1".
func ExampleCTC() {
	exampleRanks(func(ctx context.Context, mesh *dtensor.Mesh) error {
		scores := dtensor.Zeros(mesh, tensor.Float32, []int{3, 2, 3}, layout.Shard(1)) // [T, N, C]
		list := func(values []int64, shape ...int) *dtensor.Tensor {
			return dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), values, shape...), layout.Replicate())
		}
		return dtensor.Try(ctx, mesh, func() {
			losses := loss.CTC(scores.LogSoftmax(-1), list([]int64{1, 2, 1, -1}, 2, 2),
				loss.CTCOptions{Reduction: loss.None, TargetLengths: list([]int64{2, 1}, 2)})
			if paths := losses.Neg().Exp().Scale(27).Full(); mesh.Comm().Rank() == 0 {
				fmt.Printf("%.2f\n", tensor.ToSlice[float32](paths))
			}
		})
	})
	// Output: [5.00 6.00]
}

// The logits [2, 4] never exist as a whole.
func ExampleLinearCrossEntropy() {
	exampleRanks(func(ctx context.Context, mesh *dtensor.Mesh) error {
		dev := mesh.Device()
		hidden := dtensor.Distribute(mesh, tensor.FromSlice(dev, []float32{1, 0, 0, 1}, 2, 2), layout.Replicate())
		weight := dtensor.Distribute(mesh, tensor.Zeros(dev, tensor.Float32, 4, 2), layout.Shard(0))
		targets := dtensor.Distribute(mesh, tensor.FromSlice(dev, []int64{3, 0}, 2), layout.Replicate())
		value, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			return loss.LinearCrossEntropy(hidden, weight, targets, loss.Options{})
		}, hidden, weight)
		if err == nil && mesh.Comm().Rank() == 0 {
			fmt.Printf("%.4f\n", value.Local().Item())
		}
		return err
	})
	// Output: 1.3863
}

func ExampleTopK() {
	exampleRanks(func(ctx context.Context, mesh *dtensor.Mesh) error {
		x := tensor.FromSlice(mesh.Device(), []float32{3, 1, 4, 1, 5, 9}, 1, 6)
		values, classes := loss.TopK(dtensor.Distribute(mesh, x, layout.Shard(1)), 2)
		if mesh.Comm().Rank() == 0 {
			fmt.Println(values.Local(), classes.Local())
		}
		return nil
	})
	// Output: float32[1 2]{9 5} int64[1 2]{5 4}
}

// A class whose logit is far above the others is always drawn.
func ExampleSample() {
	exampleRanks(func(ctx context.Context, mesh *dtensor.Mesh) error {
		x := tensor.FromSlice(mesh.Device(), []float32{0, 0, 100, 0}, 1, 4)
		drawn := loss.Sample(dtensor.Distribute(mesh, x, layout.Shard(1)), loss.SampleOptions{Key: dtensor.Key{Seed: 1}, Draws: 3})
		if mesh.Comm().Rank() == 0 {
			fmt.Println(drawn.Local())
		}
		return nil
	})
	// Output: int64[1 3]{2 2 2}
}

// Each rank has one query and its key; the other rank's key is the negative one.
func ExampleInfoNCE() {
	exampleRanks(func(ctx context.Context, mesh *dtensor.Mesh) error {
		vectors := tensor.FromSlice(mesh.Device(), []float32{1, 0, 0, 1}, 2, 2)
		queries := dtensor.Distribute(mesh, vectors, layout.Shard(0))
		keys := dtensor.Distribute(mesh, vectors, layout.Shard(0))
		value, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			return loss.InfoNCE(queries, keys, loss.InfoNCEOptions{Temperature: 1}) // ln(e + 1) - 1
		}, queries, keys)
		if err == nil && mesh.Comm().Rank() == 0 {
			fmt.Printf("%.4f\n", value.Local().Item())
		}
		return err
	})
	// Output: 0.3133
}
