package shm

import (
	"context"
	"sync"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/control"
)

func open(t testing.TB, n int) (*control.Segment, []*Rank) {
	t.Helper()
	launcher, err := control.Create(n, control.Options{ArenaBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { launcher.Close() })
	ranks := make([]*Rank, n)
	for r := range ranks {
		seg, err := control.Open(launcher.Files()[0], launcher.Files()[1:], r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { seg.Close() })
		if ranks[r], err = Open(seg, r); err != nil {
			t.Fatal(err)
		}
	}
	return launcher, ranks
}

func TestSmoke(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7} {
		for _, count := range []int{0, 1, 8, 9, 1000, 1025, 300000} {
			_, ranks := open(t, n)
			var wg sync.WaitGroup
			for r, b := range ranks {
				wg.Go(func() {
					c := comm.NewWorld(b)
					x := make([]float32, count)
					for k := range 3 {
						for i := range x {
							x[i] = float32(r + i%10 + k)
						}
						if err := comm.AllReduce(context.Background(), c, x, comm.Sum); err != nil {
							t.Error(err)
							return
						}
						for i := range x {
							if want := float32(n*(n-1)/2 + n*(i%10+k)); x[i] != want {
								t.Errorf("n=%d count=%d rank %d: x[%d] = %v, want %v", n, count, r, i, x[i], want)
								return
							}
						}
					}
				})
			}
			wg.Wait()
		}
	}
}

func BenchmarkBarrier2(b *testing.B)   { bench(b, 2, 0) }
func BenchmarkAllReduce2(b *testing.B) { bench(b, 2, 2) }

func bench(b *testing.B, n, count int) {
	_, ranks := open(b, n)
	var wg sync.WaitGroup
	for _, r := range ranks {
		wg.Go(func() {
			c := comm.NewWorld(r)
			x := make([]float32, count)
			ctx := context.Background()
			for range b.N {
				var err error
				if count == 0 {
					err = comm.Barrier(ctx, c)
				} else {
					err = comm.AllReduce(ctx, c, x, comm.Max)
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
