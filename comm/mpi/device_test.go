//go:build linux && !nolibs

package mpi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
)

// byAddress makes all calls that move data as they are made with a device's memory.
type byAddress struct {
	comm.Backend
	r      *Rank
	copies *atomic.Int64
}

func (b byAddress) Do(ctx context.Context, call *comm.Call) error {
	if call.Kind.Reduces() || call.Kind == comm.SplitKind || call.Dst.Count+call.Src.Count == 0 {
		return b.r.Do(ctx, call)
	}
	return b.r.DoDevice(ctx, call, func(dst, src comm.Buffer) error {
		b.copies.Add(1)
		if dst.Count != src.Count || dst.Count == 0 {
			return fmt.Errorf("%d elements are copied to %d", src.Count, dst.Count)
		}
		copy(dst.Data(), src.Data())
		return nil
	})
}

func (b byAddress) Split(ctx context.Context, members []int) (comm.Backend, error) {
	part, err := b.r.Split(ctx, members)
	if err != nil || part == nil {
		return nil, err
	}
	return byAddress{part, part.(*Rank), b.copies}, nil
}

// suiteByAddress is the conformance suite over calls by address, whole and divided.
func suiteByAddress(ctx context.Context, r *Rank) error {
	var copies atomic.Int64 // of calls in several goroutines
	world := comm.NewWorld(byAddress{r, r, &copies})
	for _, c := range append(commtest.Collectives(), commtest.Groups()...) {
		if err := c.Run(ctx, world); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	if copies.Load() == 0 {
		return errors.New("no call was made by address")
	}
	divided, err := r.Split(ctx, all(r.Size()))
	if err != nil {
		return err
	}
	divided.(*Rank).most = 10_000
	world = comm.NewWorld(byAddress{divided, divided.(*Rank), &copies})
	for _, c := range commtest.Collectives()[:2] {
		if err := c.Run(ctx, world); err != nil {
			return fmt.Errorf("divided, %s: %w", c.Name, err)
		}
	}
	return nil
}

func saySupport(_ context.Context, r *Rank) error {
	fmt.Printf("support %q\n", r.DeviceSupport())
	return nil
}

func all(n int) []int {
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i
	}
	return ranks
}

func TestByAddress(t *testing.T) {
	eachLauncher(t, func(t *testing.T, l launcher) {
		for _, n := range l.sizes(2, 3, fewPeers+1) {
			t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) { l.pass(t, n, "by address") })
		}
	})
}

// All ranks' libraries say the same, as a rule that they are not CUDA-aware; a variable
// counts more than what they say.
func TestDeviceSupport(t *testing.T) {
	eachLauncher(t, func(t *testing.T, l launcher) {
		for value, want := range map[string]string{"": "is not CUDA-aware", "0": cudaVariable + " is 0", "1": `support ""`} {
			out, err := l.run(t, 2, "support", "MPI_TEST_SIZE=2", cudaVariable+"="+value)
			if value == "" && strings.Contains(out, `support ""`) {
				want = `support ""` // one that is
			}
			if err != nil || strings.Count(out, want) != 2 || strings.Contains(want, "not") && !strings.Contains(out, `support "`+l.library) {
				t.Errorf("%q: %v, want %q:\n%s", value, err, want, out)
			}
		}
	})
}
