package runtime

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/mem"
	"github.com/gorun-spmd/gorun/internal/job"
)

// A rank is all that runtime knows of this process. It travels in the ctx of f.
type rank struct {
	job   job.Job
	host  string
	log   zerolog.Logger
	step  atomic.Int64 // -1 before the first SetStep
	world *comm.Comm
}

// rankKey is the key of a *rank in a context.
type rankKey struct{}

// from returns the rank that ctx belongs to, or nil if Main did not make ctx.
func from(ctx context.Context) *rank {
	r, _ := ctx.Value(rankKey{}).(*rank)
	return r
}

// newRank removes the contract from the environment before anything else can see it.
func newRank(j job.Job) *rank {
	for _, name := range job.Names() {
		_ = os.Unsetenv(name)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	r := &rank{job: j, host: host}
	r.step.Store(-1)
	r.log = newLogger(os.Stderr, r, os.Getenv)
	return r
}

// join makes r.world.
func (r *rank) join() error {
	if r.job.Size > 1 {
		return fmt.Errorf("runtime: a world of %d ranks needs the shared-memory backend", r.job.Size)
	}
	r.world = comm.NewWorld(mem.Open(1)[0])
	return nil
}

// fail tells the other ranks that this one has failed, and why.
func (r *rank) fail(cause error) {
	r.world.Abort(cause)
}

// jobFailed reports whether the job is ending because some rank failed.
func (r *rank) jobFailed() bool { return false }

// SetStep records which step the program is at, for its log lines and for whoever
// watches the job. It may be called from any goroutine, and does nothing if ctx
// was not made by Main.
func SetStep(ctx context.Context, step int) {
	if r := from(ctx); r != nil {
		r.step.Store(int64(step))
	}
}

// Attempt returns 0 in the first start of a job, and n in its n-th restart. It is
// 0 if ctx was not made by Main.
func Attempt(ctx context.Context) int {
	if r := from(ctx); r != nil {
		return r.job.Attempt
	}
	return 0
}

// Local returns this rank's number among the ranks of its host and how many there
// are: 0 and 1 if ctx was not made by Main.
func Local(ctx context.Context) (rank, size int) {
	if r := from(ctx); r != nil {
		return r.job.LocalRank, r.job.LocalSize
	}
	return 0, 1
}
