//go:build linux

package programtest

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/forecast"
)

var many = flag.Bool("plan.many", false, "TestPlan compares plans of many ranks too")

// Many returns meshes of many ranks with -plan.many, and else none: they take long.
func Many(meshes ...[2]int) [][2]int {
	if !*many {
		return nil
	}
	return meshes
}

// Plan returns what gorun plan says of the program on n ranks.
func (p *Program) Plan(t testing.TB, n int, args ...string) *forecast.Report {
	t.Helper()
	r, _ := p.plan(t, n, nil, args)
	return r
}

// PlanOfAll is Plan for which all ranks run: what a rank sends may depend on its data.
func (p *Program) PlanOfAll(t testing.TB, n int, args ...string) *forecast.Report {
	t.Helper()
	all := make([]string, n)
	for rank := range all {
		all[rank] = strconv.Itoa(rank)
	}
	r, _ := p.plan(t, n, []string{"-ranks", strings.Join(all, ",")}, args)
	return r
}

// PlanMemory is Plan, and returns how many bytes the program and gorun had at most, whichever had more.
func (p *Program) PlanMemory(t testing.TB, n int, args ...string) (r *forecast.Report, peak int) {
	t.Helper()
	r, state := p.plan(t, n, nil, args)
	return r, int(state.SysUsage().(*syscall.Rusage).Maxrss) << 10 // of the largest process
}

func (p *Program) plan(t testing.TB, n int, flags, args []string) (*forecast.Report, *os.ProcessState) {
	t.Helper()
	all := slices.Concat([]string{"plan", "-json", "-machine", "none", "-np", strconv.Itoa(n)}, flags, []string{p.path()}, args)
	cmd := exec.Command(filepath.Join(p.folder, "gorun"), all...)
	out, err := cmd.Output()
	r := new(forecast.Report)
	if err == nil {
		err = json.Unmarshal(out, r)
	}
	if err != nil {
		t.Fatalf("gorun plan -np %d: %v", n, err)
	}
	return r, cmd.ProcessState
}

// A Reality is what the ranks of a run have called and taken.
type Reality struct {
	stats [][]comm.Stats // by rank, after each step
	peaks []int          // of each rank's tensors, in bytes
}

// NewReality returns one for n ranks.
func NewReality(n int) *Reality { return &Reality{make([][]comm.Stats, n), make([]int, n)} }

// Step notes what a rank has called until the end of a step.
func (r *Reality) Step(mesh *dtensor.Mesh) {
	rank := mesh.Comm().Rank()
	r.stats[rank] = append(r.stats[rank], mesh.Comm().Stats())
	r.peaks[rank] = mesh.Device().Stats().HighWater
	Collect(mesh)
}

// Collect returns when the memory of tensors that nobody reaches is free, as it is where a plan's
// step begins.
func Collect(mesh *dtensor.Mesh) {
	for live := -1; mesh.Device().Stats().Live != live; {
		live = mesh.Device().Stats().Live
		runtime.GC()
		time.Sleep(5 * time.Millisecond) // what frees them goes on by itself
	}
}

// Compare compares what gorun plan says with what was: calls and bytes of the second step must be
// equal, kind by kind on each rank that ran for the plan, and the most memory within 3 %.
func (r *Reality) Compare(t testing.TB, plan *forecast.Report) {
	t.Helper()
	ranks := 0
	for _, rank := range plan.Ranks {
		i := rank.Rank
		ranks += rank.Count
		if len(r.stats[i]) < 2 || len(rank.Calls) == 0 {
			t.Fatalf("rank %d: %d steps, %d calls are planned", i, len(r.stats[i]), len(rank.Calls))
		}
		planned := map[string]comm.Count{}
		for _, c := range rank.Calls {
			n := planned[c.Kind]
			planned[c.Kind] = comm.Count{Calls: n.Calls + c.Count, Bytes: n.Bytes + c.Bytes}
		}
		before, after := r.stats[i][0], r.stats[i][1]
		for k := range after.Kinds {
			was := comm.Count{Calls: after.Kinds[k].Calls - before.Kinds[k].Calls, Bytes: after.Kinds[k].Bytes - before.Kinds[k].Bytes}
			if name := comm.Kind(k).String(); planned[name] != was {
				t.Errorf("rank %d of %d: %s: %+v are planned, it was %+v", i, len(r.stats), name, planned[name], was)
			}
		}
		if diff := rank.Memory.Peak - r.peaks[i]; max(diff, -diff)*100 > 3*r.peaks[i] {
			t.Errorf("rank %d of %d: %d bytes are planned, it took %d", i, len(r.stats), rank.Memory.Peak, r.peaks[i])
		}
	}
	if ranks != len(r.stats) {
		t.Errorf("the plan is of %d ranks, and there were %d", ranks, len(r.stats))
	}
}
