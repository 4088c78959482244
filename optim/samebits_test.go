package optim_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// With SameBits steps of every optimizer leave the bits of one rank's in parameters and state, in every layout, with
// dense and with row-sparse gradients.
func TestStepsHaveTheSameBits(t *testing.T) {
	for _, k := range ofMatrices {
		shapes, types := [][]int{{12, 16}}, []tensor.DType{tensor.Float32, tensor.BFloat16}
		if k.name == "RowAdagrad" { // also with rows of more than a kernel sums up in one piece
			shapes, types = append(shapes, []int{4, 4104}), append(types, tensor.Float64)
		}
		for _, dt := range types {
			var want []string
			for _, mesh := range [][]int{{1, 1}, {2, 1}, {3, 1}, {2, 2}} {
				meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
					m.SetSameBits(true)
					for _, places := range [][]layout.Placement{{rowWise, replicate}, {colWise, replicate}, {rowWise, colWise}, {colWise, colWise}} {
						got, err := bitsOfSteps(m, &k, dt, shapes, places)
						if err != nil {
							return fmt.Errorf("%s, %v, mesh %v, %v: %w", k.name, dt, mesh, places, err)
						}
						if want == nil { // of one rank
							want = got
						}
						if i := slices.IndexFunc(got, func(s string) bool { return !slices.Contains(want, s) }); i >= 0 {
							return fmt.Errorf("%s, %v, mesh %v, %v: %s, on one rank %s", k.name, dt, mesh, places, got[i], want[i])
						}
					}
					return nil
				})
			}
		}
	}
}

// bitsOfSteps makes some steps of an optimizer with parameters of some shapes, and returns the numbers of all tensors.
func bitsOfSteps(m *dtensor.Mesh, k *kind, dt tensor.DType, shapes [][]int, places []layout.Placement) (list []string, err error) {
	var params []*dtensor.Tensor
	for i, shape := range shapes {
		params = append(params, spread(m, dt, meshtest.Numbers(shape[0]*shape[1], float64(i), 1), shape, places...))
	}
	opt := k.make(params)
	for step := range 3 {
		var grads []dtensor.Grad
		for i, shape := range shapes {
			values := meshtest.Numbers(shape[0]*shape[1], float64(step+i+3), 0.3)
			if step == 2 {
				grads = append(grads, rowsOf(params[i], values, []int{0, 3, 2}))
			} else {
				grads = append(grads, dtensor.Dense(spread(m, dt, values, shape, places...)))
			}
		}
		if err := opt.Step(grads, 0.1); err != nil {
			return nil, err
		}
	}
	note := func(name string, t *dtensor.Tensor) {
		list = append(list, fmt.Sprintf("%s %x", name, meshtest.Values(t.Full())))
	}
	for i, p := range params {
		note(fmt.Sprint("parameter ", i), p)
	}
	for name, s := range opt.State() {
		note(name, s)
	}
	return list, nil
}
