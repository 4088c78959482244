package launcher

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/term"

	"github.com/gorun-spmd/gorun/internal/job"
)

// A plan says which rank runs what, before anything is started.
type plan struct {
	host  string
	cores int     // usable CPUs
	apps  []app   // programs, in the order of the command line
	ranks []place // by rank
}

// A place is what a plan says about one rank.
type place struct {
	app     int   // index in plan.apps
	threads int   // GOMAXPROCS; 0 leaves it to the program's Go runtime
	cpus    []int // nil: any
}

// A machine is what a plan depends on beside the command line.
type machine struct {
	host  string
	cores int
	cpus  []int // numbers, neighbours next to each other; nil if they cannot be known
	packs []int // the package of each of cpus
	env   []string
}

// thisMachine describes where the launcher runs. CPU numbers are read only if
// they are needed.
func thisMachine(needCPUs bool) machine {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	m := machine{host: host, cores: cores(), env: os.Environ()}
	if needCPUs {
		m.cpus, m.packs = usableCPUs()
	}
	return m
}

// newPlan divides m among the ranks that o asks for. paths are the files of
// o.apps. With no more ranks than cores each rank gets its own share of them, as
// GOMAXPROCS and, if o.bind allows, as the CPUs it may run on; which share is whose
// depends on o.mapBy.
func newPlan(o *options, paths []string, m machine) *plan {
	p := &plan{host: m.host, cores: m.cores}
	for i, a := range o.apps {
		argv := append([]string{a.argv0(paths[i])}, a.args...)
		p.apps = append(p.apps, app{Path: paths[i], Argv: argv, Env: environment(m.env, a.vars), Dir: a.dir})
		for range a.ranks {
			p.ranks = append(p.ranks, place{app: i})
		}
	}
	n := len(p.ranks)
	parts := p.parts(o, m)
	for r := range p.ranks {
		it := &p.ranks[r]
		lo, hi := share(m.cores, parts[r], n)
		if n > 1 && !has(p.apps[it.app].Env, "GOMAXPROCS") {
			it.threads = max(1, hi-lo)
		}
		// Under a quota there are fewer cores than CPUs, and the kernel had better choose.
		if n > 1 && o.bind == bindCores && m.divisible(n) {
			it.cpus = m.cpus[lo:hi]
		}
	}
	return p
}

// divisible reports whether m's CPUs are known and enough for n ranks.
func (m *machine) divisible(n int) bool { return len(m.cpus) == m.cores && n <= m.cores }

// parts returns, by rank, which part of the machine is its own.
func (p *plan) parts(o *options, m machine) []int {
	n := len(p.ranks)
	packages := make([]int, n)
	if o.mapBy == mapSocket && m.divisible(n) {
		for i := range packages {
			lo, _ := share(m.cores, i, n)
			packages[i] = m.packs[lo]
		}
	}
	return deal(packages)
}

// environment is env with vars added, which replace what is there, and without the
// contract of a job that gorun itself may be a rank of.
func environment(env, vars []string) []string {
	outer := job.Names()
	return slices.Concat(vars, slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return has(vars, name) || slices.Contains(outer, name)
	}))
}

// has reports whether env sets name.
func has(env []string, name string) bool {
	return slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
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
	if people && !has(p.apps[it.app].Env, "GORUN_LOG_FORMAT") {
		env = append(env, "GORUN_LOG_FORMAT=console")
	}
	return env
}

// write prints the plan, one line a fact, ranks that are alike together.
func (p *plan) write(w io.Writer) {
	fmt.Fprintf(w, "host %s: %s on %s\n", p.host, count(len(p.ranks), "rank"), count(p.cores, "usable core"))
	for i, a := range p.apps {
		first := slices.IndexFunc(p.ranks, func(it place) bool { return it.app == i })
		last := first
		for last+1 < len(p.ranks) && p.ranks[last+1].app == i {
			last++
		}
		fmt.Fprintf(w, "%s: %s\n", span(first, last), quote(a.Argv))
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
			fmt.Fprintf(w, "  %s: GOMAXPROCS=%d%s\n", span(r, end), it.threads, onCPUs(it.cpus))
			r = end
		}
	}
}

// writeBindings prints the CPUs of each rank.
func (p *plan) writeBindings(w io.Writer) {
	for r, it := range p.ranks {
		cpus := "any CPU"
		if it.cpus != nil {
			cpus = "CPUs " + list(it.cpus)
		}
		fmt.Fprintf(w, "gorun: rank %d on %s: %s\n", r, p.host, cpus)
	}
}

func onCPUs(cpus []int) string {
	if cpus == nil {
		return ""
	}
	return " on CPUs " + list(cpus)
}

// span is "rank 3" or "ranks 0-3".
func span(first, last int) string {
	if first == last {
		return "rank " + strconv.Itoa(first)
	}
	return fmt.Sprintf("ranks %d-%d", first, last)
}

// count is "1 rank" or "4 ranks".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// quote writes a command line that a shell would read as argv.
func quote(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = a
		if a == "" || strings.ContainsAny(a, " \t\n\"'\\$`*?[]{}()<>|&;#~!") {
			words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// isTerminal reports whether f is one.
func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
