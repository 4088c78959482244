//go:build linux

package top

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/snapshot"
)

func TestTopTable(t *testing.T) {
	views := []rankView{
		{rank: 0, pid: 10, state: "runs", step: 7, calls: 12, bytes: 1 << 20, rate: 3 << 19, memory: 3 << 29, cpu: 0.5, idle: 0.25},
		{rank: 1, pid: 11, state: "waits for 0", call: "Barrier", at: "main.go:3",
			waited: 1234 * time.Millisecond, step: -1, memory: 5 << 29, idle: -1},
		{rank: 2, state: "ended", step: -1, calls: 3},
	}
	got := strings.Join(topTable(views), "\n")
	want := `RANK  PID  STATE        CPU  WAITED  MEMORY   STEP  CALLS  BYTES    RATE       IN       FOR   AT
0     10   runs         50%  25%     1.5 GiB  7     12     1.0 MiB  1.5 MiB/s
1     11   waits for 0  0%           2.5 GiB        0                          Barrier  1.2s  main.go:3
2          ended                                    3`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for key, want := range map[byte][]int{'r': {0, 1, 2}, 'c': {0, 1, 2}, 'm': {1, 0, 2}, 'w': {1, 0, 2}} {
		sorted := slices.Clone(views)
		sortViews(sorted, key)
		var order []int
		for _, v := range sorted {
			order = append(order, v.rank)
		}
		if !slices.Equal(order, want) {
			t.Errorf("%c: %v, want %v", key, order, want)
		}
	}
}

func TestSize(t *testing.T) {
	for bytes, want := range map[int]string{0: "0 B", 999: "999 B", 1000: "1.0 KiB", 1536: "1.5 KiB", 10 << 10: "10 KiB",
		1023 << 10: "1.0 MiB", 5 << 40: "5.0 TiB"} {
		if got := size(bytes); got != want {
			t.Errorf("size(%d) = %s, want %s", bytes, got, want)
		}
	}
}

func TestChoose(t *testing.T) {
	own := os.Getpid()
	for _, c := range []struct {
		name    string
		running []int
		want    int
		err     string
	}{
		{"", []int{own}, own, ""},
		{"77", nil, 77, ""},
		{"", nil, 0, "no job of yours runs on this machine whose ranks gorun has started itself"},
		{"", []int{own, 1}, 0, fmt.Sprintf("several jobs run; name one:\n  %d  ", own)},
		{"x", []int{own}, 0, `"x" is not the process id of a gorun`},
		{"-1", nil, 0, "is not"},
	} {
		j, err := choose(c.name, c.running)
		if c.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), c.err) && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q of %v: %v, want %q", c.name, c.running, err, c.err)
			}
		} else if err != nil || j.launcher != c.want {
			t.Errorf("%q of %v: %v, %v", c.name, c.running, j, err)
		}
	}
}

// A rank has a control segment, and memory for snapshots, as gorun has of a job that can be scaled. Only gorun's, which notes how many
// ranks it has started, is a job; on the other hosts nothing is noted.
func TestScaleFindsTheLauncher(t *testing.T) {
	segment, err := control.CreateAlone(2)
	if err != nil {
		t.Fatal(err)
	}
	defer segment.Close()
	memory, err := snapshot.Create()
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	if slices.Contains(ElasticJobs(), os.Getpid()) || !slices.Contains(Jobs(), os.Getpid()) {
		t.Errorf("elastic jobs %v, all jobs %v: this process, %d, is to be among the latter alone", ElasticJobs(), Jobs(), os.Getpid())
	}
	if err := newJob(os.Getpid()).scale(3); err == nil || !strings.Contains(err.Error(), "runs on another host; give the command there") {
		t.Errorf("got %v", err)
	}
	if err := snapshot.Started(memory, os.Getpid(), 2); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(ElasticJobs(), os.Getpid()) {
		t.Errorf("elastic jobs %v: %d is to be among them", ElasticJobs(), os.Getpid())
	}
	for _, c := range []struct {
		has int // ranks, when the launcher has dealt with it
		err string
	}{{3, ""}, {2, "does not go on with 3 ranks; it says why"}} {
		answered := make(chan error)
		go func() {
			for wanted := 0; wanted == 0; wanted, _ = snapshot.Wanted(memory) {
				time.Sleep(time.Millisecond)
			}
			answered <- errors.Join(snapshot.Started(memory, os.Getpid(), c.has), snapshot.Want(memory, 0))
		}()
		err := newJob(os.Getpid()).scale(3)
		if failed := <-answered; failed != nil {
			t.Fatal(failed)
		}
		if err == nil != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%d ranks: %v, want %q", c.has, err, c.err)
		}
	}
}
