package embedding_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// What an optimizer remembers of a key or of a row that the disk had not yet begins as the optimizer says: with sums
// of squares of 4 elements that begin at 12, gradients of 1 and a rate of 1 the first step of Adagrad is 1/√(12+4).
func TestStateOfNewRowsBeginsAtInitial(t *testing.T) {
	ids := func(m *dtensor.Mesh, from int) *dtensor.Tensor {
		list := []int64{int64(from), int64(from + 1), int64(from + 250)}
		return dtensor.Distribute(m, tensor.FromSlice(m.Device(), list, len(list)), m.Every(shard0)...)
	}
	ofTwelve := func(w *dtensor.Tensor) (embedding.Optimizer, func(*dtensor.Rows) error) {
		opt := newAdagrad([]*dtensor.Tensor{w})
		for _, sums := range opt.State() {
			tensor.Fill(sums.Local(), 12)
		}
		return opt, func(rows *dtensor.Rows) error { return opt.Step([]dtensor.Grad{dtensor.Sparse(rows)}, 1) }
	}
	for name, make := range map[string]func(m *dtensor.Mesh) (lookup func(*dtensor.Tensor) *dtensor.Tensor, param *dtensor.Tensor){
		"Dynamic": func(m *dtensor.Mesh) (func(*dtensor.Tensor) *dtensor.Tensor, *dtensor.Tensor) {
			// There is room for a key a slice, so that later ones take the rows of earlier ones.
			d := embedding.NewDynamic(m, embedding.DynamicConfig{Axis: "a", Dim: 4, Budget: 256 * 4 * 4, Seed: 1})
			opt, update := ofTwelve(d.Weight())
			d.Follow(opt.State())
			d.Fuse(update)
			return d.Lookup, d.Param()
		},
		"Store": func(m *dtensor.Mesh) (func(*dtensor.Tensor) *dtensor.Tensor, *dtensor.Tensor) {
			table := embedding.NewTable(m, storedConfig(t.TempDir()))
			opt, update := ofTwelve(table.Resident())
			table.Follow(opt.State())
			table.Fuse(update)
			return table.Lookup, table.Param()
		},
	} {
		t.Run(name, func(t *testing.T) {
			meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
				lookup, param := make(m)
				step := func(from int) (rows []float32, err error) {
					_, _, err = dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
						y := lookup(ids(m, from))
						rows = tensor.ToSlice[float32](y.Detach().Full())
						return y.Sum(nil, false)
					}, param)
					return rows, err
				}
				for from := 0; from < 200; from += 20 {
					before, err := step(from)
					if err != nil {
						return err
					}
					after, err := step(from)
					if err != nil {
						return err
					}
					for i := range before {
						refused := name == "Dynamic" && before[i] == 0 // two new keys of a slice with room for one
						if off := float64(before[i] - after[i] - 0.25); !refused && !(math.Abs(off) <= 1e-5) {
							return fmt.Errorf("rows from %d on: the first step of element %d is off by %v", from, i, off)
						}
					}
				}
				return nil
			})
		})
	}
}

// The whole state of an optimizer of two tables of as many rows would have one table clear what is remembered of the other.
func TestFollowRefusesStateOfTwoTables(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		c := embedding.DynamicConfig{Name: "items", Axis: "a", Dim: 4, Budget: 1 << 16}
		items, users := embedding.NewDynamic(m, c), embedding.NewDynamic(m, c)
		err := dtensor.Try(ctx, m, func() {
			items.Follow(func(yield func(string, *dtensor.Tensor) bool) {
				_ = yield("sum.0", users.Weight()) && yield("sum.1", items.Weight())
			})
		})
		if want := `"sum.0" and "sum.1" both have a row for each of dynamic table "items"`; err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("the error is %v, want %q", err, want)
		}
		return nil
	})
}

// The average of a new key's row begins with the row, and not with that of the key that had its place.
func TestAverageOfNewKeysBeginsWithTheirRows(t *testing.T) {
	for _, dt := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
		meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
			d := embedding.NewDynamic(m, embedding.DynamicConfig{Axis: "a", Dim: 4, Budget: 256 * 4 * 8, Seed: 1, DType: dt})
			average := dtensor.Full(m, tensor.Float32, 7, d.Weight().Shape(), d.Weight().Placements()...) // of earlier keys
			d.Follow(func(yield func(string, *dtensor.Tensor) bool) { yield("ema.0", average) })
			keys := dtensor.Distribute(m, tensor.FromSlice(m.Device(), []int64{3, 5, 8, 13}, 4), m.Every(shard0)...)
			if _, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return d.Lookup(keys).Sum(nil, false) }, d.Param()); err != nil {
				return err
			}
			return dtensor.Try(ctx, m, func() {
				weights, averages := meshtest.Values(d.Weight().Full()), meshtest.Values(average.Full())
				begun := 0
				for i, v := range averages {
					if v == 7 {
						continue
					}
					if begun++; v != weights[i] {
						dtensor.Throw(fmt.Errorf("%v: average %v of an element that is %v", dt, v, weights[i]))
					}
				}
				if begun != 4*4 {
					dtensor.Throw(fmt.Errorf("%v: %d averages have begun, want those of 4 rows", dt, begun))
				}
			})
		})
	}
}

// A fused table would be changed with the gradient of a scaled loss: each such pass is refused, before the table has changed, and the
// one without a scale that follows is not.
func TestFusedTablesRefuseScaledLosses(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		table := embedding.NewTable(m, embedding.Config{Name: "users", Rows: 6, Dim: 2, Layout: embedding.RowWise("a")})
		updates := 0
		table.Fuse(func(*dtensor.Rows) error { updates++; return nil })
		ids := dtensor.Distribute(m, tensor.FromSlice(m.Device(), []int64{1, 5}, 2), m.Every(shard0)...)
		for step, scale := range []float64{1024, 1, 1024, 0} {
			_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
				if scale != 0 {
					m.NoteLossScale(scale)
				}
				return table.Lookup(ids).Sum(nil, false)
			}, table.Param())
			refused := err != nil && strings.Contains(err.Error(), "the loss is multiplied by 1024")
			if refused != (scale == 1024) || updates != (step+1)/2 {
				return fmt.Errorf("step %d: %d updates, the error is %v", step, updates, err)
			}
		}
		return nil
	})
}
