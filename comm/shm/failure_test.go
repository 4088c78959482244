package shm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/internal/control"
)

// TestTheLauncherSeesWhoWaits: a long wait is in the segment until it ends, with the
// rank that is waited for.
func TestTheLauncherSeesWhoWaits(t *testing.T) {
	launcher, ranks := open(t, 2)
	done := make(chan error)
	go func() { done <- comm.AllReduce(t.Context(), comm.NewWorld(ranks[0]), make([]float32, 5), comm.Sum) }()
	w := soleWait(t, launcher)
	what := backend.Fingerprint{What: w.What, Count: w.Count}.String()
	if what != "AllReduce sum float32[5]" || w.Text != what || w.Seq != 1 || w.On != 1 || !w.Attended ||
		!strings.HasPrefix(w.Site, "shm/failure_test.go:") || time.Since(w.Since) > time.Minute {
		t.Errorf("got %+v, %s", w, what)
	}
	if err := comm.AllReduce(t.Context(), comm.NewWorld(ranks[1]), make([]float32, 5), comm.Sum); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if w := launcher.Waiting(0).Waits; len(w) > 0 {
		t.Errorf("still waiting: %+v", w)
	}
	last, _ := launcher.LastCall(1)
	if launcher.Calls(1) != 1 || last.Seq != 1 || launcher.Describe(last) != what || launcher.Bytes(1) != 20 {
		t.Errorf("rank 1's last call: %+v, of %d with %d bytes", last, launcher.Calls(1), launcher.Bytes(1))
	}
}

// soleWait waits until rank 0 has one wait of some length, and returns it.
func soleWait(t *testing.T, launcher *control.Segment) control.Wait {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if w := launcher.Waiting(0).Waits; len(w) == 1 {
			return w[0]
		}
	}
	t.Fatalf("rank 0 waits for %+v", launcher.Waiting(0).Waits)
	return control.Wait{}
}

// TestWhoIsAskedLooksLess: a rank that waits for memory and is asked whether it can do more looks so seldom from then
// on that it is not taken for one that is about to go on; when something moves it looks often again.
func TestWhoIsAskedLooksLess(t *testing.T) {
	launcher, ranks := open(t, 2)
	var looks, shortest atomic.Int64 // shortest is the least time between two looks
	var over atomic.Bool
	done := make(chan error)
	go func() {
		call := comm.Call{Kind: comm.TaggedRecvKind, Root: 1}
		last := time.Now()
		done <- ranks[0].Await(t.Context(), &call, func() (int, error) {
			now := time.Now()
			shortest.Store(min(shortest.Load(), int64(now.Sub(last))))
			last = now
			if looks.Add(1); over.Load() {
				return -1, nil
			}
			return 1, nil
		})
	}()
	soleWait(t, launcher)
	look := func(times int64) {
		n := looks.Load()
		until(t, func() bool { return looks.Load() >= n+times })
	}
	often := func() bool {
		shortest.Store(int64(time.Hour))
		look(3)
		return shortest.Load() < int64(nap)
	}
	until(t, often)
	launcher.Ask(0, 1)
	until(t, func() bool { return ranks[0].job.seg.Question(0) == 0 })
	look(2)
	for range 3 {
		if often() {
			t.Errorf("it looks after %v, want %v", time.Duration(shortest.Load()), nap)
		}
	}
	ranks[0].Moved()
	until(t, often)
	over.Store(true)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestTheLauncherSeesWhetherSomebodyAttends: an asynchronous call blocks its rank's program
// only from the moment that a goroutine waits for it.
func TestTheLauncherSeesWhetherSomebodyAttends(t *testing.T) {
	launcher, ranks := open(t, 2)
	world := comm.NewWorld(ranks[0])
	p := world.Start(t.Context(), comm.Call{Kind: comm.BarrierKind})
	if w := soleWait(t, launcher); w.Attended || w.Text != "Barrier" {
		t.Errorf("got %+v", w)
	}
	errs := make(chan error, 1)
	go func() { errs <- p.Wait() }()
	for end := time.Now().Add(10 * time.Second); !soleWait(t, launcher).Attended; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("Pending.Wait is not seen")
		}
	}
	if err := comm.Barrier(t.Context(), comm.NewWorld(ranks[1])); err != nil {
		t.Error(err)
	}
	if err := <-errs; err != nil {
		t.Error(err)
	}
}

// TestTheLauncherNamesEveryCall as the ranks do.
func TestTheLauncherNamesEveryCall(t *testing.T) {
	launcher, _ := open(t, 1)
	for k := comm.AllReduceKind; k < comm.Kinds; k++ {
		b := comm.Of(make([]float32, 3))
		call := comm.Call{Kind: k, Op: comm.Max, Root: 2, Dst: b, Src: b, DstCounts: []int{1, 2}, SrcCounts: []int{3}}
		if k == comm.BarrierKind {
			call = comm.Call{Kind: k}
		}
		f := call.Fingerprint()
		if got, want := launcher.Describe(control.Call{What: f.What, Count: f.Count}), f.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestEndedReachesSplitsToo: the ranks that wait for a dead rank on any communicator notice
// its death, and so do the ranks that wait for these.
func TestEndedReachesSplitsToo(t *testing.T) {
	const n = 4
	launcher, ranks := open(t, n)
	errs := make(chan error, n)
	for r, b := range ranks {
		go func() {
			errs <- func() error {
				world := comm.NewWorld(b)
				half, err := world.Split(t.Context(), r%2, 0)
				if err != nil {
					return err
				}
				if r == 3 {
					launcher.Ended(3, "signal: killed")
					return nil
				}
				if r%2 == 1 {
					err = comm.Barrier(t.Context(), half)
				} else {
					err = comm.Barrier(t.Context(), world)
				}
				var ended *comm.EndedError
				if !errors.As(err, &ended) || ended.Rank != 3 || ended.Cause != "signal: killed" {
					return fmt.Errorf("rank %d: got %v, want that rank 3 was killed", r, err)
				}
				return nil
			}()
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// TestDamage: a peer that publishes an address outside its arena gets an error,
// not this process' memory.
func TestDamage(t *testing.T) {
	_, ranks := open(t, 2)
	for _, b := range ranks {
		comm.NewWorld(b)
	}
	r := ranks[0]
	for _, at := range []uint64{uint64(r.job.arena.size), ^uint64(0), uint64(r.job.arena.size) - 8} {
		if p := r.inArena(1, at, 0, 9); p != nil {
			t.Errorf("9 bytes at %#x: %p", at, p)
		}
	}
	if p := r.inArena(1, 8, -1, 9); p != nil {
		t.Errorf("before the beginning: %p", p)
	}
	go func() { // rank 1, by hand
		s := ranks[1].region.slot(1, 1)
		call := comm.Call{Kind: comm.AllGatherKind, Src: comm.Of(make([]float32, 5000))}
		f := call.Fingerprint()
		s.what, s.count, s.summary = f.What, f.Count, inArena|5000<<8
		*(*location)(unsafe.Pointer(&s.body)) = location{at: 1 << 60}
		s.seq.Store(1)
	}()
	p, err := r.Memory().Alloc(5000 * 4) // staging would wait for a step that rank 1 does not make
	if err != nil {
		t.Fatal(err)
	}
	err = comm.AllGather(context.Background(), comm.NewWorld(r), make([]float32, 10000), unsafe.Slice((*float32)(p), 5000))
	if err == nil || !strings.Contains(err.Error(), "rank 1 published is damaged") {
		t.Errorf("got %v", err)
	}
}

// TestDamagedCounts: a rank that publishes impossible counts gets an error too, wherever
// its data is.
func TestDamagedCounts(t *testing.T) {
	for _, test := range []struct {
		name        string
		mode        uint64
		count, rows int
	}{
		{"in its slot", inSlot, 4, 0},
		{"beside it", inPayload, 400, 0},
		{"in its arena", inArena, 4000, 0},
		{"in its arena, in rows", inArena, 4000, 2},
	} {
		for _, wrong := range []uint64{1 << 40, 1 << 61, 1<<63 - 1, 1 << 63, ^uint64(0)} {
			t.Run(fmt.Sprintf("%s, %#x", test.name, wrong), func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_, ranks := open(t, 2)
				n := test.count / 2
				counts := []int{n, n}
				call := comm.Call{Kind: comm.AllToAllVKind, Src: comm.Of(make([]float32, test.count)), DstCounts: counts, SrcCounts: counts}
				f := call.Fingerprint()
				s := ranks[0].region.slot(0, 1) // rank 0, by hand
				s.what, s.count, s.summary = f.What, f.Count, test.mode|uint64(test.count)<<8
				*(*location)(unsafe.Pointer(&s.body)) = location{rows: uint64(test.rows)}
				ranks[0].putCounts(1, counts, counts)
				has, _ := ranks[0].region.vectors(0, 1)
				has[0] = wrong
				s.seq.Store(1)

				p, err := ranks[1].Memory().Alloc(test.count * 4) // see TestDamage
				if err != nil {
					t.Fatal(err)
				}
				src := unsafe.Slice((*float32)(p), test.count)
				err = comm.AllToAllV(ctx, comm.NewWorld(ranks[1]), make([]float32, test.count), counts, src, counts)
				var e *comm.Error
				if !errors.As(err, &e) || e.Rank != 1 || e.Call != "AllToAllV float32" ||
					!strings.Contains(err.Error(), "what rank 0 published is damaged: its buffer of AllToAllV float32") {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}

// TestNobodyStoresIntoARankThatHasLeft: a context ends at any moment of a run
// of large reductions; after the error this rank's buffer is its own again,
// and no rank takes a result that may be wrong for a right one.
func TestNobodyStoresIntoARankThatHasLeft(t *testing.T) {
	const n, count, tries = 3, 50_000, 12
	errs := goroutines(t)(t.Context(), n, func(ctx context.Context, world *comm.Comm) error {
		p, err := world.Memory().Alloc(4 * count)
		if err != nil {
			return err
		}
		buf := unsafe.Slice((*int32)(p), count)
		for try := range tries {
			c, err := world.Split(ctx, 0, 0)
			if err != nil {
				return err
			}
			mine, cancel := ctx, context.CancelFunc(func() {})
			if world.Rank() == try%n {
				mine, cancel = context.WithTimeout(ctx, time.Duration(try*try)*17*time.Microsecond)
			}
			for err == nil {
				for i := range buf {
					buf[i] = int32(i)
				}
				if err = comm.AllReduce(mine, c, buf, comm.Sum); err == nil {
					for i, x := range buf {
						if x != int32(n*i) {
							cancel()
							return fmt.Errorf("try %d: no error, and [%d] is %d, want %d", try, i, x, n*i)
						}
					}
				}
			}
			cancel()
			for i := range buf {
				buf[i] = -7
			}
			time.Sleep(time.Millisecond)
			for i, x := range buf {
				if x != -7 {
					return fmt.Errorf("try %d: [%d] became %d after %w", try, i, x, err)
				}
			}
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}
