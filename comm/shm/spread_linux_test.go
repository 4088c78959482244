package shm

import (
	goruntime "runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestEmptier checks the rule by which ranks that share cores spread over them.
func TestEmptier(t *testing.T) {
	for _, c := range []struct {
		name   string
		cores  []int // of each rank
		usable []int
		me     int
		want   int
	}{
		{"three and one", []int{0, 0, 0, 1}, []int{0, 1}, 2, 1},
		{"three and one, not the last of its core", []int{0, 0, 0, 1}, []int{0, 1}, 1, -1},
		{"three and one, alone", []int{0, 0, 0, 1}, []int{0, 1}, 3, -1},
		{"two and two", []int{0, 1, 0, 1}, []int{0, 1}, 2, -1},
		{"two and one", []int{1, 1, 0}, []int{0, 1}, 1, -1},
		{"all on one of three", []int{5, 5, 5, 5}, []int{3, 5, 9}, 3, 3},
		{"the emptiest", []int{0, 0, 0, 0, 1, 1, 2}, []int{0, 1, 2}, 3, 2},
		{"it may not run on the emptiest", []int{0, 0, 0, 0, 1, 1, 2}, []int{0, 1}, 3, 1},
		{"it may run nowhere else", []int{0, 0, 0, 1}, []int{0}, 2, -1},
		{"one has not been heard of", []int{0, 0, 0, -1}, []int{0, 1}, 2, -1},
		{"one says what cannot be", []int{0, 0, 0, maxCores}, []int{0, 1}, 2, -1},
	} {
		var usable unix.CPUSet
		for _, core := range c.usable {
			usable.Set(core)
		}
		if got := emptier(&usable, len(c.cores), c.me, func(r int) int { return c.cores[r] }); got != c.want {
			t.Errorf("%s: rank %d of %v goes to %d, not %d", c.name, c.me, c.cores, got, c.want)
		}
	}
}

// TestBindTo moves a thread to each core it may run on.
func TestBindTo(t *testing.T) {
	goruntime.LockOSThread() // and not unlocked: the thread ends with the test
	var usable unix.CPUSet
	if err := unix.SchedGetaffinity(0, &usable); err != nil {
		t.Fatal(err)
	}
	for core := range maxCores {
		if !usable.IsSet(core) {
			continue
		}
		if err := bindTo(core); err != nil {
			t.Fatal(err)
		}
		var only unix.CPUSet
		if err := unix.SchedGetaffinity(0, &only); err != nil || only.Count() != 1 || !only.IsSet(core) {
			t.Errorf("moved to core %d, it may run on %d cores, %v", core, only.Count(), err)
		}
	}
}
