package embedding_test

import (
	"context"
	"fmt"
	"time"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// exampleRanks runs f on two ranks; a program has its mesh from runtime.Main.
func exampleRanks(f func(ctx context.Context, mesh *dtensor.Mesh) error) { meshtest.Example(2, f) }

// print prints on one rank alone.
func print(mesh *dtensor.Mesh, args ...any) {
	if mesh.Comm().Rank() == 0 {
		fmt.Println(args...)
	}
}

// A table of 4 rows over two ranks, two of which are looked up. The gradient
// has the rows of this rank alone.
func Example() {
	exampleRanks(func(ctx context.Context, mesh *dtensor.Mesh) error {
		table := embedding.NewTable(mesh, embedding.Config{Rows: 4, Dim: 2, Layout: embedding.RowWise("tp")})
		ids := dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), []int64{1, 3, 1}, 3), layout.Replicate())
		_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			h := table.Lookup(ids) // [3, 2] MaskP
			return h.Redistribute(layout.Replicate()).Sum(nil, false)
		}, table.Weight())
		if err != nil {
			return err
		}
		rows, _ := grads[0].Rows()
		print(mesh, rows.Index, rows.Values)
		return nil
	})
	// Output: int64[1]{1} float32[1 2]{2 2}
}

func ExampleLookup() {
	exampleRanks(func(ctx context.Context, mesh *dtensor.Mesh) error {
		rows := tensor.FromSlice(mesh.Device(), []float32{0, 1, 10, 11, 20, 21, 30, 31}, 4, 2)
		weight := dtensor.Distribute(mesh, rows, layout.Shard(0))
		ids := dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), []int64{3, 0}, 2), layout.Replicate())
		y := embedding.Lookup(weight, ids, embedding.Options{})
		print(mesh, y, y.Full())
		return nil
	})
	// Output: float32 [2, 2] MaskP on (tp=2) float32[2 2]{30 31 0 1}
}

// The rows of a batch that stays sharded go straight to the ranks that keep them.
func ExampleLookupAs() {
	exampleRanks(func(ctx context.Context, mesh *dtensor.Mesh) error {
		rows := tensor.FromSlice(mesh.Device(), []float32{0, 1, 10, 11, 20, 21, 30, 31}, 4, 2)
		weight := dtensor.Distribute(mesh, rows, layout.Shard(0))
		ids := dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), []int64{3, 0}, 2), layout.Replicate())
		y := embedding.LookupAs(weight, ids, embedding.Options{}, layout.Shard(0))
		print(mesh, y, y.Local())
		return nil
	})
	// Output: float32 [2, 2] S(0) on (tp=2) float32[1 2]{30 31}
}

// Two bags, the second with weights 0.5 and 2.
func ExampleBag() {
	exampleRanks(func(ctx context.Context, mesh *dtensor.Mesh) error {
		dev, whole := mesh.Device(), layout.Replicate()
		weight := dtensor.Distribute(mesh, tensor.FromSlice(dev, []float32{0, 1, 10, 11, 20, 21, 30, 31}, 4, 2), layout.Shard(0))
		ids := dtensor.Distribute(mesh, tensor.FromSlice(dev, []int64{3, 2, 1}, 3), whole)
		offsets := dtensor.Distribute(mesh, tensor.FromSlice(dev, []int64{0, 1}, 2), whole)
		weights := dtensor.Distribute(mesh, tensor.FromSlice(dev, []float32{1, 0.5, 2}, 3), whole)
		y := embedding.Bag(weight, ids, offsets, weights, embedding.BagOptions{Mode: embedding.Sum})
		print(mesh, y.Full())
		return nil
	})
	// Output: float32[2 2]{30 31 30 32.5}
}

// Two features over two tables; each rank has one of the two samples.
func ExampleCollection() {
	exampleRanks(func(ctx context.Context, mesh *dtensor.Mesh) error {
		c := embedding.NewCollection(mesh,
			embedding.CollectionTable{Config: embedding.Config{Name: "users", Rows: 10, Dim: 2, Layout: embedding.RowWise("tp")},
				Features: []string{"user"}},
			embedding.CollectionTable{Config: embedding.Config{Name: "items", Rows: 5, Dim: 3, Layout: embedding.TableWise("tp", 1)},
				Features: []string{"item"}, Mode: embedding.Sum})
		lengths, ids := []int{1, 2}, []int64{7, 0, 4} // user: 7; item: 0 and 4
		if mesh.Comm().Rank() == 1 {
			lengths, ids = []int{1, 0}, []int64{9} // user: 9; item: none
		}
		batch, err := embedding.NewJagged(mesh, []string{"user", "item"}, 2, lengths, ids, nil, layout.Shard(0))
		if err != nil {
			return err
		}
		print(mesh, c.Bags(batch).Values())
		return nil
	})
	// Output: float32 [2, 5] S(0) on (tp=2)
}

// The rates of a machine come from MeasureRates; here they are made up. The small
// table goes with the large one: the exchanges are there already.
func ExampleNewPlan() {
	rates := embedding.Rates{
		AllToAll:  embedding.Rate{Latency: 10 * time.Microsecond, Bandwidth: 5e9},
		AllGather: embedding.Rate{Latency: 10 * time.Microsecond, Bandwidth: 5e9},
		Copy:      embedding.Rate{Bandwidth: 10e9},
	}
	plan, err := embedding.NewPlan([]embedding.Demand{
		{Name: "users", Rows: 10_000_000, Dim: 64, IDs: 1},
		{Name: "countries", Rows: 200, Dim: 64, IDs: 1},
	}, rates, embedding.PlanOptions{Axis: "tp", Ranks: 4, Batch: 8192, MemoryBytes: 1 << 30, StateBytes: 4})
	fmt.Println(plan.Layouts, err)
	// Output: [row-wise over tp row-wise over tp] <nil>
}

// Two ranks train a table of 64-bit keys. A key has a row from its first use on.
func ExampleDynamic() {
	meshtest.Example(2, func(ctx context.Context, mesh *dtensor.Mesh) error {
		users := embedding.NewDynamic(mesh, embedding.DynamicConfig{Name: "users", Axis: "tp", Dim: 2, Budget: 1 << 20, Seed: 1})
		users.Fuse(func(rows *dtensor.Rows) error {
			offset, _ := users.Weight().Offset() // with package optim: opt.Step([]dtensor.Grad{dtensor.Sparse(rows)}, rate)
			its := tensor.Rows{Index: tensor.AddScalar(rows.Index, -float64(offset[0])), Values: rows.Values}
			tensor.SGD{LR: 0.5}.StepRows(users.Weight().Local(), its)
			return nil
		})
		seen := []int64{123456789012345, -7, 123456789012345, 42}
		keys := dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), seen, 4), layout.Shard(0)) // [4] S(0)
		for range 2 {
			if _, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
				return users.Lookup(keys).Sum(nil, false) // [4, 2] S(0)  →  []
			}, users.Param()); err != nil {
				return err
			}
			users.Advance()
		}
		all, stats := users.Keys(), users.Stats()
		if mesh.Comm().Rank() == 0 {
			fmt.Println(all)
			fmt.Println(stats)
		}
		return nil
	})
	// Output:
	// [-7 42 123456789012345]
	// 3 keys in 131072 rows (0.0%), 0 candidates, 50.0% of 8 uses found, 3 admitted, 0 evicted, 0 expired, 0 refused
}
