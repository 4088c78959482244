package dtensor_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// Matrices that Cholesky and Solve cannot factorize are refused on every rank, by their place, however they lie.
func TestMatricesWithoutAFactorization(t *testing.T) {
	// The second of two matrices is singular, and not positive definite.
	matrices := []float64{2, 1, 1, 3, 1, 2, 2, 4}
	for _, place := range []layout.Placement{layout.Replicate(), layout.Shard(0), layout.Shard(1)} {
		for want, f := range map[string]func(x, b *dtensor.Tensor) *dtensor.Tensor{
			"Cholesky: x [2, 2, 2]": func(x, b *dtensor.Tensor) *dtensor.Tensor { return x.Cholesky() },
			"Solve: x [2, 2, 2]":    func(x, b *dtensor.Tensor) *dtensor.Tensor { return x.Solve(b) },
		} {
			onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
				try := func(list []float64) error {
					return dtensor.Try(ctx, m, func() {
						x := dtensor.Distribute(m, tensor.FromSlice(m.Device(), list, 2, 2, 2), place)
						f(x, dtensor.Full(m, tensor.Float64, 1, []int{2, 2, 3}, layout.Shard(2))).Full()
					})
				}
				if err := try([]float64{2, 1, 1, 3, 3, 1, 1, 2}); err != nil {
					return fmt.Errorf("of regular matrices: %w", err)
				}
				err := try(matrices)
				if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "the matrix at [1] ") {
					return fmt.Errorf("%v: got %v", place, err)
				}
				return nil
			})
		}
	}
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error { // Slogdet has no trouble with one, nor has its gradient
		x := dtensor.Zeros(m, tensor.Float64, []int{2, 2}, layout.Replicate())
		_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			_, logabs := x.Slogdet()
			return logabs.Sum(nil, false)
		}, x)
		return err
	})
}
