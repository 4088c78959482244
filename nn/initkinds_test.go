package nn_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/tensor"
)

// The distributions have the standard deviations and bounds of torch.nn.init, and the same
// numbers on any mesh.
func TestInitDistributions(t *testing.T) {
	shape := []int{64, 48, 3}
	fanIn, fanOut := 48*3.0, 64*3.0
	const std, lo, hi = 0.5, -0.6, 0.9
	density := func(x float64) float64 { return math.Exp(-x*x/2/std/std) / math.Sqrt(2*math.Pi) / std }
	mass := (math.Erf(hi/std/math.Sqrt2) - math.Erf(lo/std/math.Sqrt2)) / 2
	mean := std * std * (density(lo) - density(hi)) / mass
	spread := math.Sqrt(std*std*(1+(lo*density(lo)-hi*density(hi))/mass) - mean*mean)
	xavier, kaiming := math.Sqrt(2/(fanIn+fanOut)), math.Sqrt(2/(1.25*fanIn))
	for _, c := range []struct {
		name            string
		draw            func(in *nn.Init, axis string, p layout.Placement) *dtensor.Tensor
		mean, std, most float64 // most: bound of |x|; 0: none
	}{
		{"XavierNormal", func(in *nn.Init, axis string, p layout.Placement) *dtensor.Tensor {
			return in.XavierNormal(2, shape, axis, p)
		},
			0, 2 * xavier, 0},
		{"XavierUniform", func(in *nn.Init, axis string, p layout.Placement) *dtensor.Tensor {
			return in.XavierUniform(2, shape, axis, p)
		},
			0, 2 * xavier, 2 * xavier * math.Sqrt(3)},
		{"KaimingNormal", func(in *nn.Init, axis string, p layout.Placement) *dtensor.Tensor {
			return in.KaimingNormal(0.5, shape, axis, p)
		},
			0, kaiming, 0},
		{"KaimingUniform", func(in *nn.Init, axis string, p layout.Placement) *dtensor.Tensor {
			return in.KaimingUniform(0.5, shape, axis, p)
		},
			0, kaiming, kaiming * math.Sqrt(3)},
		{"TruncNormal", func(in *nn.Init, axis string, p layout.Placement) *dtensor.Tensor {
			return in.TruncNormal(std, lo, hi, shape, axis, p)
		},
			mean, spread, hi},
	} {
		var whole []float64
		for _, n := range []int{1, 3} {
			meshtest.On(t, []int{n}, func(ctx context.Context, m *dtensor.Mesh) error {
				in := nn.NewInit(m, 7)
				x := meshtest.Values(c.draw(in, "a", layout.Shard(0)).Full())
				again := meshtest.Values(c.draw(in, "", layout.Replicate()).Full())
				if slices.Equal(x, again) {
					return fmt.Errorf("%s: two parameters are equal", c.name)
				}
				if n > 1 {
					if !slices.Equal(x, whole) {
						return fmt.Errorf("%s: other numbers on %d ranks", c.name, n)
					}
					return nil
				}
				whole = x
				sum, squares := 0.0, 0.0
				for _, v := range x {
					sum += v
					squares += v * v
					if c.most != 0 && math.Abs(v) > c.most*(1+1e-6) {
						return fmt.Errorf("%s: %v is out of bounds", c.name, v)
					}
				}
				count := float64(len(x))
				gotMean := sum / count
				gotStd := math.Sqrt(squares/count - gotMean*gotMean)
				if math.Abs(gotMean-c.mean) > 4*c.std/math.Sqrt(count) || math.Abs(gotStd/c.std-1) > 0.03 {
					return fmt.Errorf("%s: mean %v and deviation %v, want %v and %v", c.name, gotMean, gotStd, c.mean, c.std)
				}
				return nil
			})
		}
	}
}

func TestInitRefusesTypesWithoutGradients(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, dt := range []tensor.DType{tensor.Int32, tensor.Bool} {
			in := nn.NewInit(m, 1)
			in.DType = dt
			err := dtensor.Try(ctx, m, func() { nn.NewLinear(in, 3, 4, true, nn.Style{}) })
			want := fmt.Sprintf("nn: the DType of the Init is %v, which has no gradient", dt)
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				return fmt.Errorf("got %v, want %q", err, want)
			}
		}
		return nil
	})
}
