package launcher

import (
	"cmp"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Times of the supervisor's own.
const (
	patience  = time.Second            // after a failure, before saying who still runs
	debounce  = 200 * time.Millisecond // signals closer than this are one: timeout(1) and terminals send two
	giveUp    = 10 * time.Second       // after SIGKILL, before leaving what does not die to the guardian
	timedOut  = 124                    // the exit status of timeout(1)
	lostChild = 1                      // exit status when the guardian was killed
	hungJob   = 123                    // exit status when the ranks wait for each other
	stackTime = 2 * time.Second        // for a rank to print its stacks
)

// A phase is how far the end of a job has come.
type phase uint8

const (
	running phase = iota
	asking        // of a hung job: laggards print their stacks and end, one after the other
	ending        // asked to end; killed at the deadline
	killing       // killed; given up at the deadline
)

// A reason is why a job ended.
type reason uint8

const (
	finished    reason = iota // every rank exited with 0
	failed                    // a rank did not
	refused                   // a rank could not be started
	interrupted               // the user's signal
	tooLate                   // --timeout
	hung                      // the ranks wait for each other
	closed                    // nobody reads our output any more
	lost                      // the guardian was killed
)

// An end is how one rank ended.
type end struct {
	pid     int // 0 before it started
	started bool
	ended   bool
	status  syscall.WaitStatus
	at      time.Time
	asked   bool // after it was told to end
}

// bad reports whether the rank failed, or was made to.
func (e *end) bad() bool { return e.ended && !(e.status.Exited() && e.status.ExitStatus() == 0) }

// An outcome is how an attempt ended.
type outcome struct {
	reason reason
	signal syscall.Signal // the user's first one to end the job; 0 if none came
	rank   int            // refused: which
	errno  syscall.Errno  // refused: why
	killed bool           // some rank had to be killed, or the user was impatient
	late   []int          // ranks that did not end in the grace period
	ends   []end          // by rank
}

// A supervisor decides what happens to a running job. It sees the world through
// its fields only.
type supervisor struct {
	grace   time.Duration // 0: kill at once
	timeout time.Duration // 0: none
	spent   time.Duration // of timeout, before

	events  <-chan event        // from the guardian; closed when it is gone
	send    func(command) error // to the guardian
	signals <-chan os.Signal    // to gorun
	broken  <-chan struct{}     // closed when nobody reads gorun's output

	// look reports whether the job hangs, and says so, with the ranks whose stacks
	// tell why. nil: nobody looks.
	look func() (laggards []int, hung bool)

	ended   func(rank int, end *end)     // a rank has ended: tell the others
	waiting func(o *outcome, left []int) // a failed job's ranks are slow to end
	say     func(format string, args ...any)
	suspend func() // stop this process; return when it goes on

	outcome
	phase    phase
	deadline time.Time // of the phase; zero: none
	notice   time.Time // when to call waiting; zero: not
	lastStop time.Time // when the user's last signal to stop came
	asks     []int     // asking: those that are still to print their stacks, the first is at it
	stopping bool      // the ranks are about to be stopped, and this process with them
	stopped  bool      // they have been
	live     int
}

// run returns when no process of the job is left, or none that can be killed.
func (s *supervisor) run(ranks int) *outcome {
	s.ends = make([]end, ranks)
	s.live = ranks
	if s.timeout > 0 {
		s.deadline = time.Now().Add(s.timeout - s.spent)
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var looks <-chan time.Time
	if s.look != nil {
		ticker := time.NewTicker(lookInterval)
		defer ticker.Stop()
		looks = ticker.C
	}
	for {
		if s.stopped && len(s.signals) == 0 { // a SIGCONT that has come would not come again
			s.stopped = false
			if s.stopping {
				from := time.Now()
				s.suspend()
				s.resume(time.Since(from))
			}
		}
		timer.Reset(s.untilNext())
		select {
		case <-looks:
			if s.phase == running && !s.stopping {
				s.hang(s.look())
			}
		case e, ok := <-s.events:
			if !ok {
				s.reason = lost
				return &s.outcome
			}
			if e.Kind == allGone {
				return &s.outcome
			}
			s.event(e)
		case sig := <-s.signals:
			if !s.signal(sig.(syscall.Signal)) {
				return &s.outcome
			}
		case <-s.broken:
			s.broken = nil
			s.stop(closed, unix.SIGTERM)
		case <-timer.C:
			if !s.tick(time.Now()) {
				return &s.outcome
			}
		}
	}
}

// untilNext is the time to the next thing that tick does.
func (s *supervisor) untilNext() time.Duration {
	next := s.deadline
	if !s.notice.IsZero() && (next.IsZero() || s.notice.Before(next)) {
		next = s.notice
	}
	if next.IsZero() {
		return time.Hour
	}
	return time.Until(next)
}

// event takes in what the guardian tells.
func (s *supervisor) event(e event) {
	if e.Rank < 0 || e.Rank >= len(s.ends) {
		return
	}
	it := &s.ends[e.Rank]
	switch e.Kind {
	case rankStarted:
		it.started, it.pid = true, e.PID
	case rankRefused:
		s.live--
		if s.phase == running {
			s.rank, s.errno = e.Rank, e.Errno
			s.reason = refused
			s.kill()
		}
	case rankEnded:
		it.ended, it.status, it.at, it.asked = true, e.Status, e.At, s.phase != running
		s.live--
		s.ended(e.Rank, it)
		if s.phase == running && it.bad() {
			s.stop(failed, unix.SIGTERM)
			s.notice = time.Now().Add(patience)
		}
		if s.phase == asking && s.ends[s.asks[0]].ended {
			s.askNext()
		}
	case ranksStopped:
		s.stopped = true
	}
}

// hang ends a hung job: its laggards print their stacks first.
func (s *supervisor) hang(laggards []int, found bool) {
	if !found {
		return
	}
	s.reason, s.phase = hung, asking
	s.asks = append([]int{-1}, laggards...)
	s.askNext()
}

// askNext has the next laggard print its stacks. After the last one all end.
func (s *supervisor) askNext() {
	for s.asks = s.asks[1:]; len(s.asks) > 0; s.asks = s.asks[1:] {
		if r := s.asks[0]; !s.ends[r].ended {
			_ = s.send(command{Action: signalRank, Signal: unix.SIGQUIT, Rank: r})
			s.deadline = time.Now().Add(stackTime)
			return
		}
	}
	s.phase = running
	s.stop(hung, unix.SIGTERM)
}

// stop asks all ranks to end, if nothing has yet.
func (s *supervisor) stop(why reason, sig syscall.Signal) {
	if s.phase != running {
		return
	}
	s.reason, s.phase = why, ending
	if s.grace == 0 {
		s.kill()
		return
	}
	_ = s.send(command{Action: signalGroups, Signal: sig})
	_ = s.send(command{Action: signalGroups, Signal: unix.SIGCONT}) // what is stopped can neither save nor end
	s.deadline = time.Now().Add(s.grace)
}

// kill ends whatever is left, at once.
func (s *supervisor) kill() {
	s.phase, s.killed = killing, true
	s.notice = time.Time{}
	s.deadline = time.Now().Add(giveUp)
	_ = s.send(command{Action: killAll})
}

// signal handles one that was sent to gorun. It returns false if the user will
// not wait any longer.
func (s *supervisor) signal(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGUSR1, unix.SIGUSR2:
		_ = s.send(command{Action: signalRanks, Signal: sig})
	case unix.SIGTSTP:
		s.stopping = true
		_ = s.send(command{Action: stopRanks})
	case unix.SIGCONT:
		s.stopping = false
		_ = s.send(command{Action: signalGroups, Signal: sig})
	case unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT:
		now := time.Now()
		again := now.Sub(s.lastStop) >= debounce
		s.outcome.signal = cmp.Or(s.outcome.signal, sig)
		switch {
		case s.phase == running:
			s.stop(interrupted, sig)
			s.announce(sig)
		case !again:
			return true
		case s.phase == asking || s.phase == ending:
			s.say("killing all ranks")
			s.kill()
		default:
			return false
		}
		s.lastStop = now
	}
	return true
}

// announce says what a signal of the user has set in motion.
func (s *supervisor) announce(sig syscall.Signal) {
	more := "a second " + signalName(sig)
	if sig == unix.SIGINT {
		more = "a second Ctrl-C"
	}
	if s.phase == killing {
		s.say("%s: killed all ranks (--grace 0)", signalName(sig))
		return
	}
	s.say("%s: passed on; ranks have %v to save and end (%s kills them at once)", signalName(sig), s.grace, more)
}

// tick acts on what is due. It returns false to give up.
func (s *supervisor) tick(now time.Time) bool {
	if !s.notice.IsZero() && !now.Before(s.notice) {
		s.notice = time.Time{}
		s.waiting(&s.outcome, s.left())
	}
	if s.deadline.IsZero() || now.Before(s.deadline) {
		return true
	}
	switch s.phase {
	case running:
		what := fmt.Sprintf("ranks have %v to save and end", s.grace)
		if s.grace == 0 {
			what = "killing all ranks (--grace 0)"
		}
		s.say("the time limit of %v is over; %s", s.timeout, what)
		s.stop(tooLate, unix.SIGTERM)
	case asking:
		s.askNext()
	case ending:
		s.late = s.left()
		s.kill()
	case killing:
		s.say("%s not end although killed, as while waiting for a disk or device; left behind", does(s.left()))
		return false
	}
	return true
}

// left returns the ranks that have not ended.
func (s *supervisor) left() []int {
	var left []int
	for r := range s.ends {
		if s.ends[r].started && !s.ends[r].ended {
			left = append(left, r)
		}
	}
	return left
}

// resume continues the ranks after gorun was stopped for d; that time counts for
// no limit.
func (s *supervisor) resume(d time.Duration) {
	s.stopping = false
	_ = s.send(command{Action: signalGroups, Signal: unix.SIGCONT})
	for _, t := range []*time.Time{&s.deadline, &s.notice} {
		if !t.IsZero() {
			*t = t.Add(d)
		}
	}
}

// signalName is "SIGINT".
func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(sig))
}

// does is "rank 3 does" or "ranks 0-2 do".
func does(ranks []int) string {
	if len(ranks) == 1 {
		return naming(ranks) + " does"
	}
	return naming(ranks) + " do"
}

// naming is "rank 3" or "ranks 0-2,5".
func naming(ranks []int) string {
	if len(ranks) == 1 {
		return "rank " + list(ranks)
	}
	return "ranks " + list(ranks)
}
