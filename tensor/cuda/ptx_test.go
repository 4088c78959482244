package cuda

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPTXIsOfItsSource holds kernels/*.cu, kernels/*.ptx and the machine code together
// where there is no nvcc.
func TestPTXIsOfItsSource(t *testing.T) {
	t.Setenv("GORUN_CUDA_PTX", "0")
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("kernels", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	sources, _ := filepath.Glob("kernels/*.cu")
	var want strings.Builder
	for _, path := range sources {
		name := filepath.Base(path)
		base := strings.TrimSuffix(name, ".cu")
		fmt.Fprintf(&want, "%s %x %x", name, sha256.Sum256([]byte(read("common.h")+read("ops.h")+read(name))),
			sha256.Sum256([]byte(read(base+".ptx"))))
		for _, capability := range []string{"8.6", "9.0"} {
			files, err := machineCode(capability)
			if err != nil {
				t.Fatal(err)
			}
			code, err := fs.ReadFile(files, base+".cubin")
			if err != nil {
				t.Error(err)
			}
			fmt.Fprintf(&want, " %x", sha256.Sum256(code))
		}
		fmt.Fprintln(&want)
	}
	if got := read("SUMS"); got != want.String() || len(sources) < 5 {
		t.Errorf("kernels/SUMS is\n%swant\n%srun go generate ./tensor/cuda (make deps-ptx installs nvcc)", got, want.String())
	}
}

// TestPTXIsForItsDriver holds what Open asks of a driver and a device to what the PTX
// is made for: PTX 7.x is that of CUDA 11.x.
func TestPTXIsForItsDriver(t *testing.T) {
	files, _ := filepath.Glob("kernels/*.ptx")
	want := fmt.Sprintf(".version 7.%d\n.target sm_%d0\n", leastVersion%1000/10, leastMajor)
	for _, name := range files {
		if text, err := os.ReadFile(name); err != nil || !strings.Contains(string(text), want) || leastVersion/1000 != 11 {
			t.Errorf("%s does not say %q (%v)", name, want, err)
		}
	}
}

// TestEveryKernelIsLoaded loads every kernel, so that the fake driver compares its
// parameters in the PTX with those of the source, and says which ones nothing calls.
func TestEveryKernelIsLoaded(t *testing.T) {
	dev := openGPU(t, false)
	files, _ := filepath.Glob("*.go")
	var code strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	typed := regexp.MustCompile(`_(f32|f64|bf16)$`)
	for name := range dev.modules.file {
		if _, err := dev.find(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(code.String(), `kernel("`+name+`")`) && !strings.Contains(code.String(), `find("`+name+`")`) &&
			!strings.Contains(code.String(), `typed("`+typed.ReplaceAllString(name, "")+`"`) {
			t.Errorf("nothing calls kernel %s", name)
		}
	}
	if len(dev.modules.file) < 80 {
		t.Errorf("%d kernels", len(dev.modules.file))
	}
}
