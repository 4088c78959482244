//go:build linux

// Package proc reads the process table of Linux, and kills a process's descendants.
package proc

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A Process is one line of the process table.
type Process struct {
	PID, Parent int
	State       byte   // R, S, D, T, Z, …
	Start       uint64 // start time, in clock ticks since boot
	CPU         uint64 // processor time used, in clock ticks
}

// Read reads /proc/PID/stat, into buf. ok is false if there is no such process.
func Read(pid int, buf []byte) (p Process, ok bool) {
	return ReadStat("/proc/"+strconv.Itoa(pid)+"/stat", buf)
}

// ReadStat reads the state of a process or thread from a file, into buf.
func ReadStat(name string, buf []byte) (p Process, ok bool) {
	f, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Process{}, false
	}
	defer unix.Close(f)
	n, err := unix.Read(f, buf)
	if err != nil || n <= 0 {
		return Process{}, false
	}
	return parseStat(buf[:n])
}

// parseStat parses the content of /proc/PID/stat (see proc_pid_stat(5)). The
// second field is the program's name in parentheses. The name may hold any character; the
// last parenthesis in the line ends it.
func parseStat(stat []byte) (p Process, ok bool) {
	pid, rest, ok := bytes.Cut(stat, []byte(" ("))
	if !ok {
		return Process{}, false
	}
	fields := bytes.Fields(rest[bytes.LastIndexByte(rest, ')')+1:])
	if len(fields) < 20 {
		return Process{}, false
	}
	var errs [5]error
	p.PID, errs[0] = strconv.Atoi(string(pid))
	p.State = fields[0][0]
	p.Parent, errs[1] = strconv.Atoi(string(fields[1]))
	p.Start, errs[2] = strconv.ParseUint(string(fields[19]), 10, 64)
	user, err := strconv.ParseUint(string(fields[11]), 10, 64)
	system, err2 := strconv.ParseUint(string(fields[12]), 10, 64)
	p.CPU, errs[3], errs[4] = user+system, err, err2
	return p, errs == [5]error{}
}

// Busy reports whether some process is busy: at most of a few looks, some milliseconds apart, it
// has a thread that runs or is ready to run.
func Busy(pids []int) bool {
	const looks = 5
	found := make([]int, len(pids))
	for i := range looks {
		if i > 0 {
			time.Sleep(7 * time.Millisecond)
		}
		for j, pid := range pids {
			if runs(pid) {
				found[j]++
			}
		}
	}
	return slices.Max(found) > looks/2
}

// runs reports whether a thread of a process runs or is ready to run.
func runs(pid int) bool {
	task := "/proc/" + strconv.Itoa(pid) + "/task"
	threads, _ := os.ReadDir(task)
	buf := make([]byte, 1024)
	for _, t := range threads {
		if p, ok := ReadStat(task+"/"+t.Name()+"/stat", buf); ok && p.State == 'R' {
			return true
		}
	}
	return false
}

// All returns the process table.
func All() (table []Process) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	buf := make([]byte, 1024)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := Read(pid, buf); ok {
			table = append(table, p)
		}
	}
	return table
}

// Children returns the children of this process, zombies included, that started
// at or after since. A child that nobody else reaps keeps its number until this
// process reaps it, so whoever reaps may signal what Children returned.
func Children(since uint64) (found []Process) {
	self := os.Getpid()
	for _, p := range All() {
		if p.Parent == self && p.Start >= since {
			found = append(found, p)
		}
	}
	return found
}

// Descendants returns the children of this process, their children, and so on.
func Descendants() (found []Process) {
	below := map[int][]Process{}
	for _, p := range All() {
		below[p.Parent] = append(below[p.Parent], p)
	}
	found = below[os.Getpid()]
	for i := 0; i < len(found); i++ {
		found = append(found, below[found[i].PID]...)
	}
	return found
}

// KillChildren sends SIGKILL to every child that started at or after since, and
// returns how many there are. A killed child's own children become ours before it
// can be reaped. So KillChildren, called again whenever a child has ended, kills the whole
// tree, level by level. It counts zombies too: a zombie whose other threads are still ending
// cannot be reaped yet and keeps its children. It must not run while another
// goroutine reaps.
func KillChildren(since uint64) int {
	found := Children(since)
	for _, p := range found {
		_ = unix.Kill(p.PID, unix.SIGKILL)
	}
	return len(found)
}

// BecomeSubreaper makes this process the parent of every descendant whose own
// parent dies.
func BecomeSubreaper() error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}
