package optim_test

import (
	"context"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// TestStepsOnAGPU compares steps on a GPU with the loops of oracle_test.go.
func TestStepsOnAGPU(t *testing.T) {
	meshtest.OnGPU(t, func(_ context.Context, m *dtensor.Mesh) error {
		if tensor.OnHost(m.Device()) {
			t.Errorf("the mesh is on %v", m.Device())
		}
		for _, k := range kinds {
			for _, dt := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16} {
				for _, sparse := range []bool{false, true} {
					if err := k.check(m, dt, sparse, []layout.Placement{replicate}); err != nil {
						t.Errorf("%s, %v, sparse %v: %v", k.name, dt, sparse, err)
					}
				}
			}
		}
		return nil
	})
}
