package hosts

import (
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// A Launcher describes a program that starts ranks on several hosts. Each is a value in
// a file of its own, via_NAME.go, and is listed in [Launchers].
type Launcher struct {
	Name     string   // name for people; versions with different command lines have different names
	Via      string   // its name in --via
	Programs []string // the names under which it may be in PATH, the usual one first
	Also     string   // another name, which other programs have too and gorun doctor tries; "": none
	Debian   string   // the Debian package that has it
	Fedora   string   // the Fedora package that has it
	Use      string   // its maker and its purpose, as gorun doctor prints them

	// Is reports whether a program is this launcher, by its answer to --version: MPI
	// libraries share the name mpirun. nil: the program's name is enough.
	Is func(version string) bool
	// System is a batch system. In its jobs the launcher is chosen first; elsewhere it is chosen
	// only if --via names it. Auto: the launcher is for hosts of any kind.
	System Format

	RankVar    string // the variable that holds a rank's number
	SizeVar    string // the one that holds the number of ranks, in their environment alone
	JobNameVar string // the variable in which Job.Name replaces the batch job's name; "": none

	// CountsCores is set if the launcher itself counts the cores of a host without slots.
	CountsCores bool
	// CPUs returns the number of CPUs of hosts without slots; a host that it leaves out has 1.
	// nil: each host has 1.
	CPUs func(names []string, ask Ask) map[string]int
	// MPI returns Job.MPI. installed reports whether a launcher's library is installed. nil: "".
	MPI func(env func(string) (string, bool), ask Ask, installed func(via string) bool) string
	// Several is the program that starts a job of several Apps, "" for the usual one.
	Several string
	// ListsPrograms is set if the launcher reads several Apps from a file that cannot hold a
	// shell script.
	ListsPrograms bool

	// ShellWaits is set if the launcher does not report the end of every rank, for instance of
	// one with exit status 0. Then the shell that starts the rank waits for it and reports.
	ShellWaits bool
	// WaitsForLost is set if the launcher waits for ever where ssh has ended before it started a rank.
	WaitsForLost bool
	// StopSignal is a signal that the launcher passes on to the ranks at any time. 0: it passes on
	// job.StopSignal, once all ranks have called runtime.Main.
	StopSignal syscall.Signal
	// KillsSoon is set if the launcher kills the ranks within 2 s of a SIGTERM.
	KillsSoon bool
	// Cancel is a shell script that cancels the job named $1 when its standard input
	// ends, unless it has read a line. "": the job ends with the launcher.
	Cancel string
	// Failure reads a line of the launcher's standard error. before is Next of the line
	// before. nil: the launcher's lines say nothing about ranks.
	Failure func(line []byte, before string) Failure

	command func(*planner) error // writes the command line
}

// Ask runs a program and returns what it prints.
type Ask func(name string, args ...string) string

// A Failure is the content of a launcher's line about a rank that has failed.
type Failure struct {
	Rank, Status int    // set if Known; the status is 128 + the number of a signal
	Known        bool   // the line names rank and status
	Ends         bool   // the launcher ends the job because of a failure
	Next         string // the rank, if the next line has the status
}

// set sets rank and status, to which it adds base.
func (f *Failure) set(rank, status []byte, base int) {
	r, err := strconv.Atoi(string(rank))
	s, err2 := strconv.Atoi(string(status))
	if err == nil && err2 == nil {
		f.Rank, f.Status, f.Known, f.Ends = r, base+s, true, true
	}
}

// Launchers returns all launchers, in the order in which gorun tries them.
func Launchers() []Launcher { return []Launcher{OpenMPI4(), OpenMPI5(), Hydra(), Srun()} }

// Vias returns the names that --via takes, each once.
func Vias(all []Launcher) []string {
	var names []string
	for _, l := range all {
		if len(names) == 0 || names[len(names)-1] != l.Via {
			names = append(names, l.Via)
		}
	}
	return names
}

// RankExpression returns shell code for the number of a rank under any of the launchers; it
// gives 0 without a launcher.
func RankExpression(all []Launcher) string {
	var open strings.Builder
	closing := "0"
	for i, l := range all {
		if i == 0 || all[i-1].RankVar != l.RankVar {
			open.WriteString("${" + l.RankVar + ":-")
			closing += "}"
		}
	}
	return open.String() + closing
}

// Starter returns the launcher that has started this process as the first of several ranks, and how many; ok is false if
// none has. env looks up a variable.
func Starter(env func(string) (string, bool)) (l Launcher, ranks int, ok bool) {
	for _, l := range Launchers() {
		rank, _ := env(l.RankVar)
		size, _ := env(l.SizeVar)
		if n, err := strconv.Atoi(size); err == nil && n > 1 && rank == "0" {
			return l, n, true
		}
	}
	return Launcher{}, 0, false
}

// String returns the usual name of the launcher's program.
func (l Launcher) String() string {
	if len(l.Programs) == 0 {
		return "no launcher"
	}
	return l.Programs[0]
}

// sshKeepAlive makes ssh end within 6 s after its host has gone.
const sshKeepAlive = "-o ServerAliveInterval=2 -o ServerAliveCountMax=2"

// insert puts args behind the program's name.
func (p *planner) insert(args ...string) { p.out.Argv = slices.Insert(p.out.Argv, 1, args...) }
