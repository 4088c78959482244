package hosts

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A Job describes a job in gorun's terms.
type Job struct {
	Hosts []Host // nil: the launcher's own allocation, or this host
	Apps  []App  // one or more; the ranks of each follow those of the one before
	Options

	Program string // the launcher's file; "": its usual name, found in PATH
	Folder  string // the folder in which the caller writes Handover.Files
	Root    bool   // the user is root; Open MPI refuses root without a permission
	MPI     string // srun's --mpi, such as pmix; "": Slurm's default
	Name    string // name of the Slurm job, or of the step inside an allocation; "": Slurm's default

	// Bind is "core" or "none"; "" means "none". These launchers can bind a rank only to one
	// core, which leaves a Go program no other core for the garbage collector.
	Bind           string
	ReportBindings bool
	Stdin          string // "none", "all", or a rank's number; "" means "none"
	Typed          bool   // standard input is a terminal, and so never long
	TagOutput      bool   // tag lines in the launcher's own way
	Output         string // folder for each rank's output, laid out in the launcher's own way
}

// An App is one program of a job.
type App struct {
	Ranks int
	Argv  []string // the program's file and its arguments
	Dir   string   // working folder; "": the launcher's
	Vars  []string // NAME=value, or NAME for the value in the launcher's environment
}

// A File is a file that the launcher reads.
type File struct{ Path, Text string }

// A Handover is a command that starts a job on its hosts.
type Handover struct {
	Argv     []string
	Env      []string // NAME=value, added to the caller's environment
	Files    []File   // files to write before the command runs
	NoStdin  bool     // standard input is to be /dev/null
	Warnings []string // differences between the launcher and gorun
	Hosts    []Host   // the hosts that get ranks; all of the job's if the launcher deals the ranks out
}

// NewHandover returns the command by which l starts job. If the hosts have their
// slots given, [Assign] deals the ranks out, and the host file lists the number of ranks for
// each host. So max_slots holds, and every launcher deals alike.
//
// The command also sets keep-alives, so that the launcher notices a host that is cut
// off, and Open MPI's two permissions for root. It sets no time-outs, for
// which no launcher has gorun's exit status. The exit status of a launcher says
// little; the caller needs a report from every rank.
func NewHandover(l Launcher, job Job) (Handover, error) {
	p := &planner{launcher: l, job: job}
	if err := p.check(); err != nil {
		return Handover{}, err
	}
	program := job.Program
	if program == "" {
		program = l.String()
		if l.Several != "" && len(job.Apps) > 1 {
			program = l.Several
		}
	}
	p.arg(program)
	err := l.command(p)
	p.out.NoStdin = p.stdin() == "none"
	if p.out.Hosts = p.sums(); p.places == nil {
		p.out.Hosts = job.Hosts
	}
	return p.out, err
}

// planner makes one handover.
type planner struct {
	launcher Launcher
	job      Job
	places   []int // by rank, see Assign; nil if the launcher deals the ranks out
	out      Handover
}

func (p *planner) arg(args ...string) { p.out.Argv = append(p.out.Argv, args...) }

func (p *planner) warn(format string, args ...any) {
	p.out.Warnings = append(p.out.Warnings, fmt.Sprintf(format, args...))
}

func (p *planner) errorf(format string, args ...any) error {
	return fmt.Errorf("hosts: NewHandover %v: %s", p.launcher, fmt.Sprintf(format, args...))
}

// file adds a file to write and returns its path.
func (p *planner) file(name, text string) string {
	full := path.Join(p.job.Folder, name)
	p.out.Files = append(p.out.Files, File{full, text})
	return full
}

// size returns the number of ranks.
func (p *planner) size() int {
	n := 0
	for _, a := range p.job.Apps {
		n += a.Ranks
	}
	return n
}

// stdin returns job.Stdin, or its default.
func (p *planner) stdin() string {
	if p.job.Stdin == "" {
		return "none"
	}
	return p.job.Stdin
}

// check refuses jobs that no launcher can start, and deals the ranks out.
func (p *planner) check() error {
	if p.launcher.command == nil {
		return fmt.Errorf("hosts: NewHandover: no launcher %q; use one of the package's", p.launcher.Name)
	}
	if len(p.job.Apps) == 0 {
		return p.errorf("no program; give one")
	}
	for _, a := range p.job.Apps {
		if a.Ranks < 1 || len(a.Argv) == 0 {
			return p.errorf("a program %q with %d ranks; give a program and 1 rank or more", a.Argv, a.Ranks)
		}
		if slices.Contains(a.Argv, ":") {
			return p.errorf("%s has the argument :, which separates programs; pass it another way", a.Argv[0])
		}
		if strings.HasPrefix(a.Argv[0], "-") {
			return p.errorf("%s would be read as an option; name the program with its path", a.Argv[0])
		}
	}
	switch p.job.Bind {
	case "", "none", "core":
	default:
		return p.errorf("binding to %s; give core or none", p.job.Bind)
	}
	if s := p.stdin(); s != "none" && s != "all" {
		if n, err := strconv.Atoi(s); err != nil || n < 0 || n >= p.size() {
			return p.errorf("standard input to %s; give none, all, or a rank from 0 to %d", s, p.size()-1)
		}
	}
	if p.job.Hosts == nil {
		return nil
	}
	unknown := slices.IndexFunc(p.job.Hosts, func(h Host) bool { return !h.SlotsGiven })
	if unknown >= 0 {
		if p.launcher.CountsCores {
			return nil
		}
		p.warn("%s says no slots: taken for %d, the cores here", p.job.Hosts[unknown].Name, max(p.job.Cores, 1))
	}
	var err error
	p.places, err = Assign(p.job.Hosts, p.size(), p.job.Options)
	return err
}

// shares returns one entry for each run of neighbouring ranks on one host, with as many slots.
func (p *planner) shares() []Host {
	var out []Host
	last := -1
	for _, at := range p.places {
		if at == last {
			out[len(out)-1].Slots++
			continue
		}
		h := p.job.Hosts[at]
		h.Slots, h.SlotsGiven, h.MaxSlots = 1, true, 0
		out, last = append(out, h), at
	}
	return out
}

// sums returns one entry for each host, with a slot for each of its ranks, in the order of the
// hosts' first ranks.
func (p *planner) sums() []Host {
	var out []Host
	at := map[int]int{}
	for _, place := range p.places {
		i, ok := at[place]
		if !ok {
			i = len(out)
			at[place] = i
			h := p.job.Hosts[place]
			h.Slots, h.SlotsGiven, h.MaxSlots = 0, true, 0
			out = append(out, h)
		}
		out[i].Slots++
	}
	return out
}

// String returns a shell script that carries out the handover, for --dry-run.
func (h Handover) String() string {
	var b strings.Builder
	for _, f := range h.Files {
		end := "END"
		for strings.Contains("\n"+f.Text, "\n"+end+"\n") {
			end += "_"
		}
		fmt.Fprintf(&b, "cat >%s <<'%s'\n%s%s\n", Quote(f.Path), end, f.Text, end)
	}
	for _, kv := range h.Env {
		name, value, _ := strings.Cut(kv, "=")
		b.WriteString(name + "=" + Quote(value) + " ")
	}
	for i, a := range h.Argv {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(Quote(a))
	}
	if h.NoStdin {
		b.WriteString(" </dev/null")
	}
	b.WriteByte('\n')
	return b.String()
}

// Quote returns s so that a POSIX shell reads it as one word.
func Quote(s string) string {
	plain := s != "" && strings.IndexFunc(s, func(r rune) bool {
		return outsideName(r) && !strings.ContainsRune("/:=,@%+", r)
	}) < 0
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
