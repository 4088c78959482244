package data

import (
	"context"
	"fmt"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/internal/snapshot"
)

// Share has rank 0 make some bytes and returns them on every rank: what one rank reads or
// computes for all. If produce fails, rank 0 returns its error, which should end the job; the
// others wait for it.
func Share(ctx context.Context, world *comm.Comm, produce func() ([]byte, error)) (_ []byte, err error) {
	defer fault.Locate(&err)
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

// ShareKept is Share of bytes that take long to make. In a job that gorun --elastic started they
// stay in memory of gorun's, for reading, under a name that no other call of the program has: when the job
// goes on after a failure, produce is not called again, on as many ranks as before or others.
// Where that memory does not fit, and on several hosts, nothing is kept.
func ShareKept(ctx context.Context, world *comm.Comm, name string, produce func() ([]byte, error)) (_ []byte, err error) {
	defer fault.Locate(&err)
	at := job.SnapshotsOf(ctx)
	if at == nil || len(at.Hosts) > 1 {
		return Share(ctx, world, produce)
	}
	var bytes []byte
	kept := []int64{0}
	if world.Rank() == 0 {
		var ok bool
		var err error
		if bytes, ok, err = keep(at, name, produce); err != nil {
			return nil, err
		}
		if ok {
			kept[0] = 1
		}
	}
	if err := comm.Broadcast(ctx, world, kept, 0); err != nil {
		return nil, err
	}
	if kept[0] == 0 {
		return Share(ctx, world, func() ([]byte, error) { return bytes, nil })
	}
	if world.Rank() == 0 {
		return bytes, nil
	}
	bytes, ok, err := snapshot.Kept(at.File, name)
	if err == nil && !ok {
		err = fmt.Errorf("%q is damaged; start the job again", name)
	}
	if err != nil {
		return nil, fmt.Errorf("data: ShareKept: %w", err)
	}
	return bytes, nil
}

// keep returns what is kept under name, else what produce makes, which is kept if it fits.
func keep(at *job.Snapshots, name string, produce func() ([]byte, error)) (bytes []byte, kept bool, err error) {
	bytes, ok, err := snapshot.Kept(at.File, name)
	if err == nil && !ok {
		bytes, err = produce()
	}
	if err != nil || at.Reserve != nil && at.Reserve(len(bytes)) != nil {
		return bytes, false, err
	}
	if !ok {
		err = snapshot.Keep(at.File, name, bytes)
	}
	return bytes, true, err
}
