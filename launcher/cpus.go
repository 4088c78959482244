package launcher

import (
	"cmp"
	"fmt"
	"os"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cores returns how many CPUs this process may use at once: those of its affinity
// mask, or fewer under a control group's quota. It is at least 1.
func cores() int {
	goruntime.SetDefaultGOMAXPROCS() // forget what the environment says
	return goruntime.GOMAXPROCS(0)
}

// usableCPUs returns the numbers of the CPUs of this process's affinity mask, the
// threads of a core and the cores of a package (a socket) next to each other, and
// the package of each.
func usableCPUs() (numbers, packages []int) {
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

// deal orders parts, of which part i lies in packages[i], so that neighbours lie in
// different packages: the first of each package, then the second of each, and so on.
func deal(packages []int) []int {
	round := map[int]int{} // of the next part, by package
	order, rounds := make([]int, len(packages)), make([]int, len(packages))
	for i, p := range packages {
		order[i], rounds[i] = i, round[p]
		round[p]++
	}
	slices.SortStableFunc(order, func(a, b int) int { return rounds[a] - rounds[b] })
	return order
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

// share returns rank r's part of total things divided among n ranks: from lo up
// to but not including hi. The first total%n ranks have one more than the others.
func share(total, r, n int) (lo, hi int) {
	return r*(total/n) + min(r, total%n), (r+1)*(total/n) + min(r+1, total%n)
}

// bind restricts the calling thread, and what it forks, to the given CPUs. A mask
// that the kernel refuses changes nothing: speed alone depends on it.
func bind(cpus []int) {
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	_ = unix.SchedSetaffinity(0, &set)
}

// list writes numbers, ascending or not, as "0-2,5".
func list(numbers []int) string {
	var b strings.Builder
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(numbers[i]))
		if j > i {
			b.WriteString("-" + strconv.Itoa(numbers[j]))
		}
		i = j + 1
	}
	return b.String()
}
