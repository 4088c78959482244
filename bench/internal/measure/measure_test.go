package measure

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

func TestCasesAndMemory(t *testing.T) {
	var seen []Result
	runs := make([]int, 3)
	commtest.Run(t, 3, func(ctx context.Context, world *comm.Comm) error {
		show := func(r Result) error {
			seen = append(seen, r)
			return nil
		}
		return Run(ctx, world, Options{Match: "add", Budget: time.Millisecond}, show, func(b *Bench) error {
			x := dtensor.Full(b.Mesh, tensor.Float32, 1, []int{300, 1000}, layout.Shard(0)) // 400 kB a rank
			if err := b.Case("no", func() { t.Error("a case that nobody wants was run") }, nil); err != nil {
				return err
			}
			err := b.Case("add", func() { runs[world.Rank()]++; x.Add(x) }, func(time Timing) []Field {
				return []Field{Rate("gelem_s", 300_000, time)}
			})
			if err != nil {
				return err
			}
			m, err := b.Memory(func() error {
				return dtensor.Try(ctx, b.Mesh, func() {
					for range 5 { // the second needs as much as the others
						x.Add(x)
					}
				})
			})
			// Blocks come in size classes, and small blocks in slabs.
			if least := 5 * 400_000; m.Arena < least || m.Arena > least*5/4+2<<20 {
				t.Errorf("five results of 400 kB took %d bytes", m.Arena)
			}
			return err
		})
	})
	if len(seen) != 1 {
		t.Fatalf("%d results, want one from rank 0", len(seen))
	}
	r := seen[0]
	if r.Name != "add" || r.NP != 3 || r.Calls < fewCalls || r.MinNS <= 0 || r.MinNS > r.P10NS || r.P10NS > r.NS {
		t.Errorf("%+v", r)
	}
	for rank, n := range runs {
		if n != runs[0] || n <= r.Calls || n > 1+warmUps+2*r.Calls { // a slow machine does without warming up
			t.Errorf("rank %d ran the case %d times, rank 0 %d times, for %d calls", rank, n, runs[0], r.Calls)
		}
	}
}

func TestThrownErrorsAreReturned(t *testing.T) {
	commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
		return Run(ctx, world, Options{}, nil, func(b *Bench) error {
			x := dtensor.Zeros(b.Mesh, tensor.Float32, []int{2}, layout.Shard(0))
			y := dtensor.Zeros(b.Mesh, tensor.Float32, []int{3}, layout.Shard(0))
			if err := b.Case("bad", func() { x.Add(y) }, nil); err == nil || !strings.HasPrefix(err.Error(), "bad: ") {
				t.Errorf("error %v, want one that names the case", err)
			}
			return nil
		})
	})
}

func TestResultAsJSON(t *testing.T) {
	text, err := json.Marshal(Result{Name: "a", NP: 2, Timing: Timing{NS: 1.5, Calls: 20},
		Fields: []Field{{"v", 7}, {"gbs", 2.0 / 3}, {"to", "S(0)"}}})
	want := `{"name":"a","np":2,"ns":1.5,"min_ns":0,"p10_ns":0,"calls":20,"faults":0,"v":7,"gbs":0.66667,"to":"S(0)"}`
	if err != nil || string(text) != want {
		t.Errorf("got %s %v, want %s", text, err, want)
	}
}

func TestProportionalShare(t *testing.T) {
	if got := proportional(); got < 1<<20 || got > 1<<40 {
		t.Errorf("this process's share is %d bytes", got)
	}
}
