package runtime

import (
	"context"
	"syscall"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// Stopping reports whether the job is to stop, the same on every rank of world: true
// once a signal that asks for it (SIGINT, which is Ctrl-C, SIGTERM, SIGHUP) has come to
// any of them, or gorun's --timeout is over. A program asks between two steps, saves
// and returns:
//
//	for step := first; step < steps && !runtime.Stopping(ctx, world); step++ {
//		…
//	}
//	return save(ctx)
//
// When it is true ctx is done on every rank. Collectives under ctx go on working.
//
// Stopping is a collective, an AllReduce of one number: a few microseconds in shared
// memory. It throws an error, which Main returns, if that fails, as it does when another
// rank has failed. If ctx was not made by Main, the job is to stop once ctx is done on
// any rank.
func Stopping(ctx context.Context, world *comm.Comm) bool {
	const unnamed = 1 << 10 // more than any signal's number
	r := from(ctx)
	signal := []int32{0}
	if r != nil {
		r.forecast.mark(byStopping)
	}
	switch {
	case r != nil && r.forecast.enough():
		signal[0] = int32(syscall.SIGTERM)
	case r != nil && r.stop.told():
		signal[0] = r.stop.got.Load()
	case ctx.Err() != nil:
		signal[0] = unnamed
	}
	// Ranks that find ctx done have to tell the others, whatever has ended it.
	if err := comm.AllReduce(context.WithoutCancel(ctx), world, signal, comm.Max); err != nil {
		fault.Throw(err)
	}
	if r != nil && 0 < signal[0] && signal[0] < unnamed {
		r.stop.learn(syscall.Signal(signal[0]))
		r.stop.heeded.Store(true)
	}
	return signal[0] != 0
}
