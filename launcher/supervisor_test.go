package launcher

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// A stage is a supervisor among people who act: the test is the guardian, the
// user and the clock. Everything that happens is written down with its time.
type stage struct {
	t       *testing.T
	began   time.Time
	log     []string
	events  chan event
	signals chan os.Signal
	broken  chan struct{}
	stopped time.Duration // how long suspend takes
	result  chan *outcome
}

// perform runs act with a supervisor of 3 ranks in a bubble of its own time.
func perform(t *testing.T, s supervisor, act func(*stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st := &stage{t: t, began: time.Now(), events: make(chan event), signals: make(chan os.Signal), broken: make(chan struct{}), result: make(chan *outcome, 1)}
		s.events, s.signals, s.broken = st.events, st.signals, st.broken
		s.send = func(c command) error {
			switch c.Action {
			case signalGroups:
				st.note("groups %s", signalName(c.Signal))
			case signalRanks:
				st.note("ranks %s", signalName(c.Signal))
			case signalRank:
				st.note("rank %d %s", c.Rank, signalName(c.Signal))
			case stopRanks:
				st.note("stop")
			case killAll:
				st.note("kill")
			}
			return nil
		}
		s.ended = func(rank int, e *end) { st.note("rank %d ended", rank) }
		s.waiting = func(_ *outcome, left []int) { st.note("waiting for %v", left) }
		s.say = func(format string, args ...any) { st.note("says "+format, args...) }
		s.suspend = func() { time.Sleep(st.stopped); st.note("suspended") }
		go func() { st.result <- s.run(3) }()
		for r := range 3 {
			st.events <- event{Kind: rankStarted, Rank: r, PID: 100 + r}
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
	st.events <- event{Kind: rankEnded, Rank: rank, Status: ws, At: time.Now()}
}

// want checks the outcome and what was written down.
func (st *stage) want(why reason, log ...string) *outcome {
	st.t.Helper()
	o := <-st.result
	if o.reason != why {
		st.t.Errorf("reason %d, want %d", o.reason, why)
	}
	if !slices.Equal(st.log, log) {
		st.t.Errorf("got\n  %s\nwant\n  %s", strings.Join(st.log, "\n  "), strings.Join(log, "\n  "))
	}
	return o
}

func TestSupervisorGoodEnd(t *testing.T) {
	perform(t, supervisor{grace: 5 * time.Second}, func(st *stage) {
		st.end(1, 0)
		time.Sleep(time.Hour) // no limit of its own
		st.end(0, 0)
		st.end(2, 0)
		st.events <- event{Kind: allGone}
		st.want(finished, "0s rank 1 ended", "1h0m0s rank 0 ended", "1h0m0s rank 2 ended")
	})
}

func TestSupervisorKillsAfterTheGracePeriod(t *testing.T) {
	perform(t, supervisor{grace: 5 * time.Second}, func(st *stage) {
		st.end(1, 3)
		time.Sleep(2 * time.Second)
		st.end(0, -15)
		time.Sleep(4 * time.Second)
		st.end(2, -9)
		st.events <- event{Kind: allGone}
		o := st.want(failed, "0s rank 1 ended", "0s groups SIGTERM", "0s groups SIGCONT", "1s waiting for [0 2]", "2s rank 0 ended", "5s kill", "6s rank 2 ended")
		if !slices.Equal(o.late, []int{2}) || !o.ends[0].asked || o.ends[1].asked || !o.killed {
			t.Errorf("outcome %+v", o)
		}
	})
}

func TestSupervisorGivesUp(t *testing.T) {
	perform(t, supervisor{grace: time.Second}, func(st *stage) {
		st.end(0, 1)
		st.end(1, -15)
		st.want(failed, "0s rank 0 ended", "0s groups SIGTERM", "0s groups SIGCONT", "0s rank 1 ended", "1s waiting for [2]", "1s kill",
			"11s says rank 2 does not end although killed, as while waiting for a disk or device; left behind")
	})
}

func TestSupervisorForwardsTheUsersSignal(t *testing.T) {
	perform(t, supervisor{grace: 5 * time.Second}, func(st *stage) {
		time.Sleep(time.Second)
		st.signals <- unix.SIGINT
		for r := range 3 {
			st.end(r, 0)
		}
		st.events <- event{Kind: allGone}
		o := st.want(interrupted, "1s groups SIGINT", "1s groups SIGCONT",
			"1s says SIGINT: passed on; ranks have 5s to save and end (a second Ctrl-C kills them at once)",
			"1s rank 0 ended", "1s rank 1 ended", "1s rank 2 ended")
		if o.signal != unix.SIGINT || o.killed {
			t.Errorf("outcome %+v", o)
		}
	})
}

// TestSupervisorTakesTwoSignalsAtOnceForOne: timeout(1) and closing terminals send two.
func TestSupervisorTakesTwoSignalsAtOnceForOne(t *testing.T) {
	perform(t, supervisor{grace: 5 * time.Second}, func(st *stage) {
		st.signals <- unix.SIGTERM
		time.Sleep(debounce / 2)
		st.signals <- unix.SIGTERM
		time.Sleep(debounce)
		st.signals <- unix.SIGTERM
		time.Sleep(debounce)
		st.signals <- unix.SIGTERM
		st.want(interrupted, "0s groups SIGTERM", "0s groups SIGCONT",
			"0s says SIGTERM: passed on; ranks have 5s to save and end (a second SIGTERM kills them at once)",
			"300ms says killing all ranks", "300ms kill")
	})
}

func TestSupervisorKillsAtOnceWhenAFailedJobIsInterrupted(t *testing.T) {
	perform(t, supervisor{grace: 5 * time.Second}, func(st *stage) {
		st.end(0, 1)
		time.Sleep(time.Second / 2)
		st.signals <- unix.SIGINT
		st.events <- event{Kind: allGone}
		st.want(failed, "0s rank 0 ended", "0s groups SIGTERM", "0s groups SIGCONT", "500ms says killing all ranks", "500ms kill")
	})
}

func TestSupervisorTimeoutWithoutGrace(t *testing.T) {
	perform(t, supervisor{timeout: time.Minute}, func(st *stage) {
		time.Sleep(time.Minute + time.Second)
		st.events <- event{Kind: allGone}
		st.want(tooLate, "1m0s says the time limit of 1m0s is over; killing all ranks (--grace 0)", "1m0s kill")
	})
}

func TestSupervisorTimeout(t *testing.T) {
	perform(t, supervisor{grace: time.Second, timeout: time.Minute}, func(st *stage) {
		time.Sleep(2 * time.Minute)
		o := st.want(tooLate, "1m0s says the time limit of 1m0s is over; ranks have 1s to save and end",
			"1m0s groups SIGTERM", "1m0s groups SIGCONT", "1m1s kill", "1m11s says ranks 0-2 do not end although killed, as while waiting for a disk or device; left behind")
		if !slices.Equal(o.late, []int{0, 1, 2}) {
			t.Errorf("outcome %+v", o)
		}
	})
}

// TestSupervisorStopsTheClock: the time that gorun is stopped counts for no limit.
func TestSupervisorStopsTheClock(t *testing.T) {
	perform(t, supervisor{grace: time.Second, timeout: time.Minute}, func(st *stage) {
		st.stopped = time.Hour
		time.Sleep(30 * time.Second)
		st.signals <- unix.SIGTSTP
		st.events <- event{Kind: ranksStopped}
		st.signals <- unix.SIGCONT
		time.Sleep(40 * time.Second)
		st.events <- event{Kind: allGone}
		st.want(tooLate, "30s stop", "1h0m30s suspended", "1h0m30s groups SIGCONT", "1h0m30s groups SIGCONT",
			"1h1m0s says the time limit of 1m0s is over; ranks have 1s to save and end", "1h1m0s groups SIGTERM", "1h1m0s groups SIGCONT", "1h1m1s kill")
	})
}

func TestSupervisorIsContinuedBeforeItStops(t *testing.T) {
	perform(t, supervisor{grace: time.Second}, func(st *stage) {
		st.signals <- unix.SIGTSTP
		st.signals <- unix.SIGCONT
		st.events <- event{Kind: ranksStopped}
		st.events <- event{Kind: allGone}
		st.want(finished, "0s stop", "0s groups SIGCONT")
	})
}

// TestSupervisorIsContinuedAsItStops has the SIGCONT there when the ranks have stopped,
// which of the two is seen first or not: a process that stopped after it would stay so.
func TestSupervisorIsContinuedAsItStops(t *testing.T) {
	for range 50 {
		events, signals := make(chan event, 2), make(chan os.Signal, 2)
		s := supervisor{grace: time.Second, events: events, signals: signals, ended: func(int, *end) {}}
		s.send = func(c command) error {
			switch {
			case c.Action == stopRanks:
				events <- event{Kind: ranksStopped}
				signals <- unix.SIGCONT
			case c.Signal == unix.SIGCONT:
				events <- event{Kind: allGone}
			}
			return nil
		}
		s.suspend = func() { t.Fatal("stopped, after the signal to go on") }
		signals <- unix.SIGTSTP
		s.run(1)
	}
}

func TestSupervisorForwardsOtherSignals(t *testing.T) {
	perform(t, supervisor{grace: time.Second}, func(st *stage) {
		st.signals <- unix.SIGUSR1
		st.signals <- unix.SIGUSR2
		st.events <- event{Kind: allGone}
		st.want(finished, "0s ranks SIGUSR1", "0s ranks SIGUSR2")
	})
}

func TestSupervisorWithoutGrace(t *testing.T) {
	perform(t, supervisor{}, func(st *stage) {
		st.signals <- unix.SIGHUP
		st.events <- event{Kind: allGone}
		st.want(interrupted, "0s kill", "0s says SIGHUP: killed all ranks (--grace 0)")
	})
}

func TestSupervisorEndsWhenNobodyReads(t *testing.T) {
	perform(t, supervisor{grace: time.Second}, func(st *stage) {
		close(st.broken)
		synctest.Wait()
		st.events <- event{Kind: allGone}
		st.want(closed, "0s groups SIGTERM", "0s groups SIGCONT")
	})
}

func TestSupervisorLosesItsGuardian(t *testing.T) {
	perform(t, supervisor{grace: time.Second}, func(st *stage) {
		close(st.events)
		st.want(lost)
	})
}

func TestSupervisorRefusedRank(t *testing.T) {
	perform(t, supervisor{grace: time.Second}, func(st *stage) {
		st.events <- event{Kind: rankRefused, Rank: 2, Errno: unix.EAGAIN}
		st.end(0, -9)
		st.events <- event{Kind: allGone}
		o := st.want(refused, "0s kill", "0s rank 0 ended")
		if o.rank != 2 || o.errno != unix.EAGAIN {
			t.Errorf("outcome %+v", o)
		}
	})
}

func TestSupervisorEndsAHang(t *testing.T) {
	looks := 0
	s := supervisor{grace: 5 * time.Second, look: func() ([]int, bool) {
		looks++
		return []int{2, 1, 0}, looks == 2
	}}
	perform(t, s, func(st *stage) {
		time.Sleep(2500 * time.Millisecond)
		st.end(2, 131)
		time.Sleep(3 * time.Second) // rank 1 is too far gone to print its stacks
		st.end(0, 131)
		st.end(1, -9)
		st.events <- event{Kind: allGone}
		st.want(hung, "2s rank 2 SIGQUIT", "2.5s rank 2 ended", "2.5s rank 1 SIGQUIT", "4.5s rank 0 SIGQUIT",
			"5.5s rank 0 ended", "5.5s groups SIGTERM", "5.5s groups SIGCONT", "5.5s rank 1 ended")
		if looks != 2 {
			t.Errorf("%d looks, want 2", looks)
		}
	})
}

func TestSupervisorInterruptedWhileStacksArePrinted(t *testing.T) {
	s := supervisor{grace: 5 * time.Second, look: func() ([]int, bool) { return []int{1}, true }}
	perform(t, s, func(st *stage) {
		time.Sleep(1500 * time.Millisecond)
		st.signals <- unix.SIGINT
		for r := range 3 {
			st.end(r, -9)
		}
		st.events <- event{Kind: allGone}
		st.want(hung, "1s rank 1 SIGQUIT", "1.5s says killing all ranks", "1.5s kill",
			"1.5s rank 0 ended", "1.5s rank 1 ended", "1.5s rank 2 ended")
	})
}
