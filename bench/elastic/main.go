//go:build linux

// Command elastic measures how soon a job goes on: from the kill of a rank, or from the
// request for another number of ranks, to the end of the next step.
//
//	go run ./bench/elastic            examples/train on 4 ranks, a table
//	go run ./bench/elastic -json      a line of JSON for each row
//
// "restart" and "shrink" kill one of 4 ranks with SIGKILL, under gorun --elastic restart and shrink.
// "scale 3" and "scale 4" are gorun scale, from 4 ranks to 3 and back. A time includes the steps that are made
// again up to the first whose metrics are written; snapshots are 5 steps apart. "snapshot" is how long 4 ranks
// stand still while each keeps 26 MB. Each is the median of -rounds.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorun-spmd/gorun/checkpoint"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/runtime"
	"github.com/gorun-spmd/gorun/tensor"
)

// asRank is the argument that makes this program a rank whose snapshots are measured.
const asRank = "rank"

// stateBytes is what each rank keeps in a snapshot.
const stateBytes = 26 << 20

func main() {
	if len(os.Args) == 3 && os.Args[1] == asRank {
		runtime.Main(snapshot)
	}
	var b bench
	flag.StringVar(&b.gorun, "gorun", "bin/gorun", "the launcher")
	flag.IntVar(&b.rounds, "rounds", 7, "how often each is done, of which the median counts")
	flag.BoolVar(&b.json, "json", false, "write JSON lines")
	flag.Parse()
	if err := b.run(); err != nil {
		fmt.Fprintln(os.Stderr, "elastic:", err)
		os.Exit(1)
	}
}

// A bench is the benchmark's options and its folder.
type bench struct {
	gorun  string
	rounds int
	json   bool
	dir    string
}

func (b *bench) run() error {
	var err error
	if b.dir, err = os.MkdirTemp("", "elastic"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if out, err := exec.Command("go", "build", "-o", b.program(), "./examples/train").CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, how := range []string{"restart", "shrink"} {
		times, err := b.kills(how)
		if err != nil {
			return fmt.Errorf("%s: %w", how, err)
		}
		if err := b.show(how, times); err != nil {
			return err
		}
	}
	times, err := b.scales()
	if err != nil {
		return fmt.Errorf("scale: %w", err)
	}
	for _, np := range []int{3, 4} {
		if err := b.show(fmt.Sprint("scale ", np), times[np]); err != nil {
			return err
		}
	}
	out, err := exec.Command(b.gorun, "-np", "4", "--elastic", "restart", self, asRank, strconv.Itoa(b.rounds)).Output()
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	var saves []time.Duration
	if err := json.Unmarshal(out, &saves); err != nil {
		return fmt.Errorf("snapshot: %w: %s", err, out)
	}
	return b.show("snapshot", saves)
}

// show prints one row.
func (b *bench) show(name string, times []time.Duration) error {
	slices.Sort(times)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	median, worst := ms(times[len(times)/2]), ms(times[len(times)-1])
	if b.json {
		return json.NewEncoder(os.Stdout).Encode(struct {
			Name   string  `json:"name"`
			Median float64 `json:"ms"`
			Worst  float64 `json:"worst_ms"`
		}{name, median, worst})
	}
	_, err := fmt.Printf("%-9s %8.1f ms, at most %.1f ms in %d\n", name, median, worst, len(times))
	return err
}

func (b *bench) program() string { return filepath.Join(b.dir, "train") }

func (b *bench) metrics() string { return filepath.Join(b.dir, "steps.jsonl") }

// A job is a training run under gorun.
type job struct {
	*bench
	cmd    *exec.Cmd
	ended  chan struct{} // closed when it has ended
	again  atomic.Int64  // attempts after the first
	stderr strings.Builder
}

// start begins a job and returns when it has made some steps.
func (b *bench) start(how string) (*job, error) {
	if err := os.RemoveAll(b.metrics()); err != nil {
		return nil, err
	}
	j := &job{bench: b, ended: make(chan struct{})}
	j.cmd = exec.Command(b.gorun, "-np", "4", "--elastic", how, b.program(), "-steps", "1000000", "-snapshot", "5", "-sample", "0",
		"-plot", "", "-metrics", b.metrics())
	text, err := j.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := j.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		for lines := bufio.NewScanner(io.TeeReader(text, &j.stderr)); lines.Scan(); {
			if strings.Contains(lines.Text(), "starting the job again") {
				j.again.Add(1)
			}
		}
		_ = j.cmd.Wait() // who awaits something says that it has ended
		close(j.ended)
	}()
	if err := j.work(); err != nil {
		j.stop()
		return nil, err
	}
	return j, nil
}

// stop ends the job, unless it has ended.
func (j *job) stop() {
	_ = j.cmd.Process.Kill() // fails if it has ended
	<-j.ended
}

// await waits until there is what it looks for.
func (j *job) await(what string, look func() bool) error {
	for began := time.Now(); !look(); time.Sleep(500 * time.Microsecond) {
		select {
		case <-j.ended:
			return fmt.Errorf("the job has ended: %v\n%s", j.cmd.ProcessState, &j.stderr)
		default:
		}
		if time.Since(began) > time.Minute {
			return fmt.Errorf("no %s in a minute", what)
		}
	}
	return nil
}

// written returns how many bytes of metrics the job has written.
func (j *job) written() int64 {
	info, err := os.Stat(j.metrics())
	if err != nil {
		return 0
	}
	return info.Size()
}

// work waits for some steps, among them a snapshot.
func (j *job) work() error {
	const steps = 12
	for range steps {
		before := j.written()
		if err := j.await("step", func() bool { return j.written() > before }); err != nil {
			return err
		}
	}
	return nil
}

// goesOn returns the time from the call of cause to the end of the first step of the next attempt.
func (j *job) goesOn(cause func() error) (time.Duration, error) {
	attempt, began := j.again.Load(), time.Now()
	if err := cause(); err != nil {
		return 0, err
	}
	if err := j.await("next attempt", func() bool { return j.again.Load() > attempt }); err != nil {
		return 0, err
	}
	before := j.written()
	err := j.await("next step", func() bool { return j.written() > before })
	return time.Since(began), err
}

// ranks returns the processes of the job's program.
func (j *job) ranks() (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range all {
		if exe, err := os.Readlink(link); err == nil && exe == j.program() {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(link)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// kills kills a rank of one job after the other.
func (b *bench) kills(how string) (times []time.Duration, err error) {
	for i := range b.rounds {
		j, err := b.start(how)
		if err != nil {
			return nil, err
		}
		t, err := j.goesOn(func() error {
			pids := j.ranks()
			if len(pids) != 4 {
				return fmt.Errorf("the job has %d processes", len(pids))
			}
			return syscall.Kill(pids[i%4], syscall.SIGKILL)
		})
		j.stop()
		if err != nil {
			return nil, err
		}
		times = append(times, t)
	}
	return times, nil
}

// scales changes the number of ranks of one job; the times are by the new number.
func (b *bench) scales() (map[int][]time.Duration, error) {
	times := map[int][]time.Duration{}
	j, err := b.start("shrink")
	if err != nil {
		return nil, err
	}
	defer j.stop()
	for range b.rounds {
		for _, np := range []int{3, 4} {
			t, err := j.goesOn(func() error {
				out, err := exec.Command(b.gorun, "scale", strconv.Itoa(j.cmd.Process.Pid), strconv.Itoa(np)).CombinedOutput()
				if err != nil {
					return fmt.Errorf("gorun scale: %w: %s", err, out)
				}
				return nil
			})
			if err == nil {
				err = j.work()
			}
			if err != nil {
				return nil, err
			}
			times[np] = append(times[np], t)
		}
	}
	return times, nil
}

// snapshot is the program of the ranks whose snapshots are measured; rank 0 prints the times.
func snapshot(ctx context.Context, world *comm.Comm) error {
	rounds, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return err
	}
	m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: world.Size()})
	if err != nil {
		return err
	}
	var state checkpoint.State
	state.AddTensor("x", dtensor.Full(m, tensor.Float32, 1, []int{world.Size() * stateBytes / 4}, layout.Shard(0)))
	s, err := checkpoint.OpenSnapshots(ctx, world, &state)
	if err != nil {
		return err
	}
	var times []time.Duration
	for step := range rounds + 2 { // the first two touch their memory first
		began := time.Now()
		if err := s.Save(ctx, step+1); err != nil {
			return err
		}
		if step > 1 {
			times = append(times, time.Since(began))
		}
	}
	if world.Rank() != 0 {
		return nil
	}
	return json.NewEncoder(os.Stdout).Encode(times)
}
