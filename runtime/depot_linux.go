package runtime

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/depot"
	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/internal/mem"
)

// A hold is what a rank has of the depot of its host. While it is there, the rank is.
type hold struct{ local *depot.Local }

// takeDepot takes what gorun tells the ranks of an elastic job on several hosts, and removes it
// from the environment. It is nil in other jobs.
func (r *rank) takeDepot() (*depot.Contract, error) {
	value := os.Getenv(depot.Var)
	_ = os.Unsetenv(depot.Var)
	if value == "" {
		return nil, nil
	}
	c, err := depot.ParseContract(value)
	return &c, err
}

// joinDepot finds or starts what holds snapshots on this host, and learns of those on others.
func (r *rank) joinDepot(ctx context.Context, world *comm.Comm) error {
	c, err := r.takeDepot()
	if c == nil || err != nil {
		return err
	}
	r.job.Attempt = c.Attempt
	if r.job.LocalRank == 0 {
		if err := depot.Ensure(c); err != nil {
			return fmt.Errorf("runtime: %w", err)
		}
	}
	if err := comm.Barrier(ctx, world); err != nil {
		return err
	}
	local, err := depot.Join(c)
	if err != nil {
		return fmt.Errorf("runtime: %w", err)
	}
	r.hold = hold{local}
	known := []depot.Info{local.Info}
	if r.job.Rank == 0 && c.Attempt > 0 {
		all, err := depot.All(c)
		if err != nil {
			return fmt.Errorf("runtime: %w", err)
		}
		known = append(known, all...)
	}
	infos, err := comm.AllGatherObjects(ctx, world, known)
	if err != nil {
		return err
	}
	s := &job.Snapshots{File: local.File, Attempt: c.Attempt, Fits: r.fits}
	numbers := map[string]int{}
	for _, its := range infos {
		info := its[0]
		host, ok := numbers[info.ID]
		if !ok {
			host = len(s.Hosts)
			numbers[info.ID] = host
			var m job.SnapshotMemory = local.File
			if info.ID != local.Info.ID {
				m = depot.NewRemote(info, c)
			}
			s.Hosts = append(s.Hosts, m)
		}
		s.HostOf = append(s.HostOf, host)
	}
	for _, info := range infos[0][1:] {
		if _, ok := numbers[info.ID]; !ok {
			s.Idle = append(s.Idle, depot.NewRemote(info, c))
		}
	}
	if r.job.Rank == 0 {
		s.Tell = func(step int) { r.tell(job.Word{Kind: job.Kept, Status: step}) }
	}
	if next, ok := s.Hosts[(s.HostOf[r.job.Rank]+1)%len(s.Hosts)].(*depot.Remote); ok {
		if err := next.Connect(); err != nil {
			return fmt.Errorf("runtime: %w", err)
		}
	}
	r.snapshots = s
	return nil
}

// fits returns an error if all snapshots on this host cannot have the given bytes.
func (r *rank) fits(bytes int) error {
	info, err := r.hold.local.File.Stat()
	if err != nil {
		return err
	}
	has := 0
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		has = int(stat.Blocks) * 512
	}
	m, err := mem.ReadMachine("")
	if err != nil {
		return nil // nobody knows; the kernel refuses what does not fit
	}
	if bytes-has > m.Available || bytes > m.Limit {
		return fmt.Errorf("%s has %d left; use more hosts, or a smaller model", r.host, min(m.Available, m.Limit))
	}
	return nil
}
