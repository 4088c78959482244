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

// Pumps is the pumps of a job at work.
type Pumps struct {
	stderr chan struct{}    // closed when the ranks' standard error is written, and what shares gorun's
	all    chan struct{}    // closed when everything is
	late   <-chan time.Time // when the rest is not waited for; nil: never
	enough bool             // the rest is not waited for
}

// HeadlineTime is how long gorun's last words wait for standard output. They come after
// it where somebody reads it, and nevertheless where nobody does.
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

// Limit bounds how long output is waited for after a job that the user has ended, or
// whose guardian was killed.
func (p *Pumps) Limit(o *supervisor.Outcome) {
	switch {
	case o.Killed && o.Reason == supervisor.Interrupted:
		p.late = time.After(200 * time.Millisecond)
	case o.Reason == supervisor.Interrupted || o.Reason == supervisor.Lost:
		p.late = time.After(time.Second)
	}
}

// Wait returns when all output is written, or the user has had enough. With a patience,
// and if the job has not ended well, it returns at the latest when standard error is
// written and that time is over.
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
