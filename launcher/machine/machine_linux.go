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

// A Machine is what a plan depends on beside the command line.
type Machine struct {
	Host     string
	Cores    int
	CPUs     []int // numbers, neighbours next to each other; nil if they cannot be known
	Packages []int // the package of each of CPUs
	Env      []string
}

// This describes where the launcher runs. CPU numbers are read only if
// they are needed.
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

// UsableCPUs returns the numbers of the CPUs of this process's affinity mask, the
// threads of a core and the cores of a package (a socket) next to each other, and
// the package of each.
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

// Divisible reports whether m's CPUs are known and enough for n ranks.
func (m *Machine) Divisible(n int) bool { return len(m.CPUs) == m.Cores && n <= m.Cores }
