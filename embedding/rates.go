package embedding

import (
	"context"
	"fmt"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
)

// A Rate is how long something takes: Latency, and its bytes over Bandwidth.
type Rate struct {
	Latency   time.Duration
	Bandwidth float64 // bytes per second; 0: no time for any bytes
}

// Time returns how long it takes for so many bytes.
func (r Rate) Time(bytes float64) time.Duration { return r.Latency + r.transfer(bytes) }

// transfer is Time without the latency.
func (r Rate) transfer(bytes float64) time.Duration {
	if r.Bandwidth == 0 || bytes == 0 {
		return 0
	}
	return time.Duration(bytes / r.Bandwidth * 1e9)
}

// String prints the rate: "12µs + 3.4 GB/s".
func (r Rate) String() string {
	return fmt.Sprintf("%v + %.1f GB/s", r.Latency.Round(100*time.Nanosecond), r.Bandwidth/1e9)
}

// Rates are what a planner knows of a machine: bytes are those that one rank
// receives, or copies.
type Rates struct {
	AllToAll  Rate // among the ranks of the axis that divides tables
	AllGather Rate // among all ranks that divide the batch
	Copy      Rate // within a rank's memory, all ranks at once
}

// String prints the rates in one line.
func (r Rates) String() string {
	return fmt.Sprintf("all-to-all %v, all-gather %v, copy %v", r.AllToAll, r.AllGather, r.Copy)
}

// MeasureRates measures the rates on a mesh whose axis divides tables, in some
// ten milliseconds. It is collective over the mesh; all its ranks get the numbers of
// the slowest. A rank outside gets zeros.
func MeasureRates(ctx context.Context, mesh *dtensor.Mesh, axis string) (Rates, error) {
	i, ok := mesh.Axis(axis)
	if !ok {
		return Rates{}, &Error{Op: "MeasureRates", Detail: fmt.Sprintf("mesh %v has no axis %q; use one of its names", mesh, axis)}
	}
	if !mesh.Inside() {
		return Rates{}, nil
	}
	group := mesh.Group(mesh.Axes()[i].Name)
	const small, large = 8, 1 << 20 // bytes of a rank
	toAll := func(bytes int) (func() error, int) {
		n := group.Size()
		each := max(bytes/n, 1)
		src, dst := make([]byte, n*each), make([]byte, n*each)
		return func() error { return comm.AllToAll(ctx, group, dst, src) }, n * each
	}
	gather := func(bytes int) (func() error, int) {
		n := mesh.Size()
		each := max(bytes/n, 1)
		src, dst := make([]byte, each), make([]byte, n*each)
		return func() error { return comm.AllGather(ctx, mesh.Comm(), dst, src) }, n * each
	}
	copies := func(bytes int) (func() error, int) {
		src, dst := make([]byte, bytes), make([]byte, bytes)
		return func() error { copy(dst, src); return nil }, bytes
	}
	var times []int64
	var bytes []int
	for _, f := range []func(int) (func() error, int){toAll, gather, copies} {
		for _, size := range []int{small, large} {
			call, n := f(size)
			t, err := fastest(ctx, mesh.Comm(), call)
			if err != nil {
				return Rates{}, err
			}
			times, bytes = append(times, int64(t)), append(bytes, n)
		}
	}
	if err := comm.AllReduce(ctx, mesh.Comm(), times, comm.Max); err != nil {
		return Rates{}, err
	}
	rate := func(i int) Rate {
		lo, hi := times[i], max(times[i+1], times[i]+1)
		return Rate{Latency: time.Duration(lo), Bandwidth: float64(bytes[i+1]-bytes[i]) / (float64(hi-lo) / 1e9)}
	}
	return Rates{AllToAll: rate(0), AllGather: rate(2), Copy: rate(4)}, nil
}

// fastest returns the shortest time of a few calls, after one to warm up.
func fastest(ctx context.Context, c *comm.Comm, call func() error) (time.Duration, error) {
	best := time.Duration(1<<63 - 1)
	for i := range 6 {
		if err := comm.Barrier(ctx, c); err != nil {
			return 0, err
		}
		start := time.Now()
		if err := call(); err != nil {
			return 0, err
		}
		if t := time.Since(start); i > 0 {
			best = min(best, t)
		}
	}
	return best, nil
}
