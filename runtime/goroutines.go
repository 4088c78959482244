package runtime

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/mem"
	"github.com/gorun-spmd/gorun/internal/job"
)

// goroutineRanks is what the ranks of one process share.
type goroutineRanks struct {
	ends   []*mem.Rank // by rank
	spoken atomic.Bool // a failure has been printed
}

// first reports whether nobody else has asked. It is true for a rank that is a process.
func (g *goroutineRanks) first() bool { return g == nil || g.spoken.CompareAndSwap(false, true) }

// maxGoroutines is how many ranks one process may be.
const maxGoroutines = 4096

// goroutines reads the value of job.GoroutinesVar, 1 if there is none.
func goroutines(text string) (ranks int, err error) {
	if text == "" {
		return 1, nil
	}
	if ranks, err = strconv.Atoi(text); err != nil || ranks < 1 || ranks > maxGoroutines {
		return 0, fmt.Errorf("runtime: %s=%q: give a number of ranks from 1 to %d", job.GoroutinesVar, text, maxGoroutines)
	}
	return ranks, nil
}

// runGoroutines runs f on a number of ranks, each a goroutine of this process, r the first of
// them. It returns the exit status of the first rank that ends with another than 0. The
// ranks beside one that fails have failTime to end, because their process ends then.
// Ranks that wait for each other fail (see mem.Watch).
func (r *rank) runGoroutines(ranks int, f func(context.Context, *comm.Comm) error) (status int) {
	shared := &goroutineRanks{ends: mem.Open(ranks)}
	defer mem.Watch(shared.ends)()
	ended := make(chan int, ranks)
	for n, backend := range shared.ends {
		one := newRank(job.Job{Rank: n, Size: ranks, LocalRank: n, LocalSize: ranks}, r.launch)
		one.goroutines, one.traceTo, one.profile = shared, r.traceTo, r.profile
		go func() {
			status := one.run(f)
			switch cause := fmt.Sprintf("exit status %d", status); {
			case status == 0:
				backend.End("")
			case status < byUser:
				backend.End(cause)
			default:
				backend.End(job.Stopped + ": " + cause)
			}
			ended <- status
		}()
	}
	var late <-chan time.Time
	for range ranks {
		select {
		case one := <-ended:
			status = cmp.Or(status, one)
			if 0 < one && one < byUser && late == nil {
				late = time.After(failTime)
			}
		case <-late:
			return status
		}
	}
	return status
}

// byUser is the least exit status of a rank that a signal has ended.
const byUser = 128

// failTime is how long the other ranks of a process may go on when one has failed.
const failTime = 2 * leaveTime
