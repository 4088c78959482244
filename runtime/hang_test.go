//go:build linux

package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/internal/control"
)

// hanging are programs that hang, or seem to.
func hanging() map[string]func(context.Context, *comm.Comm) error {
	return map[string]func(context.Context, *comm.Comm) error{
		// recvrecv has two ranks receive from each other; the others wait in a barrier.
		"recvrecv": func(ctx context.Context, world *comm.Comm) error {
			if r := world.Rank(); r < 2 {
				return comm.Recv(ctx, world, make([]float32, 4), 1-r)
			}
			return comm.Barrier(ctx, world)
		},
		// sendsend has three ranks send a large message to the next one first.
		"sendsend": func(ctx context.Context, world *comm.Comm) error {
			r, buf := world.Rank(), make([]float32, 1<<20)
			if err := comm.Send(ctx, world, buf, (r+1)%3); err != nil {
				return err
			}
			return comm.Recv(ctx, world, buf, (r+2)%3)
		},
		// locked has rank 1 wait for a lock of its own, and the others for rank 1.
		"locked": func(ctx context.Context, world *comm.Comm) error {
			if world.Rank() == 1 {
				var mu sync.Mutex
				mu.Lock()
				mu.Lock()
			}
			return comm.Barrier(ctx, world)
		},
		// grouped has both ranks wait for goroutines that wait for a receiver.
		"grouped": func(context.Context, *comm.Comm) error {
			var wg sync.WaitGroup
			wg.Go(func() { make(chan int) <- 1 })
			wg.Wait()
			return nil
		},
		// orders has two ranks use two communicators in different orders.
		"orders": func(ctx context.Context, world *comm.Comm) error {
			a, err := world.Split(ctx, 0, world.Rank())
			if err != nil {
				return err
			}
			first, second := world, a
			if world.Rank() == 1 {
				first, second = a, world
			}
			if err := comm.AllReduce(ctx, first, []float32{1}, comm.Sum); err != nil {
				return err
			}
			return comm.AllReduce(ctx, second, []float32{1}, comm.Sum)
		},
		// asyncsleep has rank 0 sleep for longer than many looks beside an asynchronous
		// call that waits for rank 1, which waits for rank 0 elsewhere.
		"asyncsleep": func(ctx context.Context, world *comm.Comm) error {
			a, err := world.Split(ctx, 0, world.Rank())
			if err != nil {
				return err
			}
			if world.Rank() == 0 {
				p := sum(ctx, a)
				time.Sleep(7 * time.Second)
				if err := comm.Barrier(ctx, world); err != nil {
					return err
				}
				return p.Wait()
			}
			if err := comm.Barrier(ctx, world); err != nil {
				return err
			}
			return sum(ctx, a).Wait()
		},
		// asynccross has two ranks each wait for an asynchronous call that the other
		// would make next.
		"asynccross": func(ctx context.Context, world *comm.Comm) error {
			a, err := world.Split(ctx, 0, world.Rank())
			if err != nil {
				return err
			}
			first, second := world, a
			if world.Rank() == 1 {
				first, second = a, world
			}
			if err := sum(ctx, first).Wait(); err != nil {
				return err
			}
			return sum(ctx, second).Wait()
		},
		// asynchidden has two ranks receive from each other while their asynchronous
		// calls wait for a rank that sleeps.
		"asynchidden": func(ctx context.Context, world *comm.Comm) error {
			a, err := world.Split(ctx, 0, world.Rank())
			if err != nil {
				return err
			}
			if world.Rank() == 2 {
				<-ctx.Done()
				return ctx.Err()
			}
			p := sum(ctx, a)
			if err := comm.Recv(ctx, world, make([]float32, 4), 1-world.Rank()); err != nil {
				return err
			}
			return p.Wait()
		},
		// yettosend has a goroutine of rank 0 wait for a timer, and then make the call that
		// rank 1 waits for; meanwhile rank 0 waits for rank 1 in another communicator.
		"yettosend": func(ctx context.Context, world *comm.Comm) error {
			a, err := world.Split(ctx, 0, world.Rank())
			if err != nil {
				return err
			}
			if world.Rank() == 1 {
				return errors.Join(comm.Barrier(ctx, a), comm.Barrier(ctx, world))
			}
			sent := make(chan error, 1)
			go func() {
				<-time.After(7 * time.Second)
				sent <- comm.Barrier(ctx, a)
			}()
			err = comm.Barrier(ctx, world)
			return errors.Join(err, <-sent)
		},
		// nobodyleft has two goroutines of rank 0 wait in calls until one of these ends;
		// the other one and rank 1 then wait for each other over two communicators.
		"nobodyleft": func(ctx context.Context, world *comm.Comm) error {
			a, err := world.Split(ctx, 0, world.Rank())
			if err != nil {
				return err
			}
			b, err := world.Split(ctx, 0, world.Rank())
			if err != nil {
				return err
			}
			if world.Rank() == 1 {
				time.Sleep(time.Second)
				return errors.Join(comm.Barrier(ctx, b), comm.Barrier(ctx, a))
			}
			var all sync.WaitGroup
			all.Go(func() { _ = comm.Barrier(ctx, b) })
			all.Go(func() { _ = comm.Barrier(ctx, world) })
			all.Wait()
			return comm.Barrier(ctx, a)
		},
		"mailboxes": commtest.ReceiveFirst,
		"anyrank":   commtest.ReceiveAnother,
		"othertag":  commtest.ReceiveAnotherTag,
		"alone":     commtest.ReceiveOwn,
		"parts":     commtest.LongMessages,
		// loops has no rank ever make a call: one computes without end, the others sleep.
		"loops": func(_ context.Context, world *comm.Comm) error {
			if world.Rank() == 1 {
				endlessLoop()
			}
			time.Sleep(time.Hour)
			return nil
		},
		// loop has rank 1 compute without end.
		"loop": func(ctx context.Context, world *comm.Comm) error {
			if world.Rank() == 1 {
				endlessLoop()
			}
			return comm.Barrier(ctx, world)
		},
		// slow has rank 1 compute, and rank 2 sleep, for longer than two looks.
		"slow": func(ctx context.Context, world *comm.Comm) error {
			switch world.Rank() {
			case 1:
				for end := time.Now().Add(2500 * time.Millisecond); time.Now().Before(end); {
				}
			case 2:
				time.Sleep(2500 * time.Millisecond)
			}
			if err := comm.Barrier(ctx, world); err != nil {
				return err
			}
			fmt.Println("done")
			return nil
		},
		// stopped has rank 1 stop itself.
		"stopped": func(ctx context.Context, world *comm.Comm) error {
			if world.Rank() == 1 {
				if err := exec.Command("kill", "-STOP", fmt.Sprint(os.Getpid())).Run(); err != nil {
					return err
				}
			}
			return comm.Barrier(ctx, world)
		},
		// mad has rank 1 write garbage over what the launcher reads of all ranks, and then hang.
		"mad": func(ctx context.Context, world *comm.Comm) error {
			if world.Rank() == 1 {
				s := from(ctx).segment
				garbage := control.Wait{On: -1, Text: strings.Repeat("\xff\x1b[2J\n", 200), Site: "\x00", Since: time.Unix(1<<40, 0), Attended: true}
				s.BeginWait(0, garbage)
				s.BeginWait(1, garbage)
				s.SetNames(control.Names{Kinds: []string{"\x1b[2J", "\x1b[2J", "\xff"}})
				s.SetError(0, "\r\x1b[31m\xff")
				select {}
			}
			return comm.Barrier(ctx, world)
		},
	}
}

// sum starts an AllReduce.
func sum(ctx context.Context, c *comm.Comm) *comm.Pending {
	b := comm.Of([]float32{1})
	return c.Start(ctx, comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum, Dst: b, Src: b})
}

//go:noinline
func endlessLoop() {
	for i := 0; i >= 0; i++ {
		i &= 1023
	}
}

// hangs runs a program that gorun must find hanging, and checks what it says.
func hangs(t *testing.T, args []string, want ...string) {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "gorun", args...).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 123 {
		t.Errorf("%v, want exit status 123", err)
	}
	for _, w := range want {
		if !regexp.MustCompile("(?m)" + w).Match(out) {
			t.Errorf("nothing matches %q", w)
		}
	}
	if t.Failed() {
		t.Logf("gorun %v:\n%s", args, out)
	}
}

func TestReceivingFromEachOther(t *testing.T) {
	hangs(t, []string{"-np", "3", "rankprogram", "recvrecv"},
		`^gorun: the job hangs: rank 0 waits for rank 1 waits for rank 0$`,
		`^  0 +waits +Recv.*float32.* +world +runtime/hang_test\.go:\d+ +rank 1 +.*s ago$`,
		`^  2 +waits +Barrier.* world #1 +runtime/hang_test\.go:\d+ +rank 0 `,
		`^gorun: ending it; the stacks of ranks 0-1:$`,
		`^SIGQUIT: quit: the goroutines of rank 1$`,
		`hanging\.func1`)
}

func TestMailboxesThatReceiveFromEachOther(t *testing.T) {
	hangs(t, []string{"-np", "2", "rankprogram", "mailboxes"},
		`^gorun: the job hangs: rank 0 waits for rank 1 waits for rank 0$`,
		`^  0 +waits +message.Recv int64\[1\] from rank 1, tag 0 `,
		`(?s)the goroutines of rank 0$.*commtest\.ReceiveFirst.*the goroutines of rank 1$.*commtest\.ReceiveFirst`)
}

// TestRanksThatHangAlone has the others, which need no rank that has printed its stacks, end with it: not after the
// grace period.
func TestRanksThatHangAlone(t *testing.T) {
	hangs(t, []string{"-np", "3", "--grace", "1h", "rankprogram", "alone"},
		`^gorun: the job hangs: rank \d waits for itself$`,
		`^  2 +waits +message.Recv int64\[1\] from rank 2, tag 0 `)
}

func TestReceivesOfAnyRankThatNobodySends(t *testing.T) {
	hangs(t, []string{"-np", "2", "rankprogram", "anyrank"},
		`^gorun: the job hangs: rank 0 waits for rank 1 waits for rank 0; rank 0 waits in .* from any rank, tag 6, `+
			`and 1 message has come that it does not take: int64\[1\] from rank 1, tag 5; `,
		`^  0-1 +waits +message.Recv int64\[1\] from any rank, tag 6 .* any rank `)
}

func TestReceivesOfAnotherTag(t *testing.T) {
	hangs(t, []string{"-np", "3", "rankprogram", "othertag"},
		`^gorun: the job hangs: rank 0 waits for rank 1 waits for rank 0; rank 1 waits in message.Recv int64\[1\] from rank 0, tag 8, `+
			`and 1 message has come that it does not take: int64\[1\] from rank 0, tag 7$`,
		`^  0 +waits +AllToAll int64\[2\] for message.Close +ranks 0-1 #\d+ +`,
		`^  1 +waits +message.Recv int64\[1\] from rank 0, tag 8 +ranks 0-1 +commtest/waits.go`)
	eachMPI(t, func(t *testing.T, via string) {
		out, _ := exec.Command("gorun", "--via", via, "-np", "3", "rankprogram", "othertag").CombinedOutput()
		want := `the job hangs: .*; rank 1 waits in message.Recv int64\[1\] from rank 0, tag 8, and 1 message has come that it does not ` +
			`take: int64\[1\] from rank 0, tag 7`
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("nothing matches %q:\n%s", want, out)
		}
	})
}

func TestPartsOfMessagesAreNoHang(t *testing.T) {
	eachMPI(t, func(t *testing.T, via string) {
		if out, err := exec.Command("gorun", "--via", via, "-np", "2", "rankprogram", "parts").CombinedOutput(); err != nil {
			t.Errorf("%v:\n%s", err, out)
		}
	})
}

func TestSendingFirst(t *testing.T) {
	hangs(t, []string{"-np", "3", "rankprogram", "sendsend"},
		`^gorun: the job hangs: rank 0 waits for rank 1 waits for rank 2 waits for rank 0; `+
			`they all send first: use SendRecv, which sends and receives at once$`)
}

func TestARankThatWaitsForItsOwnLock(t *testing.T) {
	hangs(t, []string{"-np", "2", "rankprogram", "locked"},
		`^gorun: the job hangs: rank 1 can do nothing more: it is in no call, and its goroutines wait for each other$`,
		`^  0 +waits +Barrier`,
		`^  1 +in its own code +after no call`,
		`^goroutine 1 \[sync\.Mutex\.Lock\]:$`)
}

func TestGoroutinesOfAllRanksThatWaitForEachOther(t *testing.T) {
	hangs(t, []string{"-np", "2", "rankprogram", "grouped"},
		`^gorun: the job hangs: rank \d can do nothing more: it is in no call, and its goroutines wait for each other$`,
		`chan send`)
}

func TestDifferentOrders(t *testing.T) {
	hangs(t, []string{"-np", "2", "rankprogram", "orders"},
		`^gorun: the job hangs: rank 0 waits for rank 1 waits for rank 0$`,
		`^  0 +waits +AllReduce sum float32.* world #\d+ `,
		`^  1 +waits +AllReduce sum float32.* ranks 0-1 #1 `)
}

func TestEndlessLoop(t *testing.T) {
	hangs(t, []string{"-np", "2", "--hang-timeout", "2s", "rankprogram", "loop"},
		`^gorun: the job hangs: nothing has moved for [2-9]s \(--hang-timeout\)$`,
		`^  0 +waits +Barrier`,
		`^  1 +in its own code +after no call`,
		`^gorun: ending it; the stacks of rank 1:$`,
		`runtime\.endlessLoop`)
}

func TestEndlessLoopsOfAllRanks(t *testing.T) {
	hangs(t, []string{"-np", "2", "--hang-timeout", "2s", "rankprogram", "loops"},
		`^gorun: the job hangs: nothing has moved for [2-9]s \(--hang-timeout\)$`,
		`^  0-1 +in its own code +after no call`,
		`runtime\.endlessLoop`,
		`^goroutine 1 \[sleep\]:$`)
}

func TestAGoroutineThatIsYetToSendIsNoHang(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("gorun", "-np", "2", "--hang-timeout", "0", "rankprogram", "yettosend").CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

func TestNoGoroutineIsLeftToAct(t *testing.T) {
	hangs(t, []string{"-np", "2", "rankprogram", "nobodyleft"},
		`^gorun: the job hangs: rank 0 waits for rank 1 waits for rank 0$`,
		`^  0 +waits +Barrier +world #5 `,
		`^  1 +waits +Barrier +ranks 0-1\b.* #1 `)
}

func TestDeadlocksAreIgnoredOnDemand(t *testing.T) {
	hangs(t, []string{"-np", "3", "--on-deadlock", "ignore", "--hang-timeout", "4s", "rankprogram", "recvrecv"},
		`^gorun: the job hangs: nothing has moved for [4-9]s \(--hang-timeout\)$`,
		`^  0 +waits +Recv`)
}

func TestAStoppedRankIsNamed(t *testing.T) {
	hangs(t, []string{"-np", "2", "--hang-timeout", "2s", "rankprogram", "stopped"},
		`^  1 +stopped \(SIGSTOP\)`)
}

func TestAsynchronousCallsFeignNoHang(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("gorun", "-np", "2", "rankprogram", "asyncsleep").CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

func TestWaitingForAsynchronousCallsInDifferentOrders(t *testing.T) {
	hangs(t, []string{"-np", "2", "rankprogram", "asynccross"},
		`^gorun: the job hangs: rank 0 waits for rank 1 waits for rank 0$`,
		`^  0 +waits +AllReduce sum float32\[1\] +world #3 +runtime/hang_test\.go:\d+ +rank 1 `,
		`^  1 +waits +AllReduce sum float32\[1\] +ranks 0-\d #1 +runtime/hang_test\.go:\d+ +rank 0 `)
}

func TestAsynchronousCallsHideNoHang(t *testing.T) {
	hangs(t, []string{"-np", "3", "rankprogram", "asynchidden"},
		`^gorun: the job hangs: rank 0 waits for rank 1 waits for rank 0$`,
		`^  0 +waits +Recv.*\n +waits, async +AllReduce sum float32\[1\] +ranks 0-\d #1 `,
		`^  2 +in its own code +after Split int64\[\d+\] +world #2 `)
}

func TestSlowWorkIsNoHang(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"0", "1m"} {
		out, err := exec.Command("gorun", "-np", "3", "--hang-timeout", limit, "rankprogram", "slow").CombinedOutput()
		if err != nil || strings.Count(string(out), "done\n") != 3 || strings.Contains(string(out), "hang") {
			t.Errorf("%v:\n%s", err, out)
		}
	}
}

// TestAMadRank has the launcher survive what a rank writes into the segment.
func TestAMadRank(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "gorun", "-np", "3", "--hang-timeout", "1s", "--timeout", "6", "--grace", "1", "rankprogram",
		"mad").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 123 {
		t.Errorf("%v, want exit status 123:\n%s", err, out)
	}
	if bytes.Contains(out, []byte("\x1b[2J")) || bytes.Contains(out, []byte("panic")) {
		t.Errorf("gorun passes on what clears the screen, or panics:\n%q", out)
	}
}
