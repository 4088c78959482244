//go:build linux

package supervisor

import (
	"cmp"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/launcher/guardian"
	"github.com/gorun-spmd/gorun/launcher/phrase"
	"github.com/gorun-spmd/gorun/launcher/watchdog"
)

// Times of the supervisor's own.
const (
	Patience  = time.Second            // after a failure, before saying who still runs
	debounce  = 200 * time.Millisecond // signals closer than this are one: timeout(1) and terminals send two
	giveUp    = 30 * time.Second       // after SIGKILL, before leaving what does not die to the guardian: 300 GB take so long to be freed
	stackTime = 2 * time.Second        // for a rank to print its stacks

	askInterval = 100 * time.Millisecond // between two looks whether a signal has come to a rank
)

// A phase is how far the end of a job has come.
type phase uint8

const (
	running phase = iota
	asking        // of a hung job: laggards print their stacks and end, one after the other
	ending        // asked to end; killed at the deadline
	killing       // killed; given up at the deadline
)

// A Reason is why a job ended.
type Reason uint8

const (
	Finished    Reason = iota // every rank exited with 0
	Failed                    // a rank did not
	Refused                   // a rank could not be started
	Interrupted               // the user's signal
	TooLate                   // --timeout
	Hung                      // the ranks wait for each other
	Closed                    // nobody reads our output any more
	Lost                      // the guardian was killed
	Resized                   // another number of ranks is wanted
)

// A Supervisor decides what happens to a running job. It sees the world through
// its fields only.
type Supervisor struct {
	Grace   time.Duration // 0: kill at once
	Brief   time.Duration // the grace of a job that failed and has nothing to save; 0: Grace
	Timeout time.Duration // 0: none
	Spent   time.Duration // of Timeout, before

	Events  <-chan guardian.Event        // from the guardian; closed when it is gone
	Send    func(guardian.Command) error // to the guardian
	Signals <-chan os.Signal             // to gorun
	Broken  <-chan struct{}              // closed when nobody reads gorun's output

	// Look reports whether the job hangs, and says so, with the ranks whose stacks
	// tell why. nil: nobody looks.
	Look func() (laggards []int, hung bool)

	// Asked returns a rank that a signal has asked to end, which gorun did not send.
	// nil: nobody looks.
	Asked func() (rank int, sig syscall.Signal, ok bool)

	// Unheard reports whether the job's end waits only for ranks on hosts that are lost.
	// It is asked with Asked. nil: it does not.
	Unheard func() bool

	// Resize reports whether the job is to end so that it can go on with another number of ranks.
	// It is asked with Asked. nil: it is not.
	Resize func() bool

	Ended   func(rank int, end *End)     // a rank has ended: tell the others
	Waiting func(o *Outcome, left []int) // a failed job's ranks are slow to end
	Say     func(format string, args ...any)
	Suspend func() // stop this process; return when it goes on

	Outcome
	phase    phase
	deadline time.Time // of the phase; zero: none
	notice   time.Time // when to call waiting; zero: not
	lastStop time.Time // when the user's last signal to stop came
	asks     []int     // asking: those that are still to print their stacks, the first is at it
	laggards []int     // of the hang
	untold   []int     // asking: those that have ended, of which the others do not know yet
	stopping bool      // the ranks are about to be stopped, and this process with them
	stopped  bool      // they have been
	awake    time.Time // when gorun last ran for certain
	live     int
}

// Run returns when no process of the job is left, or none that can be killed.
func (s *Supervisor) Run(ranks int) *Outcome {
	s.Ends = make([]End, ranks)
	s.live = ranks
	if s.Timeout > 0 {
		s.deadline = time.Now().Add(s.Timeout - s.Spent)
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var looks <-chan time.Time
	if s.Look != nil {
		ticker := time.NewTicker(watchdog.Interval)
		defer ticker.Stop()
		looks = ticker.C
	}
	var asks <-chan time.Time
	if s.Asked != nil {
		ticker := time.NewTicker(askInterval)
		defer ticker.Stop()
		asks = ticker.C
	}
	s.awake = time.Now()
	for {
		s.wake(longestRest + wakeTime)
		if s.stopped && len(s.Signals) == 0 { // a SIGCONT that has come would not come again
			s.stopped = false
			if s.stopping {
				s.Suspend()
				s.wake(0)
				s.stopping = false
				_ = s.Send(guardian.Command{Action: guardian.SignalGroups, Signal: unix.SIGCONT})
			}
		}
		timer.Reset(min(s.untilNext(), longestRest))
		select {
		case <-looks:
			if s.phase == running && !s.stopping {
				s.hang(s.Look())
			}
		case <-asks:
			s.follow()
			if s.phase == running && s.Resize != nil && s.Resize() {
				s.stop(Resized, unix.SIGTERM)
			}
			if s.phase == ending && !s.stopping { // a rank may have been stopped after it was asked to end
				_ = s.Send(guardian.Command{Action: guardian.ContinueRanks})
			}
			if s.phase == ending && s.Unheard != nil && s.Unheard() {
				s.kill()
			}
		case e, ok := <-s.Events:
			if !ok {
				s.Reason = Lost
				return &s.Outcome
			}
			if e.Kind == guardian.AllGone {
				return &s.Outcome
			}
			s.event(e)
		case sig := <-s.Signals:
			if !s.signal(sig.(syscall.Signal)) {
				return &s.Outcome
			}
		case <-s.Broken:
			s.Broken = nil
			s.stop(Closed, unix.SIGTERM)
		case <-timer.C:
			s.wake(longestRest + wakeTime)
			if !s.tick(time.Now()) {
				return &s.Outcome
			}
		}
	}
}

// Run rests for longestRest at most, and then takes wakeTime at most to go on: else gorun was stopped meanwhile, by a
// SIGSTOP, of which nothing else tells.
const (
	longestRest = 500 * time.Millisecond
	wakeTime    = time.Second
)

// wake notes that gorun runs. If it last did so longer than most ago it was stopped: that time counts for no limit.
func (s *Supervisor) wake(most time.Duration) {
	now := time.Now()
	d := now.Sub(s.awake)
	if s.awake = now; d <= most {
		return
	}
	s.Suspended += d
	for _, t := range []*time.Time{&s.deadline, &s.notice} {
		if !t.IsZero() {
			*t = t.Add(d)
		}
	}
}

// untilNext is the time to the next thing that tick does.
func (s *Supervisor) untilNext() time.Duration {
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
func (s *Supervisor) event(e guardian.Event) {
	if e.Rank < 0 || e.Rank >= len(s.Ends) {
		return
	}
	it := &s.Ends[e.Rank]
	switch e.Kind {
	case guardian.RankStarted:
		it.Started, it.PID = true, e.PID
	case guardian.RankRefused:
		s.live--
		if s.phase == running {
			s.Rank, s.Errno = e.Rank, e.Errno
			s.Reason = Refused
			s.kill()
		}
	case guardian.RankEnded:
		s.follow() // it may have ended for that
		it.Ended, it.Status, it.At, it.CPU = true, e.Status, e.At, e.CPU
		laggard := slices.Contains(s.laggards, e.Rank)
		late := s.phase == ending && s.live == len(s.Ends) && laggard // none had failed until now: it ends for the hang
		byKill := e.Status.Signaled() && e.Status.Signal() == unix.SIGKILL
		killed := s.phase == ending && byKill && !laggard // by others: gorun kills in the next phase
		it.Asked = s.phase != running && s.phase != asking && !late && !killed
		s.live--
		s.untold = append(s.untold, e.Rank)
		if s.phase != asking { // else a rank would print what it does about the end of another
			s.tell()
		}
		if late { // the others took the signal for the user's, and may wait for ever
			_ = s.Send(guardian.Command{Action: guardian.SignalGroups, Signal: unix.SIGTERM})
		}
		if s.phase == running && it.Bad() {
			s.stop(Failed, unix.SIGTERM)
			s.notice = time.Now().Add(Patience)
		}
		if s.phase == asking && s.Ends[s.asks[0]].Ended {
			s.askNext()
		}
	case guardian.RanksStopped:
		s.stopped = true
	}
}

// tell lets the other ranks know which have ended.
func (s *Supervisor) tell() {
	for _, r := range s.untold {
		s.Ended(r, &s.Ends[r])
	}
	s.untold = nil
}

// hang ends a hung job: its laggards print their stacks first.
func (s *Supervisor) hang(laggards []int, found bool) {
	if !found {
		return
	}
	s.Reason, s.phase, s.laggards = Hung, asking, laggards
	s.asks = append([]int{-1}, laggards...)
	s.askNext()
}

// askNext has the next laggard print its stacks. After the last one all end.
func (s *Supervisor) askNext() {
	for s.asks = s.asks[1:]; len(s.asks) > 0; s.asks = s.asks[1:] {
		if r := s.asks[0]; !s.Ends[r].Ended {
			_ = s.Send(guardian.Command{Action: guardian.SignalRank, Signal: unix.SIGQUIT, Rank: r})
			s.deadline = time.Now().Add(stackTime)
			return
		}
	}
	s.tell()
	s.phase = running
	for _, r := range s.laggards {
		if s.Resize != nil && !s.Ends[r].Ended { // continued, a stopped rank would let this attempt go on beside the next
			_ = s.Send(guardian.Command{Action: guardian.SignalRank, Signal: unix.SIGKILL, Rank: r})
		}
	}
	s.stop(Hung, unix.SIGTERM)
}

// stop asks all ranks to end, if nothing has yet.
func (s *Supervisor) stop(why Reason, sig syscall.Signal) {
	if s.phase != running {
		return
	}
	s.Reason, s.phase = why, ending
	grace := s.Grace
	if s.Brief > 0 && (why == Failed || why == Hung) {
		grace = min(grace, s.Brief)
	}
	if grace == 0 {
		s.kill()
		return
	}
	_ = s.Send(guardian.Command{Action: guardian.SignalGroups, Signal: sig})
	_ = s.Send(guardian.Command{Action: guardian.SignalGroups, Signal: unix.SIGCONT}) // what is stopped can neither save nor end
	s.deadline = time.Now().Add(grace)
}

// follow asks all ranks to end if a signal has asked one of them.
func (s *Supervisor) follow() {
	if s.phase != running || s.Asked == nil {
		return
	}
	if rank, sig, ok := s.Asked(); ok {
		s.Outcome.Signal, s.Passed, s.lastStop = cmp.Or(s.Outcome.Signal, sig), true, time.Now()
		s.Say("%s to rank %d: passed on to all; %s", SignalName(sig), rank, s.respite())
		s.stop(Interrupted, sig)
	}
}

// kill ends whatever is left, at once.
func (s *Supervisor) kill() {
	s.phase, s.Killed = killing, true
	s.notice = time.Time{}
	s.deadline = time.Now().Add(giveUp)
	_ = s.Send(guardian.Command{Action: guardian.KillAll})
}

// signal handles one that was sent to gorun. It returns false if the user will
// not wait any longer.
func (s *Supervisor) signal(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGUSR1, unix.SIGUSR2:
		_ = s.Send(guardian.Command{Action: guardian.SignalRanks, Signal: sig})
	case unix.SIGTSTP:
		s.stopping = true
		_ = s.Send(guardian.Command{Action: guardian.StopRanks})
	case unix.SIGCONT:
		s.stopping = false
		_ = s.Send(guardian.Command{Action: guardian.SignalGroups, Signal: sig})
	case unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT:
		now := time.Now()
		again := now.Sub(s.lastStop) >= debounce
		s.Outcome.Signal = cmp.Or(s.Outcome.Signal, sig)
		switch {
		case s.phase == running:
			s.stop(Interrupted, sig)
			s.announce(sig)
		case !again:
			return true
		case s.phase == asking || s.phase == ending:
			s.Say("killing all ranks")
			s.kill()
		default:
			return false
		}
		s.lastStop = now
	}
	return true
}

// announce says what a signal of the user has set in motion.
func (s *Supervisor) announce(sig syscall.Signal) {
	more := "a second " + SignalName(sig)
	if sig == unix.SIGINT {
		more = "a second Ctrl-C"
	}
	if s.phase == killing {
		s.Say("%s: killed all ranks (--grace 0)", SignalName(sig))
		return
	}
	s.Say("%s: passed on; ranks have %v to save and end (%s kills them at once)", SignalName(sig), s.Grace, more)
}

// tick acts on what is due. It returns false to give up.
func (s *Supervisor) tick(now time.Time) bool {
	if !s.notice.IsZero() && !now.Before(s.notice) {
		s.notice = time.Time{}
		s.Waiting(&s.Outcome, s.left())
	}
	if s.deadline.IsZero() || now.Before(s.deadline) {
		return true
	}
	switch s.phase {
	case running:
		s.Say("the time limit of %v is over; %s", s.Timeout, s.respite())
		s.stop(TooLate, unix.SIGTERM)
	case asking:
		s.askNext()
	case ending:
		s.Late = s.left()
		s.kill()
	case killing:
		s.Say("%s not end although killed, as while waiting for a disk or device; left behind", does(s.left()))
		return false
	}
	return true
}

// respite says what ranks that are asked to end get.
func (s *Supervisor) respite() string {
	if s.Grace == 0 {
		return "killing all ranks (--grace 0)"
	}
	return fmt.Sprintf("ranks have %v to save and end", s.Grace)
}

// left returns the ranks that have not ended.
func (s *Supervisor) left() []int {
	var left []int
	for r := range s.Ends {
		if s.Ends[r].Started && !s.Ends[r].Ended {
			left = append(left, r)
		}
	}
	return left
}

// does is "rank 3 does" or "ranks 0-2 do".
func does(ranks []int) string {
	if len(ranks) == 1 {
		return phrase.Ranks(ranks) + " does"
	}
	return phrase.Ranks(ranks) + " do"
}

// Suspend stops this process as the terminal's Ctrl-Z would have, until SIGCONT.
func Suspend() {
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, unix.SIGCONT)
	defer signal.Stop(resumed)
	_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
	<-resumed
}
