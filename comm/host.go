package comm

import (
	"context"
	"hash/fnv"
	"os"
)

// SplitHosts makes two communicators. host has the ranks of this rank's machine, so its ranks
// share memory; peers has one rank of each machine: those with the number that this rank has
// in host. Both are in the order of c. All ranks must call it. A machine is a boot of a kernel
// with a host name, so containers with names of their own count as machines.
func (c *Comm) SplitHosts(ctx context.Context) (host, peers *Comm, err error) {
	name, _ := os.Hostname() // "" is a name too
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	h := fnv.New64a()
	h.Write([]byte(name + " " + string(boot)))
	return c.splitHosts(ctx, h.Sum64())
}

// splitHosts is SplitHosts on the machine with this id.
func (c *Comm) splitHosts(ctx context.Context, id uint64) (host, peers *Comm, err error) {
	all := make([]uint64, c.ranks())
	if err := AllGather(ctx, c, all, []uint64{id}); err != nil {
		return nil, nil, err
	}
	first := 0 // the first rank of this machine
	for all[first] != id {
		first++
	}
	if host, err = c.Split(ctx, first, c.rank); err != nil {
		return nil, nil, err
	}
	peers, err = c.Split(ctx, host.Rank(), c.rank)
	return host, peers, err
}
