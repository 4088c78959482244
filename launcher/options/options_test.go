//go:build linux

package options

import (
	"flag"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
)

func parse(args ...string) (*Options, error) {
	env := func(name string) (string, bool) { return "from env", name == "SET" }
	return Parse(args, 6, env, io.Discard)
}

func TestOptions(t *testing.T) {
	usual := Options{Stdin: "0", MapBy: MapCore, OnDeadlock: DeadlockEnds, Grace: 5 * time.Second, HangTimeout: 5 * time.Minute}
	with := func(change func(*Options), apps ...App) Options {
		o := usual
		o.Apps = apps
		change(&o)
		return o
	}
	same := func(*Options) {}
	for _, c := range []struct {
		args string
		want Options
	}{
		{"a", with(same, App{Ranks: 6, All: true, Program: "a", Args: []string{}})},
		{"-np 4 a -np 5", with(same, App{Ranks: 4, Program: "a", Args: []string{"-np", "5"}})},
		{"-n 4 a", with(same, App{Ranks: 4, Program: "a", Args: []string{}})},
		{"--np=4 -- a -x", with(same, App{Ranks: 4, Program: "a", Args: []string{"-x"}})},
		{"a.go b.go c d.go", with(same, App{Ranks: 6, All: true, Program: "a.go", Sources: []string{"a.go", "b.go"},
			Args: []string{"c", "d.go"}})},
		{"-x A=b=c -x SET -x UNSET a", with(same,
			App{Ranks: 6, All: true, Vars: []string{"A=b=c", "SET=from env"}, Program: "a", Args: []string{}})},
		{"--tag-output -np 1 a 1 : -np 2 -wdir / b : -n 3 c 3", with(func(o *Options) { o.Tag = true },
			App{Ranks: 1, Program: "a", Args: []string{"1"}},
			App{Ranks: 2, Dir: "/", Program: "b", Args: []string{}},
			App{Ranks: 3, Program: "c", Args: []string{"3"}})},
		{"--timeout 90 --grace 1m30s --stdin 5 --bind-to none --timestamp-output --output d --dry-run --report-bindings a",
			with(func(o *Options) {
				o.Timeout, o.Grace, o.Stdin, o.Bind = 90*time.Second, 90*time.Second, "5", BindNone
				o.Timestamp, o.Output, o.DryRun, o.ReportBindings = true, "d", true, true
			}, App{Ranks: 6, All: true, Program: "a", Args: []string{}})},
		{"--timeout 0.5 --stdin all --hang-timeout 0 --on-deadlock ignore --max-restarts 3 --map-by socket a", with(func(o *Options) {
			o.Timeout, o.Stdin, o.HangTimeout, o.Restarts, o.MapBy = time.Second/2, "all", 0, 3, MapSocket
			o.HangGiven, o.OnDeadlock, o.DeadlockSet = true, DeadlockIgnored, true
		},
			App{Ranks: 6, All: true, Program: "a", Args: []string{}})},
	} {
		got, err := parse(strings.Fields(c.args)...)
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
		} else if !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.args, *got, c.want)
		}
	}
}

func TestBadOptions(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "no program given"},
		{"-np 4", "no program given"},
		{"-np 0 a", `-np: "0" is not a number of ranks; give 1 or more`},
		{"-np -1 a", `-np: "-1" is not`},
		{"-n four a", `-n: "four" is not a number`},
		{"-np", "-np needs a value"},
		{"--np4 a", "there is no flag --np4; did you mean -np?"},
		{"-nq 4 a", "there is no flag -nq; did you mean -np?"},
		{"-pn 4 a", "did you mean -np?"},
		{"--tag-ouput a", "there is no flag --tag-ouput; did you mean --tag-output?"},
		{"--time-out 3 a", "did you mean --timeout?"},
		{"--wd / a", "did you mean --wdir?"},
		{"--time 3 a", "did you mean --timeout?"},
		{"--colour a", "there is no flag --colour; gorun -h lists them"},
		{"-V a", "there is no flag -V; gorun -h lists them"},
		{"--mpi=pmi2 a", "there is no flag --mpi; gorun's is --via openmpi, mpich or slurm"},
		{"-perhost 2 a", "there is no flag --perhost; give -np for all hosts together"},
		{"-N2 a", "there is no flag -N2; give -np for all hosts together"},
		{"--rdzv_endpoint h:1 a", "gorun has no rendezvous"},
		{"--rank-by slot a", "gorun's are --bind-to, core or none, and --map-by"},
		{"--iface eth0 a", "there is no flag --iface; gorun -h lists them"},
		{"--app a", `there is no flag --app; give the programs on the command line, with ":" between them`},
		{"--merge-stderr-to-stdout a", "2>&1 behind the command joins both streams"},
		{"-m a", "there is no flag -m; name the program"},
		{"--enable-recovery a", "gorun's are --max-restarts and --elastic"},
		{"--report-state-on-timeout a", "a job that hangs prints the calls and stacks"},
		{"--output dir=a,tag a", "--output dir=a,tag: gorun's are --output DIR, --tag-output and"},
		{"--output tag a", "a folder of this name is ./tag"},
		{"-np 2 --version a", "--version; give it alone"},
		{"--host= a", "--host: its value is empty; give one, or leave the flag out"},
		{"--output= a", "--output: its value is empty"},
		{"-np 1 a : --wdir= -np 1 b", "--wdir: its value is empty"},
		{"--digest-ops a", "--digest-ops: give the file with --digest"},
		{"--timeout soon a", `--timeout: "soon" is not a time`},
		{"--grace -1 a", `--grace: "-1" is not a time`},
		{"--timeout NaN a", `--timeout: "NaN" is not a time`},
		{"--bind-to socket a", "--bind-to socket: give core or none"},
		{"--stdin 6 a", "--stdin 6: give none, all, or a rank from 0 to 5"},
		{"--stdin some a", "--stdin some: give"},
		{"-x =v a", `-x: "=v" names no variable`},
		{"--wdir /nowhere a", "--wdir /nowhere: no such file or directory"},
		{"--wdir /dev/null a", "--wdir /dev/null: not a directory"},
		{"a : b", "a: with several programs each needs its own -np"},
		{"-np 1 a :", "no program given"},
		{"-np 1 a : --tag-output -np 1 b", "--tag-output holds for all programs; give it before the first"},
		{"--tag-output=maybe a", `--tag-output: invalid boolean value "maybe"`},
	} {
		if _, err := parse(strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.args, err, c.want)
		}
	}
}

// TestEdits compares with the textbook's recursion.
func TestEdits(t *testing.T) {
	var naive func(a, b string) int
	naive = func(a, b string) int {
		if a == "" || b == "" {
			return len(a) + len(b)
		}
		i, j := len(a)-1, len(b)-1
		same := 1
		if a[i] == b[j] {
			same = 0
		}
		d := min(naive(a[:i], b)+1, naive(a, b[:j])+1, naive(a[:i], b[:j])+same)
		if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
			d = min(d, naive(a[:i-1], b[:j-1])+1)
		}
		return d
	}
	words := []string{"", "a", "np", "pn", "wdir", "widr", "stdin", "tsdin", "grace", "argce"}
	for _, a := range words {
		for _, b := range words {
			if got, want := Edits(a, b), naive(a, b); got != want {
				t.Errorf("edits(%q, %q) = %d, want %d", a, b, got, want)
			}
		}
	}
}

func TestHelpFitsOneScreen(t *testing.T) {
	for _, page := range []string{Usage, HostsUsage} {
		lines := strings.Split(strings.TrimSuffix(page, "\n"), "\n")
		if len(lines) > 24 {
			t.Errorf("%d lines, want at most 24", len(lines))
		}
		for _, line := range lines {
			if len(line) > 80 {
				t.Errorf("%d columns: %s", len(line), line)
			}
		}
	}
}

// TestHelpListsEveryFlag compares the help with the flags that are defined.
func TestHelpListsEveryFlag(t *testing.T) {
	f := flag.NewFlagSet("gorun", flag.ContinueOnError)
	new(Options).define(f)
	new(App).define(f, nil, nil)
	f.VisitAll(func(g *flag.Flag) {
		if !strings.Contains(Usage+HostsUsage, " "+dashed(g.Name)+" ") {
			t.Errorf("the help does not speak of %s", dashed(g.Name))
		}
	})
}
