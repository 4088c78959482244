//go:build linux

package launcher

import (
	"debug/buildinfo"
	"debug/elf"
	"fmt"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/mem"
	"github.com/gorun-spmd/gorun/launcher/exit"
	"github.com/gorun-spmd/gorun/launcher/phrase"
	"github.com/gorun-spmd/gorun/launcher/supervisor"
)

// A failure is one rank's, as it is reported.
type failure struct {
	rank int
	at   time.Time
	text string // what the rank said of it (see control.Segment.SetError); "" if nothing
}

// first returns the failure that came first. A rank's own word dates its failure
// earlier than its end, so that the rank that others failed after is found even if
// they ended before it. What a rank says is not trusted beyond that: the time must
// lie in the attempt's.
func first(ends []supervisor.End, started time.Time, said func(rank int) (string, time.Time)) (failure, bool) {
	var best failure
	found := false
	for r := range ends {
		e := &ends[r]
		if !e.Bad() {
			continue
		}
		f := failure{rank: r, at: e.At}
		text, at := said(r)
		if text != "" {
			f.text = text
			if at.After(started) && at.Before(e.At) {
				f.at = at
			}
		} else if e.Asked {
			continue
		}
		if !found || f.at.Before(best.at) {
			best, found = f, true
		}
	}
	return best, found
}

// report prints how the attempt ended, if there is something to say, and returns
// gorun's exit status.
func (a *attempt) report(o *supervisor.Outcome) int {
	switch o.Reason {
	case supervisor.Finished:
		return a.sayUnfinished(o)
	case supervisor.Resized:
		a.sayLate(o)
		return 0
	case supervisor.Interrupted:
		a.sayFailed(o)
		a.sayLate(o)
		return 128 + int(o.Signal)
	case supervisor.TooLate:
		a.sayFailed(o)
		a.sayLate(o)
		return exit.TimedOut
	case supervisor.Hung:
		a.sayLate(o)
		return exit.Hung
	case supervisor.Closed:
		return exit.Closed
	case supervisor.Lost:
		a.console.Say("the guardian process was killed, and all ranks with it")
		if exit.FewTasks(len(a.plan.ranks)) {
			a.console.Say("perhaps it could not make a thread: %s", exit.TooManyTasks())
		}
		return exit.Lost
	case supervisor.Refused:
		return a.sayRefused(o)
	}
	f, ok := first(o.Ends, a.started, a.segment.Error)
	if !ok {
		a.console.Say("the job failed")
		return 1
	}
	a.headline(f, o)
	if rest := others(f.rank, o, a.unfinished(o)); rest != "" {
		a.console.Say("%s", rest)
	}
	return o.Ends[f.rank].ExitStatus()
}

// headline says who failed first, and how.
func (a *attempt) headline(f failure, o *supervisor.Outcome) {
	e := &o.Ends[f.rank]
	who := fmt.Sprintf("rank %d on %s", f.rank, a.plan.host)
	if len(a.plan.apps) > 1 {
		who = fmt.Sprintf("rank %d (%s) on %s", f.rank, a.plan.apps[a.plan.ranks[f.rank].app].Argv[0], a.plan.host)
	}
	crash := ""
	if e.Ended && e.Status.Exited() && e.Status.ExitStatus() == exit.Crashed {
		crash = a.stderr[f.rank].Crash()
	}
	switch {
	case crash != "" && (f.text == "" || f.text == panicText):
		a.console.Say("%s failed: %s (%s)", who, phrase.Clean(crash), a.describe(e))
	case f.text != "" && e.Ended && !e.Made():
		a.console.Say("%s failed: %s (%s)", who, phrase.OneLine(f.text), a.describe(e))
	case f.text != "":
		a.console.Say("%s failed: %s", who, phrase.OneLine(f.text))
	default:
		a.console.Say("%s failed: %s", who, a.describe(e))
	}
	if a.stderr[f.rank].TooManyTasks() {
		a.console.Say("it could not make a thread: %s", exit.TooManyTasks())
	}
	if f.text != "" && f.text != panicText {
		return // the tail of its output would say the same again
	}
	if lines := a.stderr[f.rank].LastLines(); len(lines) > 0 {
		a.console.Write("  its standard error, at the end:\n    " + strings.Join(lines, "\n    ") + "\n")
	}
}

// describe says how a rank ended.
func (a *attempt) describe(e *supervisor.End) string {
	var limit unix.Rlimit
	// The kernel holds whole ticks of its clock against the limit, which a process on a busy machine had in part.
	if err := unix.Getrlimit(unix.RLIMIT_CPU, &limit); err == nil && e.CPU.Seconds() > 0.5*float64(limit.Cur) {
		return supervisor.Describe(e.Status, fmt.Sprintf("its limit on processor time is %d s; raise it (ulimit -t)", limit.Cur))
	}
	return supervisor.Describe(e.Status, memoryOf("", a.kills))
}

// memoryOf says what is known of a process that was killed: whether memory ran out, which the kernel counts in the control
// group. before is its count before the job. root is that of mem.ReadMachine.
func memoryOf(root string, before int) string {
	m, err := mem.ReadMachine(root)
	switch {
	case mem.Kills(root) <= before || err != nil:
		return supervisor.PerhapsMemory
	case m.Limit < m.Total:
		return fmt.Sprintf("memory ran out: the control group may use %.1f GiB, of the machine's %.1f; raise its limit, "+
			"memory.max, or start fewer ranks", float64(m.Limit)/(1<<30), float64(m.Total)/(1<<30))
	}
	return fmt.Sprintf("memory ran out: the machine has %.1f GiB; start fewer ranks", float64(m.Total)/(1<<30))
}

// panicText is what runtime.Main says of a panic: its own output says the rest.
const panicText = "panic"

// unfinished returns the ranks that ended with exit code 0 in the middle of the job: their runtime.Main has not returned, and
// they have made calls. A rank that ends before its first call, as one that prints its flags does, has finished, and one rank
// alone calls nobody.
func (a *attempt) unfinished(o *supervisor.Outcome) (ranks []int) {
	for r := range o.Ends {
		e, s := &o.Ends[r], a.segment
		if e.Ended && !e.Bad() && !e.Asked && s.State(r) == control.Running && s.Calls(r) > 0 {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// sayUnfinished names such ranks of a job in which no rank failed, and returns gorun's exit status.
func (a *attempt) sayUnfinished(o *supervisor.Outcome) int {
	ranks := a.unfinished(o)
	if len(ranks) == 0 {
		return 0
	}
	a.console.Say("%s on %s ended with exit code 0 before the function given to runtime.Main had returned, as os.Exit does; "+
		"return nil from it instead", phrase.Ranks(ranks), a.plan.host)
	return 1
}

// others says in one line what became of the ranks beside the first that failed. unfinished are those of a.unfinished.
func others(firstRank int, o *supervisor.Outcome, unfinished []int) string {
	var with, before, too, killed []int
	for r := range o.Ends {
		e := &o.Ends[r]
		switch {
		case r == firstRank || !e.Started:
		case slices.Contains(o.Late, r):
			killed = append(killed, r)
		case slices.Contains(unfinished, r): // said below
		case !e.Bad() && !e.Asked:
			before = append(before, r)
		case e.Bad() && !e.Asked:
			too = append(too, r)
		default:
			with = append(with, r)
		}
	}
	var parts []string
	if len(with) > 0 {
		parts = append(parts, phrase.Ranks(with)+" ended with it")
	}
	if len(too) > 0 {
		parts = append(parts, phrase.Ranks(too)+" failed too")
	}
	if len(before) > 0 {
		parts = append(parts, phrase.Ranks(before)+" had finished")
	}
	if len(unfinished) > 0 {
		parts = append(parts, phrase.Ranks(unfinished)+" ended with exit code 0 in the middle of the job, as os.Exit does")
	}
	if len(killed) > 0 {
		parts = append(parts, phrase.Ranks(killed)+" did not end and had to be killed")
	}
	if len(parts) == 0 {
		return ""
	}
	return "of the others, " + strings.Join(parts, "; ")
}

// waiting is called when a job has failed and some ranks are slow to end.
func (a *attempt) waiting(o *supervisor.Outcome, left []int) {
	f, ok := first(o.Ends, a.started, a.segment.Error)
	if !ok || len(left) == 0 {
		return
	}
	more := max(0, a.opts.Grace-supervisor.Patience)
	a.console.Say("rank %d on %s failed; waiting %v more for %s to end", f.rank, a.plan.host, more, phrase.Ranks(left))
}

// sayFailed names the first rank that failed before it knew that the job was to stop.
// Those that know it print their errors themselves.
func (a *attempt) sayFailed(o *supervisor.Outcome) {
	if f, ok := first(o.Ends, a.started, a.segment.Error); ok && f.text != "" {
		a.headline(f, o)
	}
}

// sayLate names the ranks that did not use the grace period.
func (a *attempt) sayLate(o *supervisor.Outcome) {
	if len(o.Late) > 0 {
		a.console.Say("%s did not end within %v and had to be killed", phrase.Ranks(o.Late), a.opts.Grace)
	}
}

// sayRefused says why a rank could not be started, and returns the exit status.
func (a *attempt) sayRefused(o *supervisor.Outcome) int {
	name := a.plan.apps[a.plan.ranks[o.Rank].app].Argv[0]
	why, status := exit.Remedied(o.Errno).Error(), 1
	switch o.Errno {
	case unix.ENOEXEC:
		why, status = "not a program this system can run, nor a script that begins with #! (exec format error)", exit.NotExecutable
		if system := foreign(a.plan.apps[a.plan.ranks[o.Rank].app].Path); system != "" {
			why = fmt.Sprintf("a program for %s, and this machine is linux/%s; build it for this one (exec format error)", system, goruntime.GOARCH)
		}
	case unix.EACCES, unix.EPERM, unix.ETXTBSY, unix.EISDIR:
		status = exit.NotExecutable
		if noExec(a.plan.apps[a.plan.ranks[o.Rank].app].Path) {
			why = "the file system that it lies on is mounted noexec; put it on another"
		}
	case unix.ENOENT:
		status = exit.NotFound
		if _, err := os.Stat(a.plan.apps[a.plan.ranks[o.Rank].app].Path); err == nil {
			why, status = "the interpreter named in its first line, or its dynamic loader, does not exist", exit.NotExecutable
		}
	}
	a.console.Say("cannot start rank %d on %s: %s: %s", o.Rank, a.plan.host, name, why)
	return status
}

// foreign returns the system or the processor that the program at path was built for, if that is
// another than this machine's.
func foreign(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	var magic [4]byte
	_, _ = f.ReadAt(magic[:], 0)
	switch {
	case string(magic[:]) == "\xcf\xfa\xed\xfe":
		return "macOS"
	case string(magic[:2]) == "MZ":
		return "Windows"
	}
	e, err := elf.NewFile(f)
	if err != nil || e.Machine == map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[goruntime.GOARCH] {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(e.Machine.String(), "EM_"))
}

// isRank reports whether the executable at path is a program with package runtime, as far as the go command has recorded what is in it.
func isRank(path string) bool {
	self, ok := debug.ReadBuildInfo()
	info, err := buildinfo.ReadFile(path)
	if !ok || err != nil {
		return false
	}
	return info.Main.Path == self.Main.Path || slices.ContainsFunc(info.Deps, func(m *debug.Module) bool { return m.Path == self.Main.Path })
}

// noExec reports whether path lies on a file system from which nothing may be executed.
func noExec(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Flags&unix.ST_NOEXEC != 0
}
