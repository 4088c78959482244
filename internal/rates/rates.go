// Package rates measures how fast a machine is for gorun plan: kernels, operators, and calls between
// the ranks of one host. It runs as the ranks of a job.
package rates

import (
	"context"
	"encoding/json"
	"math/bits"
	"os"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/forecast"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Print measures with the ranks of world at once, in a second or two, and prints the machine as JSON
// on rank 0.
func Print(ctx context.Context, world *comm.Comm) error {
	m, err := measure(ctx, world)
	if err != nil || world.Rank() != 0 {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(m)
}

// measure measures the machine with the ranks of world at once; of several hosts, the host of rank 0. It is collective, and
// all ranks get the same result.
func measure(ctx context.Context, world *comm.Comm) (*forecast.Machine, error) {
	mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "all", Size: world.Size()})
	if err != nil {
		return nil, err
	}
	s := NewStopwatch(ctx, world, mesh.Device())
	host, _, err := world.SplitHosts(ctx)
	if err != nil {
		return nil, err
	}
	together, err := cores(ctx, host)
	if err != nil {
		return nil, err
	}
	// More ranks than cores take turns of some milliseconds, in which each computes as fast as the ranks that run
	// then. So as many ranks as cores compute here, and with all ranks a kernel takes longer in proportion.
	running := min(host.Size(), together)
	s.waits = host.Rank() >= running
	m := &forecast.Machine{Cores: together, Ranks: running, Products: map[string][]forecast.Point{}, Rows: map[string]float64{}}
	if err := s.kernels(m); err != nil {
		return nil, err
	}
	s.waits = false
	m = m.For(host.Size())
	if m.Program, err = s.program(mesh, m.Memory[0].Seconds, float64(host.Size())/float64(running)); err != nil {
		return nil, err
	}
	if m.Host, err = s.host(host); err != nil {
		return nil, err
	}
	of, err := comm.BroadcastObject(ctx, world, *m, 0)
	return &of, err
}

// cores returns how many cores the ranks of a host have together, whether each rank is bound to cores of its own or all
// are bound to the same.
func cores(ctx context.Context, host *comm.Comm) (n int, err error) {
	own, err := affinity()
	if err != nil {
		return 0, err
	}
	if err := comm.AllReduce(ctx, host, own, comm.Or); err != nil {
		return 0, err
	}
	for _, word := range own {
		n += bits.OnesCount64(uint64(word))
	}
	return n, nil
}

// program measures how long an operator, or its gradient, takes beside its kernel. Each has about one kernel, which takes
// alone seconds on a tensor of one element. Other kernels run before, as in a step, so that no near cache has what an operator
// needs. All ranks compute and then meet, so those that share a core take turns: turns is by how much that makes a kernel
// slower.
func (s *Stopwatch) program(mesh *dtensor.Mesh, alone, turns float64) (float64, error) {
	var x *dtensor.Tensor
	if err := dtensor.Try(s.ctx, mesh, func() {
		x = dtensor.Full(mesh, tensor.Float32, 1, []int{1, 1}, layout.Replicate())
		dtensor.Keep(x)
	}); err != nil {
		return 0, err
	}
	const operators = 9
	large := tensor.Zeros(s.dev, tensor.Float32, farElements/8)
	t, err := s.after(func() { tensor.BinaryTo(large, kernel.OpAdd, large, large) }, func() error {
		_, _, err := dtensor.ValueAndGrad(s.ctx, func() *dtensor.Tensor {
			y := dtensor.Cat(1, x.MatMul(x).Gelu(), x).Narrow(1, 0, 1)
			return y.Permute(1, 0).Mul(x).Exp().Add(x).Sum(nil, false)
		}, x)
		return err
	})
	large.Free()
	return max(t/(2*operators)-turns*alone, 1e-9), err
}

// host measures how ranks of a host come together, and how they copy from each other. As in a step they come from kernels, of which
// none ends at the same time on all, and no near cache has what they copy.
func (s *Stopwatch) host(host *comm.Comm) (l forecast.Link, err error) {
	n := host.Size()
	most := []int{n}
	if err := comm.AllReduce(s.ctx, s.world, most, comm.Max); err != nil {
		return l, err
	}
	if most[0] == 1 {
		return forecast.Link{Latency: 1e-6, Bandwidth: 5e9}, nil // there is nobody to exchange with
	}
	const each = 1 << 18 // elements that a rank hands in
	from, to := tensor.Full(s.dev, tensor.Float32, 1, farElements), tensor.New(s.dev, tensor.Float32, max(farElements, 2*each*n))
	defer from.Free()
	defer to.Free()
	parts := far(from, each/4)
	work := func() { x := parts(); tensor.BinaryTo(x[0], kernel.OpAdd, x[0], x[1]) }
	srcs, dsts := far(from, each), far(to, each*n)
	meet := func() error { return comm.Barrier(s.ctx, host) }
	t, err := s.Each(meet, func() error { work(); return nil }, func() error {
		work()
		return meet()
	}, func() error {
		src, dst := srcs()[0], dsts()[1]
		return host.Do(s.ctx, comm.Call{Kind: comm.AllGatherKind, Dst: comm.Buffer{Ptr: dst.Ptr(), Count: each * n, DType: comm.Float32},
			Src: comm.Buffer{Ptr: src.Ptr(), Count: each, DType: comm.Float32}})
	})
	l.Latency = max(t[0], t[2]-t[1])
	l.Bandwidth = 2 * float64(each*4*n) / max(t[3]-2*l.Latency, 1e-9)
	return l, err
}
