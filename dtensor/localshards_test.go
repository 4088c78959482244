package dtensor_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// cut makes this rank's shards of the numbers [6, 5]: boxes by owner.
func cut(m *dtensor.Mesh, owners []int, boxes [][4]int) []dtensor.LocalShard {
	whole := numbers(m, []int{6, 5})
	var list []dtensor.LocalShard
	for i, b := range boxes {
		if owners[i]%m.Size() == m.Comm().Rank() {
			data := tensor.New(m.Device(), tensor.Float32, b[2], b[3])
			tensor.CopyBox(data, []int{0, 0}, whole, b[:2], b[2:])
			list = append(list, dtensor.LocalShard{Data: data, Offset: [2]int{b[0], b[1]}})
		}
	}
	return list
}

func TestLocalShards(t *testing.T) {
	boxes := [][4]int{{0, 0, 6, 2}, {0, 2, 4, 3}, {4, 2, 2, 1}, {4, 3, 2, 2}}
	for _, mesh := range meshes {
		onMesh(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			want := tensor.ToSlice[float32](numbers(m, []int{6, 5}))
			for _, owners := range [][]int{{0, 1, 1, 2}, {3, 0, 0, 0}} {
				table, err := dtensor.NewLocalShards(m, tensor.Float32, [2]int{6, 5}, cut(m, owners, boxes)...)
				if err != nil {
					return err
				}
				list := options([]int{6, 5}, true)
				for k := range 25 {
					p := placementsOf(m, list, k)
					if !valid(m, []int{6, 5}, p) {
						continue
					}
					var back *dtensor.LocalShards
					err := dtensor.Try(ctx, m, func() {
						x := table.Distribute(p...)
						if got := tensor.ToSlice[float32](x.Full()); !slices.Equal(got, want) {
							failf("%v: got %v", x, got)
						}
						if x.Layout().IsPartial() {
							return
						}
						var err error
						if back, err = x.Shards(); err != nil {
							failf("%w", err)
						}
						y := back.Cast(tensor.Float64).Distribute(make([]layout.Placement, len(mesh))...)
						if y.DType() != tensor.Float64 || !slices.Equal(tensor.ToSlice[float32](y.Cast(tensor.Float32).Local()), want) {
							failf("back from %v: %v", x, y.Local())
						}
					})
					if err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
}

func TestLocalShardsErrors(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, c := range []struct {
			want  string
			boxes [][4]int
			dt    tensor.DType
		}{
			{"overlap", [][4]int{{0, 0, 6, 3}, {0, 2, 6, 3}}, tensor.Float32},
			{"18 of the 30", [][4]int{{0, 0, 6, 1}, {0, 3, 6, 2}}, tensor.Float32},
			{"2-D", [][4]int{{0, 0, 6, 1}, {0, 1, 6, 4}}, tensor.Float64},
		} {
			_, err := dtensor.NewLocalShards(m, c.dt, [2]int{6, 5}, cut(m, []int{0, 1}, c.boxes)...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				return fmt.Errorf("%v: got %v", c.want, err)
			}
		}
		shard := dtensor.LocalShard{Data: tensor.Zeros(m.Device(), tensor.Float32, 6, 5), Offset: [2]int{1, 0}}
		if m.Coord()[0] == 1 {
			_, err := dtensor.NewLocalShards(m, tensor.Float32, [2]int{6, 5}, shard)
			if err == nil || !strings.Contains(err.Error(), "not within") {
				return fmt.Errorf("outside the table: %v", err)
			}
			return nil
		}
		_, err := dtensor.NewLocalShards(m, tensor.Float32, [2]int{6, 5})
		if err == nil || !strings.Contains(err.Error(), "not within") {
			return fmt.Errorf("outside the table, on the other rank: %v", err)
		}
		return nil
	})
}

// A view and a cast act on each shard, and the chunks say where the shards are now.
func TestLocalShardsView(t *testing.T) {
	for _, mesh := range [][]int{{1}, {2}, {3}} {
		onMesh(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			byRows := [][4]int{{0, 0, 2, 5}, {2, 0, 4, 5}}
			table, err := dtensor.NewLocalShards(m, tensor.Float32, [2]int{6, 5}, cut(m, []int{0, 1}, byRows)...)
			if err != nil {
				return err
			}
			v, err := table.View([2]int{3, 10})
			if err != nil {
				return err
			}
			if got := fmt.Sprint(v.Chunks()); got != fmt.Sprintf("[{0 [0 0] [1 10]} {%d [1 0] [2 10]}]", min(1, m.Size()-1)) {
				return fmt.Errorf("chunks %s", got)
			}
			return dtensor.Try(ctx, m, func() {
				x := v.Cast(tensor.Float64).Distribute(layout.Shard(0))
				if got := tensor.ToSlice[float32](x.Cast(tensor.Float32).Full()); !slices.Equal(x.Shape(), []int{3, 10}) ||
					!slices.Equal(got, tensor.ToSlice[float32](numbers(m, []int{6, 5}))) {
					failf("%v holds %v", x, got)
				}
				for _, shape := range [][2]int{{5, 6}, {2, 15}, {7, 5}, {-3, -10}} {
					if _, err := table.View(shape); err == nil || !strings.Contains(err.Error(), "View") {
						failf("view as %v gives %v", shape, err)
					}
				}
				columns, err := dtensor.NewLocalShards(m, tensor.Float32, [2]int{6, 5}, cut(m, []int{0, 1}, [][4]int{{0, 0, 6, 2}, {0, 2, 6, 3}})...)
				if err != nil {
					failf("%w", err)
				}
				if _, err := columns.View([2]int{3, 10}); err == nil {
					failf("columns of a row are viewed as parts of another")
				}
			})
		})
	}
}

// A tensor and a table report the stride of the whole, whatever this rank has of it.
func TestStride(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, c := range []struct {
			shape  []int
			stride string
		}{{[]int{}, "[]"}, {[]int{7}, "[1]"}, {[]int{4, 3, 5}, "[15 5 1]"}, {[]int{4, 0, 5}, "[5 5 1]"}} {
			for _, p := range []layout.Placement{layout.Replicate(), layout.Shard(0)} {
				if len(c.shape) == 0 && p.IsShard() {
					continue
				}
				made := dtensor.Zeros(m, tensor.Float32, c.shape, p)
				x, err := dtensor.FromLocal(m, made.Local(), c.shape, p)
				if err != nil {
					return err
				}
				if got := fmt.Sprint(x.Stride()); got != c.stride {
					return fmt.Errorf("the stride of %v is %s, want %s", x, got, c.stride)
				}
			}
		}
		table, err := dtensor.Zeros(m, tensor.Float32, []int{6, 5}, layout.Shard(0)).Shards()
		if err == nil && table.Stride() != [2]int{5, 1} {
			err = fmt.Errorf("the stride of the table is %v", table.Stride())
		}
		return err
	})
}
