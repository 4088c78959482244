package data

import (
	"context"

	"github.com/gorun-spmd/gorun/comm"
)

// Share has rank 0 make some bytes and returns them on every rank: what one rank reads or
// computes for all. If produce fails, rank 0 returns its error, which should end the job; the
// others wait for it.
func Share(ctx context.Context, world *comm.Comm, produce func() ([]byte, error)) ([]byte, error) {
	var bytes []byte
	size := []int64{0}
	if world.Rank() == 0 {
		var err error
		if bytes, err = produce(); err != nil {
			return nil, err
		}
		size[0] = int64(len(bytes))
	}
	if err := comm.Broadcast(ctx, world, size, 0); err != nil {
		return nil, err
	}
	if world.Rank() != 0 {
		bytes = make([]byte, size[0])
	}
	return bytes, comm.Broadcast(ctx, world, bytes, 0)
}
