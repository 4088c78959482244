//go:build linux

package supervisor

import (
	"time"

	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/snapshot"
)

// Resizes reports whether gorun scale has asked for another number of ranks than an elastic job has, and says so. It asks in the memory
// m of the job's snapshots. refusal says why there cannot be a number of ranks, "" if there can: a refused one is no longer asked for.
func Resizes(m snapshot.Memory, has int, grace time.Duration, refusal func(ranks int) string, say func(format string, args ...any)) bool {
	wanted, err := snapshot.Wanted(m)
	if err != nil || wanted == 0 {
		return false
	}
	refused := refusal(wanted)
	if wanted != has && refused == "" {
		say("%s wanted: ranks have %v to keep their state and end", ints.Counted(wanted, "rank"), grace)
		return true
	}
	if refused != "" {
		say("%s wanted, and refused: %s", ints.Counted(wanted, "rank"), refused)
	}
	_ = snapshot.Want(m, 0)
	return false
}
