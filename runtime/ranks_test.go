//go:build linux

package runtime

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
)

var (
	startCount = flag.Int("starts", 2, "how often TestManyRanksStart starts a job")
	startRanks = flag.Int("starts.ranks", 64, "of how many ranks")
)

// openFiles prints how many open files a rank has on average, and checks that an AllReduce and
// the shared memory of all ranks can be used.
func openFiles(ctx context.Context, world *comm.Comm) error {
	time.Sleep(time.Nanosecond) // with the first timer that is waited for Go opens two files; package runtime has one, at some time
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	x := []float64{1, float64(len(names))}
	if err := comm.AllReduce(ctx, world, x, comm.Sum); err != nil {
		return err
	}
	shared, bytes := world.Memory(), 1<<16
	p, err := shared.Alloc(bytes)
	if err != nil {
		return err
	}
	shared.Free(p, bytes)
	if world.Rank() == 0 {
		fmt.Printf("%v ranks, %v open files each\n", x[0], x[1]/x[0])
	}
	return nil
}

// TestManyRanksStart holds that a job of many ranks starts, each time, and that the files which
// a rank has open do not grow with their number.
func TestManyRanksStart(t *testing.T) {
	run := func(ranks int) (files float64) {
		out, err := exec.Command("gorun", "-np", fmt.Sprint(ranks), "rankprogram", "descriptors").CombinedOutput()
		if err != nil {
			t.Fatalf("%d ranks: %v\n%s", ranks, err, out)
		}
		_, said, _ := strings.Cut(string(out), fmt.Sprintf("%d ranks, ", ranks))
		if _, err := fmt.Sscanf(said, "%f open files", &files); err != nil {
			t.Fatalf("%d ranks: %s", ranks, out)
		}
		return files
	}
	few := run(2)
	for range *startCount {
		if many := run(*startRanks); many > few {
			t.Errorf("with 2 ranks %v open files each, with %d %v", few, *startRanks, many)
		}
	}
}
