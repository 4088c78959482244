// Package cudatest builds a fake CUDA driver, for tests without a GPU: a shared library
// with libcuda's and cuBLAS's entry points that runs the kernels of tensor/cuda,
// compiled for the CPU, over the memory of the process. fake/driver.cc lists what it
// checks beyond a real driver, fake/check.cc the races and wrong accesses of kernels that
// it reports.
package cudatest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gorun-spmd/gorun/internal/testenv"
)

// Library returns the path of the fake driver, for GORUN_CUDA_LIB and
// GORUN_CUBLAS_LIB. The test needs a C++ compiler.
func Library(t testing.TB) string {
	t.Helper()
	path, err := Build()
	if errors.Is(err, exec.ErrNotFound) {
		testenv.Missing(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Build returns the path of the fake driver. It builds it unless there is one of the same
// source and compiler.
func Build() (string, error) {
	compiler, err := exec.LookPath("g++")
	if err != nil {
		return "", fmt.Errorf("the fake CUDA driver needs g++: %w", err)
	}
	_, here, _, _ := runtime.Caller(0)
	fake := filepath.Join(filepath.Dir(here), "fake")
	sources, _ := filepath.Glob(filepath.Join(fake, "*.c[cu]"))
	kernels, _ := filepath.Glob(filepath.Join(fake, "../../kernels/*.cu"))
	headers, _ := filepath.Glob(filepath.Join(fake, "*.h"))
	common, _ := filepath.Glob(filepath.Join(fake, "../../kernels/*.h"))
	sources = append(sources, kernels...)
	version, err := exec.Command(compiler, "--version").Output()
	if err != nil {
		return "", err
	}
	flags := []string{"-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-U_FORTIFY_SOURCE", "-ffp-contract=off", "-Werror=switch"}
	// The kernels' accesses are seen by fake/check.cc, each as it stands in the source.
	seen := []string{"-g1", "-fsanitize=thread", "--param=tsan-distinguish-volatile=1", "-fsanitize=bounds-strict", "-fno-tree-vectorize",
		"-fno-tree-slp-vectorize", "-fno-optimize-sibling-calls"}
	sum := sha256.New()
	fmt.Fprintln(sum, string(version), flags, seen)
	for _, path := range slices.Concat(sources, headers, common) {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n%s", filepath.Base(path), len(text), text)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	lib := filepath.Join(cache, "gorun", fmt.Sprintf("fakecuda-%x.so", sum.Sum(nil)[:8]))
	if err := os.MkdirAll(filepath.Dir(lib), 0o777); err != nil {
		return "", err
	}
	release, err := testenv.Lock(filepath.Dir(lib)) // tests of several packages begin at once
	if err != nil {
		return "", err
	}
	defer release()
	if _, err := os.Stat(lib); err == nil {
		return lib, nil
	}
	work, err := os.MkdirTemp(filepath.Dir(lib), "build")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	compile := func(args ...string) error {
		if out, err := exec.Command(compiler, append(slices.Clone(flags), args...)...).CombinedOutput(); err != nil {
			return fmt.Errorf("g++ %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	objects, failures := make([]string, len(sources)), make([]error, len(sources))
	var wg sync.WaitGroup
	room := make(chan struct{}, runtime.NumCPU())
	for i, path := range sources {
		objects[i] = filepath.Join(work, filepath.Base(path)+".o")
		wg.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			args := []string{"-I", fake, "-c", path, "-o", objects[i]}
			if strings.HasSuffix(path, ".cu") {
				args = append(slices.Concat(seen, []string{"-x", "c++", "-include", "shim.h"}), args...)
			}
			failures[i] = compile(args...)
		})
	}
	wg.Wait()
	if err := errors.Join(failures...); err != nil {
		return "", err
	}
	made := filepath.Join(work, "made.so")
	if err := compile(append(objects, "-shared", "-o", made)...); err != nil {
		return "", err
	}
	return lib, os.Rename(made, lib)
}
