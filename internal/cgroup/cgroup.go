// Package cgroup reads what the control groups of this process allow, in either version of control groups, and what its user may
// start. Each function takes the folder that holds /proc and /sys, "" for the machine's own.
package cgroup

import (
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// CPUs returns how many whole CPUs the quota of the processor time leaves, at least 1; math.MaxInt if there is none. Go's own
// default of GOMAXPROCS is 2 at least.
func CPUs(root string) int {
	least := math.Inf(1)
	share := func(quota, period string) {
		q, err1 := strconv.ParseFloat(quota, 64)
		p, err2 := strconv.ParseFloat(period, 64)
		if err1 == nil && err2 == nil && q > 0 && p > 0 { // else "max", or -1
			least = min(least, q/p)
		}
	}
	for group := range Texts(root, "cpu", "", "cpu.max") {
		for _, text := range group {
			quota, period, _ := strings.Cut(text, " ")
			share(quota, period)
		}
	}
	for quotas := range Texts(root, "cpu", "cpu.cfs_quota_us", "") {
		for periods := range Texts(root, "cpu", "cpu.cfs_period_us", "") {
			for i := range min(len(quotas), len(periods)) {
				share(quotas[i], periods[i])
			}
		}
	}
	if math.IsInf(least, 1) {
		return math.MaxInt
	}
	return max(1, int(least))
}

// byUser is what sets the limit of a user.
const byUser = "ulimit -u"

// Tasks returns how many processes and threads there may be in all, of this user or of these groups, and what sets the smaller
// limit; math.MaxInt if nothing does. The user's does not bind root.
func Tasks(root string) (most int, by string) {
	most, by = Least(root, "pids", "pids.max", "pids.max"), "pids.max of the control group, as of a container"
	limits, _ := os.ReadFile(root + "/proc/self/limits")
	for line := range strings.Lines(string(limits)) {
		rest, ok := strings.CutPrefix(line, "Max processes")
		if fields := strings.Fields(rest); ok && len(fields) > 0 && os.Geteuid() != 0 {
			if n, err := strconv.Atoi(fields[0]); err == nil && n < most {
				most, by = n, byUser
			}
		}
	}
	return most, by
}

// TasksLeft returns how many more processes and threads there may be; math.MaxInt if nothing limits them. It counts the user's
// only under a limit of less than countedTasks: that takes a moment.
func TasksLeft(root string) int {
	left := math.MaxInt
	for limits := range Texts(root, "pids", "pids.max", "pids.max") {
		for used := range Texts(root, "pids", "pids.current", "pids.current") {
			for i := range min(len(limits), len(used)) {
				most, err1 := strconv.Atoi(limits[i])
				n, err2 := strconv.Atoi(used[i])
				if err1 == nil && err2 == nil { // else "max"
					left = min(left, most-n)
				}
			}
		}
	}
	if most, by := Tasks(root); by == byUser && most < countedTasks {
		left = min(left, most-userTasks(root))
	}
	return max(0, left)
}

// countedTasks is a limit that a user comes near who has set it so, or runs a great many processes.
const countedTasks = 1 << 14

// userTasks returns how many processes and threads this user has.
func userTasks(root string) (tasks int) {
	files, _ := filepath.Glob(root + "/proc/[0-9]*/status")
	for _, name := range files {
		status, _ := os.ReadFile(name) // the process may have ended
		var threads, uid int
		for line := range strings.Lines(string(status)) {
			if rest, ok := strings.CutPrefix(line, "Uid:"); ok {
				uid, _ = strconv.Atoi(strings.Fields(rest)[0])
			} else if rest, ok := strings.CutPrefix(line, "Threads:"); ok {
				threads, _ = strconv.Atoi(strings.TrimSpace(rest))
			}
		}
		if uid == os.Getuid() {
			tasks += threads
		}
	}
	return tasks
}

// Least returns the smallest number in a file of these groups, math.MaxInt if none has one: see Texts.
func Least(root, controller, old, current string) int {
	least := math.MaxInt
	for group := range Texts(root, controller, old, current) {
		for _, text := range group {
			if n, err := strconv.Atoi(text); err == nil {
				least = min(least, n)
			}
		}
	}
	return least
}

// Texts yields, for each hierarchy of control groups that has the controller, the texts of a file of this process's group and of
// the groups above it, as far as /sys shows them. old is the file's name in version 1 and current in version 2; "" for none.
func Texts(root, controller, old, current string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		list, _ := os.ReadFile(root + "/proc/self/cgroup")
		for line := range strings.Lines(string(list)) {
			fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(fields) != 3 {
				continue
			}
			base, name := "/sys/fs/cgroup", current
			switch {
			case slices.Contains(strings.Split(fields[1], ","), controller):
				base, name = "/sys/fs/cgroup/"+controller, old
			case fields[1] != "":
				continue
			}
			if name == "" {
				continue
			}
			var texts []string
			for dir := filepath.Clean("/" + fields[2]); ; dir = filepath.Dir(dir) {
				if text, err := os.ReadFile(root + base + dir + "/" + name); err == nil {
					texts = append(texts, strings.TrimSpace(string(text)))
				}
				if dir == "/" {
					break
				}
			}
			if !yield(texts) {
				return
			}
		}
	}
}
