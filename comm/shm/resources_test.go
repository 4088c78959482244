package shm

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/invariant"
)

// narrow leaves room in the segment for the world and for regions more regions of its size.
func narrow(t *testing.T, launcher *control.Segment, regions int) {
	t.Helper()
	size := regionBytes(launcher.Ranks())
	if _, err := launcher.World(size); err != nil {
		t.Fatal(err)
	}
	next, err := launcher.NewRegion(0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := launcher.NewRegion(1<<30 - int(next) - regions*size); err != nil {
		t.Fatal(err)
	}
}

// TestCommunicatorsAreTakenBack: a program may make any number of communicators if
// it keeps few. There is room for 300, and for 85 staging blocks.
func TestCommunicatorsAreTakenBack(t *testing.T) {
	launcher, ranks := open(t, 3)
	narrow(t, launcher, 300)
	errs := make([]error, len(ranks))
	var wg sync.WaitGroup
	for r, b := range ranks {
		wg.Go(func() {
			world := comm.NewWorld(b)
			if errs[r] = makeMany(t.Context(), world); errs[r] != nil {
				world.Abort(errs[r])
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if invariant.Enabled { // slow
		return
	}
	launcher, err := control.Create(2, control.Options{ArenaBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer launcher.Close()
	narrow(t, launcher, 300)
	if err := errors.Join(processesOf(t, launcher, "communicators")...); err != nil {
		t.Error(err)
	}
}

// makeMany makes thousands of communicators and uses each. It keeps a few of them and none
// of their parents.
func makeMany(ctx context.Context, world *comm.Comm) error {
	made := 3000
	if invariant.Enabled { // slow
		made = 1000
	}
	var kept []*comm.Comm
	var pending []*comm.Pending
	before := world.Stats()
	heap := make([]int32, 3000)
	for k := range made {
		c, err := world.Split(ctx, 0, -world.Rank())
		if err != nil {
			return fmt.Errorf("communicator %d: %w", k, err)
		}
		buf := heap[:1]
		if k%8 == 0 {
			buf = heap
		}
		for i := range buf {
			buf[i] = int32(k + i)
		}
		if err := comm.AllReduce(ctx, c, buf, comm.Sum); err != nil {
			return fmt.Errorf("communicator %d: %w", k, err)
		}
		if want := int32(world.Size() * (k + len(buf) - 1)); buf[len(buf)-1] != want {
			return fmt.Errorf("communicator %d: %d, want %d", k, buf[len(buf)-1], want)
		}
		if k%100 != 50 {
			continue
		}
		child, err := c.Split(ctx, 0, 0)
		if err != nil {
			return err
		}
		kept = append(kept, child)
		pending = append(pending, c.Start(ctx, comm.Call{Kind: comm.BarrierKind})) // on one that nobody else holds
	}
	for k, c := range kept {
		buf := []int32{int32(k)}
		if err := comm.AllReduce(ctx, c, buf, comm.Sum); err != nil || buf[0] != int32(world.Size()*k) {
			return fmt.Errorf("kept communicator %d: %d, %w", k, buf[0], err)
		}
		if err := pending[k].Wait(); err != nil {
			return err
		}
	}
	few := len(kept)
	want := fmt.Sprintf("AllReduce×%d, Barrier×%d, Split×%d", made+few, few, made+few)
	after := world.Stats()
	for k := range after.Kinds {
		after.Kinds[k].Calls -= before.Kinds[k].Calls
	}
	if got := after.Calls(); got != want {
		return fmt.Errorf("called %s, want %s", got, want)
	}
	return nil
}

// TestARegionInUseIsNotReused: not while any rank, or a communicator split from
// its own, may touch it.
func TestARegionInUseIsNotReused(t *testing.T) {
	_, ranks := open(t, 2)
	split := func(of []*Rank) []*Rank {
		made := make([]*Rank, 2)
		var wg sync.WaitGroup
		for r := range made {
			wg.Go(func() {
				b, err := of[r].Split(t.Context(), []int{0, 1})
				if err != nil {
					t.Error(err)
					return
				}
				made[r] = b.(*Rank)
			})
		}
		wg.Wait()
		return made
	}
	made := split(ranks)
	offset := made[0].region.offset
	gone := func(r int) func() bool {
		flag := &made[r].region.members[r].gone
		return func() bool { return flag.Load() != 0 }
	}
	gone0, gone1 := gone(0), gone(1)
	children := split(made)
	if children[0].region.offset == offset {
		t.Fatal("the region of a communicator in use was summary to its child")
	}
	collect := func() {
		for range 3 {
			goruntime.GC()
			time.Sleep(time.Millisecond)
		}
	}
	one := made[1]
	made = nil
	if collect(); gone0() || gone1() {
		t.Error("a communicator is gone of which there is a child")
	}
	children[0] = nil
	until(t, gone0)
	if offset, ok := ranks[0].job.reuse(2); ok {
		t.Errorf("region %d was reused while rank 1 holds it", offset)
	}
	goruntime.KeepAlive(one)
	goruntime.KeepAlive(children[1])
	one, children[1] = nil, nil
	until(t, gone1)
	var found []uint64
	until(t, func() bool {
		if at, ok := ranks[0].job.reuse(2); ok {
			found = append(found, at)
		}
		return len(found) == 2
	})
	if !slices.Contains(found, offset) {
		t.Errorf("regions free again: %v, want %d too", found, offset)
	}
	again, err := ranks[0].job.join(ranks[0], offset, []int{0, 1}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if again.region.id != offset|1<<32 || again.mine.gone.Load() != 0 || again.region.slot(0, 1).seq.Load() != 0 {
		t.Errorf("the region has id %#x at %#x; its first call has number %d", again.region.id, offset, again.region.slot(0, 1).seq.Load())
	}
}

// until collects garbage until done is true.
func until(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not taken back")
		}
		goruntime.GC()
	}
}
