package options

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorun-spmd/gorun/internal/job"
	"github.com/gorun-spmd/gorun/internal/writable"
	"github.com/gorun-spmd/gorun/launcher/exit"
)

// Options holds the flags and programs of a command line.
type Options struct {
	Apps []App

	Timeout time.Duration // 0: none
	Grace   time.Duration

	HangTimeout time.Duration // 0: none
	HangGiven   bool          // HangTimeout was given
	OnDeadlock  string
	DeadlockSet bool   // OnDeadlock was given
	Stdin       string // "none", "all" or a rank's number
	Bind        string
	MapBy       string

	Tag, Timestamp bool
	Output         string // folder for one file for each rank; "" for standard output
	Trace          string // file; "" for none
	Report         string // file of the page; "" for none
	Dashboard      string // address where the page is served; "" for nowhere
	Restarts       int    // the most restarts after failures
	sameBits       bool   // see dtensor.Mesh.SetSameBits
	Elastic        string // one of the values of --elastic, or "" for none
	MinRanks       int    // that --elastic shrink leaves
	profile        string // folder; "" for none
	digest         string // file; "" for none
	digestEvery    int    // steps; 0 for 1
	digestOps      bool   // operators have digests too
	gpus           string // "auto", "none", a list for CUDA_VISIBLE_DEVICES, or ""

	DryRun, ReportBindings bool

	Hosts Hosts
}

// The values of --bind-to.
const (
	BindCores = "core"
	BindNone  = "none"
)

// The values of --elastic: gorun starts as many ranks again as before, or as many as have not died.
const (
	ElasticRestart = "restart"
	ElasticShrink  = "shrink"
)

// The values of --on-deadlock.
const (
	DeadlockEnds    = "end"
	DeadlockIgnored = "ignore"
)

// The values of --map-by that differ on one host. There slot and node, which order hosts,
// mean core.
const (
	MapCore   = "core"
	MapSocket = "socket"
)

// App is one program of the command line, with its flags and arguments. A ":" stands between two
// programs.
type App struct {
	Ranks   int
	All     bool     // -np was not given: the program gets all slots
	Dir     string   // working folder; "" for the launcher's
	Vars    []string // NAME=value
	Program string   // as typed; with .go files, the first of Sources
	Sources []string // .go files
	Args    []string
	Built   bool // the program is Go source
}

// Argv0 returns the name that the program sees as its own: the name that the user typed, or path
// if the program is built.
func (a *App) Argv0(path string) string {
	if a.Built {
		return path
	}
	return a.Program
}

// Title returns the programs' command lines, for people.
func (o *Options) Title() string {
	var parts []string
	for _, a := range o.Apps {
		parts = append(parts, strings.Join(append([]string{a.Program}, a.Args...), " "))
	}
	return strings.Join(parts, " : ")
}

// Size returns the number of ranks.
func (o *Options) Size() int {
	n := 0
	for _, a := range o.Apps {
		n += a.Ranks
	}
	return n
}

// ErrHelp says that the user asked for help.
var ErrHelp = errors.New("help")

// Parse reads a command line without the command's name. slots is the number of ranks
// without -np. env looks up the variables of -x.
func Parse(args []string, slots int, env func(string) (string, bool), warn io.Writer) (*Options, error) {
	o := &Options{Stdin: "0", MapBy: MapCore, OnDeadlock: DeadlockEnds, Grace: 5 * time.Second, HangTimeout: job.HangTimeout}
	global := map[string]bool{}
	all := sections(args)
	for i, section := range all {
		a := App{Ranks: -1}
		f := flag.NewFlagSet("gorun", flag.ContinueOnError)
		f.SetOutput(io.Discard)
		f.Usage = func() {}
		o.define(f)
		local := a.define(f, env, warn)
		if err := f.Parse(section); err != nil {
			return nil, explain(err, f)
		}
		f.Visit(func(g *flag.Flag) {
			if !slices.Contains(local, g.Name) {
				global[g.Name] = global[g.Name] || i > 0
			}
		})
		for name, late := range global {
			if late {
				return nil, fmt.Errorf("--%s holds for all programs; give it before the first program", name)
			}
		}
		rest := f.Args()
		if len(rest) == 0 {
			where := ""
			if len(all) > 1 {
				where = fmt.Sprintf(" as number %d of %d, which \":\" separates", i+1, len(all))
			}
			return nil, fmt.Errorf("no program given%s; usage: gorun [flags] program [arguments]", where)
		}
		n := 1
		if strings.HasSuffix(rest[0], ".go") {
			for n < len(rest) && strings.HasSuffix(rest[n], ".go") {
				n++
			}
			a.Sources = rest[:n]
		}
		a.Program, a.Args = rest[0], rest[n:]
		o.Apps = append(o.Apps, a)
	}
	return o, o.validate(slots)
}

// sections cuts a command line at ":" between programs.
func sections(args []string) [][]string {
	var parts [][]string
	for {
		i := slices.Index(args, ":")
		if i < 0 {
			return append(parts, args)
		}
		parts, args = append(parts, args[:i]), args[i+1:]
	}
}

// define adds the flags that hold for the whole job.
func (o *Options) define(f *flag.FlagSet) {
	f.Func("timeout", "", duration(&o.Timeout))
	f.Func("hang-timeout", "", func(s string) error {
		o.HangGiven = true
		return duration(&o.HangTimeout)(s)
	})
	f.Func("on-deadlock", "", func(s string) error {
		o.DeadlockSet = true
		return text(&o.OnDeadlock)(s)
	})
	f.Func("grace", "", duration(&o.Grace))
	f.Func("max-restarts", "", func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			return fmt.Errorf("%q is not a number of restarts; give 0 or more", s)
		}
		o.Restarts = n
		return nil
	})
	f.Func("elastic", "", func(s string) error {
		if s != ElasticRestart && s != ElasticShrink {
			return fmt.Errorf("%q is not a way to go on; give %s or %s", s, ElasticRestart, ElasticShrink)
		}
		o.Elastic = s
		return nil
	})
	f.Func("min-np", "", func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return fmt.Errorf("%q is not a number of ranks; give 1 or more", s)
		}
		o.MinRanks = n
		return nil
	})
	f.Func("stdin", "", text(&o.Stdin))
	f.Func("bind-to", "", text(&o.Bind))
	f.Func("map-by", "", text(&o.MapBy))
	f.BoolVar(&o.Tag, "tag-output", o.Tag, "")
	f.BoolVar(&o.Timestamp, "timestamp-output", o.Timestamp, "")
	f.Func("output", "", text(&o.Output))
	f.Func("gpus", "", o.chooseGPUs)
	f.Func("trace", "", text(&o.Trace))
	f.Func("profile", "", text(&o.profile))
	f.BoolVar(&o.sameBits, "same-bits", false, "")
	f.Func("digest", "", text(&o.digest))
	f.BoolVar(&o.digestOps, "digest-ops", false, "")
	f.Func("digest-every", "", func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return fmt.Errorf("%q is not a number of steps; give 1 or more", s)
		}
		o.digestEvery = n
		return nil
	})
	f.Func("report", "", text(&o.Report))
	f.Func("dashboard", "", text(&o.Dashboard))
	f.BoolVar(&o.DryRun, "dry-run", o.DryRun, "")
	f.BoolVar(&o.ReportBindings, "report-bindings", o.ReportBindings, "")
	o.Hosts.define(f)
}

// define adds the flags that hold for one program and returns their names.
func (a *App) define(f *flag.FlagSet, env func(string) (string, bool), warn io.Writer) []string {
	np := func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return fmt.Errorf("%q is not a number of ranks; give 1 or more", s)
		}
		a.Ranks = n
		return nil
	}
	f.Func("np", "", np)
	f.Func("n", "", np)
	f.Func("wdir", "", text(&a.Dir))
	f.Func("x", "", func(s string) error {
		name, _, set := strings.Cut(s, "=")
		if name == "" {
			return fmt.Errorf("%q names no variable; give NAME or NAME=value", s)
		}
		if set {
			a.Vars = append(a.Vars, s)
		} else if value, ok := env(name); ok {
			a.Vars = append(a.Vars, name+"="+value)
		} else {
			fmt.Fprintf(warn, "gorun: -x %s: not set in this environment, so not in the ranks' either\n", name)
		}
		return nil
	})
	return []string{"np", "n", "wdir", "x"}
}

// text reads a value that must not be empty: a variable that is not set gives an empty one.
func text(to *string) func(string) error {
	return func(s string) error {
		if s == "" {
			return errors.New("its value is empty; give one, or leave the flag out")
		}
		*to = s
		return nil
	}
}

// duration parses "90", in seconds, "90s" or "1m30s" into d.
func duration(d *time.Duration) func(string) error {
	return func(s string) error {
		full := s
		if seconds, err := strconv.ParseFloat(s, 64); err == nil {
			full = strconv.FormatFloat(seconds, 'f', -1, 64) + "s"
		}
		v, err := time.ParseDuration(full)
		if err != nil || v < 0 {
			return fmt.Errorf("%q is not a time; give seconds or a number with a unit, as 90, 90s or 1m30s", s)
		}
		*d = v
		return nil
	}
}

// openMPIOutput matches what --output of Open MPI 5 takes, which would be an odd folder.
var openMPIOutput = regexp.MustCompile(`^(dir=|file=|(tag|tag-detailed|tag-fullname|timestamp|rank|xml|merge-stderr-to-stdout)(,|$))`)

// validate checks that flags fit each other and the machine, and fills in defaults.
func (o *Options) validate(slots int) error {
	digests, err := o.digestVariables()
	if err != nil {
		return err
	}
	profiles, err := o.profileVariables()
	if err != nil {
		return err
	}
	for i := range o.Apps {
		a := &o.Apps[i]
		a.Vars = append(a.Vars, slices.Concat(o.gpuVariables(), digests, profiles, o.sameBitsVariables())...)
		switch {
		case a.Ranks > 0:
		case len(o.Apps) > 1:
			return fmt.Errorf("%s: with several programs each needs its own -np", a.Program)
		default:
			a.Ranks, a.All = slots, true
		}
		if a.Dir == "" {
			continue
		}
		if info, err := os.Stat(a.Dir); err != nil {
			return exit.With(1, fmt.Errorf("--wdir %s: %v", a.Dir, errors.Unwrap(err)))
		} else if !info.IsDir() {
			return exit.With(1, fmt.Errorf("--wdir %s: not a directory", a.Dir))
		}
	}
	if openMPIOutput.MatchString(o.Output) {
		return fmt.Errorf("--output %s: gorun's are --output DIR, --tag-output and --timestamp-output; a folder of this name is ./%s",
			o.Output, o.Output)
	}
	if o.Bind != "" && o.Bind != BindCores && o.Bind != BindNone {
		return fmt.Errorf("--bind-to %s: give core or none", o.Bind)
	}
	if !slices.Contains([]string{MapCore, MapSocket, "slot", "node"}, o.MapBy) {
		return fmt.Errorf("--map-by %s: give core, socket, slot or node", o.MapBy)
	}
	if o.OnDeadlock != DeadlockEnds && o.OnDeadlock != DeadlockIgnored {
		return fmt.Errorf("--on-deadlock %s: give end or ignore", o.OnDeadlock)
	}
	switch {
	case o.Elastic == ElasticShrink && len(o.Apps) > 1:
		return fmt.Errorf("--elastic shrink: with several programs nothing says which of them is to have fewer ranks; give --elastic restart")
	case o.MinRanks > 0 && o.Elastic != ElasticShrink:
		return fmt.Errorf("--min-np %d: only with --elastic shrink", o.MinRanks)
	}
	if err := o.Hosts.validate(); err != nil || o.Hosts.Given() {
		return err // how many ranks there are is known when the hosts are
	}
	return o.CheckRanks()
}

// CheckRanks checks what depends on the number of ranks: that --stdin names one of them, and that
// --min-np asks for no more.
func (o *Options) CheckRanks() error {
	if o.MinRanks > o.Size() {
		return exit.With(2, fmt.Errorf("--min-np %d: the job begins with %d; lower it, or raise -np", o.MinRanks, o.Size()))
	}
	if o.Stdin == "none" || o.Stdin == "all" {
		return nil
	}
	if n, err := strconv.Atoi(o.Stdin); err != nil || n < 0 || n >= o.Size() {
		return exit.With(2, fmt.Errorf("--stdin %s: give none, all, or a rank from 0 to %d", o.Stdin, o.Size()-1))
	}
	return nil
}

// CheckFiles checks, before the ranks start, that the files of --trace, --report and --digest can be
// written, and makes their names absolute. It leaves no file where there was none.
func (o *Options) CheckFiles() error {
	return errors.Join(o.checkFile("trace", &o.Trace), o.checkFile("report", &o.Report), o.checkFile("digest", &o.digest))
}

// TraceForReport makes the ranks write a trace if --report needs one and --trace is not given.
// Its file is beside the report's.
func (o *Options) TraceForReport() {
	if o.Report != "" && o.Trace == "" {
		o.Trace = o.traceOfReport()
	}
}

// OwnTrace reports whether the trace is there for the report alone.
func (o *Options) OwnTrace() bool { return o.Report != "" && o.Trace == o.traceOfReport() }

func (o *Options) traceOfReport() string { return o.Report + ".trace" }

func (o *Options) checkFile(flag string, name *string) error {
	if *name == "" {
		return nil
	}
	path, err := Absolute(*name)
	if err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	if o.DryRun {
		*name = path
		return nil
	}
	if err := writable.Check(path); err != nil {
		return exit.With(1, fmt.Errorf("--%s %s: %v", flag, *name, errors.Unwrap(err)))
	}
	*name = path
	return nil
}

// explain turns an error of package flag into one that says what to write instead.
func explain(err error, f *flag.FlagSet) error {
	if errors.Is(err, flag.ErrHelp) {
		return ErrHelp
	}
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		return fmt.Errorf("there is no flag %s; %s", dashed(name), otherwise(name, f))
	}
	if name, ok := strings.CutPrefix(text, "flag needs an argument: -"); ok {
		return fmt.Errorf("%s needs a value", dashed(name))
	}
	// invalid value "x" for flag -np: why
	// invalid boolean value "x" for -tag-output: why
	_, rest, ok := strings.Cut(text, " for flag -")
	if !ok {
		var what string
		what, rest, ok = strings.Cut(text, " for -")
		rest = strings.Replace(rest, "parse error", what, 1)
	}
	if name, why, found := strings.Cut(rest, ": "); ok && found {
		return fmt.Errorf("%s: %s", dashed(name), why)
	}
	return err
}

// dashed returns a flag's usual spelling.
func dashed(name string) string {
	if len(name) <= 2 {
		return "-" + name
	}
	return "--" + name
}

// nearest returns the flag that name was probably meant to be.
func nearest(name string, f *flag.FlagSet) (string, bool) {
	best, distance := "", 10*min(len(name), 2+(len(name)-2)/4) // ten times the most edits for a name of this length
	f.VisitAll(func(g *flag.Flag) {
		d := 10*Edits(name, g.Name) + max(len(name)-len(g.Name), len(g.Name)-len(name))
		if strings.HasPrefix(name, g.Name) && strings.Trim(name[len(g.Name):], "0123456789") == "" {
			d = 0 // -np4
		} else if strings.HasPrefix(g.Name, name) {
			d = min(d, 5) // --time
		}
		if d < distance {
			best, distance = g.Name, d
		}
	})
	return best, best != ""
}

// Edits returns the number of insertions, deletions, replacements and swaps of
// neighbours that turn a into b (optimal string alignment).
func Edits(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			switch {
			case i == 0:
				rows[i][j] = j
			case j == 0:
				rows[i][j] = i
			default:
				same := 1
				if a[i-1] == b[j-1] {
					same = 0
				}
				d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+same)
				if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
					d = min(d, rows[i-2][j-2]+1)
				}
				rows[i][j] = d
			}
		}
	}
	return rows[len(a)][len(b)]
}
