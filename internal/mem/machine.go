package mem

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
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
	for group := range groups(root, "memory.limit_in_bytes", "memory.max") {
		for _, text := range group {
			if n, err := strconv.Atoi(strings.TrimSpace(text)); err == nil {
				least = min(least, n)
			}
		}
	}
	return least
}

// Kills returns how many processes of this process's control group the kernel has killed because memory ran out, 0 if it
// does not say.
func Kills(root string) (n int) {
	for group := range groups(root, "memory.oom_control", "memory.events") {
		if len(group) == 0 {
			continue
		}
		for line := range strings.Lines(group[0]) { // the others are those of the groups above
			if text, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
				kills, _ := strconv.Atoi(text)
				n += kills
			}
		}
	}
	return n
}

// groups yields, for each hierarchy of control groups that limits memory, the texts of a file of this process's group and of
// the groups above it, as far as /sys shows them. old is the file's name in version 1 and current in version 2.
func groups(root, old, current string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		list, _ := os.ReadFile(root + "/proc/self/cgroup")
		for line := range strings.Lines(string(list)) {
			fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(fields) != 3 {
				continue
			}
			base, name := "/sys/fs/cgroup", current
			switch {
			case fields[1] == "memory":
				base, name = "/sys/fs/cgroup/memory", old
			case fields[1] != "":
				continue
			}
			var texts []string
			for dir := filepath.Clean("/" + fields[2]); ; dir = filepath.Dir(dir) {
				if text, err := os.ReadFile(root + base + dir + "/" + name); err == nil {
					texts = append(texts, string(text))
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
