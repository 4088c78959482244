package launcher

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options is the command line.
type options struct {
	apps []appOptions

	timeout time.Duration // 0: none
	grace   time.Duration

	hangTimeout time.Duration // 0: none
	stdin       string        // "none", "all" or a rank's number
	bind        string
	mapBy       string

	tag, timestamp bool
	output         string // folder for one file a rank; "" for standard output
	trace          string // file; "" for none
	restarts       int    // after failures, at most
	gpus           string // "auto", "none", a list for CUDA_VISIBLE_DEVICES, or ""

	dryRun, reportBindings bool

	hosts hostOptions
}

// The values of --bind-to.
const (
	bindCores = "core"
	bindNone  = "none"
)

// The values of --map-by that differ on one host; slot and node, which order hosts,
// are as core there.
const (
	mapCore   = "core"
	mapSocket = "socket"
)

// appOptions is what the command line says about one program, from the start or
// the last ":" to the next.
type appOptions struct {
	ranks   int
	all     bool     // -np was not given: as many ranks as there is room for
	dir     string   // "" for the launcher's
	vars    []string // NAME=value
	program string   // as typed; the first of sources if these are .go files
	sources []string
	args    []string
	built   bool // program is Go source
}

// argv0 is what the program sees as its name: what the user typed, or the built file.
func (a *appOptions) argv0(path string) string {
	if a.built {
		return path
	}
	return a.program
}

// size is the number of ranks.
func (o *options) size() int {
	n := 0
	for _, a := range o.apps {
		n += a.ranks
	}
	return n
}

// errHelp says that the user asked for help.
var errHelp = errors.New("help")

// parseOptions reads a command line without the command's name. slots is the number of ranks
// if -np does not say. env is where -x finds the values of variables.
func parseOptions(args []string, slots int, env func(string) (string, bool), warn io.Writer) (*options, error) {
	o := &options{stdin: "0", bind: bindCores, mapBy: mapCore, grace: 5 * time.Second, hangTimeout: 5 * time.Minute}
	global := map[string]bool{}
	all := sections(args)
	for i, section := range all {
		a := appOptions{ranks: -1}
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
			a.sources = rest[:n]
		}
		a.program, a.args = rest[0], rest[n:]
		o.apps = append(o.apps, a)
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
func (o *options) define(f *flag.FlagSet) {
	f.Func("timeout", "", duration(&o.timeout))
	f.Func("hang-timeout", "", duration(&o.hangTimeout))
	f.Func("grace", "", duration(&o.grace))
	f.Func("max-restarts", "", func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			return fmt.Errorf("%q is not a number of restarts; give 0 or more", s)
		}
		o.restarts = n
		return nil
	})
	f.Func("stdin", "", text(&o.stdin))
	f.Func("bind-to", "", text(&o.bind))
	f.Func("map-by", "", text(&o.mapBy))
	f.BoolVar(&o.tag, "tag-output", o.tag, "")
	f.BoolVar(&o.timestamp, "timestamp-output", o.timestamp, "")
	f.Func("output", "", text(&o.output))
	f.Func("gpus", "", o.chooseGPUs)
	f.Func("trace", "", text(&o.trace))
	f.BoolVar(&o.dryRun, "dry-run", o.dryRun, "")
	f.BoolVar(&o.reportBindings, "report-bindings", o.reportBindings, "")
	o.hosts.define(f)
}

// define adds the flags that hold for one program and returns their names.
func (a *appOptions) define(f *flag.FlagSet, env func(string) (string, bool), warn io.Writer) []string {
	np := func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return fmt.Errorf("%q is not a number of ranks; give 1 or more", s)
		}
		a.ranks = n
		return nil
	}
	f.Func("np", "", np)
	f.Func("n", "", np)
	f.Func("wdir", "", text(&a.dir))
	f.Func("x", "", func(s string) error {
		name, _, set := strings.Cut(s, "=")
		if name == "" {
			return fmt.Errorf("%q names no variable; give NAME or NAME=value", s)
		}
		if set {
			a.vars = append(a.vars, s)
		} else if value, ok := env(name); ok {
			a.vars = append(a.vars, name+"="+value)
		} else {
			fmt.Fprintf(warn, "gorun: -x %s: not set in this environment, so not in the ranks' either\n", name)
		}
		return nil
	})
	return []string{"np", "n", "wdir", "x"}
}

// text reads a value that is not empty, as one is from a variable that is not set.
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

// validate checks what flags alone cannot, and fills what depends on the machine.
func (o *options) validate(slots int) error {
	for i := range o.apps {
		a := &o.apps[i]
		a.vars = append(a.vars, o.gpuVariables()...)
		switch {
		case a.ranks > 0:
		case len(o.apps) > 1:
			return fmt.Errorf("%s: with several programs each needs its own -np", a.program)
		default:
			a.ranks, a.all = slots, true
		}
		if a.dir == "" {
			continue
		}
		if info, err := os.Stat(a.dir); err != nil {
			return &statusError{1, fmt.Errorf("--wdir %s: %v", a.dir, errors.Unwrap(err))}
		} else if !info.IsDir() {
			return &statusError{1, fmt.Errorf("--wdir %s: not a directory", a.dir)}
		}
	}
	if o.bind != bindCores && o.bind != bindNone {
		return fmt.Errorf("--bind-to %s: give core or none", o.bind)
	}
	if !slices.Contains([]string{mapCore, mapSocket, "slot", "node"}, o.mapBy) {
		return fmt.Errorf("--map-by %s: give core, socket, slot or node", o.mapBy)
	}
	if err := o.hosts.validate(); err != nil || o.hosts.given() {
		return err // how many ranks there are is known when the hosts are
	}
	return o.checkStdin()
}

// checkStdin checks that the rank that --stdin names is one.
func (o *options) checkStdin() error {
	if o.stdin == "none" || o.stdin == "all" {
		return nil
	}
	if n, err := strconv.Atoi(o.stdin); err != nil || n < 0 || n >= o.size() {
		return &statusError{2, fmt.Errorf("--stdin %s: give none, all, or a rank from 0 to %d", o.stdin, o.size()-1)}
	}
	return nil
}

// explain turns package flag's error into one that helps.
func explain(err error, f *flag.FlagSet) error {
	if errors.Is(err, flag.ErrHelp) {
		return errHelp
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

// dashed is a flag's usual spelling.
func dashed(name string) string {
	if len(name) <= 2 {
		return "-" + name
	}
	return "--" + name
}

// nearest returns the flag that name was probably meant to be.
func nearest(name string, f *flag.FlagSet) (string, bool) {
	best, distance := "", 10*min(len(name), 2+(len(name)-2)/4) // a name of which little is left is none
	f.VisitAll(func(g *flag.Flag) {
		d := 10*edits(name, g.Name) + max(len(name)-len(g.Name), len(g.Name)-len(name))
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

// edits is the number of insertions, deletions, replacements and swaps of
// neighbours that make b of a (optimal string alignment).
func edits(a, b string) int {
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
