//go:build linux

package top

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/snapshot"
	"github.com/gorun-spmd/gorun/launcher/options"
	"github.com/gorun-spmd/gorun/launcher/phrase"
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
	fmt.Fprintf(stdout, "job %d goes on with %s\n", j.launcher, phrase.Count(ranks, "rank"))
	return 0
}

// ElasticJobs returns those of Jobs whose jobs are elastic.
func ElasticJobs() []int {
	return slices.DeleteFunc(Jobs(), func(pid int) bool { return snapshotFile(pid, snapshot.Name) == "" })
}

// scale asks the job for so many ranks, and waits until they are started.
func (j *runningJob) scale(ranks int) error {
	if snapshotFile(j.launcher, snapshot.DepotName) != "" {
		return fmt.Errorf("job %d (%s) runs on several hosts, where ranks are not added or taken away; stop it, and start it with another -np "+
			"from its checkpoint", j.launcher, j.command)
	}
	if err := j.attach(); err != nil {
		return err
	}
	defer j.detach()
	memory, err := j.snapshots()
	if err != nil {
		return err
	}
	defer memory.Close()
	if err := snapshot.Want(memory, ranks); err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < scaleTime; time.Sleep(5 * time.Millisecond) {
		if err := j.attach(); err != nil {
			if _, gone := os.Stat(fmt.Sprintf("/proc/%d", j.launcher)); gone != nil {
				return fmt.Errorf("job %d has ended", j.launcher)
			}
			continue // between two attempts
		}
		if wanted, err := snapshot.Wanted(memory); err == nil && wanted != ranks && j.segment.Ranks() == ranks {
			return nil
		}
	}
	_ = snapshot.Want(memory, 0)
	return fmt.Errorf("job %d has not begun with %d ranks in %v; see what it says", j.launcher, ranks, scaleTime)
}

// snapshots opens the memory of the job's snapshots.
func (j *runningJob) snapshots() (*os.File, error) {
	name := snapshotFile(j.launcher, snapshot.Name)
	if name == "" {
		return nil, fmt.Errorf("job %d (%s) is not elastic; start it with gorun --elastic restart or shrink", j.launcher, j.command)
	}
	return os.OpenFile(name, os.O_RDWR, 0)
}

// snapshotFile returns where /proc has the memory for snapshots of that name that a launcher, or its rank, has open; "" if it has none.
func snapshotFile(launcher int, name string) string {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", launcher))
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == "/memfd:"+name+" (deleted)" {
			return link
		}
	}
	return ""
}
