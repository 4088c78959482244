//go:build linux

package top

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/launcher/phrase"
	"github.com/gorun-spmd/gorun/launcher/proc"
)

// controlLink is the link of a control segment's descriptor in /proc/PID/fd.
const controlLink = "/memfd:gorun-control (deleted)"

// A runningJob is a job of any gorun of this user, seen from outside.
type runningJob struct {
	launcher int    // process id
	command  string // command line
	segment  *control.Segment
	inode    uint64 // of the segment's file

	// The last view, by rank.
	last       map[int]proc.Process
	lastBytes  []int
	lastWaited []time.Duration
	lastAt     time.Time
}

// Jobs returns the process ids of the launchers whose jobs this user may look into, in ascending
// order.
func Jobs() []int {
	return slices.DeleteFunc(processes(), func(pid int) bool { return controlFile(pid) == "" })
}

// processes returns the ids of all processes, in ascending order.
func processes() (all []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			all = append(all, pid)
		}
	}
	slices.Sort(all)
	return all
}

// controlFile returns the name, in /proc, of the control segment that a process has made for a
// job, "" if it has made none or is another user's. Ranks, and processes that they start,
// have inherited their segment. So a segment that an ancestor has open too does not count.
func controlFile(pid int) string {
	own := controlFiles(pid)
	for buf := make([]byte, 1024); len(own) > 0; {
		p, ok := proc.Read(pid, buf)
		if !ok {
			return ""
		}
		if p.Parent == 0 {
			break
		}
		pid = p.Parent
		for inode := range controlFiles(pid) {
			delete(own, inode)
		}
	}
	for _, name := range own {
		return name
	}
	return ""
}

// controlFiles returns the names, in /proc, of the control segments that a process has
// open, by their inodes.
func controlFiles(pid int) map[uint64]string {
	files := map[uint64]string{}
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, name := range fds {
		var is unix.Stat_t
		if to, err := os.Readlink(name); err == nil && to == controlLink && unix.Stat(name, &is) == nil {
			files[is.Ino] = name
		}
	}
	return files
}

// attach opens the segment of a launcher's job, or of its next attempt. If there is
// none, the segment attached before stays.
func (j *runningJob) attach() error {
	name := controlFile(j.launcher)
	if name == "" {
		return fmt.Errorf("process %d runs no job of gorun, or is not yours", j.launcher)
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	var is unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &is); err != nil {
		return err
	}
	if j.segment != nil && is.Ino == j.inode {
		return nil
	}
	segment, err := control.Watch(f)
	if err != nil {
		return err
	}
	j.detach()
	j.segment, j.inode = segment, is.Ino
	return nil
}

func (j *runningJob) detach() {
	if j.segment != nil {
		_ = j.segment.Close()
		j.segment = nil
	}
}

// commandLine returns the command line of a process, as a shell would read it.
func commandLine(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return phrase.Printable(phrase.Quote(strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")))
}

// A rankView is the content of a line of top.
type rankView struct {
	rank, pid int // pid 0: ended
	state     string
	call, at  string
	waited    time.Duration // time so far in the call
	step      int           // -1: not known
	calls     uint64
	bytes     int
	rate      float64 // bytes per second
	memory    int     // proportional set size, bytes
	cpu       float64 // cores
	idle      float64 // share of the time in which the rank waited for others; -1: not known
}

// view looks at all ranks. Rates, cpu and idle are those since the view before; the first view has
// none.
func (j *runningJob) view() []rankView {
	now := time.Now()
	processes := j.ranks()
	views := make([]rankView, j.segment.Ranks())
	blocked := make([]time.Duration, len(views))
	for r := range views {
		v := &views[r]
		*v = rankView{rank: r, state: "ended", step: -1, idle: -1, calls: j.segment.Calls(r), bytes: max(0, j.segment.Bytes(r))}
		if step, ok := j.segment.Step(r); ok {
			v.step = step
		}
		if passed := now.Sub(j.lastAt); len(j.lastBytes) == len(views) && passed > 0 {
			v.rate = float64(max(0, v.bytes-j.lastBytes[r])) / passed.Seconds()
		}
		p, ok := processes[r]
		if !ok && j.elsewhere(r) {
			v.state = ""
		} else if !ok || p.State == 'Z' {
			continue
		} else {
			v.pid, v.memory = p.PID, proportional(p.PID)
		}
		if before, ok := j.last[r]; ok && before.PID == p.PID && now.After(j.lastAt) {
			const ticks = 100 // a second, on every Linux
			v.cpu = float64(p.CPU-min(p.CPU, before.CPU)) / ticks / now.Sub(j.lastAt).Seconds()
		}
		wait, waits, attended := foremost(j.segment.Waiting(r))
		blocked[r] = j.segment.Waited(r)
		if attended {
			blocked[r] += max(0, now.Sub(wait.Since))
		}
		if passed := now.Sub(j.lastAt); len(j.lastWaited) == len(views) && passed > 0 {
			v.idle = min(1, max(0, (blocked[r]-j.lastWaited[r]).Seconds()/passed.Seconds()))
		}
		switch {
		case p.State == 'T' || p.State == 't':
			v.state = "stopped"
		case attended && wait.On < 0:
			v.state = "waits"
		case attended:
			v.state = fmt.Sprintf("waits for %d", wait.On)
		case j.segment.State(r) == control.Running:
			v.state = "runs"
		default:
			v.state = j.segment.State(r).String()
		}
		if waits {
			v.call, v.at, v.waited = phrase.Printable(wait.Text), phrase.Printable(wait.Site), max(0, now.Sub(wait.Since))
			if !attended {
				v.call += ", async"
			}
		}
	}
	j.last, j.lastAt, j.lastBytes, j.lastWaited = processes, now, make([]int, len(views)), blocked
	for r := range views {
		j.lastBytes[r] = views[r].bytes
	}
	return views
}

// foremost returns the oldest wait in which a rank's program is blocked. If there is none, it
// returns the rank's oldest wait in an asynchronous call.
func foremost(w control.Waiting) (wait control.Wait, ok, attended bool) {
	for _, it := range w.Waits {
		if !ok || it.Attended && !attended || it.Attended == attended && it.Since.Before(wait.Since) {
			wait, ok, attended = it, true, it.Attended
		}
	}
	return wait, ok, attended
}

// elsewhere reports whether a rank of another launcher's job runs on another host.
func (j *runningJob) elsewhere(rank int) bool {
	s := j.segment.State(rank)
	return j.foreign() && j.segment.PID(rank) == 0 && (s == control.Running || s == control.Starting)
}

// foreign reports whether the job is another launcher's. Its ranks have noted their processes.
func (j *runningJob) foreign() bool {
	for r := range j.segment.Ranks() {
		if j.segment.PID(r) != 0 {
			return true
		}
	}
	return false
}

// ranks returns the processes of the job's ranks: those that the segment names, or the children of the guardian, whose parent, the
// keeper, is the launcher's child. The rank is in the environment with which they were started.
func (j *runningJob) ranks() map[int]proc.Process {
	if j.foreign() {
		ranks, buf := map[int]proc.Process{}, make([]byte, 1024)
		for r := range j.segment.Ranks() {
			if pid := j.segment.PID(r); pid != 0 {
				if p, ok := proc.Read(pid, buf); ok {
					ranks[r] = p
				}
			}
		}
		return ranks
	}
	all, parent := proc.All(), map[int]int{}
	for _, p := range all {
		parent[p.PID] = p.Parent
	}
	ranks := map[int]proc.Process{}
	for _, p := range all {
		if keeper := parent[p.Parent]; parent[keeper] != j.launcher {
			continue
		}
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID))
		for kv := range bytes.SplitSeq(env, []byte{0}) {
			if value, ok := bytes.CutPrefix(kv, []byte("GORUN_RANK=")); ok {
				if r, err := strconv.Atoi(string(value)); err == nil {
					ranks[r] = p
				}
				break
			}
		}
	}
	return ranks
}

// proportional returns a process's memory in bytes, with its part of shared pages.
func proportional(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	_, rest, _ := strings.Cut(string(text), "\nPss:")
	kib, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(phrase.FirstLine(rest)), " kB"))
	return kib << 10
}
