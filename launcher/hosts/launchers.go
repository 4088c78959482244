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
	Name     string   // for people; it differs between versions that are called differently
	Via      string   // as --via takes it
	Programs []string // the names under which it may be in PATH, the usual one first
	Also     string   // a name of its program that others have too, which gorun doctor tries; "": none
	Debian   string   // the Debian package that has it
	Fedora   string   // the Fedora package that has it
	Use      string   // whose it is and what for, as gorun doctor says it

	// Is reports whether a program is this launcher, by its answer to --version: MPI
	// libraries share the name mpirun. nil: the program's name is enough.
	Is func(version string) bool
	// System is the batch system for whose jobs the launcher is chosen first, and for no
	// others unless --via names it. Auto: it is for hosts of any kind.
	System Format

	RankVar    string // the variable that holds a rank's number
	JobNameVar string // a variable in which it replaces the batch job's name by Job.Name; "": none

	// CountsCores is set if the launcher itself counts the cores of a host without slots.
	CountsCores bool
	// CPUs asks for the CPUs of hosts without slots; a host that it does not return has 1.
	// nil: each has 1.
	CPUs func(names []string, ask Ask) map[string]int
	// MPI returns Job.MPI. installed reports whether a launcher's library is there. nil: "".
	MPI func(env func(string) (string, bool), ask Ask, installed func(via string) bool) string
	// Several is the program that starts a job of several Apps, "" for the usual one.
	Several string
	// ListsPrograms is set if several Apps are a file that cannot hold a shell script.
	ListsPrograms bool

	// ShellWaits is set if the launcher does not tell how every rank has ended, one with exit
	// status 0 for instance: the shell that starts the rank waits for it and tells.
	ShellWaits bool
	// StopSignal is passed on to the ranks, at any time. 0: job.StopSignal is, once all
	// ranks call runtime.Main.
	StopSignal syscall.Signal
	// KillsSoon is set if the launcher kills the ranks within 2 s of a SIGTERM.
	KillsSoon bool
	// Cancel is a shell script that cancels the job named $1 when its standard input
	// ends, unless it has read a line. "": the job ends with the launcher.
	Cancel string
	// Failure reads a line of the launcher's standard error. before is Next of the line
	// before. nil: its lines say nothing of ranks.
	Failure func(line []byte, before string) Failure

	command func(*planner) error // writes the command line
}

// Ask runs a program and returns what it prints.
type Ask func(name string, args ...string) string

// A Failure is what a line of a launcher says of a rank that has failed.
type Failure struct {
	Rank, Status int    // if Known; the status is 128 + its number for a signal
	Known        bool   // the line names rank and status
	Ends         bool   // the launcher ends the job because of a failure
	Next         string // the rank, if the next line has the status
}

// set takes rank and status, which counts from base.
func (f *Failure) set(rank, status []byte, base int) {
	r, err := strconv.Atoi(string(rank))
	s, err2 := strconv.Atoi(string(status))
	if err == nil && err2 == nil {
		f.Rank, f.Status, f.Known, f.Ends = r, base+s, true, true
	}
}

// Launchers returns all, in the order in which they are tried.
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

// RankExpression is shell code for the number of a rank under any of the launchers, 0
// under none.
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

// String is the usual name of the launcher's program.
func (l Launcher) String() string {
	if len(l.Programs) == 0 {
		return "no launcher"
	}
	return l.Programs[0]
}

// sshKeepAlive makes ssh end within 6 s of a host that has gone.
const sshKeepAlive = "-o ServerAliveInterval=2 -o ServerAliveCountMax=2"

// insert puts args behind the program's name.
func (p *planner) insert(args ...string) { p.out.Argv = slices.Insert(p.out.Argv, 1, args...) }
