package control

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// MemoryLimit returns the smallest memory limit of this process's control groups and of the
// groups above them, in either version of control groups; ok is false if there is none.
// root is the folder that holds /proc and /sys, "" for the machine's own.
func MemoryLimit(root string) (bytes int, ok bool) {
	groups, _ := os.ReadFile(root + "/proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		base, name := "/sys/fs/cgroup", "memory.max"
		switch {
		case fields[1] == "memory":
			base, name = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		case fields[1] != "":
			continue
		}
		for dir := filepath.Clean("/" + fields[2]); ; dir = filepath.Dir(dir) {
			text, _ := os.ReadFile(root + base + dir + "/" + name)
			if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && (!ok || n < bytes) {
				bytes, ok = n, true
			}
			if dir == "/" {
				break
			}
		}
	}
	return bytes, ok
}
