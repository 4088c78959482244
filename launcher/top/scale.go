//go:build linux

package top

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/snapshot"
	"github.com/gorun-spmd/gorun/launcher/options"
)

const scaleUsage = `usage: gorun scale [JOB] N

Has a job that gorun --elastic started go on with N ranks: those that run keep
their state in memory after the step that they are in, and N go on from there.

JOB is the process id of the job's gorun; it may be left out if only one
elastic job runs.
`

// scaleTime is how long a job may take to begin with another number of ranks.
const scaleTime = time.Minute

// Scale is the command gorun scale.
func Scale(args []string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("gorun scale", flag.ContinueOnError)
	if status, done := options.ParseCommand(f, args, 2, scaleUsage, stdout, stderr); done {
		return status
	}
	name := ""
	if f.NArg() == 2 {
		name = f.Arg(0)
	}
	ranks, err := strconv.Atoi(f.Arg(f.NArg() - 1))
	if most := min(control.MaxRanks, snapshot.MaxRanks); err != nil || ranks < 1 || ranks > most {
		fmt.Fprintf(stderr, "gorun scale: give the number of ranks, 1 to %d\n%s", most, scaleUsage)
		return 2
	}
	running := ElasticJobs()
	if len(running) == 0 {
		running = Jobs() // the error names one
	}
	j, err := choose(name, running)
	if err == nil {
		err = j.scale(ranks)
	}
	if err != nil {
		fmt.Fprintf(stderr, "gorun scale: %v\n", err)
		return 1
	}
	fmt.Fprintf(stdout, "job %d goes on with %s\n", j.launcher, ints.Counted(ranks, "rank"))
	return 0
}

// ElasticJobs returns the process ids of those launchers whose jobs are elastic, on several hosts too.
func ElasticJobs() (found []int) {
	for _, pid := range processes() {
		memory, err := openSnapshots(pid)
		if err != nil {
			continue
		}
		if launcher, _, err := snapshot.Running(memory); err == nil && launcher == pid {
			found = append(found, pid)
		}
		memory.Close()
	}
	return found
}

// scale asks the job to go on with a number of ranks, and waits until they are started.
func (j *runningJob) scale(ranks int) error {
	memory, err := openSnapshots(j.launcher)
	if err != nil {
		if err := j.attach(); err != nil {
			return err
		}
		j.detach()
		return fmt.Errorf("job %d (%s) is not elastic; start it with gorun --elastic restart or shrink", j.launcher, j.command)
	}
	defer memory.Close()
	launcher, _, err := snapshot.Running(memory)
	if err != nil {
		return err
	}
	if launcher == 0 {
		return fmt.Errorf("the gorun of job %d (%s) runs on another host; give the command there", j.launcher, j.command)
	}
	if err := snapshot.Want(memory, ranks); err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < scaleTime; time.Sleep(5 * time.Millisecond) {
		if _, gone := os.Stat(fmt.Sprintf("/proc/%d", launcher)); gone != nil {
			return fmt.Errorf("job %d has ended", launcher)
		}
		switch wanted, err := snapshot.Wanted(memory); {
		case err != nil:
			return err
		case wanted == ranks: // as yet
			continue
		}
		if _, has, err := snapshot.Running(memory); err != nil || has == ranks {
			return err
		}
		return fmt.Errorf("job %d does not go on with %s; it says why", launcher, ints.Counted(ranks, "rank"))
	}
	_ = snapshot.Want(memory, 0)
	return fmt.Errorf("job %d has not begun with %s in %v; see what it says", launcher, ints.Counted(ranks, "rank"), scaleTime)
}

// openSnapshots opens the memory for snapshots that a launcher, or its rank, has open.
func openSnapshots(pid int) (*os.File, error) {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == snapshot.Link {
			return os.OpenFile(link, os.O_RDWR, 0)
		}
	}
	return nil, os.ErrNotExist
}
