package checkpoint

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/tensor"
)

// listed writes the operators of a step of some products, sums and other operators, on a mesh with weights that lie so along its last
// axis. A nudge is added to an operand of one of them.
func listed(t *testing.T, path string, shape []int, dt tensor.DType, p, q layout.Placement, nudge float64) {
	t.Helper()
	n := 1
	var axes []dtensor.Axis
	for i, size := range shape {
		axes, n = append(axes, dtensor.Axis{Name: string(rune('a' + i)), Size: size}), n*size
	}
	commtest.Run(t, n, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMesh(world, axes...)
		if err != nil {
			return err
		}
		m.SetSameBits(true)
		log, err := OpenDigestLog(ctx, world, path, false)
		if err != nil {
			return err
		}
		defer log.Close()
		normal := func(stream uint64, at int, p layout.Placement, shape ...int) *dtensor.Tensor {
			places := m.Every(layout.Replicate())
			places[at] = p
			return dtensor.Normal(m, dtensor.Key{Stream: stream}, 0, 1, shape, places...).Cast(dt)
		}
		last := len(axes) - 1
		x := normal(1, 0, layout.Shard(0), 6, 5, 64)
		params := []*dtensor.Tensor{normal(2, last, p, 1024, 64), normal(3, last, layout.Replicate(), 1024), normal(4, last, q, 33, 1024),
			normal(5, last, layout.Replicate(), 33), normal(6, last, layout.Replicate(), 33)}
		if err := log.Operators(m); err != nil {
			return err
		}
		value, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			h := x.Linear(params[0], params[1]).Gelu().Linear(params[2], params[3]).LayerNorm(params[4], params[3], 1e-5)
			h = dtensor.Recompute(func(h *dtensor.Tensor) *dtensor.Tensor { return h.Tanh().Add(h) }, h)
			h = dtensor.Cat(1, h, h.Narrow(1, 1, 2)).Transpose(0, 1)
			h = h.MatMul(h.Transpose(1, 2)).Softmax(-1).AddScalar(nudge)
			return h.Reshape(42, 6).Mean([]int{0}, false).Add(h.LogSumExp([]int{0, 1}, false)).Cast(tensor.Float32).Square().Sum(nil, false)
		}, params...)
		if err != nil {
			return err
		}
		return log.Write(ctx, 1, value.Item(), &State{})
	})
}

// TestOperatorsOfAnyLayout compares the lists of operators of all meshes and placements, byte by byte, and finds the operator that differs.
func TestOperatorsOfAnyLayout(t *testing.T) {
	dir := t.TempDir()
	R, S := layout.Replicate(), layout.Shard
	for _, dt := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
		one := filepath.Join(dir, "one")
		listed(t, one, []int{1}, dt, R, R, 0)
		want, err := os.ReadFile(one)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(want), `"op":`); n < 40 {
			t.Errorf("only %d operators:\n%s", n, want)
		}
		_, want, _ = bytes.Cut(want, []byte("\n")) // the header says the number of ranks
		for _, shape := range testenv.Fewer([][]int{{1}, {2}, {3}, {2, 2}}, 2, 3) {
			for _, p := range testenv.Fewer([][2]layout.Placement{{R, R}, {S(0), S(1)}, {S(1), S(0)}}, 1) {
				other := filepath.Join(dir, "other")
				listed(t, other, shape, dt, p[0], p[1], 0)
				got, err := os.ReadFile(other)
				if err != nil {
					t.Fatal(err)
				}
				if _, got, _ = bytes.Cut(got, []byte("\n")); !bytes.Equal(got, want) {
					d, err := Diff(one, other)
					t.Errorf("mesh %v, %v, weights %v: %+v, %v\n%s\n%s", shape, dt, p, d, err, got, want)
				}
			}
		}
	}
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	listed(t, a, []int{2}, tensor.Float32, S(0), S(1), 0)
	listed(t, b, []int{3}, tensor.Float32, S(1), R, 1e-3)
	d, err := Diff(a, b)
	if err != nil || d.Operator == nil || d.Operator.Op != "AddScalar" || d.Operator.Backward || d.Operator.Other != "" ||
		!strings.Contains(d.Operator.Line, "operators_test.go") || d.Equal() {
		t.Errorf("a number was added: %+v, %v", d, err)
	}
}

// TestOperatorsOfPrograms compares lists of which one has another operator.
func TestOperatorsOfPrograms(t *testing.T) {
	entry := func(op, in, out string) operatorEntry {
		return operatorEntry{Op: op, Line: "x/y.go:1", Inputs: []string{in}, Output: out}
	}
	a := []operatorEntry{entry("Add", "1", "2"), entry("Mul", "2", "3"), entry("Exp", "3", "4")}
	for _, c := range []struct {
		b    []operatorEntry
		want string
	}{
		{a, "<nil>"},
		{nil, "<nil>"},
		{[]operatorEntry{a[0], entry("Mul", "2", "5"), entry("Exp", "5", "7")},
			"operator 2 of 3, Mul at x/y.go:1: its inputs are equal, its output is not"},
		{[]operatorEntry{entry("Add", "0", "9"), entry("Mul", "9", "8"), entry("Exp", "8", "7")}, "<nil>"},
		{[]operatorEntry{a[0], entry("Div", "2", "3"), a[2]}, "operator 2 is Mul at x/y.go:1 in A, Div at x/y.go:1 in B: the programs differ"},
		{a[:2], "operator 3 is Exp at x/y.go:1 in A, none in B: the programs differ"},
	} {
		d := &Difference{}
		d.operators(&digestLine{Operators: a}, &digestLine{Operators: c.b})
		if got := fmt.Sprint(d.Operator); got != c.want {
			t.Errorf("%v: %s, want %s", c.b, got, c.want)
		}
	}
}
