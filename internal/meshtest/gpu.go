package meshtest

import (
	"context"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/cuda"
	"github.com/gorun-spmd/gorun/tensor/cuda/cudatest"
)

// OnGPU calls f with a mesh of one rank whose tensors live on a GPU, a fake one.
func OnGPU(t *testing.T, f func(ctx context.Context, m *dtensor.Mesh) error) {
	t.Helper()
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
	on(t, []int{1}, func(world *comm.Comm) {
		world.Internals().Attr(tensor.OpenerKey{}, func() any { return func() tensor.Device { return dev } })
	}, f)
}
