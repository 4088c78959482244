package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// BenchmarkSave measures what a save of 64 MiB costs a program, on one rank:
//
//	go test -run '^$' -bench Save -benchtime 2s ./checkpoint
//
//	copy     the bytes copied in memory: the least that a snapshot can take
//	Save     how long the program stands still, between saves that have ended
//	whole    the same and until all is on disk
//	step     a product of matrices, which is all that the program does
//	beside   the same with a TrySave in every step, so that a save is always under way
//
// worst-ms is the longest of them.
func BenchmarkSave(b *testing.B) {
	const tensors, elements = 16, 1 << 20
	onRanks(b, 1, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
		store, err := Open(ctx, world, b.TempDir(), Options{Keep: 1})
		if err != nil {
			return err
		}
		var state State
		var list []*dtensor.Tensor
		for i := range tensors {
			x := dtensor.Full(m, tensor.Float32, float64(i), []int{elements}, layout.Replicate())
			state.AddTensor(fmt.Sprint("t", i), x)
			list = append(list, x)
		}
		copies := make([]float32, tensors*elements)
		a := dtensor.Full(m, tensor.Float32, 1, []int{512, 512}, layout.Replicate())
		step := func() error { return dtensor.Try(ctx, m, func() { a.MatMul(a) }) }

		saves := 0
		save := func() error {
			saves++
			return store.Save(ctx, saves, &state)
		}
		for _, c := range []struct {
			name   string
			bytes  int64
			before func() error // not timed
			do     func() error
		}{
			{"copy", 4 * tensors * elements, nil, func() error {
				for i, x := range list {
					copy(copies[i*elements:], tensor.Data[float32](x.Local()))
				}
				return nil
			}},
			{"Save", 4 * tensors * elements, store.Wait, save},
			{"whole", 4 * tensors * elements, nil, func() error { return errors.Join(save(), store.Wait()) }},
			{"step", 0, nil, step},
			{"beside", 0, nil, func() error {
				saves++
				_, err := store.TrySave(ctx, saves, &state)
				return errors.Join(err, step())
			}},
		} {
			b.Run(c.name, func(b *testing.B) {
				b.SetBytes(c.bytes)
				var worst time.Duration
				for i := range b.N + 1 { // the first touches fresh memory
					b.StopTimer()
					if c.before != nil {
						if err := c.before(); err != nil {
							b.Fatal(err)
						}
					}
					if i > 0 {
						b.StartTimer()
					}
					start := time.Now()
					if err := c.do(); err != nil {
						b.Fatal(err)
					}
					if i > 0 {
						worst = max(worst, time.Since(start))
					}
				}
				b.StopTimer()
				b.ReportMetric(worst.Seconds()*1e3, "worst-ms")
			})
		}
		return store.Wait()
	})
}
