package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/tensor/cuda/cudatest"
)

func TestEveryBenchmarkRuns(t *testing.T) {
	var seen []result
	commtest.Run(t, 3, func(ctx context.Context, world *comm.Comm) error {
		for _, heap := range []bool{true, false} {
			err := measureAll(ctx, world, setting{largest: 64, memory: hostMemory(world, heap), budget: time.Millisecond}, func(r result) error {
				if world.Rank() == 0 {
					seen = append(seen, r)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if want := len(benchmarks()) + 3 + 4; len(seen) != 2*want { // and 3 on windows, 4 of messages
		t.Fatalf("%d results of %d benchmarks", len(seen), want)
	}
	for _, r := range seen {
		if r.NP != 3 || r.NS <= 0 || r.LoopNS <= 0 || (r.Bytes == 12) != (r.Name != "barrier") {
			t.Errorf("%+v", r)
		}
	}
}

// TestOnGPUs measures buffers in the memory of fake GPUs, each way that calls go. The process
// cannot touch this memory, unless an MPI library is said to take its addresses.
func TestOnGPUs(t *testing.T) {
	bin := t.TempDir()
	testenv.Build(t, bin, nil, "../../cmd/gorun", ".")
	fake := append(os.Environ(), "GORUN_CUDA_LIB="+cudatest.Library(t), "GORUN_CUBLAS_LIB=none")
	gorun := []string{filepath.Join(bin, "gorun"), "-np", "2"}
	mpirun := []string{"mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-np", "2"}
	for _, c := range []struct {
		launcher, env []string
		how           string
	}{
		{gorun, nil, "read the memory of the other ranks' GPUs, and reductions are folded"},
		{gorun, []string{"GORUN_CUDA_STAGE=1024"}, "read the memory of the other ranks' GPUs, and reductions are folded"},
		{gorun, []string{"GORUN_CUDA_FOLD=0"}, "but for reductions, which are staged"},
		{gorun, []string{"GORUN_CUDA_IPC=0"}, "collectives on GPUs are staged"},
		{mpirun, []string{"GORUN_FAKE_REACHABLE=1", "GORUN_MPI_CUDA=1", "GORUN_CUDA_STAGE=1024"},
			"hand addresses of GPUs to MPI, and reductions are folded"},
	} {
		t.Run(strings.Join(c.env, ","), func(t *testing.T) {
			testenv.NeedPrograms(t, c.launcher[0])
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			args := append(slices.Clone(c.launcher[1:]), filepath.Join(bin, "comm"), "-device", "cuda", "-json", "-max", "4096", "-time", "1ms")
			cmd := exec.CommandContext(ctx, c.launcher[0], args...)
			cmd.Env = append(slices.Clone(fake), c.env...)
			var log strings.Builder
			cmd.Stderr = &log
			out, err := cmd.Output()
			if err != nil || strings.Count(log.String(), c.how) != 1 {
				t.Fatalf("%v: %v, want %q once:\n%s", cmd, err, c.how, log.String())
			}
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			if len(lines) != 11 { // a barrier, and five collectives of 8 and 4096 bytes
				t.Errorf("%d lines:\n%s", len(lines), out)
			}
			for _, line := range lines {
				var r result
				if err := json.Unmarshal([]byte(line), &r); err != nil || r.NP != 2 || r.NS <= 0 || r.LoopNS <= 0 || strings.HasPrefix(r.Name, "work") {
					t.Errorf("%v: %s", err, line)
				}
			}
		})
	}
}
