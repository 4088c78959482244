package mem

import (
	"math"
	"runtime"
	"testing"

	"github.com/gorun-spmd/gorun/internal/testenv"
)

func TestReadMachine(t *testing.T) {
	for text, want := range map[string]Machine{
		"MemTotal:  9 kB\nMemFree: 5 kB\nMemAvailable:    7 kB\nSwapTotal:       4 kB\nSwapFree: 4 kB\n": {9 << 10, 4 << 10, 7 << 10, 9 << 10},
		"MemTotal:  9 kB\n": {9 << 10, 0, math.MaxInt, 9 << 10},
	} {
		if got, err := ReadMachine(testenv.Folder(t, map[string]string{"proc/meminfo": text})); err != nil || got != want {
			t.Errorf("of %q the memory is %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, files := range []map[string]string{nil, {"proc/meminfo": ""}} {
		if m, err := ReadMachine(testenv.Folder(t, files)); err == nil {
			t.Errorf("of %q the memory is %+v, want an error", files, m)
		}
	}
	if runtime.GOOS != "linux" {
		return
	}
	m, err := ReadMachine("")
	if err != nil || m.Total < 1<<20 || m.Total > 1<<50 || m.Available < 1<<20 || m.Available > m.Total || m.Limit > m.Total {
		t.Errorf("this machine has %+v, %v", m, err)
	}
}

// TestKills: those of the process's own group count, not those of the groups above it.
func TestKills(t *testing.T) {
	for name, c := range map[string]struct {
		want  int
		files map[string]string
	}{
		"old groups": {2, map[string]string{
			"proc/self/cgroup": "5:devices:/\n4:memory:/x/y\n0::/\n",
			"sys/fs/cgroup/memory/x/y/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
			"sys/fs/cgroup/memory/x/memory.oom_control":   "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n",
		}},
		"new groups": {3, map[string]string{
			"proc/self/cgroup": "0::/system.slice/job\n",
			"sys/fs/cgroup/system.slice/job/memory.events": "max 9\noom 4\noom_kill 3\noom_group_kill 0\n",
			"sys/fs/cgroup/system.slice/memory.events":     "oom_kill 7\n",
		}},
		"a container with another view of /sys": {1, map[string]string{
			"proc/self/cgroup":                        "4:memory:/docker/x\n",
			"sys/fs/cgroup/memory/memory.oom_control": "oom_kill 1\n",
		}},
		"a kernel that does not say": {0, map[string]string{"proc/self/cgroup": "4:memory:/\n"}},
		"no groups":                  {0, nil},
	} {
		if got := Kills(testenv.Folder(t, c.files)); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestMemoryLimit: the smallest limit counts, of the group in which a batch system or service
// manager has put the job and of those above it, wherever /sys shows them.
func TestMemoryLimit(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"old groups": {
			"proc/self/cgroup": "5:devices:/\n4:memory:/x/y\n0::/\n",
			"sys/fs/cgroup/memory/x/y/memory.limit_in_bytes": "2147483648\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":     "9223372036854771712\n",
		},
		"new groups": {
			"proc/self/cgroup":                          "0::/system.slice/job\n",
			"sys/fs/cgroup/system.slice/job/memory.max": "max\n",
			"sys/fs/cgroup/system.slice/memory.max":     "2147483648\n",
		},
		"a container with another view of /sys": {
			"proc/self/cgroup":                           "4:memory:/docker/x\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "2147483648\n",
		},
	} {
		files["proc/meminfo"] = "MemTotal: 8388608 kB\n"
		if m, err := ReadMachine(testenv.Folder(t, files)); err != nil || m.Limit != 2<<30 || m.Total != 8<<30 {
			t.Errorf("%s: %+v, %v, want 2 of 8 GiB", name, m, err)
		}
	}
	for _, files := range []map[string]string{{}, {
		"proc/self/cgroup":                           "4:memory:/\n",
		"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
	}} {
		files["proc/meminfo"] = "MemTotal: 8388608 kB\n"
		if m, err := ReadMachine(testenv.Folder(t, files)); err != nil || m.Limit != m.Total {
			t.Errorf("without a limit: %+v, %v", m, err)
		}
	}
}
