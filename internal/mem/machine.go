package mem

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/gorun-spmd/gorun/internal/cgroup"
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
	m.Limit = min(m.Total, cgroup.Least(root, "memory", "memory.limit_in_bytes", "memory.max"))
	return m, nil
}

// Kills returns how many processes of this process's control group the kernel has killed because memory ran out, 0 if it
// does not say.
func Kills(root string) (n int) {
	for group := range cgroup.Texts(root, "memory", "memory.oom_control", "memory.events") {
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
