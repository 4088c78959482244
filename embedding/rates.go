package embedding

import (
	"context"
	"fmt"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/rates"
)

// A Rate is how long something takes: Latency, and its bytes over Bandwidth.
type Rate struct {
	Latency   time.Duration
	Bandwidth float64 // bytes per second; 0: no time for any bytes
}

// Time returns how long it takes for a number of bytes.
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

// Rates are what a planner knows of a machine. Bytes of calls are those that one rank receives; what
// ranks do themselves takes so long with all of them doing so at once.
type Rates struct {
	AllToAll  Rate // among the ranks of the axis that divides tables
	AllGather Rate // among all ranks that divide the batch

	// Table is what each table takes on each rank; ID each id that a rank looks up: it is found, pooled, and has a
	// gradient; Row each row that is asked for, on the rank that has it: it is fetched, and its gradients are
	// added up and change it, as row-wise Adagrad does. Copy is what the bytes of these ids' and rows' elements take on top.
	Table, ID, Row time.Duration
	Copy           Rate

	// Split is what each distinct row that a rank looks up takes on top where columns are divided: its parts are joined, its
	// gradient is divided, and the squares of the parts are added up.
	Split Rate
}

// String prints the rates in one line.
func (r Rates) String() string {
	return fmt.Sprintf("all-to-all %v, all-gather %v; %v a table, %v an id, %v a row, their elements at %.1f GB/s; "+
		"%v + %.1f GB/s a row of divided columns", r.AllToAll, r.AllGather, r.Table.Round(100*time.Nanosecond), r.ID, r.Row,
		r.Copy.Bandwidth/1e9, r.Split.Latency, r.Split.Bandwidth/1e9)
}

// MeasureRates measures the rates on a mesh whose axis divides tables, in some
// tenths of a second. It is collective over the mesh; all its ranks get the numbers of
// the slowest. A rank outside gets zeros.
//
// In a program that runs for gorun plan they are predicted, or if no times are, TypicalRates.
func MeasureRates(ctx context.Context, mesh *dtensor.Mesh, axis string) (Rates, error) {
	i, ok := mesh.Axis(axis)
	if !ok {
		return Rates{}, &Error{Op: "MeasureRates", Detail: fmt.Sprintf("mesh %v has no axis %q; use one of its names", mesh, axis)}
	}
	if !mesh.Inside() {
		return Rates{}, nil
	}
	watch := rates.NewStopwatch(ctx, mesh.Comm(), mesh.Device())
	if !watch.Runs() {
		return TypicalRates(), nil
	}
	var r Rates
	var err error
	group := mesh.Group(mesh.Axes()[i].Name)
	if r.AllToAll, err = measureCall(watch, group.Size(), func(n, each int) func() error {
		src, dst := make([]byte, n*each), make([]byte, n*each)
		return func() error { return comm.AllToAll(ctx, group, dst, src) }
	}); err != nil {
		return Rates{}, err
	}
	if r.AllGather, err = measureCall(watch, mesh.Size(), func(n, each int) func() error {
		src, dst := make([]byte, each), make([]byte, n*each)
		return func() error { return comm.AllGather(ctx, mesh.Comm(), dst, src) }
	}); err != nil {
		return Rates{}, err
	}
	err = r.measureLookups(ctx, watch, mesh, i)
	return r, err
}

// measureCall measures a call of n ranks, which get each bytes of each other.
func measureCall(watch *rates.Stopwatch, n int, call func(n, each int) func() error) (r Rate, err error) {
	const small, large = 8, 1 << 20 // bytes that a rank gets
	var seconds, bytes [2]float64
	for i, size := range []int{small, large} {
		each := max(size/n, 1)
		bytes[i] = float64(n * each)
		if seconds[i], err = watch.Seconds(call(n, each)); err != nil {
			return Rate{}, err
		}
	}
	return rateOf(bytes[0], seconds[0], bytes[1], seconds[1]), nil
}

// rateOf returns the Rate of two measurements. More bytes take no less time, and none no less than none.
func rateOf(bytes1, seconds1, bytes2, seconds2 float64) Rate {
	each := max(0, seconds2-seconds1) / (bytes2 - bytes1)
	r := Rate{Latency: time.Duration(1e9 * max(0, seconds1-each*bytes1))}
	if each > 0 {
		r.Bandwidth = 1 / each
	}
	return r
}

// TypicalRates are those of ranks that share memory, of about two on as many cores: to plan with where nothing can be
// measured, and the same each time.
func TypicalRates() Rates {
	call := Rate{Latency: 5 * time.Microsecond, Bandwidth: 4e9}
	return Rates{AllToAll: call, AllGather: call, Table: 20 * time.Microsecond, ID: 250 * time.Nanosecond, Row: 400 * time.Nanosecond,
		Copy: Rate{Bandwidth: 3e9}, Split: Rate{100 * time.Nanosecond, 4e9}}
}
