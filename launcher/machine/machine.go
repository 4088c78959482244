package machine

import goruntime "runtime"

// Cores returns how many CPUs this process may use at once: those of its affinity
// mask, or fewer under a control group's quota. It is at least 1.
func Cores() int {
	goruntime.SetDefaultGOMAXPROCS() // ignore the variable GOMAXPROCS
	return goruntime.GOMAXPROCS(0)
}
