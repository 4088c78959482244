// Command 17-retrieval trains two towers, one for users and one for items, so that a user's vector has a large inner
// product with those of the items that the user takes (Yi et al. 2019, RecSys). Each pair of a batch has the items of
// all others for wrong answers. Then it exports the items' vectors, as a server would read them, and finds with them
// the 20 best items of some users. It invents users of 50 tastes, and items, of which a user takes those of one taste.
//
//	gorun -np 4 ./examples/17-retrieval
//
// Output:
//
//	of the 20 best items, 100% are to the user's taste
package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/loss"
	"github.com/gorun-spmd/gorun/nn"
	"github.com/gorun-spmd/gorun/optim"
	"github.com/gorun-spmd/gorun/runtime"
	"github.com/gorun-spmd/gorun/serve"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/train"
)

const users, items, tastes, width, batch, steps = 4000, 1000, 50, 32, 256, 300

// A tower makes a vector of length 1 of an id. B is the batch, D the width.
type tower struct {
	table  *embedding.Table // [rows, D], divided by rows over the ranks
	layers nn.Sequential
}

func newTower(mesh *dtensor.Mesh, name string, rows int, stream uint64) tower {
	return tower{embedding.NewTable(mesh, embedding.Config{Name: name, Rows: rows, Dim: width, Layout: embedding.RowWise("dp"), Std: 0.1,
		Key: dtensor.Key{Seed: 1, Stream: stream}}), nn.NewLinears(nn.NewInit(mesh, stream), (*dtensor.Tensor).Gelu, width, 64, width)}
}

func (t tower) vectors(ids *dtensor.Tensor) *dtensor.Tensor { // [B] S(0) → [B, D] S(0)
	x := t.layers.Forward(t.table.LookupAs(ids, layout.Shard(0)))
	return x.Div(x.Square().Sum([]int{1}, true).Sqrt())
}

func main() { runtime.Main(run) }

func run(ctx context.Context, world *comm.Comm) error {
	mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: world.Size()})
	if err != nil {
		return err
	}
	user, item := newTower(mesh, "users", users, 1), newTower(mesh, "items", items, 2)
	tables, layers := nn.List[*embedding.Table]{user.table, item.table}, nn.Join([]string{"user", "item"}, user.layers, item.layers)
	params := nn.Join([]string{"tables", "user", "item"}, tables, user.layers, item.layers)
	divided := func(n int, id func(i int) int64) *dtensor.Tensor { // [n] S(0)
		ids := make([]int64, n)
		for i := range ids {
			ids[i] = id(i)
		}
		return dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), ids, n), layout.Shard(0))
	}
	number := func(i int) int64 { return int64(i) }
	r := train.Run{Program: "17-retrieval", Steps: steps, Unit: "pairs", PerStep: batch,
		Loss: func(step, _ int) *dtensor.Tensor {
			rng := rand.New(rand.NewPCG(1, uint64(step))) // the same on all ranks
			var who [batch]int64
			u := divided(batch, func(i int) int64 { who[i] = rng.Int64N(users); return who[i] })
			v := divided(batch, func(i int) int64 { return who[i]%tastes + tastes*rng.Int64N(items/tastes) })
			every := item.vectors(v).Redistribute(layout.Replicate())                // [B, D] S(0) → R
			scores := user.vectors(u).MatMul(every.Transpose(0, 1)).Scale(10)        // [B, B] S(0)
			return loss.CrossEntropy(scores, divided(batch, number), loss.Options{}) // pair i is right for user i
		},
		Params: params, Rate: optim.Constant{Rate: 1}, Optimizer: optim.NewGroups(nn.Tensors(params),
			optim.Group{Params: nn.Tensors(tables.Params()), Rate: 0.1, New: optim.With(optim.NewRowAdagrad, optim.RowAdagradConfig{})},
			optim.Group{Params: nn.Tensors(layers), Rate: 0.002, New: optim.With(optim.NewAdamW, optim.AdamWConfig{})})}
	if err := r.Do(ctx, world, nil); err != nil {
		return err
	}

	const some = 100
	path := filepath.Join(os.TempDir(), fmt.Sprintf("items-%d.table", os.Getpid())) // that of rank 0, which writes it
	defer os.Remove(path)
	var export *embedding.Table
	var queries []float32 // [some, D]
	if err := dtensor.Try(ctx, mesh, func() {
		found := item.vectors(divided(items, number)) // [items, D] S(0)
		dtensor.Keep(found)
		export = embedding.TableOf(found, embedding.Options{Table: "vectors"})
		queries = tensor.ToSlice[float32](user.vectors(divided(some, number)).Full())
	}); err != nil {
		return err
	}
	if err := export.Export(ctx, path); err != nil || world.Rank() != 0 {
		return err
	}
	live, err := serve.Open(path) // as another process does
	if err != nil {
		return err
	}
	good := 0
	err = live.View(func(t *serve.Table) {
		for u := range some {
			for _, best := range t.TopK(queries[u*width:(u+1)*width], items/tastes) {
				if best.Key%tastes == int64(u%tastes) {
					good++
				}
			}
		}
	})
	fmt.Printf("of the 20 best items, %d%% are to the user's taste\n", good*100/(some*items/tastes))
	return err
}
