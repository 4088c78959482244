package stack

import (
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestProgramsAreNoLibraries(t *testing.T) {
	_, here, _, _ := runtime.Caller(0)
	root := strings.TrimSuffix(here, "internal/stack/stack_test.go")
	for _, test := range []struct {
		function, file, within string
		want                   bool
	}{
		{"main.run.Queue.func1", root + "comm/window/shared.go", "comm", true}, // inlined
		{"main.run.Queue.func1", root + "comm/window/shared.go", "dtensor", false},
		{"main.run", root + "examples/train/main.go", "", false},
		{"main.run", root + "runtime/testdata/rank/main.go", "", false},
		{"example.org/gorun/dtensor.(*Tensor).MatMul", "dtensor/op_matmul.go", "", true},
		{"example.org/gorun/nn.(*Linear).Forward", "nn/linear.go", "", true},
		{"example.org/gorun/nn.TestLinear", "nn/linear_test.go", "", false},
		{"example.org/gorun/examples/train/internal/dataset.Parse", "dataset/parse.go", "", false},
		{"example.org/gorun/bench/loss.run", "bench/loss/main.go", "", false},
		{"example.org/gorunner/model.Forward", "model/model.go", "", false},
		{"example.org/gorun/dtensor/layout.F", "layout/plan.go", "", true},
		{"example.org/gorun/examples/nn.F", "nn/main.go", "", false},
		{"nn.F", "nn/nn.go", "", false},
		{"example.org/gorun/comm/shm.(*Rank).Do", "shm/rank.go", "comm", true},
		{"example.org/gorun/comm/commtest.F", "commtest/suite.go", "comm", false},
		{"example.org/gorun/nn.F", "nn/nn.go", "comm", false},
		{"main.main", "main.go", "", false},
	} {
		if got := library(runtime.Frame{Function: test.function, File: test.file}, "example.org/gorun", test.within); got != test.want {
			t.Errorf("%s: got %v, want %v", test.function, got, test.want)
		}
	}
}

// Go's own functions that a library or a program passes a function to are not the program's lines.
func TestLinePassesOverGo(t *testing.T) {
	var pcs []uintptr
	_ = slices.ContainsFunc([]int{0}, func(int) bool {
		pcs = make([]uintptr, Depth)
		pcs = pcs[:runtime.Callers(2, pcs)] // from ContainsFunc on
		return true
	})
	if got := Line(pcs, ""); !strings.HasPrefix(got, "stack/stack_test.go:") {
		t.Errorf("the line is %q, want that of this test", got)
	}
}
