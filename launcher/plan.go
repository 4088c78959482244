//go:build linux

package launcher

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/launcher/guardian"
	"github.com/gorun-spmd/gorun/launcher/machine"
	"github.com/gorun-spmd/gorun/launcher/options"
	"github.com/gorun-spmd/gorun/launcher/phrase"
)

// A plan says which rank runs what, before anything is started.
type plan struct {
	host  string
	cores int            // usable CPUs
	apps  []guardian.App // programs, in the order of the command line
	ranks []place        // by rank
}

// A place is what a plan says about one rank.
type place struct {
	app     int   // index in plan.apps
	threads int   // GOMAXPROCS; 0 leaves it to the program's Go runtime
	cpus    []int // nil: any
}

// newPlan divides m among the ranks that o asks for. paths are the files of
// o.Apps. With no more ranks than cores each rank gets its own share of them, as
// GOMAXPROCS and, if o.Bind allows, as the CPUs it may run on; which share is whose
// depends on o.MapBy.
func newPlan(o *options.Options, paths []string, m machine.Machine) *plan {
	p := &plan{host: m.Host, cores: m.Cores}
	for i, a := range o.Apps {
		argv := append([]string{a.Argv0(paths[i])}, a.Args...)
		p.apps = append(p.apps, guardian.App{Path: paths[i], Argv: argv, Env: options.Environment(m.Env, a.Vars), Dir: a.Dir})
		for range a.Ranks {
			p.ranks = append(p.ranks, place{app: i})
		}
	}
	n := len(p.ranks)
	parts := p.parts(o, m)
	for r := range p.ranks {
		it := &p.ranks[r]
		lo, hi := share(m.Cores, parts[r], n)
		if n > 1 && !options.Has(p.apps[it.app].Env, "GOMAXPROCS") {
			it.threads = max(1, hi-lo)
		}
		// Under a quota there are fewer cores than CPUs, and the kernel had better choose.
		if n > 1 && o.Bind != options.BindNone && m.Divisible(n) {
			it.cpus = m.CPUs[lo:hi]
		}
	}
	return p
}

// parts returns, by rank, which part of the machine is its own.
func (p *plan) parts(o *options.Options, m machine.Machine) []int {
	n := len(p.ranks)
	packages := make([]int, n)
	if o.MapBy == options.MapSocket && m.Divisible(n) {
		for i := range packages {
			lo, _ := share(m.Cores, i, n)
			packages[i] = m.Packages[lo]
		}
	}
	return deal(packages)
}

// env returns what rank r's environment has beside its program's: the contract j, in
// which the ranks are filled in. people says that logs are for them.
func (p *plan) env(r int, j job.Job, people bool) []string {
	j.Rank, j.Size, j.LocalRank, j.LocalSize = r, len(p.ranks), r, len(p.ranks)
	env := job.Encode(j)
	it := p.ranks[r]
	if it.threads > 0 {
		env = append(env, "GOMAXPROCS="+strconv.Itoa(it.threads))
	}
	if people && !options.Has(p.apps[it.app].Env, "GORUN_LOG_FORMAT") {
		env = append(env, "GORUN_LOG_FORMAT=console")
	}
	return env
}

// write prints the plan, one line a fact, ranks that are alike together.
func (p *plan) write(w io.Writer) {
	fmt.Fprintf(w, "host %s: %s on %s\n", p.host, ints.Counted(len(p.ranks), "rank"), ints.Counted(p.cores, "usable core"))
	for i, a := range p.apps {
		first := slices.IndexFunc(p.ranks, func(it place) bool { return it.app == i })
		last := first
		for last+1 < len(p.ranks) && p.ranks[last+1].app == i {
			last++
		}
		fmt.Fprintf(w, "%s: %s\n", span(first, last), phrase.Quote(a.Argv))
		if a.Dir != "" {
			fmt.Fprintf(w, "  in %s\n", a.Dir)
		}
		if p.ranks[first].threads == 0 && p.ranks[first].cpus == nil {
			continue
		}
		for r := first; r <= last; r++ {
			it, end := p.ranks[r], r
			for end < last && it.cpus == nil && p.ranks[end+1].cpus == nil && p.ranks[end+1].threads == it.threads {
				end++
			}
			threads := strconv.Itoa(it.threads)
			if own := options.Value(a.Env, "GOMAXPROCS"); own != nil {
				threads = *own
			}
			fmt.Fprintf(w, "  %s: GOMAXPROCS=%s%s\n", span(r, end), threads, onCPUs(it.cpus))
			r = end
		}
	}
}

// writeBindings prints the CPUs of each rank.
func (p *plan) writeBindings(w io.Writer) {
	for r, it := range p.ranks {
		cpus := "any CPU"
		if it.cpus != nil {
			cpus = "CPUs " + phrase.Ranges(it.cpus)
		}
		fmt.Fprintf(w, "gorun: rank %d on %s: %s\n", r, p.host, cpus)
	}
}

func onCPUs(cpus []int) string {
	if cpus == nil {
		return ""
	}
	return " on CPUs " + phrase.Ranges(cpus)
}

// span is "rank 3" or "ranks 0-3".
func span(first, last int) string {
	if first == last {
		return "rank " + strconv.Itoa(first)
	}
	return fmt.Sprintf("ranks %d-%d", first, last)
}

// deal orders parts, of which part i lies in packages[i], so that neighbours lie in
// different packages: the first of each package, then the second of each, and so on.
func deal(packages []int) []int {
	round := map[int]int{} // of the next part, by package
	order, rounds := make([]int, len(packages)), make([]int, len(packages))
	for i, p := range packages {
		order[i], rounds[i] = i, round[p]
		round[p]++
	}
	slices.SortStableFunc(order, func(a, b int) int { return rounds[a] - rounds[b] })
	return order
}

// share returns rank r's part of total things divided among n ranks: from lo up
// to but not including hi. The first total%n ranks have one more than the others.
func share(total, r, n int) (lo, hi int) {
	return r*(total/n) + min(r, total%n), (r+1)*(total/n) + min(r+1, total%n)
}
