package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"slices"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/internal/keepalive"
)

// No signal reaches the ranks of a host that was cut off, and they would wait in the MPI
// library for ever. So each rank that is not on rank 0's host holds a connection to a rank
// there, and both ends of it end when the other host does not answer.

// hostTimeout is the limit where the environment says none.
const hostTimeout = time.Minute

// An invitation is what rank 0 tells the ranks on other hosts.
type invitation struct {
	Limit     time.Duration
	Host      string // rank 0's
	Addresses []string
	Secret    keepalive.Secret
}

// Sizes of an invitation: its text, with spaces behind it, and what fits into it.
const (
	invitationBytes = 4096
	maxAddresses    = 16
)

// watchHosts connects this rank to others, and has it end when their host is cut off, or
// its own. Rank 0's limit counts: launchers hand variables on to other hosts only if told to.
func (r *rank) watchHosts(ctx context.Context, world *comm.Comm) error {
	limit, err := hostLimit(os.Getenv(job.HostTimeoutVar))
	if err != nil {
		return err
	}
	all, me := make([]origin, world.Size()), world.Rank()
	if err := comm.AllGather(ctx, world, all, []origin{{hostNumber(r.host), numberOf(os.Args[0]), buildNumber()}}); err != nil {
		return err
	}
	hosts := make([]int64, len(all))
	for n, it := range all {
		hosts[n] = it.Host
	}
	if !slices.ContainsFunc(hosts, func(host int64) bool { return host != hosts[0] }) {
		return nil
	}
	if other, ok := otherBuild(all, me); ok {
		r.log.Warn().Msgf("%s on this host is another build than rank %d's: copy one to all hosts", os.Args[0], other)
	}
	it := invitation{Limit: limit, Host: r.host, Addresses: keepalive.Addresses(), Secret: keepalive.NewSecret()}
	it.Addresses = it.Addresses[:min(len(it.Addresses), maxAddresses)]
	if err := it.exchange(ctx, world); err != nil || it.Limit == 0 {
		return err
	}
	lost := func(host string) { r.hostLost(host, it.Limit) }
	ports := make([]int64, len(hosts))
	var port int64
	if hosts[me] == hosts[0] {
		if l, err := keepalive.Listen(it.Limit, it.Secret, lost); err == nil {
			port = int64(l.Port())
		} // else the others say that nobody answers
	}
	if err := comm.AllGather(ctx, world, ports, []int64{port}); err != nil || hosts[me] == hosts[0] {
		return err
	}
	go func() {
		var errs []error
		for _, to := range partners(hosts, me) {
			errs = append(errs, keepalive.Dial(it.Addresses, int(ports[to]), it.Limit, it.Secret, r.host, it.Host, lost))
		}
		if err := errors.Join(errs...); err != nil && r.job.LocalRank == 0 { // once for each host
			r.log.Warn().AnErr("cause", err).Str("host", it.Host).Msg("if this host is cut off, ranks here do not end by themselves")
		}
	}()
	return nil
}

// hostLimit reads the variable of the limit; 0 is none.
func hostLimit(text string) (time.Duration, error) {
	if text == "" {
		return hostTimeout, nil
	}
	limit, err := time.ParseDuration(text)
	if err != nil || limit != 0 && limit < keepalive.MinLimit {
		return 0, fmt.Errorf("runtime: %s=%q: give a time of %v or more, such as 1m, or 0 for none", job.HostTimeoutVar, text, keepalive.MinLimit)
	}
	return limit, nil
}

// hostNumber tells hosts apart. Two may have one name, and containers one boot.
func hostNumber(name string) int64 {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without it the name has to do
	return numberOf(fmt.Sprintf("%s\n%s", name, boot))
}

// numberOf is a number for a text, which only another's may equal by chance.
func numberOf(text string) int64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, text)
	return int64(h.Sum64())
}

// An origin says where a rank runs and what, each as a number that only another's may equal.
type origin struct{ Host, Name, Build int64 }

// buildNumber tells builds of a program apart: the go command's build ID is in the head of an executable. 0: it cannot be read.
func buildNumber() int64 {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return 0
	}
	defer f.Close()
	h := fnv.New64a()
	if _, err := io.CopyN(h, f, 32<<10); err != nil {
		return 0
	}
	return int64(h.Sum64())
}

// otherBuild returns the first rank that runs another build under the same name, to the first rank of me's host that runs this one.
// Ranks of a host share a file system, and one warning of it is enough.
func otherBuild(all []origin, me int) (rank int, ok bool) {
	if slices.Index(all, all[me]) != me {
		return 0, false
	}
	rank = slices.IndexFunc(all, func(it origin) bool { return it.Name == all[me].Name })
	return rank, all[rank].Build != all[me].Build && all[rank].Build != 0 && all[me].Build != 0
}

// exchange replaces it by rank 0's.
func (it *invitation) exchange(ctx context.Context, world *comm.Comm) error {
	text, err := json.Marshal(it)
	if err != nil {
		return err
	}
	buf := bytes.Repeat([]byte{' '}, invitationBytes)
	copy(buf, text)
	if err := comm.Broadcast(ctx, world, buf, 0); err != nil {
		return err
	}
	*it = invitation{}
	return json.Unmarshal(buf, it)
}

// partners returns the ranks of rank 0's host that rank me, on another one, connects to:
// together, the ranks of a host leave no rank of either without a connection.
func partners(hosts []int64, me int) (to []int) {
	here, there := ranksOn(hosts, hosts[me]), ranksOn(hosts, hosts[0])
	for i := slices.Index(here, me); i < max(len(here), len(there)); i += len(here) {
		to = append(to, there[i%len(there)])
	}
	return to
}

func ranksOn(hosts []int64, host int64) (ranks []int) {
	for r, h := range hosts {
		if h == host {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// farewell is what a word to gorun may take, at the most.
const farewell = 500 * time.Millisecond

// hostLost ends this process, and those that it has started, without a call of the MPI
// library, which may be waiting for the host.
func (r *rank) hostLost(host string, limit time.Duration) {
	err := fmt.Errorf("runtime: %s does not answer: it has crashed, or it or %s was cut off; this rank ends (%s=%v)",
		host, r.host, job.HostTimeoutVar, limit)
	told := make(chan struct{})
	go func() { // nobody may read what it says
		r.tellFailure(err)
		r.report(err, false)
		_ = r.trace.save()
		close(told)
	}()
	select {
	case <-told:
	case <-time.After(farewell):
	}
	killChildren(os.Getpid())
	os.Exit(1)
}
