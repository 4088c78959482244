package mem

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Machine is the memory of a machine, in bytes.
type Machine struct {
	Total, Swap int
	Available   int // without swapping; the most there is if an old kernel does not say
	Limit       int // how much of Total the control groups of this process allow: all of it where they set no limit
}

// ReadMachine returns the memory of this machine. root is the folder that holds /proc and /sys, ""
// for the machine's own. Its error says that there is no /proc/meminfo, which Linux alone has.
func ReadMachine(root string) (Machine, error) {
	text, err := os.ReadFile(root + "/proc/meminfo")
	if errors.Is(err, fs.ErrNotExist) {
		return Machine{}, fmt.Errorf("there is no %s/proc/meminfo; mount /proc", root)
	}
	if err != nil {
		return Machine{}, fmt.Errorf("mem: ReadMachine: %w", err)
	}
	m := Machine{Available: math.MaxInt}
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
		if err != nil {
			continue
		}
		switch name {
		case "MemTotal":
			m.Total = kib << 10
		case "SwapTotal":
			m.Swap = kib << 10
		case "MemAvailable":
			m.Available = kib << 10
		}
	}
	if m.Total == 0 {
		return Machine{}, fmt.Errorf("mem: ReadMachine: %s/proc/meminfo has no MemTotal", root)
	}
	m.Limit = min(m.Total, groupLimit(root))
	return m, nil
}

// groupLimit returns the smallest memory limit of this process's control groups and of the
// groups above them, in either version of control groups.
func groupLimit(root string) int {
	least := math.MaxInt
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
			if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
				least = min(least, n)
			}
			if dir == "/" {
				break
			}
		}
	}
	return least
}
