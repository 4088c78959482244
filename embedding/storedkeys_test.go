package embedding_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/internal/testenv"
)

// A keyed is a collection of a table on a disk and one of keys, which are counted before they have a row.
type keyed struct {
	tables *embedding.Collection
	keys   *embedding.Dynamic
}

func newKeyed(m *dtensor.Mesh, c embedding.Config) *keyed {
	k := &keyed{keys: embedding.NewDynamic(m, embedding.DynamicConfig{Name: "keys", Axis: "a", Dim: storedDim, Budget: 256 * storedDim * 4,
		Seed: 7, AdmitAfter: 3, ExpireAfter: 4})} // one row a slice
	k.tables = embedding.NewCollection(m, embedding.CollectionTable{Dynamic: k.keys, Features: []string{"key"}, Mode: embedding.Sum},
		embedding.CollectionTable{Config: c, Features: []string{"user"}, Mode: embedding.Sum})
	k.tables.Fuse(embedding.FusedOptimizer{New: newAdagrad, Rate: 0.5})
	return k
}

// batch returns the 36 samples of a step: some users, and keys of few slices, so that they lose their rows.
func (k *keyed) batch(m *dtensor.Mesh, step int) (*embedding.Jagged, error) {
	const samples = 36
	rng := rand.New(rand.NewPCG(uint64(step), 3))
	lists := []embedding.Lists{{Feature: "key"}, {Feature: "user"}}
	first := samples / m.Size() * m.Comm().Rank()
	for s := range samples {
		its := [2][]int64{}
		for range rng.IntN(4) {
			its[0] = append(its[0], rng.Int64N(30)*1e15)
			its[1] = append(its[1], int64((190*step+rng.IntN(24))%storedRows))
		}
		if s < first || s >= first+samples/m.Size() {
			continue
		}
		for f := range lists {
			lists[f].Lengths, lists[f].IDs = append(lists[f].Lengths, len(its[f])), append(lists[f].IDs, its[f]...)
		}
	}
	return embedding.JaggedOf(m, samples, lists, shard0)
}

// run makes steps with their batches prefetched, each again if a disk fails in it, and returns what was looked up, how often keys were
// counted, and the errors of disks.
func (k *keyed) run(ctx context.Context, m *dtensor.Mesh) (losses []float64, counted []string, failed int, err error) {
	for step := 0; step < 24; {
		j, err := k.batch(m, step)
		if err != nil {
			return nil, nil, 0, err
		}
		v, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			y := k.tables.Bags(j).Values()
			return y.Mul(y).Sum(nil, false)
		}, k.tables.Params()...)
		if _, ok := errors.AsType[*embedding.StoreError](err); ok && failed < 8 {
			failed++
			continue
		}
		if err != nil {
			return nil, nil, 0, err
		}
		losses = append(losses, whole(v)...)
		k.keys.Advance()
		counted = append(counted, k.keys.Stats().String())
		step++
	}
	return losses, counted, failed, nil
}

// Keys of a step that a disk has failed in are counted when it is made again, and not before: each file operation of the last rank
// fails, at both attempts, and losses, counts and the keys that have a row are those of a run without failures.
func TestKeysOfAFailedStep(t *testing.T) {
	for _, ranks := range testenv.Fewer([]int{1, 2, 3, 4}, 2) {
		var want []float64
		var wantCounts []string
		seen := 0
		for at := 0; ; at++ {
			files := &badFiles{folder: t.TempDir(), failAt: at}
			if at == 1 {
				continue // no file
			}
			meshtest.On(t, []int{ranks}, func(ctx context.Context, m *dtensor.Mesh) error {
				c := storedConfig(t.TempDir())
				c.Cache = 32 * ranks * storedDim * 4
				last := m.Comm().Rank() == ranks-1
				if last {
					c.OnFiles(files, 0)
				}
				k := newKeyed(m, c)
				losses, counts, failed, err := k.run(ctx, m)
				if err != nil {
					return fmt.Errorf("%d ranks, failing at %d: %w", ranks, at, err)
				}
				if !last {
					return nil
				}
				if seen += failed; want == nil {
					want, wantCounts = losses, counts
				}
				if !slices.Equal(counts, wantCounts) || !slices.Equal(losses, want) {
					return fmt.Errorf("%d ranks, failing at %d, %d times: losses %v, counts %q; without failures %v, %q", ranks, at, failed, losses,
						counts, want, wantCounts)
				}
				return nil
			})
			if t.Failed() || at > files.count() {
				break
			}
		}
		if seen < 5 {
			t.Errorf("%d ranks: only %d failures were seen", ranks, seen)
		}
	}
}
