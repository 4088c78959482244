package dtensor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// TestRanksOfOtherLayoutsDisagree has ranks redistribute tensors of other placements, shapes and meshes, whose shards
// have as many elements.
func TestRanksOfOtherLayoutsDisagree(t *testing.T) {
	for name, of := range map[string]func(world *comm.Comm, first bool) (*Tensor, error){
		"placements": func(world *comm.Comm, first bool) (*Tensor, error) {
			m, err := NewMesh(world, Axis{Name: "dp", Size: 2})
			if first {
				return Full(m, tensor.Float32, 1, []int{4, 4}, layout.Shard(0)), err
			}
			return Full(m, tensor.Float32, 1, []int{4, 4}, layout.Shard(1)), err
		},
		"shapes": func(world *comm.Comm, first bool) (*Tensor, error) {
			m, err := NewMesh(world, Axis{Name: "dp", Size: 2})
			if first {
				return Full(m, tensor.Float32, 1, []int{4, 6}, layout.Shard(0)), err
			}
			return Full(m, tensor.Float32, 1, []int{6, 4}, layout.Shard(0)), err
		},
		"axes": func(world *comm.Comm, first bool) (*Tensor, error) {
			a, b := Axis{Name: "dp", Size: 2}, Axis{Name: "tp", Size: 1}
			if !first {
				a.Size, b.Size = 1, 2
			}
			m, err := NewMesh(world, a, b)
			return Full(m, tensor.Float32, 1, []int{4, 4}, layout.Shard(0), layout.Shard(0)), err
		},
	} {
		t.Run(name, func(t *testing.T) {
			commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
				x, err := of(world, world.Rank() == 0)
				if err != nil {
					return err
				}
				err = Try(ctx, x.Mesh(), func() { x.Full() })
				if !errors.Is(err, comm.ErrMismatch) || !strings.Contains(err.Error(), "disagree_test.go:") {
					return fmt.Errorf("got %v", err)
				}
				return nil
			})
		})
	}
}

// TestRanksOfOtherTermsDisagree has ranks sum tensors of other shapes to results of one shape.
func TestRanksOfOtherTermsDisagree(t *testing.T) {
	ones := func(m *Mesh, dim int, shape ...int) *Tensor {
		return Full(m, tensor.Float32, 1, shape, layout.Shard(dim))
	}
	for name, f := range map[string]func(m *Mesh, n int) *Tensor{
		"sum":     func(m *Mesh, n int) *Tensor { return ones(m, 0, n).Sum(nil, false) },
		"mean":    func(m *Mesh, n int) *Tensor { return ones(m, 0, n).Mean(nil, false) },
		"max":     func(m *Mesh, n int) *Tensor { return ones(m, 0, n).Amax(nil, false) },
		"rows":    func(m *Mesh, n int) *Tensor { return ones(m, 0, n, 4).Sum([]int{0}, false) },
		"later":   func(m *Mesh, n int) *Tensor { return ones(m, 0, n).Sum(nil, true).Scale(2).Neg().Reshape() },
		"either":  func(m *Mesh, n int) *Tensor { return ones(m, 0, 8).Sum(nil, false).Add(ones(m, 0, n).Sum(nil, false)) },
		"product": func(m *Mesh, n int) *Tensor { return ones(m, 1, 4, n).MatMul(ones(m, 0, n, 4)) },
		"linear":  func(m *Mesh, n int) *Tensor { return ones(m, 1, 4, n).Linear(ones(m, 1, 4, n), nil) },
	} {
		for _, same := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, same bits %v", name, same), func(t *testing.T) {
				for _, other := range []int{8, 9} {
					commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
						m, err := NewMesh(world, Axis{Name: "dp", Size: 2})
						if err != nil {
							return err
						}
						m.SetSameBits(same)
						n := 8
						if world.Rank() == 1 {
							n = other
						}
						err = Try(ctx, m, func() { f(m, n).Full() })
						if differs := other != 8; errors.Is(err, comm.ErrMismatch) != differs || !differs && err != nil {
							return fmt.Errorf("8 and %d: %v", other, err)
						}
						return nil
					})
				}
			})
		}
	}
}

// TestPipelineOfOtherPartsDisagrees has the ranks of a pipeline divide the batch in other numbers of parts.
func TestPipelineOfOtherPartsDisagrees(t *testing.T) {
	commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
		var stages []Stage
		var params []*Tensor
		for i := range 2 {
			m, err := NewMeshOf(world, []int{i}, Axis{Name: "dp", Size: 1})
			if err != nil {
				return err
			}
			w := Full(m, tensor.Float32, 1, []int{4, 4}, layout.Replicate())
			params = append(params, w)
			stages = append(stages, Stage{Mesh: m, Forward: func(_ int, x *Tensor) *Tensor {
				if i == 0 {
					return w
				}
				return x.Mul(w).Sum(nil, false)
			}})
		}
		stages[1].Shape, stages[1].DType, stages[1].Placements = []int{4, 4}, tensor.Float32, []layout.Placement{layout.Replicate()}
		p, err := NewPipeline(ctx, world, stages...)
		if err != nil {
			return err
		}
		_, _, err = p.ValueAndGrad(ctx, 2+world.Rank(), params...)
		if err == nil || !strings.Contains(err.Error(), "ranks disagree") || !strings.Contains(err.Error(), "as many parts of the batch") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
}

// TestParametersInAnotherOrderDisagree has ranks list parameters of one shape in other orders, as a loop over a map does.
func TestParametersInAnotherOrderDisagree(t *testing.T) {
	for _, mode := range []struct {
		overlap, parts int
		same           bool
		place          layout.Placement
	}{
		{0, 1, false, layout.Replicate()}, {0, 2, false, layout.Replicate()},
		{1, 1, false, layout.Replicate()}, {1, 2, false, layout.Replicate()},
		{0, 1, true, layout.Replicate()}, {0, 2, true, layout.Replicate()}, {1, 1, true, layout.Replicate()}, {1, 2, true, layout.Replicate()},
		{0, 1, false, layout.Shard(0)}, {0, 2, false, layout.Shard(0)}, {1, 1, false, layout.Shard(0)}, {1, 2, false, layout.Shard(0)},
		{0, 1, true, layout.Shard(0)}, {0, 2, true, layout.Shard(0)}, {1, 1, true, layout.Shard(0)}, {1, 2, true, layout.Shard(0)},
	} {
		for _, reversed := range []bool{false, true} {
			commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
				m, err := NewMesh(world, Axis{Name: "dp", Size: 2})
				if err != nil {
					return err
				}
				m.SetOverlap(mode.overlap)
				m.SetSameBits(mode.same)
				x := Full(m, tensor.Float32, 1, []int{8, 4}, layout.Shard(0))
				first := Full(m, tensor.Float32, 1, []int{4, 4}, mode.place)
				second := Full(m, tensor.Float32, 2, []int{4, 4}, mode.place)
				params := []*Tensor{first, second}
				if reversed && world.Rank() == 1 {
					params = []*Tensor{second, first}
				}
				_, _, err = Accumulate(ctx, mode.parts, func(int) *Tensor {
					return x.Linear(first, nil).Linear(second, nil).Square().Mean(nil, false)
				}, params...)
				if errors.Is(err, comm.ErrMismatch) != reversed || !reversed && err != nil {
					return fmt.Errorf("%+v, reversed %v: %v", mode, reversed, err)
				}
				return nil
			})
		}
	}
}
