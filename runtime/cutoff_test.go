//go:build linux

package runtime

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/internal/keepalive"
)

func TestHostLimit(t *testing.T) {
	for _, c := range []struct {
		text string
		want time.Duration
		ok   bool
	}{
		{"", time.Minute, true}, {"0", 0, true}, {"5s", 5 * time.Second, true}, {"2m", 2 * time.Minute, true},
		{"4s", 0, false}, {"-1m", 0, false}, {"15", 0, false}, {"soon", 0, false},
	} {
		got, err := hostLimit(c.text)
		if got != c.want || (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), `GORUN_HOST_TIMEOUT="`+c.text+`"`) {
			t.Errorf("%q: got %v, %v", c.text, got, err)
		}
	}
}

// A rank warns of another build under its own name, the first of its host that runs this one.
func TestOtherBuild(t *testing.T) {
	all := []origin{
		{Host: 1, Name: 1, Build: 1}, {Host: 1, Name: 2, Build: 2}, // two programs
		{Host: 2, Name: 1, Build: 3}, {Host: 2, Name: 1, Build: 3}, // another build of the first
		{Host: 3, Name: 2, Build: 2}, {Host: 3, Name: 2, Build: 0}, // the second, and what cannot be read
		{Host: 4, Name: 1, Build: 1},
	}
	got := map[int]int{}
	for me := range all {
		if rank, ok := otherBuild(all, me); ok {
			got[me] = rank
		}
	}
	if want := map[int]int{2: 0}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// However many ranks two hosts have, each of these is connected to one on the other host.
func TestPartners(t *testing.T) {
	for first := 1; first <= 5; first++ {
		for second := 1; second <= 5; second++ {
			hosts := append(slices.Repeat([]int64{7}, first), slices.Repeat([]int64{3}, second)...)
			hosts = append(hosts, 9) // a third host
			connected := map[int]bool{}
			for me := first; me < first+second; me++ {
				to := partners(hosts, me)
				if len(to) == 0 {
					t.Errorf("%d and %d ranks: rank %d has no partner", first, second, me)
				}
				for _, r := range to {
					connected[r] = true
					if hosts[r] != 7 {
						t.Errorf("%d and %d ranks: partner %d of rank %d is not on rank 0's host", first, second, r, me)
					}
				}
			}
			if len(connected) != first {
				t.Errorf("%d and %d ranks: connected are %v", first, second, connected)
			}
		}
	}
}

// All ranks learn rank 0's invitation, the longest that there is.
func TestInvitation(t *testing.T) {
	address := "2001:0db8:0000:0000:0000:ff00:0042:8329"
	sent := invitation{Limit: time.Hour, Host: strings.Repeat("h", 255), Secret: keepalive.NewSecret(),
		Addresses: slices.Repeat([]string{address}, maxAddresses)}
	for i := range sent.Secret {
		sent.Secret[i] |= 0x80 // three digits each
	}
	commtest.Run(t, 3, func(ctx context.Context, world *comm.Comm) error {
		got := invitation{Limit: time.Second, Host: "other"}
		if world.Rank() == 0 {
			got = sent
		}
		err := got.exchange(ctx, world)
		if err == nil && !reflect.DeepEqual(got, sent) {
			err = fmt.Errorf("got %+v, want %+v", got, sent)
		}
		return err
	})
}

// What a process has started ends, in other sessions too.
func TestKillChildren(t *testing.T) {
	cmd := exec.Command("sh", "-c", "setsid sh -c 'sleep 1000 & echo started; wait' & wait")
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(pipe)
	if line, err := out.ReadString('\n'); err != nil || line != "started\n" {
		t.Fatalf("%q, %v", line, err)
	}
	killChildren(cmd.Process.Pid)
	if _, err := io.ReadAll(out); err != nil { // all of them hold the pipe
		t.Error(err)
	}
	_ = cmd.Wait() // its own children are gone
}
