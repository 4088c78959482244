//go:build linux

package runtime

import (
	"context"
	"testing"

	"github.com/gorun-spmd/gorun/internal/job"
)

func TestTerminalOfTheLauncher(t *testing.T) {
	ctx := context.WithValue(context.Background(), rankKey{}, &rank{job: job.Job{Size: 1, LocalSize: 1, Columns: 77}})
	if columns, ok := Terminal(ctx); !ok || columns() != 77 {
		t.Errorf("Terminal = %v, want 77 columns", ok)
	}
}
