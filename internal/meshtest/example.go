package meshtest

import (
	"context"
	"sync"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/mem"
	"github.com/gorun-spmd/gorun/dtensor"
)

// Example runs f on n ranks along the axis "tp", for examples in documentation. It panics
// if f returns or throws an error on a rank.
func Example(n int, f func(ctx context.Context, mesh *dtensor.Mesh) error) {
	var all sync.WaitGroup
	for _, end := range mem.Open(n) {
		all.Go(func() {
			defer end.End("")
			ctx, world := context.Background(), comm.NewWorld(end)
			mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "tp", Size: n})
			if err == nil {
				thrown := dtensor.Try(ctx, mesh, func() { err = f(ctx, mesh) })
				if err == nil {
					err = thrown
				}
			}
			if err != nil {
				panic(err)
			}
		})
	}
	all.Wait()
}
