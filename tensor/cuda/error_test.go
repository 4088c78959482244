package cuda

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// caught returns what f throws.
func caught(f func()) (err error) {
	defer fault.Catch(&err)
	f()
	return nil
}

func TestOutOfMemory(t *testing.T) {
	dev := openGPU(t, false)
	err := caught(func() { tensor.New(dev, tensor.Float32, 1<<40) })
	var full *MemoryError
	if !errors.As(err, &full) || full.Bytes < 1<<42 || full.Total == 0 || full.Free > full.Total {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"rank 0", "cuda:0", "out of memory", "bytes asked for", "this rank holds"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if x := tensor.Full(dev, tensor.Float32, 2, 3); tensor.ToSlice[float32](x)[2] != 2 {
		t.Error("the device cannot be used after it")
	}
}

// TestFailingKernel runs in a process of its own: a device is of no use after it.
func TestFailingKernel(t *testing.T) {
	if os.Getenv("GORUN_FAKE_FAIL") == "" {
		if os.Getenv("GORUN_TEST_GPU") == "1" {
			t.Skip("a real device does not fail when asked")
		}
		openGPU(t, false) // builds the driver, or skips
		for _, sync := range []string{"0", "1"} {
			cmd := exec.Command(os.Args[0], "-test.run", "^TestFailingKernel$", "-test.v")
			cmd.Env = append(os.Environ(), "GORUN_FAKE_FAIL=iota", "GORUN_CUDA_SYNC="+sync)
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
				t.Errorf("GORUN_CUDA_SYNC=%s: %v\n%s", sync, err, out)
			}
		}
		return
	}
	dev := openGPU(t, false)
	err := caught(func() {
		x := tensor.Arange(dev, tensor.Float32, 0, 10)
		tensor.ToSlice[float32](tensor.Exp(tensor.Neg(x)))
	})
	var bad *Error
	if !errors.As(err, &bad) || bad.Rank != 0 || bad.Name != "CUDA_ERROR_ILLEGAL_ADDRESS" {
		t.Fatalf("%v", err)
	}
	want := "unary_f32, unary_f32, iota"
	if os.Getenv("GORUN_CUDA_SYNC") == "1" {
		want = "in kernel iota"
	}
	if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "cuda:0 (") {
		t.Errorf("%q does not say %q", err, want)
	}
	if !t.Failed() {
		println("PASS")
		os.Exit(0) // what openGPU has to do at the end would fail
	}
}

func TestNoDriver(t *testing.T) {
	t.Setenv("GORUN_CUDA_LIB", "/nowhere/libcuda.so.1")
	if _, err := Load(); err == nil || !strings.Contains(err.Error(), "no CUDA driver") {
		t.Errorf("%v", err)
	}
}
