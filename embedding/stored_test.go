package embedding_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/internal/rowstore"
	"github.com/gorun-spmd/gorun/tensor"
)

// badFiles are files in a folder of which one operation fails.
type badFiles struct {
	mu     sync.Mutex
	folder string
	calls  int
	failAt int // 0: none
}

func (b *badFiles) step() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.calls++; b.failAt > 0 && (b.calls == b.failAt || b.calls == b.failAt+1) { // the second attempt too
		return syscall.EIO
	}
	return nil
}

// count returns how many operations there were.
func (b *badFiles) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls
}

func (b *badFiles) Create(string) (rowstore.File, string, error) {
	f, err := os.CreateTemp(b.folder, "")
	if err == nil {
		err = b.step()
	}
	return badFile{f, b}, "file", err
}

type badFile struct {
	*os.File
	b *badFiles
}

func (f badFile) ReadAt(p []byte, at int64) (int, error) {
	if err := f.b.step(); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, at)
}

func (f badFile) WriteAt(p []byte, at int64) (int, error) {
	if err := f.b.step(); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, at)
}

const storedRows, storedDim = 600, 4

// storedConfig is a table of whose rows 4 ranks together have 256 in memory.
func storedConfig(folder string) embedding.Config {
	return embedding.Config{Name: "users", Rows: storedRows, Dim: storedDim, Layout: embedding.RowWise("a"), Store: folder,
		Cache: 256 * storedDim * 4, Key: dtensor.Key{Seed: 4}}
}

// fuseAdagrad trains a table by row-wise Adagrad.
func fuseAdagrad(t *embedding.Table) {
	opt := newAdagrad([]*dtensor.Tensor{t.Resident()})
	t.Follow(opt.State())
	t.Fuse(func(rows *dtensor.Rows) error { return opt.Step([]dtensor.Grad{dtensor.Sparse(rows)}, 0.1) })
}

// trained makes the table that c describes and trains its first 480 rows.
func trained(ctx context.Context, m *dtensor.Mesh, c embedding.Config) (table *embedding.Table, err error) {
	if err := dtensor.Try(ctx, m, func() {
		table = embedding.NewTable(m, c)
		fuseAdagrad(table)
	}); err != nil {
		return nil, err
	}
	for lo := 0; lo < 480; lo += 120 {
		if _, err := storedStep(ctx, m, table, lo, lo+120, 1); err != nil {
			return nil, err
		}
	}
	return table, nil
}

// storedStep trains rows lo to hi, every by-th.
func storedStep(ctx context.Context, m *dtensor.Mesh, t *embedding.Table, lo, hi, by int) (loss float64, err error) {
	var ids []int64
	for id := lo; id < hi; id += by {
		ids = append(ids, int64(id), int64(id))
	}
	v, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		h := t.Lookup(dtensor.Distribute(m, tensor.FromSlice(m.Device(), ids, len(ids)), layout.Shard(0)))
		return h.Mul(h).Sum(nil, false)
	}, t.Param())
	if err != nil {
		return 0, err
	}
	err = dtensor.Try(ctx, m, func() { loss = v.Full().Item() })
	return loss, err
}

// storedRun trains for some steps. A step that fails is made again: nothing has changed. It returns the
// losses and the errors of the disk.
func storedRun(ctx context.Context, m *dtensor.Mesh, t *embedding.Table) (losses []float64, failed []string, err error) {
	for step := 0; step < 12; {
		lo := (step*190 + 60) % 420
		if step%3 == 1 {
			var next []int64
			for id := range 60 {
				next = append(next, int64((lo+190)%420+id))
			}
			if err := dtensor.Try(ctx, m, func() {
				t.Prefetch(dtensor.Distribute(m, tensor.FromSlice(m.Device(), next, len(next)), layout.Shard(0)))
			}); err != nil {
				return nil, nil, err
			}
		}
		loss, err := storedStep(ctx, m, t, lo, lo+180, 3) // of odd numbers too
		if e, ok := errors.AsType[*embedding.StoreError](err); ok && len(failed) < 4 {
			failed = append(failed, e.Error())
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		losses = append(losses, loss)
		step++
	}
	return losses, failed, nil
}

// TestStoredOnAFailingDisk has each file operation of the second rank fail, at both attempts: all ranks return one
// error that names rank, table and file, and then the training goes on with the bits of one without failures.
func TestStoredOnAFailingDisk(t *testing.T) {
	for _, l := range []embedding.Layout{embedding.RowWise("a"), embedding.RowCyclic("a"), embedding.ColumnWise("a")} {
		for _, norm := range []*float64{nil, new(0.5)} {
			failingDisk(t, l, norm)
		}
	}
}

func failingDisk(t *testing.T, l embedding.Layout, norm *float64) {
	const ranks = 2
	var want []float64
	seen := 0
	for at := 0; ; at++ {
		files := &badFiles{folder: t.TempDir(), failAt: at}
		var mu sync.Mutex
		texts := map[string]int{}
		done := false
		meshtest.On(t, []int{ranks}, func(ctx context.Context, m *dtensor.Mesh) error {
			c := storedConfig(t.TempDir())
			c.Cache, c.Layout, c.MaxNorm = 160*storedDim*4, l, norm
			if m.Comm().Rank() == 1 {
				c.OnFiles(files, 0)
			}
			var table *embedding.Table
			err := dtensor.Try(ctx, m, func() {
				table = embedding.NewTable(m, c)
				fuseAdagrad(table)
			})
			if at == 1 { // the first operation makes the file
				if _, ok := errors.AsType[*embedding.StoreError](err); !ok || !strings.Contains(err.Error(), `rank 1: table "users" in`) {
					return fmt.Errorf("no file: %w", err)
				}
				return nil
			}
			if err != nil {
				return err
			}
			losses, failed, err := storedRun(ctx, m, table)
			if err != nil {
				return fmt.Errorf("failing at %d: %w", at, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if at == 0 {
				want = losses
			}
			if !slices.Equal(losses, want) {
				return fmt.Errorf("failing at %d: the losses are %v, want %v", at, losses, want)
			}
			for _, text := range failed {
				texts[text]++
				var row int
				_, its, _ := strings.Cut(text, `rank 1: table "users", row `)
				if _, err := fmt.Sscan(its, &row); err != nil || !ownsRow(table, row) || !strings.Contains(text, "in file: ") {
					return fmt.Errorf("failing at %d: the error is %q", at, text)
				}
			}
			return nil
		})
		for text, n := range texts {
			seen++
			if n%ranks != 0 {
				t.Errorf("failing at %d: %d of %d ranks return %q", at, n, ranks, text)
			}
		}
		done = at > files.count()
		if t.Failed() || done {
			break
		}
	}
	if seen < 5 {
		t.Errorf("only %d failures were seen", seen)
	}
}

// ownsRow reports whether rank 1 of 2 has a row, or a part of it.
func ownsRow(t *embedding.Table, row int) bool {
	if t.Weight().Placements()[0].Shards(1) {
		return true
	}
	if t.Weight().Placements()[0].IsCyclic() {
		return row%2 == 1
	}
	return row >= storedRows/2
}

// A batch of more rows than the cache holds is looked up, and cannot be trained; the next batch is.
func TestStoredMoreRowsThanCache(t *testing.T) {
	for ranks, l := range map[int]embedding.Layout{1: embedding.RowWise("a"), 2: embedding.RowCyclic("a"), 3: embedding.ColumnWise("a"),
		4: embedding.RowCyclic("a")} {
		meshtest.On(t, []int{ranks}, func(ctx context.Context, m *dtensor.Mesh) error {
			var table, twin *embedding.Table
			if err := dtensor.Try(ctx, m, func() {
				c := storedConfig(t.TempDir())
				c.Layout = l
				table = embedding.NewTable(m, c)
				fuseAdagrad(table)
				c.Store, c.Cache = "", 0
				twin = embedding.NewTable(m, c)
				dtensor.Keep(twin.Weight())
				fuseAdagrad(twin)
			}); err != nil {
				return err
			}
			_, err := storedStep(ctx, m, table, 0, storedRows, 1)
			e, ok := errors.AsType[*embedding.StoreError](err)
			if !ok || !strings.Contains(e.Detail, `table "users": a step changes`) {
				return fmt.Errorf("600 rows in a cache of 256: %w", err)
			}
			for i := range 3 {
				got, err := storedStep(ctx, m, table, 10*i, 10*i+150, 3)
				if err != nil {
					return err
				}
				want, err := storedStep(ctx, m, twin, 10*i, 10*i+150, 3)
				if err != nil || got != want {
					return fmt.Errorf("step %d: %v, want %v, %w", i, got, want, err)
				}
			}
			return dtensor.Try(ctx, m, func() {
				all := make([]int64, storedRows)
				for i := range all {
					all[i] = int64(i)
				}
				ids := dtensor.Distribute(m, tensor.FromSlice(m.Device(), all, len(all)), layout.Shard(0))
				if got, want := floats(table.Lookup(ids)), floats(twin.Lookup(ids)); !slices.Equal(got, want) {
					panic(fmt.Sprintf("all rows are %v, want %v", got, want))
				}
			})
		})
	}
}

// The least Cache is one of 16 rows a rank, also where ranks have unlike numbers of rows.
func TestStoredLeastCache(t *testing.T) {
	meshtest.On(t, []int{3}, func(ctx context.Context, m *dtensor.Mesh) error {
		c := storedConfig(t.TempDir())
		c.Rows, c.Cache = 100, 3*16*storedDim*4 // of 34, 33 and 33 rows
		return dtensor.Try(ctx, m, func() {
			table := embedding.NewTable(m, c)
			if got := table.Resident().LocalShape()[0]; got != 16 {
				dtensor.Throw(fmt.Errorf("a rank has room for %d rows, want 16", got))
			}
			table.Lookup(dtensor.Distribute(m, tensor.FromSlice(m.Device(), []int64{1, 50, 99}, 3), layout.Shard(0)))
		})
	})
}

func TestStoredRefusals(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for says, change := range map[string]func(c *embedding.Config){
		`name axis "a" too: use RowWise or ColumnWise`: func(c *embedding.Config) { c.Layout = embedding.Replicated() },
		"Cache is 511 bytes; give 512 or more":         func(c *embedding.Config) { c.Cache = 511 },
		"Cache is 0 bytes; give 256 or more":           func(c *embedding.Config) { c.Cache, c.Layout = 0, embedding.ColumnWise("a") },
		"Cache is -1 bytes; give 512 or more":          func(c *embedding.Config) { c.Cache = -1 },
		"has 0 rows of 4 features; with a Store":       func(c *embedding.Config) { c.Rows = 0 },
		"and there is no Store; give a folder":         func(c *embedding.Config) { c.Store = "" },
		`rank 0: table "users" in ` + file + ": mkdir": func(c *embedding.Config) { c.Store = file },
	} {
		meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
			c := storedConfig(t.TempDir())
			change(&c)
			err := dtensor.Try(ctx, m, func() { embedding.NewTable(m, c) })
			if err == nil || !strings.Contains(err.Error(), says) {
				return fmt.Errorf("got %w, want %q", err, says)
			}
			return nil
		})
	}
	commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
		m, err := dtensor.NewMesh(world, dtensor.Axis{Name: "a", Size: 2})
		if err != nil {
			return err
		}
		var table *embedding.Table
		if err := dtensor.Try(ctx, m, func() { table = embedding.NewTable(m, storedConfig(t.TempDir())) }); err != nil {
			return err
		}
		ids := dtensor.Distribute(m, tensor.FromSlice(m.Device(), []int64{1, 2}, 2), layout.Replicate())
		cases := map[string]func() error{
			"has its rows on a disk, and no operator on them but lookups": func() error {
				return dtensor.Try(ctx, m, func() { table.Weight().Full() })
			},
			"embedding: Export: rank 0: serve: Write": func() error { return table.Export(ctx, filepath.Join(file, "x")) },
			"call Follow(opt.State()) before": func() error {
				return dtensor.Try(ctx, m, func() { table.Fuse(func(*dtensor.Rows) error { return nil }) })
			},
			"Fuse one and pass Param to ValueAndGrad": func() error {
				_, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor { return table.Lookup(ids).Sum(nil, false) }, table.Param())
				return err
			},
			`"m.1" is of another parameter`: func() error {
				return dtensor.Try(ctx, m, func() {
					table.Follow(func(yield func(string, *dtensor.Tensor) bool) { yield("m.1", table.Resident()) })
				})
			},
			"id 600 at [1] is out of range": func() error {
				bad := dtensor.Distribute(m, tensor.FromSlice(m.Device(), []int64{1, 600}, 2), layout.Shard(0))
				return dtensor.Try(ctx, m, func() { table.Prefetch(bad) })
			},
		}
		for _, says := range slices.Sorted(maps.Keys(cases)) { // one order on all ranks
			if err := cases[says](); err == nil || !strings.Contains(err.Error(), says) {
				return fmt.Errorf("got %w, want %q", err, says)
			}
		}
		return nil
	})
}

// A table of fewer rows than ranks, and one of fewer columns, are looked up and trained as their twins in memory.
func TestStoredFewerThanRanks(t *testing.T) {
	for _, l := range []embedding.Layout{embedding.RowWise("a", "b"), embedding.ColumnWise("a", "b"), embedding.Grid("b", "a")} {
		meshtest.On(t, []int{2, 3}, func(ctx context.Context, m *dtensor.Mesh) error {
			c := embedding.Config{Name: "few", Rows: 3, Dim: 2, Layout: l, Key: dtensor.Key{Seed: 4}}
			twin := embedding.NewTable(m, c)
			c.Store, c.Cache = t.TempDir(), 6*16*2*4
			table := embedding.NewTable(m, c)
			var got [2][]float64
			for i, its := range []*embedding.Table{table, twin} {
				fuseAdagrad(its)
				for range 3 {
					if _, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
						h := its.Lookup(meshtest.Place(m, []int64{2, 0, 2, 1}, []int{4}, replicate, shard0)).Reduced()
						got[i] = append(got[i], whole(h.Detach())...)
						return h.Mul(h).Sum(nil, false)
					}, its.Param()); err != nil {
						return err
					}
				}
			}
			if !slices.Equal(got[0], got[1]) {
				return fmt.Errorf("%v: on a disk %v, in memory %v", l, got[0], got[1])
			}
			return nil
		})
	}
}

// The statistics of a Store count a lookup once, with a MaxNorm too: one that no row reaches changes none of them.
func TestStoredStatsWithMaxNorm(t *testing.T) {
	for _, ranks := range []int{1, 2} {
		meshtest.On(t, []int{ranks}, func(ctx context.Context, m *dtensor.Mesh) error {
			var got [2]embedding.StoreStats
			for i, norm := range []*float64{nil, new(1e9)} {
				c := storedConfig(t.TempDir())
				c.MaxNorm = norm
				tables := embedding.NewCollection(m, embedding.CollectionTable{Config: c, Features: []string{"user"}, Mode: embedding.Sum})
				table := tables.Tables()[0]
				fuseAdagrad(table)
				for step := range 6 {
					list := make([]int64, 6) // no row on two ranks
					for i := range list {
						list[i] = int64(100*i + 37*step%100)
					}
					ids := meshtest.Place(m, list, []int{6}, shard0)
					n := 6 / m.Size()
					its := list[n*m.Comm().Rank():][:n]
					j, err := embedding.NewJagged(m, []string{"user"}, 6, slices.Repeat([]int{1}, n), its, nil, shard0)
					if err != nil {
						return err
					}
					if _, _, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
						all := table.Lookup(ids.Redistribute(replicate)).Reduced()
						return table.Lookup(ids).Add(tables.Bags(j).Values()).Sum(nil, false).Add(all.Sum(nil, false))
					}, table.Param()); err != nil {
						return err
					}
				}
				if err := dtensor.Try(ctx, m, func() { got[i] = table.StoreStats() }); err != nil {
					return err
				}
			}
			if got[0] != got[1] || got[0].Wanted == 0 {
				return fmt.Errorf("%d ranks: %v with a MaxNorm, %v without", ranks, got[1], got[0])
			}
			return nil
		})
	}
}
