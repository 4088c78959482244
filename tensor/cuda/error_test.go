package cuda

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/cuda/cudatest"
	"github.com/gorun-spmd/gorun/tensor/kernel"
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

// TestHoldsWhatIsAllocated has two goroutines allocate and free at once, as a tensor's
// clean-up and a collective do: one is given addresses that the other has just freed.
func TestHoldsWhatIsAllocated(t *testing.T) {
	stage := openGPU(t, false).Stage()
	var wg sync.WaitGroup
	for _, bytes := range []int{3900, 4096} {
		wg.Go(func() {
			for range 3000 {
				p, err := stage.Alloc(bytes)
				if err != nil || !stage.Holds(unsafe.Add(p, bytes-1)) {
					t.Errorf("%p to %d bytes on are not the device's (%v)", p, bytes, err)
					return
				}
				stage.Free(p, bytes)
			}
		})
	}
	wg.Wait()
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
		tensor.ToSlice[float32](tensor.Unary(kernel.OpExp, tensor.Unary(kernel.OpNeg, x)))
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

// TestWhatDoesNotFit holds what is said of a driver or a device that cannot run the
// kernels, of a module that does not compile, and of a cuBLAS that does not start.
func TestWhatDoesNotFit(t *testing.T) {
	if os.Getenv("GORUN_TEST_GPU") == "1" {
		t.Skip("a real device is what it is")
	}
	lib := cudatest.Library(t)
	t.Setenv("GORUN_CUDA_LIB", lib)
	for _, c := range []struct{ variable, value, blas, want string }{
		{"GORUN_FAKE_VERSION", "11040", "none", "the driver knows CUDA 11.4 and the kernels need 11.8"},
		{"GORUN_FAKE_CAPABILITY", "75", "none", "cuda:1 (fake GPU 1) has compute capability 7.5 and the kernels need 8.0"},
		{"GORUN_FAKE_CUBLAS", "1", lib, "cublasCreate: status 1: it may be too new for this driver"},
		{"GORUN_FAKE_CUBLAS", "0", "/nowhere/libcublas.so", "GORUN_CUBLAS_LIB=/nowhere/libcublas.so: "},
		{"GORUN_FAKE_CAPABILITY", "90", lib, ""},
	} {
		t.Run(c.variable+"="+c.value, func(t *testing.T) {
			t.Setenv(c.variable, c.value)
			t.Setenv("GORUN_CUBLAS_LIB", c.blas)
			drv, err := Load()
			if err != nil {
				t.Fatal(err)
			}
			_, err = drv.Open(1, 0)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	dev := openGPU(t, false)
	if _, err := dev.compile("bad.ptx", []byte(".version 7.8")); err == nil ||
		!strings.Contains(err.Error(), "bad.ptx for compute capability 8.0: ") ||
		!strings.Contains(err.Error(), "CUDA_ERROR_INVALID_PTX") || !strings.HasSuffix(err.Error(), "ptxas fatal : a module without a kernel") {
		t.Errorf("%v", err)
	}
	defer dev.enter()()
	b, err := openBlas([]string{"/nowhere/libcublas.so.13", lib}, dev.stream)
	if err != nil || b == nil || b.name != lib {
		t.Errorf("the second library: %+v, %v", b, err)
	}
	if b, err := openBlas([]string{"/nowhere/libcublas.so.13", "/nowhere/libcublas.so.12"}, dev.stream); b != nil || err != nil {
		t.Errorf("no library: %+v, %v", b, err)
	}
}
