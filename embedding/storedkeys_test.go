package embedding_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/tensor"
)

// A keyed is a collection of a table of rows and one of keys, which are counted before they have a row. Some samples share lists.
type keyed struct {
	tables *embedding.Collection
	keys   *embedding.Dynamic
	alone  *embedding.Dynamic // is looked up by itself, before the collection
	places []layout.Placement // of the samples
}

// newKeyed makes the tables; the keys lie over the first axis.
func newKeyed(m *dtensor.Mesh, c embedding.Config) *keyed {
	k := &keyed{places: m.Every(shard0), keys: embedding.NewDynamic(m, embedding.DynamicConfig{Name: "keys", Axis: "a", Dim: storedDim,
		Budget: 256 * storedDim * 4, Seed: 7, AdmitAfter: 3, ExpireAfter: 4})} // one row a slice
	k.tables = embedding.NewCollection(m, embedding.CollectionTable{Dynamic: k.keys, Features: []string{"key"}, Mode: embedding.Sum},
		embedding.CollectionTable{Config: c, Features: []string{"user"}, Mode: embedding.Sum})
	k.tables.Fuse(embedding.FusedOptimizer{New: newAdagrad, Rate: 0.5})
	k.alone = embedding.NewDynamic(m, embedding.DynamicConfig{Name: "alone", Axis: "a", Dim: storedDim, Budget: 256 * storedDim * 4, Seed: 8})
	opt := newAdagrad([]*dtensor.Tensor{k.alone.Weight()})
	k.alone.Follow(opt.State())
	k.alone.Fuse(func(rows *dtensor.Rows) error { return opt.Step([]dtensor.Grad{dtensor.Sparse(rows)}, 0.5) })
	return k
}

// batch returns the 36 samples of a step, of users and of keys of few slices, so that they lose their rows. Pairs of samples share
// their keys.
func (k *keyed) batch(m *dtensor.Mesh, step int) *embedding.Jagged {
	const samples = 36
	rng := rand.New(rand.NewPCG(uint64(step), 3))
	var all [2][][]int64 // of keys, a list for two samples, and of users
	for s := range samples {
		its := [2][]int64{}
		for range rng.IntN(4) {
			its[0] = append(its[0], rng.Int64N(30)*1e15)
			its[1] = append(its[1], int64((190*step+rng.IntN(24))%storedRows))
		}
		if s%2 == 0 {
			all[0] = append(all[0], its[0])
		}
		all[1] = append(all[1], its[1])
	}
	first, n := dtensor.Zeros(m, tensor.Float32, []int{samples}, k.places...).Layout().Span(m.Coord(), 0)
	lists := []embedding.Lists{{Feature: "key", Inverse: []int{}}, {Feature: "user"}}
	for s := first; s < first+n; s++ {
		lists[0].Inverse = append(lists[0].Inverse, s/2-first/2)
	}
	for f, its := range [2][][]int64{all[0][first/2 : (first+n+1)/2], all[1][first : first+n]} {
		for _, ids := range its {
			lists[f].Lengths, lists[f].IDs = append(lists[f].Lengths, len(ids)), append(lists[f].IDs, ids...)
		}
	}
	j, err := embedding.JaggedOf(m, samples, lists, k.places...)
	if err != nil {
		panic(err)
	}
	return j
}

// A keyedRun is what was looked up, how often keys were counted, how often disks failed, and how often lookups exchanged ids.
type keyedRun struct {
	losses            []float64
	counts            []string
	failed, exchanges int
}

// run makes steps, each again if a disk fails in it. If ahead the batch of the next step is prefetched; and each batch is looked up once
// more without training.
func (k *keyed) run(ctx context.Context, m *dtensor.Mesh, ahead bool) (r keyedRun, err error) {
	for step := 0; step < 24; {
		if err := dtensor.Try(ctx, m, func() {
			if step == 0 && ahead {
				k.tables.Prefetch(k.batch(m, 0))
			}
			if ahead {
				k.tables.Prefetch(k.batch(m, step+1))
			}
		}); err != nil {
			return r, err
		}
		j := k.batch(m, step)
		v, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			x := k.alone.Bags(j, "key", embedding.Sum)
			y := k.tables.Bags(j).Values()
			return x.Mul(x).Sum(nil, false).Add(y.Mul(y).Sum(nil, false))
		}, append(k.tables.Params(), k.alone.Param())...)
		if _, ok := errors.AsType[*embedding.StoreError](err); ok && r.failed < 8 {
			r.failed++
			continue
		}
		if err != nil {
			return r, err
		}
		r.losses = append(r.losses, whole(v)...)
		for {
			err := dtensor.Try(ctx, m, func() {
				y, x := whole(k.tables.Bags(j).Values()), whole(k.alone.Bags(j, "key", embedding.Sum))
				r.losses = append(append(r.losses, y...), x...)
			})
			if _, ok := errors.AsType[*embedding.StoreError](err); ok && r.failed < 8 {
				r.failed++
				continue
			}
			if err != nil {
				return r, err
			}
			break
		}
		k.keys.Advance()
		k.alone.Advance()
		r.counts = append(r.counts, k.keys.Stats().String(), k.alone.Stats().String())
		step++
	}
	r.exchanges = int(m.Comm().Stats().Causes[comm.Cause{Kind: comm.AllToAllVKind, Cause: "Bags: ids"}].Calls)
	return r, nil
}

// A Prefetch asks for keys too: no lookup of its batch exchanges ids, in training and without, keys are counted once, and all bits are
// those of a table in memory.
func TestPrefetchOfKeys(t *testing.T) {
	for _, mesh := range [][]int{{1}, {2}, {3}, {4}, {2, 2}, {1, 3}} {
		for _, replicated := range []bool{false, true} {
			meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				var runs [3]keyedRun
				for i, ahead := range []bool{false, false, true} {
					c := storedConfig(t.TempDir())
					c.Cache = 32 * m.Size() * storedDim * 4
					if c.Layout = embedding.RowWise([]string{"a", "b"}[:len(mesh)]...); i == 0 {
						c.Store, c.Cache = "", 0
					}
					k := newKeyed(m, c)
					if replicated {
						k.places[0] = replicate
					}
					before := int(m.Comm().Stats().Causes[comm.Cause{Kind: comm.AllToAllVKind, Cause: "Bags: ids"}].Calls)
					var err error
					if runs[i], err = k.run(ctx, m, ahead); err != nil {
						return fmt.Errorf("mesh %v, run %d: %w", mesh, i, err)
					}
					if runs[i].exchanges -= before; ahead && runs[i].exchanges > 0 {
						return fmt.Errorf("mesh %v, samples %v: %d exchanges of ids that were prefetched", mesh, k.places, runs[i].exchanges)
					}
					if !slices.Equal(runs[i].losses, runs[0].losses) || !slices.Equal(runs[i].counts, runs[0].counts) {
						return fmt.Errorf("mesh %v, samples %v, run %d: %v, %q; in memory %v, %q", mesh, k.places, i, runs[i].losses, runs[i].counts,
							runs[0].losses, runs[0].counts)
					}
				}
				if crossed := m.Size() > 1 && !(replicated && len(mesh) == 1); crossed && runs[1].exchanges == 0 {
					return fmt.Errorf("mesh %v: no exchanges of ids without Prefetch", mesh)
				}
				return nil
			})
		}
	}
}

// Keys of a step that a disk has failed in are counted when it is made again, and not before: each file operation of the last rank
// fails, at both attempts, and losses, counts and the keys that have a row are those of a run without failures.
func TestKeysOfAFailedStep(t *testing.T) {
	for _, ranks := range testenv.Fewer([]int{1, 2, 3, 4}, 2) {
		var want keyedRun
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
				got, err := newKeyed(m, c).run(ctx, m, at%2 == 0)
				if err != nil {
					return fmt.Errorf("%d ranks, failing at %d: %w", ranks, at, err)
				}
				if !last {
					return nil
				}
				if seen += got.failed; want.losses == nil {
					want = got
				}
				if !slices.Equal(got.counts, want.counts) || !slices.Equal(got.losses, want.losses) {
					return fmt.Errorf("%d ranks, failing at %d: %v; without failures %v", ranks, at, got, want)
				}
				return nil
			})
			if t.Failed() || at > files.count() {
				break
			}
		}
		if seen < 4 {
			t.Errorf("%d ranks: only %d failures were seen", ranks, seen)
		}
	}
}
