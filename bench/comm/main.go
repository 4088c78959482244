// Command comm measures the collectives, the halo exchange of a grid, one-sided calls and messages, for
// buffers of 8 bytes to 64 MiB on each rank. The buffers lie in the memory of tensors: memory
// that the other ranks can reach, or a GPU's.
//
//	gorun -np 2 ./bench/comm            a table
//	gorun -np 2 ./bench/comm -json      a line of JSON for each measurement
//	gorun -np 8 ./bench/comm -match work   the same work on more ranks
//	gorun -np 2 ./bench/comm -device cuda -max 268435456   on GPUs, up to 256 MiB
//	mpirun -np 2 comm                   the same over MPI; built with -tags gompi, or
//	                                    -tags empi,mpi, over those bindings
//
// The elements are float32, and reductions sum. As in the peers' benchmarks, a barrier comes
// before each call, the time of the slowest rank counts, and "ns" is the median over the calls.
// "ns_loop" is the mean time of the same number of calls back to back. It is the better
// figure for a few bytes, since reading a clock takes as long as the call. "bytes" is the
// input of one rank, and "gbs" is bytes divided by time. On a GPU a time begins and ends with a
// wait for the device; docs/gpu.md describes how collectives run there.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/runtime"
)

// result is one line of the output.
type result struct {
	Name   string  `json:"name"`
	NP     int     `json:"np"`
	Bytes  int     `json:"bytes"`
	NS     float64 `json:"ns"`
	LoopNS float64 `json:"ns_loop"`
	GBs    float64 `json:"gbs"`
	Calls  int     `json:"calls"`
}

// benchmark is one collective on buffers a of n and b of n·Size elements.
type benchmark struct {
	name    string
	largest int  // bytes of the largest buffer; 0: any
	host    bool // writes to a buffer itself, and so needs host memory
	run     func(ctx context.Context, c *comm.Comm, a, b []float32) error
}

// smallest is the bytes of the smallest buffer.
const smallest = 8

func benchmarks() []benchmark {
	return []benchmark{
		{"barrier", smallest, false, func(ctx context.Context, c *comm.Comm, _, _ []float32) error { return comm.Barrier(ctx, c) }},
		{"all_reduce", 0, false, func(ctx context.Context, c *comm.Comm, a, _ []float32) error {
			return comm.AllReduce(ctx, c, a, comm.Sum)
		}},
		{"all_gather", 0, false, func(ctx context.Context, c *comm.Comm, a, b []float32) error {
			return comm.AllGather(ctx, c, b[:len(a)*c.Size()], a)
		}},
		{"reduce_scatter", 0, false, func(ctx context.Context, c *comm.Comm, a, b []float32) error {
			part := len(a) / c.Size()
			return comm.ReduceScatter(ctx, c, b[:part], a[:part*c.Size()], comm.Sum)
		}},
		{"all_to_all", 0, false, func(ctx context.Context, c *comm.Comm, a, b []float32) error {
			whole := len(a) / c.Size() * c.Size()
			return comm.AllToAll(ctx, c, b[:whole], a[:whole])
		}},
		{"scan", 0, true, func(ctx context.Context, c *comm.Comm, a, _ []float32) error {
			return comm.Scan(ctx, c, a, a, comm.Sum)
		}},
		{"halo", 0, true, halo()},
		{"broadcast", 0, false, func(ctx context.Context, c *comm.Comm, a, _ []float32) error {
			return comm.Broadcast(ctx, c, a, 0)
		}},
		// With more ranks than cores these take as long as with fewer, if ranks that wait
		// leave the cores to ranks that work.
		{"work_divided", smallest, true, func(ctx context.Context, c *comm.Comm, a, _ []float32) error {
			a[0] = work(totalWork / c.Size())
			return comm.AllReduce(ctx, c, a, comm.Max)
		}},
		{"work_of_one", smallest, true, func(ctx context.Context, c *comm.Comm, a, _ []float32) error {
			if c.Rank() == 0 {
				a[0] = work(totalWork / 2)
			}
			return comm.AllReduce(ctx, c, a, comm.Max)
		}},
		// Like a small step of training: milliseconds of work with eight collectives in between.
		// Over MPI, a run with GORUN_DEBUG=0 and one without show the cost of the check that
		// the ranks agree.
		{"work_and_calls", smallest, true, func(ctx context.Context, c *comm.Comm, a, b []float32) error {
			const calls = 8
			n := len(a)
			for range calls / 2 {
				a[0] = work(totalWork * 3 / 5 / (calls / 2))
				if err := comm.AllReduce(ctx, c, a, comm.Sum); err != nil {
					return err
				}
				if err := comm.AllGather(ctx, c, b[:n*c.Size()], a); err != nil {
					return err
				}
			}
			return nil
		}},
	}
}

// totalWork takes one core about ten milliseconds.
const totalWork = 4_000_000

// work makes n multiplications, one after the other. It does not begin with a constant, so that
// the compiler cannot compute the result.
func work(n int) float32 {
	x := float32(n)
	for range n {
		x = x*0.999 + 0.001
	}
	return x
}

func main() {
	match := flag.String("match", "", "measure only what has this in its name, \"all_reduce/8\" for instance: the collective and its bytes")
	largest := flag.Int("max", 64<<20, "the largest buffer, in bytes a rank")
	asJSON := flag.Bool("json", false, "write JSON lines")
	device := flag.String("device", "cpu", "where the buffers lie, as runtime.UseDevice takes it")
	heap := flag.Bool("heap", false, "use Go's own memory instead of memory that other ranks can reach")
	budget := flag.Duration("time", time.Second, "how long to measure each size, about; at least 7 calls each way")
	flag.Parse()
	runtime.Main(func(ctx context.Context, world *comm.Comm) error {
		m, done, err := open(ctx, world, *device, *heap)
		if err != nil {
			return err
		}
		defer done()
		return measureAll(ctx, world, setting{*match, *largest, m, *budget}, printer(world, *asJSON))
	})
}

// printer returns a function that prints a result on rank 0 and nothing on other ranks.
func printer(world *comm.Comm, asJSON bool) func(result) error {
	switch {
	case world.Rank() != 0:
		return func(result) error { return nil }
	case asJSON:
		return func(r result) error { return json.NewEncoder(os.Stdout).Encode(r) }
	}
	fmt.Printf("%-16s %4s %10s %14s %14s %8s\n", "", "np", "bytes", "µs", "µs in a loop", "GB/s")
	return func(r result) error {
		_, err := fmt.Printf("%-16s %4d %10d %14.2f %14.2f %8.2f\n", r.Name, r.NP, r.Bytes, r.NS/1e3, r.LoopNS/1e3, r.GBs)
		return err
	}
}

// setting holds the flags.
type setting struct {
	match   string
	largest int
	memory  memory
	budget  time.Duration
}

func measureAll(ctx context.Context, world *comm.Comm, set setting, show func(result) error) error {
	most := max(set.largest/4, world.Size())
	a, err := set.memory.floats(most)
	if err != nil {
		return err
	}
	b, err := set.memory.floats(most * world.Size())
	if err != nil {
		return err
	}
	if err := settle(ctx, world); err != nil {
		return err
	}
	more, err := oneSided(ctx, world, most)
	if err != nil {
		return err
	}
	tagged, err := messages(ctx, world)
	if err != nil {
		return err
	}
	for _, m := range slices.Concat(benchmarks(), more, tagged) {
		if m.host && set.memory.device {
			continue
		}
		for _, bytes := range []int{smallest, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20} {
			if bytes > set.largest || m.largest > 0 && bytes > m.largest {
				break
			}
			n := max(bytes/4, world.Size())
			name := fmt.Sprintf("%s/%d", m.name, 4*n)
			if m.name == "barrier" {
				name = "barrier/0"
			}
			if !strings.Contains(name, set.match) {
				continue
			}
			r, err := measure(ctx, world, m, a[:n], b, set)
			if err != nil {
				return err
			}
			if err := show(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle makes small calls for 50 ms: while ranks start, they share the cores with the processes
// that start them.
func settle(ctx context.Context, c *comm.Comm) error {
	for start, on := time.Now(), []int32{1}; on[0] == 1; {
		if time.Since(start) > 50*time.Millisecond {
			on[0] = 0
		}
		if err := comm.AllReduce(ctx, c, on, comm.Max); err != nil {
			return err
		}
	}
	return nil
}

// mostCalls is the most calls that are timed one by one, and the most in a loop.
const mostCalls = 20_000

// measure times one collective on one size, half of the budget call by call
// and half back to back.
func measure(ctx context.Context, c *comm.Comm, m benchmark, a, b []float32, set setting) (result, error) {
	budget, wait := set.budget, set.memory.wait
	loop := func(calls int) (time.Duration, error) {
		wait()
		start := time.Now()
		for range calls {
			if err := m.run(ctx, c, a, b); err != nil {
				return 0, err
			}
		}
		wait()
		return time.Since(start), nil
	}
	// The first calls touch the memory and meet ranks that are late. So a loop that is long
	// enough tells how many calls fit the budget.
	calls, slowest := 1, []float64{0}
	for {
		took, err := loop(calls)
		if err != nil {
			return result{}, err
		}
		slowest[0] = took.Seconds()
		if err := comm.AllReduce(ctx, c, slowest, comm.Max); err != nil {
			return result{}, err
		}
		if slowest[0] > budget.Seconds()/50 || calls > mostCalls {
			break
		}
		calls *= 4
	}
	calls = min(max(int(budget.Seconds()/2*float64(calls)/slowest[0]), 7), mostCalls)
	times := make([]float64, calls)
	for i := range times {
		wait()
		if err := comm.Barrier(ctx, c); err != nil {
			return result{}, err
		}
		start := time.Now()
		if err := m.run(ctx, c, a, b); err != nil {
			return result{}, err
		}
		wait()
		times[i] = float64(time.Since(start).Nanoseconds())
	}
	if err := comm.AllReduce(ctx, c, times, comm.Max); err != nil {
		return result{}, err
	}
	slices.Sort(times)
	total, err := loop(calls)
	if err != nil {
		return result{}, err
	}
	back := []float64{float64(total.Nanoseconds()) / float64(calls)}
	if err := comm.AllReduce(ctx, c, back, comm.Max); err != nil {
		return result{}, err
	}
	bytes := 4 * len(a)
	if m.name == "barrier" {
		bytes = 0
	}
	return result{
		Name: m.name, NP: c.Size(), Bytes: bytes, Calls: calls,
		NS: times[calls/2], LoopNS: back[0], GBs: float64(bytes) / times[calls/2],
	}, nil
}
