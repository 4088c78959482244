package optim_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/cuda"
	"github.com/gorun-spmd/gorun/tensor/cuda/cudatest"
)

// TestStepsOnAGPU compares steps on a GPU, a fake one, with the loops of oracle_test.go.
func TestStepsOnAGPU(t *testing.T) {
	t.Setenv("GORUN_CUDA_LIB", cudatest.Library(t))
	t.Setenv("GORUN_CUBLAS_LIB", "none")
	drv, err := cuda.Load()
	if err != nil {
		t.Fatal(err)
	}
	dev, err := drv.Open(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	commtest.Run(t, 1, func(ctx context.Context, world *comm.Comm) error {
		world.Attr(tensor.OpenerKey, func() any { return func() tensor.Device { return dev } })
		m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "a", Size: 1})
		if err != nil {
			return err
		}
		if m.Device() != tensor.Device(dev) {
			return fmt.Errorf("the mesh is on %v", m.Device())
		}
		for _, k := range kinds {
			for _, dt := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16} {
				for _, sparse := range []bool{false, true} {
					var failed error
					err := dtensor.Try(ctx, m, func() { failed = k.check(m, dt, sparse, []layout.Placement{replicate}) })
					if err != nil || failed != nil {
						t.Errorf("%s, %v, sparse %v: %v %v", k.name, dt, sparse, err, failed)
					}
				}
			}
		}
		return nil
	})
}
