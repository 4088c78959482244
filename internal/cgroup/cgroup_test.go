package cgroup

import (
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/gorun-spmd/gorun/internal/testenv"
)

// TestCPUs: the smallest quota counts, of this process's group and of those above it, and of it whole CPUs.
func TestCPUs(t *testing.T) {
	const old, both = "sys/fs/cgroup/cpu/", "3:cpu,cpuacct:/x/y\n"
	for name, c := range map[string]struct {
		want  int
		files map[string]string
	}{
		"no groups":   {math.MaxInt, nil},
		"new, no one": {math.MaxInt, map[string]string{"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/cpu.max": "max 100000\n"}},
		"new, one":    {1, map[string]string{"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/cpu.max": "100000 100000\n"}},
		"new, half":   {1, map[string]string{"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/cpu.max": "50000 100000\n"}},
		"new, of the group above": {2, map[string]string{"proc/self/cgroup": "0::/a/job\n", "sys/fs/cgroup/a/job/cpu.max": "800000 100000\n",
			"sys/fs/cgroup/a/cpu.max": "290000 100000\n"}},
		"old, no one": {math.MaxInt, map[string]string{"proc/self/cgroup": both, old + "cpu.cfs_quota_us": "-1\n",
			old + "cpu.cfs_period_us": "100000\n"}},
		"old, three": {3, map[string]string{"proc/self/cgroup": both, old + "x/y/cpu.cfs_quota_us": "400000\n",
			old + "x/y/cpu.cfs_period_us": "100000\n", old + "x/cpu.cfs_quota_us": "150000\n", old + "x/cpu.cfs_period_us": "50000\n"}},
	} {
		root := testenv.Folder(t, c.files)
		if got := CPUs(root); got != c.want {
			t.Errorf("%s: %d CPUs, want %d", name, got, c.want)
		}
	}
}

// TestTasks: the smaller of the user's limit and that of the groups counts; the user's does not bind root.
func TestTasks(t *testing.T) {
	limits := "Limit  Soft Limit  Hard Limit  Units\nMax stack size 8388608 unlimited bytes\nMax processes             40  80  processes\n"
	user, free := 40, math.MaxInt
	if os.Geteuid() == 0 {
		user = math.MaxInt
	}
	for name, c := range map[string]struct {
		want  int
		files map[string]string
	}{
		"none":      {free, map[string]string{"proc/self/cgroup": "8:pids:/\n"}},
		"the user":  {user, map[string]string{"proc/self/limits": limits}},
		"the group": {30, map[string]string{"proc/self/limits": limits, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/pids.max": "30\n"}},
		"old group": {30, map[string]string{"proc/self/cgroup": "8:pids:/x\n", "sys/fs/cgroup/pids/x/pids.max": "30\n"}},
	} {
		if got, by := Tasks(testenv.Folder(t, c.files)); got != c.want {
			t.Errorf("%s: %d tasks by %s, want %d", name, got, by, c.want)
		}
	}
}

// TestTasksLeft: what is in use counts against the limit, of the groups above too, and of the user's processes with their threads.
func TestTasksLeft(t *testing.T) {
	limits := "Max processes             40  80  processes\n"
	mine, others := fmt.Sprintf("Name:\ta\nUid:\t%d\t0\t0\t0\nThreads:\t7\n", os.Getuid()), "Name:\tb\nUid:\t4321\t0\t0\t0\nThreads:\t9\n"
	user, free := 33, math.MaxInt
	if os.Geteuid() == 0 {
		user = math.MaxInt
	}
	for name, c := range map[string]struct {
		want  int
		files map[string]string
	}{
		"none":     {free, map[string]string{"proc/self/cgroup": "8:pids:/\n"}},
		"the user": {user, map[string]string{"proc/self/limits": limits, "proc/12/status": mine, "proc/13/status": others}},
		"the group": {18, map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/pids.max": "30\n",
			"sys/fs/cgroup/a/pids.current": "12\n"}},
		"the group above": {5, map[string]string{"proc/self/cgroup": "8:pids:/a\n", "sys/fs/cgroup/pids/a/pids.max": "max\n",
			"sys/fs/cgroup/pids/a/pids.current": "12\n", "sys/fs/cgroup/pids/pids.max": "30\n", "sys/fs/cgroup/pids/pids.current": "25\n"}},
		"too many": {0, map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/pids.max": "30\n",
			"sys/fs/cgroup/pids.current": "32\n"}},
	} {
		if got := TasksLeft(testenv.Folder(t, c.files)); got != c.want {
			t.Errorf("%s: %d tasks, want %d", name, got, c.want)
		}
	}
}
