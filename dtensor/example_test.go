package dtensor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// Two ranks hold a tensor by rows, then by columns, then each as a whole.
func ExampleTensor_Redistribute() {
	meshtest.Example(2, func(ctx context.Context, mesh *dtensor.Mesh) error {
		x := dtensor.Distribute(mesh, tensor.Arange(mesh.Device(), tensor.Float32, 0, 6).Reshape(2, 3), layout.Shard(0))
		for _, y := range []*dtensor.Tensor{x, x.Redistribute(layout.Shard(1)), x.Redistribute(layout.Replicate())} {
			if mesh.Comm().Rank() == 1 {
				fmt.Println(y.Layout(), y.Local())
			}
		}
		return nil
	})
	// Output:
	// [2, 3] S(0) float32[1 3]{3 4 5}
	// [2, 3] S(1) float32[2 1]{2 5}
	// [2, 3] R float32[2 3]{0 1 2 3 4 5}
}

// A matrix product works on the shards as they lie. Where it has to add over ranks it
// says so: the sum is Partial until somebody wants it.
func ExampleTensor_MatMul() {
	meshtest.Example(2, func(ctx context.Context, mesh *dtensor.Mesh) error {
		a := dtensor.Full(mesh, tensor.Float32, 1, []int{2, 4}, layout.Shard(1))
		b := dtensor.Full(mesh, tensor.Float32, 1, []int{4, 2}, layout.Shard(0))
		c := a.MatMul(b)
		whole := c.Full() // one all-reduce
		if mesh.Comm().Rank() == 0 {
			fmt.Println(c.Layout(), c.Local())
			fmt.Println(whole)
		}
		return nil
	})
	// Output:
	// [2, 2] P(sum) float32[2 2]{2 2 2 2}
	// float32[2 2]{4 4 4 4}
}

// The two layers of an MLP, column-parallel and row-parallel: one all-reduce forward,
// none backward. Gradients lie as their parameters do.
func ExampleValueAndGrad() {
	meshtest.Example(2, func(ctx context.Context, mesh *dtensor.Mesh) error {
		x := dtensor.Full(mesh, tensor.Float32, 1, []int{3, 2}, layout.Replicate())     // [B, C]
		up := dtensor.Full(mesh, tensor.Float32, 0.5, []int{8, 2}, layout.Shard(0))     // [H, C]
		down := dtensor.Full(mesh, tensor.Float32, 0.125, []int{2, 8}, layout.Shard(1)) // [C, H]
		value, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			h := x.Linear(up, nil).Relu()      // [B, H] S(1)
			y := h.Linear(down, nil).Reduced() // [B, C] P(sum) → R
			return y.Square().Mean(nil, false)
		}, up, down)
		if err == nil && mesh.Comm().Rank() == 0 {
			fmt.Println(value.Local().Item())
			fmt.Println(grads[0].Dense().Layout(), grads[1].Dense().Layout())
		}
		return err
	})
	// Output:
	// 1
	// [8, 2] S(0) [2, 8] S(1)
}

// The second derivative of x³ is 6·x, and its gradient by x is 6.
func ExampleGradients() {
	meshtest.Example(2, func(ctx context.Context, mesh *dtensor.Mesh) error {
		x := dtensor.Arange(mesh, tensor.Float32, 1, 4, layout.Shard(0)) // 1 to 4
		slope := func() *dtensor.Tensor {
			return dtensor.Gradients(func() *dtensor.Tensor { return x.PowScalar(3).Sum(nil, false) }, x)[0]
		}
		var second *dtensor.Tensor
		_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			second = dtensor.Gradients(func() *dtensor.Tensor { return slope().Sum(nil, false) }, x)[0]
			dtensor.Keep(second)
			return second.Sum(nil, false)
		}, x)
		if err != nil {
			return err
		}
		return dtensor.Try(ctx, mesh, func() {
			numbers, third := tensor.ToSlice[float32](second.Full()), tensor.ToSlice[float32](grads[0].Dense().Full())
			if mesh.Comm().Rank() == 0 {
				fmt.Println(numbers, third)
			}
		})
	})
	// Output:
	// [6 12 18 24] [6 6 6 6]
}

// Operands that do not fit together are an error that says what to do, the same on
// every rank.
func ExampleTry() {
	meshtest.Example(2, func(ctx context.Context, mesh *dtensor.Mesh) error {
		a := dtensor.Zeros(mesh, tensor.Float32, []int{2, 3}, layout.Shard(0))
		b := dtensor.Zeros(mesh, tensor.Float32, []int{4, 2}, layout.Replicate())
		err := dtensor.Try(ctx, mesh, func() { a.MatMul(b) })
		var misfit *dtensor.LayoutError
		if errors.As(err, &misfit) && mesh.Comm().Rank() == 0 {
			fmt.Println(strings.ReplaceAll(misfit.Error(), ": ", ":\n")) // err has the line of the call, too
		}
		return nil
	})
	// Output:
	// dtensor:
	// MatMul:
	// a [2, 3] S(0) on (tp=2), b [4, 2] R on (tp=2):
	// the last size of a is 3, and b has 4 rows; make them equal; Transpose(-2, -1) turns a matrix
}
