package cpu

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// An operator that a kernel lacks is told by its name: nothing else is computed.
func TestMissingOperators(t *testing.T) {
	x := []float32{1, 2}
	for _, c := range []struct {
		name string
		f    func()
	}{
		{"unary", func() { unary(kernel.UnaryOp(255), x, x) }},
		{"unary of integers", func() { unaryInt(kernel.UnaryOp(255), []int8{1}, []int8{2}) }},
		{"unary gradient", func() { unaryGrad(kernel.UnaryOp(255), x, x, x, x) }},
		{"binary", func() { float32s.vector(kernel.BinaryOp(255), x, x, x) }},
		{"binary of a number", func() { float32s.number(kernel.BinaryOp(255), x, x, 1, false) }},
		{"compare", func() { compareLoop[float32](kernel.CompareOp(255), nil, nil, nil, &kernel.Loop{N: 1}) }},
		{"reduce", func() { reduceRow32(kernel.ReduceOp(255), 0, x) }},
		{"reduce columns", func() { combine(kernel.ReduceOp(255), x, x) }},
		{"the start of a reduction", func() { float32s.start(kernel.ReduceOp(255)) }},
		{"rows", func() { rowOp(kernel.RowOp(255), x, 2) }},
		{"random", func() { randomValues(kernel.RandomOp(255), make([]float64, 1), []uint32{1}, 0, 1, 0, 1) }},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, "has no kernel for operator 255") {
					t.Errorf("%s: %s", c.name, got)
				}
			}()
			c.f()
		}()
	}
}
