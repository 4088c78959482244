package machine

import (
	goruntime "runtime"

	"github.com/gorun-spmd/gorun/internal/cgroup"
)

// Cores returns how many CPUs this process may use at once: those of its affinity
// mask, or fewer under a control group's quota, of which whole ones count. It is at least 1.
func Cores() int { return min(goruntime.NumCPU(), cgroup.CPUs("")) }
