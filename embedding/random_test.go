package embedding_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// maybe returns v or nil.
func maybe[T any](rng *rand.Rand, v T) *T {
	if rng.IntN(2) == 0 {
		return nil
	}
	return &v
}

// someRows returns the number of rows of a table: few, or so many that it would be
// seen if they were sent.
func someRows(rng *rand.Rand) int {
	if rng.IntN(4) == 0 {
		return 500
	}
	return 1 + rng.IntN(20)
}

// orCyclic returns places, some with rows that are dealt out in turn along the one axis that
// divides them.
func orCyclic(rng *rand.Rand, places []layout.Placement) []layout.Placement {
	var rows []int
	for axis, p := range places {
		if p.Shards(0) {
			rows = append(rows, axis)
		}
	}
	if len(rows) == 1 && rng.IntN(3) == 0 {
		places[rows[0]] = layout.ShardCyclic()
	}
	return places
}

// TestRandomLookups compares random lookups, with explicit sizes of shards, some
// of them empty, with the loops, and counts what they communicate:
// go test -run RandomLookups -cases 10000 -seed 2.
func TestRandomLookups(t *testing.T) {
	meshtest.Random(t, func(rng *rand.Rand, i int) {
		mesh, p := meshtest.SomeMesh(rng), somePrecision(rng)
		s := size{someRows(rng), 1 + rng.IntN(6), []int{rng.IntN(9)}}
		if rng.IntN(2) == 0 {
			s.ids = append(s.ids, 1+rng.IntN(4))
		}
		weight, ids, to := meshtest.SomePlaces(rng, mesh, s.rows, s.width), meshtest.SomePlaces(rng, mesh, s.ids...),
			meshtest.SomePlaces(rng, mesh, s.ids...)
		weight = orCyclic(rng, weight)
		o := embedding.Options{ScaleGradByFreq: rng.IntN(2) == 0, PaddingIdx: maybe(rng, -1-rng.IntN(s.rows))}
		direct := o
		if rng.IntN(3) == 0 {
			o.MaxNorm, o.NormType = new(0.1+rng.Float64()), new([]float64{1, 2, 3, math.Inf(1)}[rng.IntN(4)])
		}
		if rng.IntN(2) == 0 {
			ids = meshtest.OrPartial(rng, ids)
		}
		meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			if err := checkLookup(ctx, m, p, s, weight, ids, o); err != nil {
				return fmt.Errorf("case %d: mesh %v, %v %v, weight %v, ids %v, %+v: %w", i, mesh, p, s, weight, ids, o, err)
			}
			if err := checkDirect(ctx, m, p, s, weight, ids, to, direct); err != nil {
				return fmt.Errorf("case %d: mesh %v, %v %v, weight %v, ids %v, to %v, %+v: %w", i, mesh, p, s, weight, ids, to, direct, err)
			}
			return nil
		})
	})
}

// TestRandomBags does the same for bags of every kind.
func TestRandomBags(t *testing.T) {
	some := []float64{math.Inf(-1), -1, 0, 1, math.Inf(1), math.NaN()}
	meshtest.Random(t, func(rng *rand.Rand, i int) {
		mesh, rows, width, bags := meshtest.SomeMesh(rng), someRows(rng), 1+rng.IntN(5), rng.IntN(8)
		p := &pooled{rows: rows, width: width, table: meshtest.Numbers(rows*width, float64(i), 1), starts: []int{0}, padding: -1, length: -1,
			mode: embedding.Mode(rng.IntN(3)), precision: somePrecision(rng)}
		if rng.IntN(2) == 0 {
			p.length = rng.IntN(4)
		}
		for b := range bags {
			n := rng.IntN(4)
			if p.length >= 0 {
				n = p.length
			}
			p.starts = append(p.starts, p.starts[b]+n)
		}
		shape := []int{bags, p.length}
		if p.length < 0 {
			p.last = bags == 0 || rng.IntN(2) == 0
			shape = []int{p.starts[bags]}
		}
		p.ids = make([]int64, shape[0]*shape[len(shape)-1])
		if len(shape) == 1 {
			p.ids = p.ids[:shape[0]]
		}
		for j := range p.ids {
			p.ids[j] = int64(rng.IntN(1 + rng.IntN(rows)))
		}
		if rng.IntN(2) == 0 {
			p.padding = rng.IntN(1 + rng.IntN(rows))
		}
		switch {
		case rng.IntN(3) == 0 && (p.mode != embedding.Max || p.precision == double): // rounded rows have other maxima
			p.norm = 0.1 + rng.Float64()
		case p.mode == embedding.Max && rng.IntN(2) == 0: // ties, infinite rows and NaN
			for j := range p.table {
				p.table[j] = some[rng.IntN(len(some))]
			}
		}
		p.byFrequency = p.mode != embedding.Max && rng.IntN(3) == 0
		if p.mode == embedding.Sum && rng.IntN(2) == 0 {
			p.factors = meshtest.Numbers(len(p.ids), float64(i+1), 1)
		}
		at := bagPlaces{weight: orCyclic(rng, meshtest.SomePlaces(rng, mesh, rows, width)), ids: meshtest.SomePlaces(rng, mesh, shape...),
			offsets: meshtest.SomePlaces(rng, mesh, len(p.starts)), factors: meshtest.SomePlaces(rng, mesh, shape...)}
		if !p.last {
			at.offsets = meshtest.SomePlaces(rng, mesh, bags)
		}
		meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			if err := p.check(ctx, m, at); err != nil {
				return fmt.Errorf("case %d: mesh %v, %+v, %+v: %w", i, mesh, at, p, err)
			}
			return nil
		})
	})
}

// someLayout returns a random layout of a table on a mesh.
func someLayout(rng *rand.Rand, mesh []int, rows int) embedding.Layout {
	axes := []string{"a", "b", "c"}[:len(mesh)]
	at := rng.IntN(len(mesh))
	axis, ranks := axes[at], rng.Perm(mesh[at])[:1+rng.IntN(mesh[at])]
	switch rng.IntN(9) {
	case 7:
		return embedding.RowCyclic(axis)
	case 0:
		return embedding.Replicated()
	case 1:
		return embedding.RowWise(axes...)
	case 2:
		return embedding.RowWise(axis)
	case 3:
		return embedding.RowWiseOn(axis, ranks...)
	case 4:
		return embedding.ColumnWise(axis)
	case 5:
		return embedding.ColumnWiseOn(axis, ranks...)
	case 6:
		sizes := make([]int, mesh[at])
		for range rows {
			sizes[rng.IntN(len(sizes))]++
		}
		return embedding.RowWiseSizes(axis, sizes...)
	}
	if len(axes) > 1 {
		return embedding.Grid(axis, axes[(at+1)%len(axes)])
	}
	return embedding.TableWise(axis, ranks[0])
}

// TestRandomCollections does the same for collections: tables of any kind and
// layout, which share features between them, and batches of any samples.
func TestRandomCollections(t *testing.T) {
	meshtest.Random(t, func(rng *rand.Rand, i int) {
		mesh := meshtest.SomeMesh(rng)
		b := &batch{weighted: rng.IntN(3) == 0}
		sh, samples, p := &shelf{}, rng.IntN(8), []precision{double, half}[rng.IntN(2)]
		feature := func(name string, rows int) {
			var lists [][]int64
			for range samples {
				var ids []int64
				for range min(rng.IntN(4), 4*rows) {
					ids = append(ids, int64(rng.IntN(1+rng.IntN(rows))))
				}
				lists = append(lists, ids)
			}
			b.features, b.lists = append(b.features, name), append(b.lists, lists)
		}
		feature("none", 9) // no table has it
		for n := range 1 + rng.IntN(4) {
			rows, dim := rng.IntN(12), 1+rng.IntN(5)
			if rng.IntN(4) == 0 {
				rows = 500
			}
			table := embedding.CollectionTable{Config: embedding.Config{Name: fmt.Sprint("table ", n), Rows: rows, Dim: dim,
				Layout: someLayout(rng, mesh, rows),
				Key:    dtensor.Key{Seed: uint64(i), Stream: uint64(n)}}, Mode: embedding.Sum}
			if p == half {
				table.DType = tensor.BFloat16
			}
			if !b.weighted {
				table.Mode = embedding.Mode(rng.IntN(3))
			}
			table.ScaleGradByFreq = table.Mode != embedding.Max && rng.IntN(3) == 0
			if rows > 0 {
				table.PaddingIdx = maybe(rng, rng.IntN(1+rng.IntN(rows)))
			}
			if table.Mode != embedding.Max && rng.IntN(3) == 0 { // rows of one norm are equal in float32 alone
				table.MaxNorm, table.NormType = new(0.1+rng.Float64()), maybe(rng, []float64{1, 3, math.Inf(1)}[rng.IntN(3)])
			}
			for k := range rng.IntN(3) {
				name := fmt.Sprint("feature ", n, k)
				table.Features = append(table.Features, name)
				feature(name, rows)
			}
			sh.tables = append(sh.tables, table)
		}
		places := meshtest.SomePlaces(rng, mesh, samples)
		meshtest.On(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
			sharded := 0
			for axis, p := range places {
				if p.IsShard() && mesh[axis] > 1 {
					sharded++
				}
			}
			if err := sh.check(ctx, m, b, slices.Clone(places), sharded < 2); err != nil {
				return fmt.Errorf("case %d: mesh %v, samples %v, %v of %+v: %w", i, mesh, places, b, sh, err)
			}
			return nil
		})
	})
}
