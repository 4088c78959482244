//go:build linux

package machine

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A Machine describes the machine of a launcher, as far as the launch plan depends on it.
type Machine struct {
	Host     string
	Cores    int
	CPUs     []int // CPU numbers, ordered as UsableCPUs does; nil if they are not known
	Packages []int // the package (socket) of each of CPUs
	Env      []string
}

// This describes the machine that this process runs on. It reads CPU numbers only if they are
// needed.
func This(needCPUs bool) Machine {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	m := Machine{Host: host, Cores: Cores(), Env: os.Environ()}
	if needCPUs {
		m.CPUs, m.Packages = UsableCPUs()
	}
	return m
}

// UsableCPUs returns the numbers of the CPUs in this process's affinity mask, and
// the package (socket) of each. The threads of a core stand next to each other, and so do the
// cores of a package.
func UsableCPUs() (numbers, packages []int) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, nil
	}
	type cpu struct{ pack, core, number int }
	var cpus []cpu
	for n := range len(set) * 64 {
		if set.IsSet(n) {
			cpus = append(cpus, cpu{topology(n, "physical_package_id"), topology(n, "core_id"), n})
		}
	}
	slices.SortFunc(cpus, func(a, b cpu) int {
		return cmp.Or(a.pack-b.pack, a.core-b.core, a.number-b.number)
	})
	for _, c := range cpus {
		numbers, packages = append(numbers, c.number), append(packages, c.pack)
	}
	return numbers, packages
}

// topology reads one number of a CPU's place in the machine, 0 if it is not known.
func topology(cpu int, name string) int {
	text, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/%s", cpu, name))
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}

// Divisible reports whether m's CPUs are known and can be divided among n ranks.
func (m *Machine) Divisible(n int) bool { return len(m.CPUs) == m.Cores && n <= m.Cores }
