package embedding

import (
	"context"
	"fmt"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/forecast"
	"github.com/gorun-spmd/gorun/tensor"
)

// A Rate is how long something takes: Latency, and its bytes over Bandwidth.
type Rate struct {
	Latency   time.Duration
	Bandwidth float64 // bytes per second; 0: no time for any bytes
}

// Time returns how long it takes for so many bytes.
func (r Rate) Time(bytes float64) time.Duration { return r.Latency + time.Duration(r.ns(bytes)) }

// ns is Time without the latency, in ns.
func (r Rate) ns(bytes float64) float64 {
	if r.Bandwidth == 0 || bytes == 0 {
		return 0
	}
	return bytes / r.Bandwidth * 1e9
}

// String prints the rate: "12µs + 3.4 GB/s".
func (r Rate) String() string {
	return fmt.Sprintf("%v + %.1f GB/s", r.Latency.Round(100*time.Nanosecond), r.Bandwidth/1e9)
}

// Rates are what a planner knows of a machine. Bytes are those that one rank
// receives. What a rank does itself is measured with all ranks doing so at once.
type Rates struct {
	AllToAll  Rate // among the ranks of the axis that divides tables
	AllGather Rate // among all ranks that divide the batch

	// Table, ID and Copy are what a lookup of ids in a table and its gradient take on
	// one rank that has the rows: for each table, for each id, and for the bytes of
	// the rows of these ids.
	Table, ID time.Duration
	Copy      Rate
}

// String prints the rates in one line.
func (r Rates) String() string {
	return fmt.Sprintf("all-to-all %v, all-gather %v; a lookup and its gradient %v a table, %v an id, rows at %.1f GB/s",
		r.AllToAll, r.AllGather, r.Table.Round(100*time.Nanosecond), r.ID, r.Copy.Bandwidth/1e9)
}

// MeasureRates measures the rates on a mesh whose axis divides tables, in some
// tens of milliseconds. It is collective over the mesh; all its ranks get the numbers of
// the slowest. A rank outside gets zeros.
func MeasureRates(ctx context.Context, mesh *dtensor.Mesh, axis string) (Rates, error) {
	i, ok := mesh.Axis(axis)
	if !ok {
		return Rates{}, &Error{Op: "MeasureRates", Detail: fmt.Sprintf("mesh %v has no axis %q; use one of its names", mesh, axis)}
	}
	if !mesh.Inside() {
		return Rates{}, nil
	}
	if forecast.Of(mesh.Comm().Internals().Attr) != nil {
		return assumed, nil
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
	var times []int64
	var bytes []int
	add := func(call func() error, n int) error {
		t, err := fastest(ctx, mesh.Comm(), call)
		times, bytes = append(times, int64(t)), append(bytes, n)
		return err
	}
	for _, f := range []func(int) (func() error, int){toAll, gather} {
		for _, size := range []int{small, large} {
			if err := add(f(size)); err != nil {
				return Rates{}, err
			}
		}
	}
	for _, size := range [][2]int{{1, 1}, {probeIDs, 1}, {probeIDs, probeWidth}} {
		call, err := probe(ctx, mesh, size[0], size[1])
		if err == nil {
			err = add(call, probeTables*size[0]*size[1]*tensor.Float32.Size())
		}
		if err != nil {
			return Rates{}, err
		}
	}
	if err := comm.AllReduce(ctx, mesh.Comm(), times, comm.Max); err != nil {
		return Rates{}, err
	}
	bandwidth := func(lo int) float64 { // of the bytes by which a measurement is more than the one before
		return float64(bytes[lo+1]-bytes[lo]) / (float64(max(times[lo+1]-times[lo], 1)) / 1e9)
	}
	rate := func(i int) Rate { return Rate{Latency: time.Duration(times[i]), Bandwidth: bandwidth(i)} }
	return Rates{AllToAll: rate(0), AllGather: rate(2), Table: time.Duration(times[4] / probeTables),
		ID: time.Duration(max(times[5]-times[4], 0) / (probeTables * (probeIDs - 1))), Copy: Rate{Bandwidth: bandwidth(5)}}, nil
}

// assumed are the rates of ranks that share memory, where nothing can be measured: in a program that
// runs for gorun plan.
var assumed = Rates{AllToAll: Rate{Latency: 20 * time.Microsecond, Bandwidth: 2e9},
	AllGather: Rate{Latency: 20 * time.Microsecond, Bandwidth: 2e9},
	Table:     10 * time.Microsecond, ID: 20 * time.Nanosecond, Copy: Rate{Bandwidth: 2e9}}

// The lookups that MeasureRates makes: in so many tables, of so many ids in each or one,
// and of rows of so many features or one.
const (
	probeTables = 8
	probeIDs    = 512
	probeWidth  = 64
)

// probe returns a lookup of n ids in each of some tables and its gradient, which every
// rank makes by itself.
func probe(ctx context.Context, mesh *dtensor.Mesh, n, width int) (call func() error, err error) {
	var tables []CollectionTable
	var names []string
	for t := range probeTables {
		name := fmt.Sprint(t)
		names = append(names, name)
		tables = append(tables, CollectionTable{Config: Config{Name: name, Rows: 2 * n, Dim: width}, Features: []string{name}, Mode: Sum})
	}
	lengths, ids := make([]int, probeTables*n), make([]int64, probeTables*n)
	for i := range ids {
		lengths[i], ids[i] = 1, int64(i*i%(2*n))
	}
	j, err := NewJagged(mesh, names, n, lengths, ids, nil)
	if err != nil {
		return nil, err
	}
	var c *Collection
	err = dtensor.Try(ctx, mesh, func() {
		c = NewCollection(mesh, tables...)
		dtensor.Keep(c.Params()...)
	})
	return func() error {
		_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return c.Bags(j).Values().Sum(nil, false) }, c.Params()...)
		return err
	}, err
}

// fastest returns the shortest time of a few calls, after one to warm up: what else the
// machine does at the moment does not count.
func fastest(ctx context.Context, c *comm.Comm, call func() error) (time.Duration, error) {
	best := time.Duration(1<<63 - 1)
	for i := range 10 {
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
