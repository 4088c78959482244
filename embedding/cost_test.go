package embedding_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
)

// A cost is what one rank communicates, as "kind bytes" in order.
type cost []string

func costOf(events []comm.Event) cost {
	c := cost{}
	for _, e := range events {
		c = append(c, fmt.Sprintf("%v %d", e.Kind, e.Bytes))
	}
	return c
}

// TestCommunication is the table of Lookup's documentation, with bytes. The ids
// are 0, 0, 1, 1, … so that half of them are distinct, over a table of 8 rows of
// 4 float32; no rank ever hands in as much as its part of the table.
func TestCommunication(t *testing.T) {
	const rows, width, n = 8, 4, 8
	masked := layout.MaskPartial([]int{rows, width}, 0)
	for _, c := range []struct {
		name               string
		mesh               []int
		weight, ids        []layout.Placement
		result             []layout.Placement
		to                 []layout.Placement // what the result is brought to
		forward, reduce    cost               // of the first rank
		backward           cost
		maxNorm, frequency bool
	}{
		{name: "replicated", mesh: []int{2}, weight: one(replicate), ids: one(replicate), result: one(replicate), to: one(replicate)},
		{name: "row-wise to Replicate", mesh: []int{2}, weight: one(shard0), ids: one(replicate), result: one(masked), to: one(replicate),
			reduce: cost{"AllToAllV 128"}}, // rank 0 owns all 8 rows of 16 bytes
		{name: "row-wise to Shard", mesh: []int{2}, weight: one(shard0), ids: one(replicate), result: one(masked), to: one(shard0),
			reduce: cost{"AllToAllV 64"}, backward: cost{"AllGatherV 64"}}, // rows, and gradients, of the 4 ids of one rank
		{name: "row-wise, ids sharded", mesh: []int{2}, weight: one(shard0), ids: one(shard0), result: one(shard0), to: one(shard0),
			forward: cost{"AllGather 32", "AllToAllV 16", "AllToAllV 64"}, // status and counts; 2 distinct ids; rows for 4 ids that ask rank 0
			// rank 0 holds ids 0 0 1 1, rank 1 2 2 3 3, and rank 0 has rows 0 to 3
			backward: cost{"AllToAllV 32"}}, // gradients of 2 distinct rows
		{name: "column-wise", mesh: []int{2}, weight: one(shard1), ids: one(replicate), result: one(shard1), to: one(shard1)},
		{name: "column-wise, ids sharded", mesh: []int{2}, weight: one(shard1), ids: one(shard0), result: one(shard0), to: one(shard0),
			forward: cost{"AllGatherV 32", "AllToAllV 64"}, backward: cost{"AllToAllV 64"}},
		{name: "data-parallel", mesh: []int{2}, weight: one(replicate), ids: one(shard0), result: one(shard0), to: one(shard0),
			forward: cost{"AllGather 24"}, backward: cost{"AllGatherV 48"}}, // 2 distinct: 2·(8 + 16) bytes
		{name: "data-parallel and row-wise", mesh: []int{2, 2}, weight: two(replicate, shard0), ids: two(shard0, replicate),
			result: two(shard0, masked), to: two(shard0, replicate),
			forward: cost{"AllGather 24"}, reduce: cost{"AllToAllV 64"}, backward: cost{"AllGatherV 48"}},
		{name: "grid", mesh: []int{2, 2}, weight: two(shard0, shard1), ids: two(replicate, replicate), result: two(masked, shard1),
			to:     two(replicate, shard1),
			reduce: cost{"AllToAllV 64"}},
		{name: "row-wise with MaxNorm", mesh: []int{2}, weight: one(shard0), ids: one(replicate), result: one(masked), to: one(masked),
			maxNorm: true},
		{name: "column-wise with MaxNorm", mesh: []int{2}, weight: one(shard1), ids: one(replicate), result: one(shard1), to: one(shard1),
			maxNorm: true,
			forward: cost{"AllReduce 16"}}, // 4 distinct ids
		{name: "data-parallel with MaxNorm", mesh: []int{2}, weight: one(replicate), ids: one(shard0), result: one(shard0), to: one(shard0),
			maxNorm: true,
			forward: cost{"AllGather 24", "AllGatherV 16"}, backward: cost{"AllGatherV 48"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			meshtest.On(t, c.mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				var table []float32
				for _, v := range meshtest.Numbers(rows*width, 1, 1) {
					table = append(table, float32(v))
				}
				ids := make([]int64, n)
				for i := range ids {
					ids[i] = int64(i / 2)
				}
				w, x := meshtest.Place(m, table, []int{rows, width}, c.weight...), meshtest.Place(m, ids, []int{n}, c.ids...)
				// Groups of several axes are made when they are first needed.
				warm := func() *dtensor.Tensor { return embedding.Lookup(w, x, embedding.Options{}).Sum(nil, false) }
				if _, _, err := dtensor.ValueAndGrad(ctx, warm, w); err != nil {
					return err
				}
				o := embedding.Options{ScaleGradByFreq: c.frequency}
				if c.maxNorm {
					o.MaxNorm = new(0.5)
				}
				var forward, reduce cost
				var back *comm.Recording
				var failed error
				_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
					record := m.Comm().Record()
					y := embedding.Lookup(w, x, o)
					forward = costOf(record.Stop())
					if err := samePlaces(y.Placements(), c.result); err != nil {
						failed = fmt.Errorf("result: %w", err)
					}
					record = m.Comm().Record()
					z := y.Redistribute(c.to...)
					reduce = costOf(record.Stop())
					back = m.Comm().Record()
					return z.Mul(z).Sum(nil, false)
				}, w)
				if err != nil || failed != nil {
					return fmt.Errorf("%v %v", err, failed)
				}
				var backward []comm.Event
				for _, e := range back.Stop() {
					if strings.HasPrefix(e.Cause, "Lookup") || strings.HasPrefix(e.Cause, "gradient of Lookup") {
						backward = append(backward, e)
					}
				}
				if _, ok := grads[0].Rows(); !ok {
					return errors.New("the gradient is dense")
				}
				if m.Comm().Rank() != 0 {
					return nil
				}
				for _, got := range []struct {
					what      string
					got, want cost
				}{{"forward", forward, c.forward}, {"reduce", reduce, c.reduce}, {"backward", costOf(backward), c.backward}} {
					if fmt.Sprint(got.got) != fmt.Sprint(append(cost{}, got.want...)) {
						return fmt.Errorf("%s communicates %v, want %v", got.what, got.got, got.want)
					}
				}
				return nil
			})
		})
	}
}

func one(p layout.Placement) []layout.Placement    { return []layout.Placement{p} }
func two(p, q layout.Placement) []layout.Placement { return []layout.Placement{p, q} }

func samePlaces(got, want []layout.Placement) error {
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("placements %v, want %v", got, want)
		}
	}
	return nil
}
