//go:build linux

package launcher

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/launcher/machine"
	"github.com/gorun-spmd/gorun/launcher/options"
)

// TestShareCoversEverything checks each division by laying the parts end to end.
func TestShareCoversEverything(t *testing.T) {
	for total := range 20 {
		for n := 1; n < 20; n++ {
			next := 0
			for r := range n {
				lo, hi := share(total, r, n)
				if lo != next || hi-lo < total/n || hi-lo > total/n+1 {
					t.Errorf("share(%d, %d, %d) = %d, %d after %d", total, r, n, lo, hi, next)
				}
				next = hi
			}
			if next != total {
				t.Errorf("%d of %d things are divided among %d", next, total, n)
			}
		}
	}
}

// parsed is of a machine with six cores.
func parsed(args ...string) (*options.Options, error) {
	return options.Parse(args, 6, func(string) (string, bool) { return "", false }, io.Discard)
}

func makePlan(t *testing.T, m machine.Machine, args ...string) *plan {
	t.Helper()
	o, err := parsed(args...)
	if err != nil {
		t.Fatal(err)
	}
	paths := make([]string, len(o.Apps))
	for i, a := range o.Apps {
		paths[i] = "/bin/" + a.Program
	}
	return newPlan(o, paths, m)
}

func TestPlans(t *testing.T) {
	eight := machine.Machine{Host: "h", Cores: 8, CPUs: []int{0, 4, 1, 5, 2, 6, 3, 7}}
	quota := machine.Machine{Host: "h", Cores: 2, CPUs: []int{0, 1, 2, 3}}
	sockets := machine.Machine{Host: "h", Cores: 8, CPUs: []int{0, 1, 2, 3, 4, 5, 6, 7}, Packages: []int{0, 0, 0, 0, 1, 1, 1, 1}}
	fixed := machine.Machine{Host: "h", Cores: 8, CPUs: eight.CPUs, Env: []string{"GOMAXPROCS=3"}}
	for _, c := range []struct {
		m    machine.Machine
		args string
		want string
	}{
		{sockets, "--map-by socket -np 4 a", `
host h: 4 ranks on 8 usable cores
ranks 0-3: a
  rank 0: GOMAXPROCS=2 on CPUs 0-1
  rank 1: GOMAXPROCS=2 on CPUs 4-5
  rank 2: GOMAXPROCS=2 on CPUs 2-3
  rank 3: GOMAXPROCS=2 on CPUs 6-7
`},
		{sockets, "--map-by socket -np 3 a", `
host h: 3 ranks on 8 usable cores
ranks 0-2: a
  rank 0: GOMAXPROCS=3 on CPUs 0-2
  rank 1: GOMAXPROCS=2 on CPUs 6-7
  rank 2: GOMAXPROCS=3 on CPUs 3-5
`},
		{sockets, "--map-by socket -np 9 a", `
host h: 9 ranks on 8 usable cores
ranks 0-8: a
  ranks 0-8: GOMAXPROCS=1
`},
		{eight, "-np 1 a", `
host h: 1 rank on 8 usable cores
rank 0: a
`}, {eight, "-np 3 a -v x*", `
host h: 3 ranks on 8 usable cores
ranks 0-2: a -v 'x*'
  rank 0: GOMAXPROCS=3 on CPUs 0,4,1
  rank 1: GOMAXPROCS=3 on CPUs 5,2,6
  rank 2: GOMAXPROCS=2 on CPUs 3,7
`}, {eight, "-np 3 --bind-to none a", `
host h: 3 ranks on 8 usable cores
ranks 0-2: a
  ranks 0-1: GOMAXPROCS=3
  rank 2: GOMAXPROCS=2
`}, {eight, "-np 16 a", `
host h: 16 ranks on 8 usable cores
ranks 0-15: a
  ranks 0-15: GOMAXPROCS=1
`}, {quota, "-np 2 a", `
host h: 2 ranks on 2 usable cores
ranks 0-1: a
  ranks 0-1: GOMAXPROCS=1
`}, {fixed, "-np 2 --bind-to none a", `
host h: 2 ranks on 8 usable cores
ranks 0-1: a
`}, {fixed, "-np 2 a", `
host h: 2 ranks on 8 usable cores
ranks 0-1: a
  rank 0: GOMAXPROCS=3 on CPUs 0,4,1,5
  rank 1: GOMAXPROCS=3 on CPUs 2,6,3,7
`}, {eight, "-np 1 --wdir / a : -np 2 -x GOMAXPROCS=9 --bind-to none b", ""},
		{eight, "--bind-to none -np 1 --wdir / a : -np 2 -x GOMAXPROCS=9 b 1", `
host h: 3 ranks on 8 usable cores
rank 0: a
  in /
  rank 0: GOMAXPROCS=3
ranks 1-2: b 1
`}} {
		if c.want == "" {
			if _, err := parsed(strings.Fields(c.args)...); err == nil {
				t.Errorf("%s was accepted", c.args)
			}
			continue
		}
		var b strings.Builder
		b.WriteByte('\n')
		makePlan(t, c.m, strings.Fields(c.args)...).write(&b)
		if b.String() != c.want {
			t.Errorf("%s: got%swant%s", c.args, b.String(), c.want)
		}
	}
}

func TestEnvironmentOfARank(t *testing.T) {
	m := machine.Machine{Cores: 2, Env: []string{"A=1", "B=2", "A=3"}}
	p := makePlan(t, m, "-np", "2", "-x", "A=4", "-x", "C=5", "a")
	if got, want := p.apps[0].Env, []string{"A=4", "C=5", "B=2"}; !slices.Equal(got, want) {
		t.Errorf("environment of the program: %q, want %q", got, want)
	}
	env := p.env(1, job.Job{ID: "id", Attempt: 3, ControlFD: 3, ArenaFD: 4, Columns: 80}, true)
	if !slices.Contains(env, "GOMAXPROCS=1") || !slices.Contains(env, "GORUN_LOG_FORMAT=console") {
		t.Errorf("environment of rank 1: %q", env)
	}
	got, err := job.Decode(func(name string) (string, bool) {
		for _, kv := range env {
			if v, ok := strings.CutPrefix(kv, name+"="); ok {
				return v, true
			}
		}
		return "", false
	})
	want := job.Job{Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, ID: "id", Attempt: 3, ControlFD: 3, ArenaFD: 4, Columns: 80}
	if err != nil || got != want {
		t.Errorf("the contract reads as %+v, %v, want %+v", got, err, want)
	}
}

func TestDeal(t *testing.T) {
	for _, c := range []struct{ packages, want []int }{
		{nil, []int{}},
		{[]int{7}, []int{0}},
		{[]int{0, 0, 0}, []int{0, 1, 2}},
		{[]int{0, 0, 0, 1, 2, 2}, []int{0, 3, 4, 1, 5, 2}},
	} {
		if got := deal(c.packages); !slices.Equal(got, c.want) {
			t.Errorf("deal(%v) = %v, want %v", c.packages, got, c.want)
		}
	}
}
