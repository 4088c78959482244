package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/tensor/cuda/cudatest"
)

// stageNone has the smallest calls go from GPU to GPU, and reductions folded there.
const stageNone = "GORUN_CUDA_STAGE=0"

// TestOnGPURanks runs every case with tensors in the memory of fake GPUs, which the
// process cannot touch: the kernels of tensor/cuda, and collectives that read the memory
// of the other ranks' GPUs and fold there. With GORUN_TEST_GPU=1 it uses the machine's
// GPUs, and more numbers of ranks.
func TestOnGPURanks(t *testing.T) {
	bin := build(t)
	if onMachines() {
		for _, n := range []string{"1", "2", "4"} {
			onGPU(t, bin, n, append(os.Environ(), stageNone), "tensors on GPUs", "-bfloat16", "testdata")
		}
		return
	}
	const want = "collectives read the memory of the other ranks' GPUs, and reductions are folded on the GPUs"
	env := append(fakeGPUs(t), stageNone, "GORUN_CUDA_POOL=0") // the fake driver looks for accesses outside what is allocated
	onGPU(t, bin, "2", env, want, "-bfloat16", "testdata")
	onGPU(t, bin, "5", env, want, "-bfloat16", "testdata/redistribute.jsonl")
}

// onMachines reports whether the tests are to use the machine's GPUs.
func onMachines() bool { return os.Getenv("GORUN_TEST_GPU") == "1" }

// fakeGPUs is an environment with them.
func fakeGPUs(t *testing.T) []string {
	return append(os.Environ(), "GORUN_CUDA_LIB="+cudatest.Library(t), "GORUN_CUBLAS_LIB=none")
}

// TestStagedOnGPURanks runs some cases where collectives are staged: since they are to
// be, and since the GPU of one rank cannot map the memory of others; and where only
// reductions are.
func TestStagedOnGPURanks(t *testing.T) {
	bin := build(t)
	if onMachines() {
		onGPU(t, bin, "2", append(os.Environ(), "GORUN_CUDA_IPC=0"), `"reason":"rank 0: GORUN_CUDA_IPC is 0"`, "testdata")
		return
	}
	for variable, reason := range map[string]string{
		"GORUN_CUDA_IPC=0":  `"reason":"rank 0: GORUN_CUDA_IPC is 0"`,
		"GORUN_FAKE_IPC=1":  `"reason":"rank 1: a trial failed: to map memory of rank 0's device: `,
		"GORUN_CUDA_FOLD=0": "collectives read the memory of the other ranks' GPUs, but for reductions, which are staged",
	} {
		env := append(fakeGPUs(t), variable, stageNone)
		onGPU(t, bin, "3", env, reason, "-bfloat16", "testdata/redistribute.jsonl", "testdata/cross_entropy.jsonl")
		onGPU(t, bin, "3", env, reason, "testdata/embedding.jsonl") // those of bfloat16 take long
	}
}

// TestChoiceOfDevice holds what gorun --gpus and a program's own wish come to.
func TestChoiceOfDevice(t *testing.T) {
	bin := build(t)
	fake := []string{"GORUN_CUDA_LIB=" + cudatest.Library(t), "GORUN_CUBLAS_LIB=none"}
	none := []string{"GORUN_CUDA_LIB=none.so"}
	const onGPUs, passed = "tensors on GPUs", "passed, 0 failed"
	for _, c := range []struct {
		env, gpus, program []string
		want, not          string
	}{
		{fake, nil, nil, passed, onGPUs},
		{fake, []string{"--gpus", "auto"}, nil, onGPUs, "1 failed"},
		{fake, []string{"--gpus", "0"}, nil, onGPUs, "1 failed"},
		{fake, []string{"--gpus", "auto"}, []string{"-device", "cpu"}, passed, onGPUs},
		{fake, []string{"--gpus", "7"}, []string{"-device", "cuda"}, "CUDA_VISIBLE_DEVICES=7 (gorun --gpus sets it) leaves no GPU", passed},
		{fake, []string{"--gpus", "none"}, []string{"-device", "cuda"}, "GORUN_GPUS is none: start it without --gpus none", passed},
		{none, []string{"--gpus", "auto"}, nil, passed, onGPUs},
		{none, []string{"--gpus", "0"}, nil, "none.so", passed},
	} {
		args := slices.Concat([]string{"-np", "2"}, c.gpus, []string{filepath.Join(bin, "conformance")}, c.program,
			[]string{"testdata/relu.jsonl"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, filepath.Join(bin, "gorun"), args...)
		cmd.Env = append(os.Environ(), c.env...)
		out, _ := cmd.CombinedOutput()
		cancel()
		if s := string(out); !strings.Contains(s, c.want) || strings.Contains(s, c.not) {
			t.Errorf("%v, %v: want %q and not %q:\n%s", c.env, args, c.want, c.not, s)
		}
	}
}

// TestGPUsThroughMPI hands addresses of a fake GPU, which the process can touch, to
// real MPI libraries that are said to be CUDA-aware, and none to ones that are said
// not to be. With GORUN_TEST_GPU=1 it has every case of the machine's GPUs go through
// the MPI libraries that there are, whatever they say.
func TestGPUsThroughMPI(t *testing.T) {
	bin := build(t)
	if onMachines() {
		for _, launcher := range [][]string{{"mpirun", "-np"}, {"mpiexec.hydra", "-n"}} {
			if _, err := exec.LookPath(launcher[0]); err == nil {
				throughMPI(t, launcher, "2", append(os.Environ(), stageNone, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"),
					"tensors on GPUs", filepath.Join(bin, "conformance"), "-resize", "-device", "cuda", "testdata")
			}
		}
		return
	}
	env := fakeGPUs(t)
	for _, launcher := range [][]string{
		{"mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-np"},
		{"mpiexec.hydra", "-n"},
	} {
		testenv.NeedPrograms(t, launcher[0])
		for _, c := range []struct {
			env   []string
			ranks string
			cases []string
			want  string
		}{
			{[]string{"GORUN_FAKE_REACHABLE=1", "GORUN_MPI_CUDA=1", stageNone}, "2", []string{"redistribute", "embedding"},
				"collectives hand addresses of GPUs to MPI, and reductions are folded on the GPUs"},
			{[]string{"GORUN_FAKE_REACHABLE=1", "GORUN_MPI_CUDA=1", stageNone}, "5", []string{"redistribute"},
				"collectives hand addresses of GPUs to MPI, and reductions are folded on the GPUs"},
			{[]string{"GORUN_MPI_CUDA=0"}, "2", []string{"redistribute"}, `"reason":"rank 0: GORUN_MPI_CUDA is 0"`},
		} {
			args := []string{filepath.Join(bin, "conformance"), "-resize", "-device", "cuda"}
			for _, name := range c.cases {
				args = append(args, "testdata/"+name+".jsonl")
			}
			throughMPI(t, launcher, c.ranks, slices.Concat(env, c.env), c.want, args...)
		}
	}
}

// throughMPI has a launcher start ranks of a program, whose cases must all pass, and
// looks for a line in what is said.
func throughMPI(t *testing.T, launcher []string, ranks string, env []string, want string, program ...string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, launcher[0], slices.Concat(launcher[1:], []string{ranks}, program)...)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if s := string(out); err != nil || !passed.MatchString(s) || strings.Count(s, want) != 1 {
		t.Errorf("%v: %v, want %q once:\n%s", cmd, err, want, s)
	}
}

// onGPU runs cases on GPUs, all of which must pass, and looks for a line in what is said.
func onGPU(t *testing.T, bin, ranks string, env []string, want string, args ...string) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "gorun"),
		append([]string{"-np", ranks, filepath.Join(bin, "conformance"), "-resize", "-device", "cuda"}, args...)...)
	cmd.Env = env
	out, _ := cmd.CombinedOutput()
	var failed []string
	for _, m := range regexp.MustCompile(`(?m)^(\w+_\d+)(@\w+)*: rank`).FindAllStringSubmatch(string(out), -1) {
		failed = append(failed, m[1])
	}
	if !regexp.MustCompile(`(?m)^\d{3,} passed, 0 failed$`).Match(out) || len(failed) > 0 || strings.Count(string(out), want) != 1 {
		t.Errorf("%v: want %q once, failed %v\n%s", cmd, want, failed, out)
	}
}
