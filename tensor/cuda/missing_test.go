package cuda

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A kernel that is asked for what it does not have fails, and computes nothing else. Each
// runs in a process of its own: a device is of no use after it.
func TestMissingOperators(t *testing.T) {
	const n = 8
	type launches map[string]func(g *Device, f32, f64, half, integers *tensor.Tensor)
	loop := kernel.Loop{N: 1, Size: [kernel.MaxDims]int{n}, A: [kernel.MaxDims]int{1}, B: [kernel.MaxDims]int{1}, C: [kernel.MaxDims]int{1}}
	unary, binary := kernel.UnaryOp(len(kernel.UnaryOps())), kernel.BinaryOp(len(kernel.BinaryOps()))
	list := launches{
		"unary_f32": func(g *Device, f32, _, _, _ *tensor.Tensor) { g.Unary(unary, tensor.Float32, f32.Ptr(), f32.Ptr(), n) },
		"unary_f64": func(g *Device, _, f64, _, _ *tensor.Tensor) { g.Unary(unary, tensor.Float64, f64.Ptr(), f64.Ptr(), n) },
		"unary_bf16": func(g *Device, _, _, half, _ *tensor.Tensor) {
			g.Unary(unary, tensor.BFloat16, half.Ptr(), half.Ptr(), n)
		},
		"unary_int": func(g *Device, _, _, _, integers *tensor.Tensor) {
			g.Unary(unary, tensor.Int64, integers.Ptr(), integers.Ptr(), n)
		},
		"unary_grad_f32": func(g *Device, x, _, _, _ *tensor.Tensor) {
			g.UnaryGrad(unary, tensor.Float32, x.Ptr(), kernel.Slope{DY: x.Ptr(), X: x.Ptr(), Y: x.Ptr()}, n)
		},
		"binary_f32": func(g *Device, x, _, _, _ *tensor.Tensor) {
			g.Binary(binary, tensor.Float32, x.Ptr(), x.Ptr(), x.Ptr(), n)
		},
		"binary_int": func(g *Device, _, _, _, x *tensor.Tensor) {
			g.Binary(binary, tensor.Int64, x.Ptr(), x.Ptr(), x.Ptr(), n)
		},
		"binary_loop_f64": func(g *Device, _, x, _, _ *tensor.Tensor) {
			g.BinaryLoop(binary, tensor.Float64, x.Ptr(), x.Ptr(), x.Ptr(), loop)
		},
		"binary_scalar_bf16": func(g *Device, _, _, x, _ *tensor.Tensor) {
			g.BinaryScalar(binary, tensor.BFloat16, x.Ptr(), x.Ptr(), kernel.Number{Value: 1}, n)
		},
		"compare_loop": func(g *Device, x, y, _, _ *tensor.Tensor) {
			g.CompareLoop(kernel.CompareOp(len(kernel.CompareOps())), tensor.Float32, y.Ptr(), x.Ptr(), x.Ptr(), loop)
		},
		"reduce_f32": func(g *Device, x, y, _, _ *tensor.Tensor) {
			g.Reduce(kernel.ReduceOp(len(kernel.ReduceOps())), tensor.Float32, y.Ptr(), x.Ptr(), kernel.Axis{Outer: 1, N: n, Inner: 1})
		},
		"row_stat_f32": func(g *Device, x, y, _, _ *tensor.Tensor) {
			g.RowStat(kernel.RowOp(len(kernel.RowOps())), tensor.Float32, y.Ptr(), x.Ptr(), kernel.Matrix{Rows: 1, Cols: n}, 2)
		},
		"random_numbers": func(g *Device, x, _, _, _ *tensor.Tensor) {
			g.Random(kernel.RandomNumbers{Op: kernel.RandomOp(len(kernel.RandomOps())), DType: tensor.Float32, B: 1, Most: 1}, x.Ptr(), loop)
		},
		"where": func(g *Device, x, y, _, _ *tensor.Tensor) { g.Where(3, x.Ptr(), x.Ptr(), x.Ptr(), y.Ptr(), loop) },
		"cast":  func(g *Device, x, y, _, _ *tensor.Tensor) { g.Cast(99, y.Ptr(), tensor.Float32, x.Ptr(), n) },
	}
	name := os.Getenv("GORUN_TEST_MISSING")
	if name == "" {
		openGPU(t, false) // builds the driver, or skips
		for name := range list {
			cmd := exec.Command(os.Args[0], "-test.run", "^TestMissingOperators$", "-test.v")
			cmd.Env = append(os.Environ(), "GORUN_TEST_MISSING="+name)
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
				t.Errorf("%s: %v\n%s", name, err, out)
			}
		}
		return
	}
	dev := openGPU(t, false)
	of := func(dt tensor.DType) *tensor.Tensor { return tensor.Full(dev, dt, 1, 2*n) }
	f32, f64, half, integers := of(tensor.Float32), of(tensor.Float64), of(tensor.BFloat16), of(tensor.Int64)
	err := caught(func() {
		list[name](dev, f32, f64, half, integers)
		dev.Sync()
	})
	runtime.KeepAlive([]*tensor.Tensor{f32, f64, half, integers})
	var bad *Error
	if !errors.As(err, &bad) || !strings.Contains(err.Error(), name) {
		t.Fatalf("%v", err)
	}
	println("PASS")
	os.Exit(0) // what openGPU has to do at the end would fail
}
