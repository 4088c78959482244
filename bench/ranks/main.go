// Command ranks measures jobs of many ranks on one machine: the time to start
// and end, the memory and files of an idle rank, and the time of a small collective.
//
//	go run ./bench/ranks                       128, 512 and 1024 ranks, a table
//	go run ./bench/ranks -np 256,2048 -json    a line of JSON for each number
//	go run ./bench/ranks -goroutines 1024,4096 steps of goroutine ranks instead
//
// "start_s" is the time of gorun with ranks that do nothing, the shortest of a few. "pss_mb"
// is the proportional set size of a rank that has called one barrier, the mean over the
// ranks; "rank_files" and "launcher_files" are open descriptors. "barrier_us" and
// "all_reduce_us" (8 bytes) are the mean over calls back to back. A core runs one rank at a time,
// so with more ranks than cores a call takes at least a switch between processes for each rank
// of a core.
//
// Goroutine ranks are all in one process. "step_s" is the fastest of 5 steps of training on a mesh (dp, tp) with 4 ranks on
// the second axis, "rss_mb" the most memory of the process.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/runtime"
)

// A result is one line of the output.
type result struct {
	NP            int     `json:"np"`
	Start         float64 `json:"start_s"`
	PSS           float64 `json:"pss_mb"`
	RankFiles     float64 `json:"rank_files"`
	LauncherFiles int     `json:"launcher_files"`
	Barrier       float64 `json:"barrier_us"`
	AllReduce     float64 `json:"all_reduce_us"`
}

// asRank is the argument that makes this program a rank.
const asRank = "rank"

func main() {
	switch {
	case len(os.Args) == 3 && os.Args[1] == asRank && os.Args[2] == "idle":
		runtime.Main(func(context.Context, *comm.Comm) error { return nil })
	case len(os.Args) == 3 && os.Args[1] == asRank:
		runtime.Main(measureIdle)
	case len(os.Args) == 4 && os.Args[1] == asRank:
		runtime.Main(func(ctx context.Context, world *comm.Comm) error { return measureSteps(ctx, world, os.Args[3]) })
	}
	np := flag.String("np", "128,512,1024", "numbers of ranks")
	asJSON := flag.Bool("json", false, "write JSON lines")
	gorun := flag.String("gorun", "bin/gorun", "the launcher")
	starts := flag.Int("starts", 3, "how often a job is started, of which the shortest time counts")
	goroutines := flag.String("goroutines", "", "measure steps of these numbers of goroutine ranks instead")
	flag.Parse()
	var err error
	if *goroutines != "" {
		err = runSteps(strings.Split(*goroutines, ","), *asJSON)
	} else {
		err = run(*gorun, strings.Split(*np, ","), *starts, *asJSON)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ranks:", err)
		os.Exit(1)
	}
}

// run measures jobs of the numbers of ranks in sizes and prints a line for each.
func run(gorun string, sizes []string, starts int, asJSON bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if !asJSON {
		fmt.Println("ranks  start, s  PSS, MB  files of a rank  of gorun  barrier, µs  all-reduce, µs")
	}
	for _, size := range sizes {
		var r result
		for i := range starts {
			began := time.Now()
			if out, err := exec.Command(gorun, "-np", size, self, asRank, "idle").CombinedOutput(); err != nil {
				return fmt.Errorf("%s ranks: %w\n%s", size, err, out)
			}
			if t := time.Since(began).Seconds(); i == 0 || t < r.Start {
				r.Start = t
			}
		}
		out, err := exec.Command(gorun, "-np", size, self, asRank, "measure").Output()
		if err != nil {
			return fmt.Errorf("%s ranks: %w", size, err)
		}
		start := r.Start
		if err := json.Unmarshal(out, &r); err != nil {
			return fmt.Errorf("%s ranks: %w: %s", size, err, out)
		}
		r.Start = start
		if asJSON {
			if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
				return err
			}
			continue
		}
		fmt.Printf("%5d  %8.2f  %7.1f  %15.0f  %8d  %11.0f  %14.0f\n", r.NP, r.Start, r.PSS, r.RankFiles, r.LauncherFiles, r.Barrier, r.AllReduce)
	}
	return nil
}

// measureIdle is the program of the ranks; rank 0 prints the result.
func measureIdle(ctx context.Context, world *comm.Comm) error {
	if err := comm.Barrier(ctx, world); err != nil {
		return err
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	pss, err := measure.ProcessBytes("smaps_rollup", "Pss")
	if err != nil {
		return err
	}
	sums := []float64{float64(pss) / 1e6, float64(len(files))}
	if err := comm.AllReduce(ctx, world, sums, comm.Sum); err != nil {
		return err
	}
	n := float64(world.Size())
	r := result{NP: world.Size(), PSS: sums[0] / n, RankFiles: sums[1] / n}
	if r.Barrier, err = perCall(func() error { return comm.Barrier(ctx, world) }); err != nil {
		return err
	}
	one := []float64{1}
	if r.AllReduce, err = perCall(func() error { return comm.AllReduce(ctx, world, one, comm.Max) }); err != nil {
		return err
	}
	if world.Rank() != 0 {
		return nil
	}
	if r.LauncherFiles, err = launcherFiles(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// perCall returns the mean microseconds of a call, over calls back to back.
func perCall(call func() error) (float64, error) {
	const calls, warm = 50, 5
	var began time.Time
	for i := range warm + calls {
		if i == warm {
			began = time.Now()
		}
		if err := call(); err != nil {
			return 0, err
		}
	}
	return time.Since(began).Seconds() * 1e6 / calls, nil
}

// launcherFiles returns how many files gorun has open. gorun is the parent of the guardian's
// keeper.
func launcherFiles() (int, error) {
	pid := os.Getppid() // the guardian
	for range 2 {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		after := text[bytes.LastIndexByte(text, ')')+1:]
		if _, err := fmt.Sscanf(string(after), " %1s %d", new(string), &pid); err != nil {
			return 0, err
		}
	}
	files, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
	return len(files), err
}
