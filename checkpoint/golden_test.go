package checkpoint

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
)

// writeGolden makes testdata/v1, once:
//
//	go test ./checkpoint -run TestFormatVersion1 -write-golden
//
// What is there is never written again: it stands for the checkpoints that
// people have.
var writeGolden = flag.Bool("write-golden", false, "write testdata/v1 if it is not there")

func TestFormatVersion1(t *testing.T) {
	dir := filepath.Join("testdata", "v1")
	if *writeGolden {
		if _, err := os.Stat(dir); err == nil {
			t.Fatalf("%s is there already; the next version of the format gets a folder of its own", dir)
		}
		save(t, osFS{}, dir, settings()[6], 123, tensor.Float32, Options{blockBytes: 64, Properties: map[string]string{"run": "golden"}})
	}
	if err := Verify(filepath.Join(dir, "step-000123")); err != nil {
		t.Error(err)
	}
	for _, s := range settings() {
		onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
			all := full(m, s, tensor.Float32, true)
			state := stateOf(all)
			step := 0
			state.AddValue("step", &step)
			if err := Load(ctx, world, filepath.Join(dir, "step-000123"), state, LoadOptions{}); err != nil {
				return err
			}
			if step != 123 {
				t.Errorf("step %d", step)
			}
			return same(all)
		})
	}
}
