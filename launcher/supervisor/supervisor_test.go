//go:build linux

package supervisor

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/launcher/guardian"
)

// A stage is a supervisor among people who act: the test is the guardian, the
// user and the clock. Everything that happens is written down with its time.
type stage struct {
	t       *testing.T
	began   time.Time
	log     []string
	events  chan guardian.Event
	signals chan os.Signal
	broken  chan struct{}
	stopped time.Duration // how long suspend takes
	result  chan *Outcome
}

// perform runs act with a supervisor of 3 ranks in a bubble of its own time.
func perform(t *testing.T, s Supervisor, act func(*stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st := &stage{t: t, began: time.Now(), events: make(chan guardian.Event), signals: make(chan os.Signal), broken: make(chan struct{}),
			result: make(chan *Outcome, 1)}
		s.Events, s.Signals, s.Broken = st.events, st.signals, st.broken
		s.Send = func(c guardian.Command) error {
			switch c.Action {
			case guardian.SignalGroups:
				st.note("groups %s", SignalName(c.Signal))
			case guardian.SignalRanks:
				st.note("ranks %s", SignalName(c.Signal))
			case guardian.SignalRank:
				st.note("rank %d %s", c.Rank, SignalName(c.Signal))
			case guardian.StopRanks:
				st.note("stop")
			case guardian.KillAll:
				st.note("kill")
			}
			return nil
		}
		s.Ended = func(rank int, e *End) { st.note("rank %d ended", rank) }
		s.Waiting = func(_ *Outcome, left []int) { st.note("waiting for %v", left) }
		s.Say = func(format string, args ...any) { st.note("says "+format, args...) }
		s.Suspend = func() { time.Sleep(st.stopped); st.note("suspended") }
		go func() { st.result <- s.Run(3) }()
		for r := range 3 {
			st.events <- guardian.Event{Kind: guardian.RankStarted, Rank: r, PID: 100 + r}
		}
		act(st)
	})
}

func (st *stage) note(format string, args ...any) {
	st.log = append(st.log, fmt.Sprintf("%v ", time.Since(st.began))+fmt.Sprintf(format, args...))
}

// end says that a rank has ended; a status below 0 is a signal.
func (st *stage) end(rank, status int) {
	ws := syscall.WaitStatus(status << 8)
	if status < 0 {
		ws = syscall.WaitStatus(-status)
	}
	st.events <- guardian.Event{Kind: guardian.RankEnded, Rank: rank, Status: ws, At: time.Now()}
}

// want checks the outcome and what was written down.
func (st *stage) want(why Reason, log ...string) *Outcome {
	st.t.Helper()
	o := <-st.result
	if o.Reason != why {
		st.t.Errorf("reason %d, want %d", o.Reason, why)
	}
	if !slices.Equal(st.log, log) {
		st.t.Errorf("got\n  %s\nwant\n  %s", strings.Join(st.log, "\n  "), strings.Join(log, "\n  "))
	}
	return o
}

func TestSupervisorGoodEnd(t *testing.T) {
	perform(t, Supervisor{Grace: 5 * time.Second}, func(st *stage) {
		st.end(1, 0)
		time.Sleep(time.Hour) // no limit of its own
		st.end(0, 0)
		st.end(2, 0)
		st.events <- guardian.Event{Kind: guardian.AllGone}
		st.want(Finished, "0s rank 1 ended", "1h0m0s rank 0 ended", "1h0m0s rank 2 ended")
	})
}

func TestSupervisorKillsAfterTheGracePeriod(t *testing.T) {
	perform(t, Supervisor{Grace: 5 * time.Second}, func(st *stage) {
		st.end(1, 3)
		time.Sleep(2 * time.Second)
		st.end(0, -15)
		time.Sleep(4 * time.Second)
		st.end(2, -9)
		st.events <- guardian.Event{Kind: guardian.AllGone}
		o := st.want(Failed, "0s rank 1 ended", "0s groups SIGTERM", "0s groups SIGCONT", "1s waiting for [0 2]", "2s rank 0 ended", "5s kill",
			"6s rank 2 ended")
		if !slices.Equal(o.Late, []int{2}) || !o.Ends[0].Asked || o.Ends[1].Asked || !o.Killed {
			t.Errorf("outcome %+v", o)
		}
	})
}

func TestSupervisorGivesUp(t *testing.T) {
	perform(t, Supervisor{Grace: time.Second}, func(st *stage) {
		st.end(0, 1)
		st.end(1, -15)
		st.want(Failed, "0s rank 0 ended", "0s groups SIGTERM", "0s groups SIGCONT", "0s rank 1 ended", "1s waiting for [2]", "1s kill",
			"31s says rank 2 does not end although killed, as while waiting for a disk or device; left behind")
	})
}

func TestSupervisorPassesOnARanksSignal(t *testing.T) {
	var came atomic.Bool
	asked := func() (int, syscall.Signal, bool) { return 2, unix.SIGTERM, came.Load() }
	says := "says SIGTERM to rank 2: passed on to all; ranks have 5s to save and end"
	perform(t, Supervisor{Grace: 5 * time.Second, Asked: asked}, func(st *stage) {
		time.Sleep(time.Second + askInterval/2) // between two looks
		came.Store(true)
		time.Sleep(2*time.Second - askInterval/2)
		for r := range 3 {
			st.end(r, 0)
		}
		st.events <- guardian.Event{Kind: guardian.AllGone}
		at := "1.1s "
		o := st.want(Interrupted, at+says, at+"groups SIGTERM", at+"groups SIGCONT", "3s rank 0 ended", "3s rank 1 ended", "3s rank 2 ended")
		if o.Signal != unix.SIGTERM {
			t.Errorf("signal %v", o.Signal)
		}
	})
	came.Store(false)
	perform(t, Supervisor{Grace: 5 * time.Second, Asked: asked}, func(st *stage) { // it ends before anybody has looked
		time.Sleep(10 * time.Millisecond)
		came.Store(true)
		st.end(2, 143)
		st.signals <- unix.SIGTERM // to the whole control group
		st.end(0, 143)
		st.end(1, 143)
		st.events <- guardian.Event{Kind: guardian.AllGone}
		at := "10ms "
		st.want(Interrupted, at+says, at+"groups SIGTERM", at+"groups SIGCONT", at+"rank 2 ended", at+"rank 0 ended", at+"rank 1 ended")
	})
}

func TestSupervisorForwardsTheUsersSignal(t *testing.T) {
	perform(t, Supervisor{Grace: 5 * time.Second}, func(st *stage) {
		time.Sleep(time.Second)
		st.signals <- unix.SIGINT
		for r := range 3 {
			st.end(r, 0)
		}
		st.events <- guardian.Event{Kind: guardian.AllGone}
		o := st.want(Interrupted, "1s groups SIGINT", "1s groups SIGCONT",
			"1s says SIGINT: passed on; ranks have 5s to save and end (a second Ctrl-C kills them at once)",
			"1s rank 0 ended", "1s rank 1 ended", "1s rank 2 ended")
		if o.Signal != unix.SIGINT || o.Killed {
			t.Errorf("outcome %+v", o)
		}
	})
}

// TestSupervisorTakesTwoSignalsAtOnceForOne: timeout(1) and closing terminals send two.
func TestSupervisorTakesTwoSignalsAtOnceForOne(t *testing.T) {
	perform(t, Supervisor{Grace: 5 * time.Second}, func(st *stage) {
		st.signals <- unix.SIGTERM
		time.Sleep(debounce / 2)
		st.signals <- unix.SIGTERM
		time.Sleep(debounce)
		st.signals <- unix.SIGTERM
		time.Sleep(debounce)
		st.signals <- unix.SIGTERM
		st.want(Interrupted, "0s groups SIGTERM", "0s groups SIGCONT",
			"0s says SIGTERM: passed on; ranks have 5s to save and end (a second SIGTERM kills them at once)",
			"300ms says killing all ranks", "300ms kill")
	})
}

func TestSupervisorKillsAtOnceWhenAFailedJobIsInterrupted(t *testing.T) {
	perform(t, Supervisor{Grace: 5 * time.Second}, func(st *stage) {
		st.end(0, 1)
		time.Sleep(time.Second / 2)
		st.signals <- unix.SIGINT
		st.events <- guardian.Event{Kind: guardian.AllGone}
		st.want(Failed, "0s rank 0 ended", "0s groups SIGTERM", "0s groups SIGCONT", "500ms says killing all ranks", "500ms kill")
	})
}

func TestSupervisorTimeoutWithoutGrace(t *testing.T) {
	perform(t, Supervisor{Timeout: time.Minute}, func(st *stage) {
		time.Sleep(time.Minute + time.Second)
		st.events <- guardian.Event{Kind: guardian.AllGone}
		st.want(TooLate, "1m0s says the time limit of 1m0s is over; killing all ranks (--grace 0)", "1m0s kill")
	})
}

func TestSupervisorTimeout(t *testing.T) {
	perform(t, Supervisor{Grace: time.Second, Timeout: time.Minute}, func(st *stage) {
		time.Sleep(2 * time.Minute)
		o := st.want(TooLate, "1m0s says the time limit of 1m0s is over; ranks have 1s to save and end",
			"1m0s groups SIGTERM", "1m0s groups SIGCONT", "1m1s kill", "1m31s says ranks 0-2 do not end although killed, "+
				"as while waiting for a disk or device; left behind")
		if !slices.Equal(o.Late, []int{0, 1, 2}) {
			t.Errorf("outcome %+v", o)
		}
	})
}

// TestSupervisorStopsTheClock: the time that gorun is stopped counts for no limit.
func TestSupervisorStopsTheClock(t *testing.T) {
	perform(t, Supervisor{Grace: time.Second, Timeout: time.Minute}, func(st *stage) {
		st.stopped = time.Hour
		time.Sleep(30 * time.Second)
		st.signals <- unix.SIGTSTP
		st.events <- guardian.Event{Kind: guardian.RanksStopped}
		st.signals <- unix.SIGCONT
		time.Sleep(40 * time.Second)
		st.events <- guardian.Event{Kind: guardian.AllGone}
		st.want(TooLate, "30s stop", "1h0m30s suspended", "1h0m30s groups SIGCONT", "1h0m30s groups SIGCONT",
			"1h1m0s says the time limit of 1m0s is over; ranks have 1s to save and end", "1h1m0s groups SIGTERM",
			"1h1m0s groups SIGCONT", "1h1m1s kill")
	})
}

// TestSupervisorIsStoppedWithoutAWord: a SIGSTOP, of which no signal tells, stops the clock too.
func TestSupervisorIsStoppedWithoutAWord(t *testing.T) {
	stopped := false
	asked := func() (int, syscall.Signal, bool) {
		if !stopped { // the process does nothing for an hour, wherever it is
			stopped = true
			time.Sleep(time.Hour)
		}
		return 0, 0, false
	}
	perform(t, Supervisor{Grace: time.Second, Timeout: time.Minute, Asked: asked}, func(st *stage) {
		time.Sleep(time.Hour + 70*time.Second)
		st.events <- guardian.Event{Kind: guardian.AllGone}
		o := st.want(TooLate, "1h1m0.1s says the time limit of 1m0s is over; ranks have 1s to save and end", "1h1m0.1s groups SIGTERM",
			"1h1m0.1s groups SIGCONT", "1h1m1.1s kill")
		if o.Suspended != time.Hour+askInterval {
			t.Errorf("stopped for %v", o.Suspended)
		}
	})
}

func TestSupervisorIsContinuedBeforeItStops(t *testing.T) {
	perform(t, Supervisor{Grace: time.Second}, func(st *stage) {
		st.signals <- unix.SIGTSTP
		st.signals <- unix.SIGCONT
		st.events <- guardian.Event{Kind: guardian.RanksStopped}
		st.events <- guardian.Event{Kind: guardian.AllGone}
		st.want(Finished, "0s stop", "0s groups SIGCONT")
	})
}

// TestSupervisorIsContinuedAsItStops has the SIGCONT there when the ranks have stopped,
// which of the two is seen first or not: a process that stopped after it would stay so.
func TestSupervisorIsContinuedAsItStops(t *testing.T) {
	for range 50 {
		events, signals := make(chan guardian.Event, 2), make(chan os.Signal, 2)
		s := Supervisor{Grace: time.Second, Events: events, Signals: signals, Ended: func(int, *End) {}}
		s.Send = func(c guardian.Command) error {
			switch {
			case c.Action == guardian.StopRanks:
				events <- guardian.Event{Kind: guardian.RanksStopped}
				signals <- unix.SIGCONT
			case c.Signal == unix.SIGCONT:
				events <- guardian.Event{Kind: guardian.AllGone}
			}
			return nil
		}
		s.Suspend = func() { t.Fatal("stopped, after the signal to go on") }
		signals <- unix.SIGTSTP
		s.Run(1)
	}
}

func TestSupervisorForwardsOtherSignals(t *testing.T) {
	perform(t, Supervisor{Grace: time.Second}, func(st *stage) {
		st.signals <- unix.SIGUSR1
		st.signals <- unix.SIGUSR2
		st.events <- guardian.Event{Kind: guardian.AllGone}
		st.want(Finished, "0s ranks SIGUSR1", "0s ranks SIGUSR2")
	})
}

func TestSupervisorWithoutGrace(t *testing.T) {
	perform(t, Supervisor{}, func(st *stage) {
		st.signals <- unix.SIGHUP
		st.events <- guardian.Event{Kind: guardian.AllGone}
		st.want(Interrupted, "0s kill", "0s says SIGHUP: killed all ranks (--grace 0)")
	})
}

func TestSupervisorEndsWhenNobodyReads(t *testing.T) {
	perform(t, Supervisor{Grace: time.Second}, func(st *stage) {
		close(st.broken)
		synctest.Wait()
		st.events <- guardian.Event{Kind: guardian.AllGone}
		st.want(Closed, "0s groups SIGTERM", "0s groups SIGCONT")
	})
}

func TestSupervisorLosesItsGuardian(t *testing.T) {
	perform(t, Supervisor{Grace: time.Second}, func(st *stage) {
		close(st.events)
		st.want(Lost)
	})
}

// A laggard of an elastic job that prints no stacks is killed: it may be stopped, and would go on when it is continued.
func TestSupervisorKillsALaggardThatIsStopped(t *testing.T) {
	s := Supervisor{Grace: time.Second, Look: func() ([]int, bool) { return []int{2}, true }, Resize: func() bool { return false }}
	perform(t, s, func(st *stage) {
		time.Sleep(3500 * time.Millisecond)
		for rank := range 3 {
			st.end(rank, -9)
		}
		st.events <- guardian.Event{Kind: guardian.AllGone}
		st.want(Hung, "1s rank 2 SIGQUIT", "3s rank 2 SIGKILL", "3s groups SIGTERM", "3s groups SIGCONT",
			"3.5s rank 0 ended", "3.5s rank 1 ended", "3.5s rank 2 ended")
	})
}

// A laggard that takes long to print its stacks has not failed when the others are asked to end: they are asked again when it has.
func TestSupervisorAsksAgainAfterALateLaggard(t *testing.T) {
	perform(t, Supervisor{Grace: time.Hour, Look: func() ([]int, bool) { return []int{2}, true }}, func(st *stage) {
		time.Sleep(3500 * time.Millisecond)
		st.end(2, 131)
		st.end(0, 143)
		st.end(1, 143)
		st.events <- guardian.Event{Kind: guardian.AllGone}
		o := st.want(Hung, "1s rank 2 SIGQUIT", "3s groups SIGTERM", "3s groups SIGCONT", "3.5s rank 2 ended", "3.5s groups SIGTERM",
			"3.5s rank 0 ended", "3.5s rank 1 ended")
		if o.Ends[2].Asked || !o.Ends[0].Asked {
			t.Errorf("%+v: rank 2 did not end because it was asked to, rank 0 did", o.Ends)
		}
	})
}

// Of two ranks that are killed at once the second ends after all were asked to, and not because of that: gorun has killed none.
func TestSupervisorTwoRanksAreKilled(t *testing.T) {
	perform(t, Supervisor{Grace: time.Second}, func(st *stage) {
		st.end(2, -9)
		st.end(0, -9)
		time.Sleep(2 * time.Second)
		st.end(1, -9)
		st.events <- guardian.Event{Kind: guardian.AllGone}
		o := st.want(Failed, "0s rank 2 ended", "0s groups SIGTERM", "0s groups SIGCONT", "0s rank 0 ended", "1s waiting for [1]", "1s kill",
			"2s rank 1 ended")
		if o.Ends[2].Asked || o.Ends[0].Asked || !o.Ends[1].Asked {
			t.Errorf("%+v: ranks 2 and 0 were killed by others, rank 1 by gorun", o.Ends)
		}
	})
}

func TestSupervisorRefusedRank(t *testing.T) {
	perform(t, Supervisor{Grace: time.Second}, func(st *stage) {
		st.events <- guardian.Event{Kind: guardian.RankRefused, Rank: 2, Errno: unix.EAGAIN}
		st.end(0, -9)
		st.events <- guardian.Event{Kind: guardian.AllGone}
		o := st.want(Refused, "0s kill", "0s rank 0 ended")
		if o.Rank != 2 || o.Errno != unix.EAGAIN {
			t.Errorf("outcome %+v", o)
		}
	})
}

func TestSupervisorEndsAHang(t *testing.T) {
	looks := 0
	s := Supervisor{Grace: 5 * time.Second, Look: func() ([]int, bool) {
		looks++
		return []int{2, 1, 0}, looks == 2
	}}
	perform(t, s, func(st *stage) {
		time.Sleep(2500 * time.Millisecond)
		st.end(2, 131)
		time.Sleep(3 * time.Second) // rank 1 is too far gone to print its stacks
		st.end(0, 131)
		st.end(1, -9)
		st.events <- guardian.Event{Kind: guardian.AllGone}
		o := st.want(Hung, "2s rank 2 SIGQUIT", "2.5s rank 1 SIGQUIT", "4.5s rank 0 SIGQUIT",
			"5.5s rank 2 ended", "5.5s rank 0 ended", "5.5s groups SIGTERM", "5.5s groups SIGCONT", "5.5s rank 1 ended")
		if looks != 2 {
			t.Errorf("%d looks, want 2", looks)
		}
		if o.Ends[2].Asked || o.Ends[0].Asked || !o.Ends[1].Asked {
			t.Errorf("outcome %+v; ranks that printed their stacks ended for the hang, and were not told to", o)
		}
	})
}

func TestSupervisorInterruptedWhileStacksArePrinted(t *testing.T) {
	s := Supervisor{Grace: 5 * time.Second, Look: func() ([]int, bool) { return []int{1}, true }}
	perform(t, s, func(st *stage) {
		time.Sleep(1500 * time.Millisecond)
		st.signals <- unix.SIGINT
		for r := range 3 {
			st.end(r, -9)
		}
		st.events <- guardian.Event{Kind: guardian.AllGone}
		st.want(Hung, "1s rank 1 SIGQUIT", "1.5s says killing all ranks", "1.5s kill",
			"1.5s rank 0 ended", "1.5s rank 1 ended", "1.5s rank 2 ended")
	})
}
