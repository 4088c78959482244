package dtensor_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A softmax along a dimension that ranks divide, in uneven and empty shards too, is PyTorch's, with its gradient and its layout, and
// moves two numbers a row, and one for the gradient. The values are those of PyTorch 2.6 in float64, of y·w where y is finite.
func TestSoftmaxOfShardsIsPyTorchs(t *testing.T) {
	none := math.Inf(-1)
	shape := []int{3, 5}
	data := []float64{0.5, -1.25, 2, 0, -0.75, 3, 3, -2.5, 1.5, 0.25, none, 1, 0.5, none, 2}
	weight := []float64{1, -2, 3, -4, 5, 2, 0.5, -1, 1, -3, 0.25, 1, -1, 2, 4}
	cases := []struct {
		name        string
		f           func(x T, dim int) T
		dim         int
		value, grad []float64
	}{
		{"Softmax", T.Softmax, 0, []float64{0.075858180021, 0.012408002697, 0.810215746748, 0.182425523806, 0.051650454872, 0.924141819979,
			0.869868145459, 0.009000683926, 0.817574476194, 0.140400492911, 0, 0.117723851844, 0.180783569327, 0, 0.807949052217},
			[]float64{-0.070103716545, -0.03136546935, 0.615064761879, -0.745732260352, 0.099744930646, 0.070103716545, -0.024218798603,
				-0.029169983393, 0.745732260352, -0.852069110832, 0, 0.055584267953, -0.585894778486, 0, 0.752324180186}},
		{"Softmax", T.Softmax, 1, []float64{0.152706762401, 0.026536456294, 0.684384228021, 0.092621333342, 0.043751219941, 0.436463030685,
			0.436463030685, 0.001783724648, 0.097388065936, 0.027902148047, 0, 0.231223897622, 0.140244383166, 0, 0.628531719212},
			[]float64{-0.152868219294, -0.106173882177, 0.68366062843, -0.555825928607, 0.131207401649, 0.391483126236, -0.263211419791,
				-0.003751271884, -0.010036373283, -0.114484061279, 0, -0.371138955895, -0.505595922096, 0, 0.876734877992}},
		{"LogSoftmax", T.LogSoftmax, 0, []float64{-2.578889734293, -4.389413635763, -0.210454712772, -1.701413277983, -2.963256276636,
			-0.078889734293, -0.139413635763, -4.710454712772, -0.201413277983, -1.963256276636, none, -2.139413635763, -1.710454712772,
			none, -0.213256276636},
			[]float64{0.772425459936, -1.993795998652, 2.189784253252, -3.452723428581, 4.690097270767, -0.772425459936, 0.934934072729,
				-1.009000683926, 3.452723428581, -3.842402957465, 0, 1.058861925922, -1.180783569327, 0, -0.847694313302}},
		{"LogSoftmax", T.LogSoftmax, 1, []float64{-1.879235782201, -3.629235782201, -0.379235782201, -2.379235782201, -3.129235782201,
			-0.82905160217, -0.82905160217, -6.32905160217, -2.32905160217, -3.57905160217, none, -1.464368784108, -1.964368784108, none,
			-0.464368784108},
			[]float64{0.541879712796, -2.079609368882, 0.946847315936, -4.277864000026, 4.868746340177, 2.218231515342, 0.718231515342,
				-0.999108137676, 1.048694032968, -2.986048925976, 0, 0.075104409511, -1.560977532664, 0, 1.485873123153}},
	}
	near := func(a, b float64) bool { return a == b || math.Abs(a-b) < 1e-11 }
	for _, grid := range [][]int{{1}, {2}, {4}, {7}, {2, 2}} {
		for _, same := range []bool{false, true} {
			onMesh(t, grid, func(ctx context.Context, m *dtensor.Mesh) error {
				m.SetSameBits(same)
				for _, c := range cases {
					places := m.Every(layout.Shard(c.dim))
					x := dtensor.Distribute(m, tensor.FromSlice(m.Device(), data, shape...), places...)
					w := dtensor.Distribute(m, tensor.FromSlice(m.Device(), weight, shape...), places...)
					var y T
					record := m.Comm().Record()
					_, grads, err := dtensor.ValueAndGrad(ctx, func() T {
						y = c.f(x, c.dim)
						dtensor.Keep(y)
						return y.MaskedFill(y.CompareScalar(kernel.OpEq, none), 0).Mul(w).Sum(nil, false)
					}, x)
					record.Stop()
					if err != nil {
						return err
					}
					got, slope := tensor.ToSlice[float64](y.Full()), tensor.ToSlice[float64](grads[0].Dense().Full())
					if !slices.EqualFunc(got, c.value, near) || !slices.EqualFunc(slope, c.grad, near) {
						return fmt.Errorf("%s along %d on %v, same bits %v: %v with the gradient %v", c.name, c.dim, m, same, got, slope)
					}
					if !same && m.Size() > 1 && (!slices.Equal(y.Placements(), places) || record.Stats().Total().Bytes > 8*(3*5*len(grid)+len(grid))) {
						return fmt.Errorf("%s along %d on %v is %v: %v", c.name, c.dim, m, y, record.Stats().Causes)
					}
				}
				return nil
			})
		}
	}
}
