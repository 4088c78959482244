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
