//go:build linux

package stdio

import (
	"cmp"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/launcher/supervisor"
)

// Pumps are the running pumps of a job.
type Pumps struct {
	stderr chan struct{}    // closed when the ranks' standard error is written, and all that goes to gorun's
	all    chan struct{}    // closed when all output is written
	late   <-chan time.Time // fires when Wait stops waiting; nil: never
	enough bool             // Wait has stopped waiting
}

// HeadlineTime is how long gorun's last lines wait for standard output. They come after
// it if somebody reads it, and without it otherwise.
const HeadlineTime = 200 * time.Millisecond

// Start starts pumps.
func (c *Console) Start(pumps []*Pump) *Pumps {
	p := &Pumps{stderr: make(chan struct{}), all: make(chan struct{})}
	var stderr, rest sync.WaitGroup
	for _, it := range pumps {
		if it.tail != nil || it.to.target == c.err.target {
			stderr.Go(it.Run)
		} else {
			rest.Go(it.Run)
		}
	}
	go func() {
		stderr.Wait()
		close(p.stderr)
		rest.Wait()
		close(p.all)
	}()
	return p
}

// Limit bounds the time of Wait after a job that the user has ended, or whose guardian was
// killed.
func (p *Pumps) Limit(o *supervisor.Outcome) {
	switch {
	case o.Killed && o.Reason == supervisor.Interrupted:
		p.late = time.After(200 * time.Millisecond)
	case o.Reason == supervisor.Interrupted || o.Reason == supervisor.Lost:
		p.late = time.After(time.Second)
	}
}

// Wait returns when all output is written, when a signal asks gorun to end, or at the time of
// Limit. With a patience, and if the job has not ended well, it waits no longer than patience
// after standard error is written.
func (p *Pumps) Wait(o *supervisor.Outcome, signals <-chan os.Signal, patience time.Duration) {
	var over <-chan time.Time
	stderr := p.stderr
	if patience == 0 || o.Reason == supervisor.Finished {
		stderr = nil
	}
	for !p.enough {
		select {
		case <-p.all:
			return
		case <-stderr:
			stderr, over = nil, time.After(patience)
		case <-over:
			return
		case <-p.late:
			p.enough = true
		case sig := <-signals:
			switch sig {
			case unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT:
				o.Signal = cmp.Or(o.Signal, sig.(syscall.Signal))
				if o.Reason == supervisor.Finished {
					o.Reason = supervisor.Interrupted
				}
				p.enough = true
			case unix.SIGTSTP:
				supervisor.Suspend()
			}
		}
	}
}
