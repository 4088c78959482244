package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/data/criteo"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/programtest"
	"github.com/gorun-spmd/gorun/metrics"
)

// trained trains on an invented log on a mesh, in process, and returns the losses
// and the AUC on the held-out lines. If stop is positive the run is interrupted
// after so many steps.
func trained(t *testing.T, dp, tp, stop int, args ...string) (losses []float64, auc float64) {
	t.Helper()
	commtest.Run(t, dp*tp, func(ctx context.Context, world *comm.Comm) error {
		o, err := parse(append([]string{"-dp", strconv.Itoa(dp), "-tp", strconv.Itoa(tp)}, args...), world.Size())
		if err != nil {
			return err
		}
		mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: dp}, dtensor.Axis{Name: "tp", Size: tp})
		if err != nil {
			return err
		}
		data, _, err := load(ctx, world, o, quiet)
		if err != nil {
			return err
		}
		tr, err := newTrainer(ctx, mesh, data, o, quiet)
		if err != nil {
			return err
		}
		defer tr.close()
		if tr.run.Out = io.Discard; stop > 0 {
			if err := tr.run.Do(programtest.Interrupted(ctx, stop, &tr.run.OnStep), world, quiet); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("interrupted training returned %w", err)
			}
			return nil
		}
		if err := tr.run.Do(ctx, world, quiet); err != nil {
			return err
		}
		logits, err := tr.logits(ctx)
		if world.Rank() == 0 && err == nil {
			losses = tr.run.Losses
			auc, _ = metrics.AUC(logits, tr.heldOut.Labels)
		}
		return err
	})
	return losses, auc
}

// TestInterruptedRunsGoOnAnywhere holds that a run goes on from its checkpoint on
// any other mesh with the same losses: tables in other layouts, what their fused
// optimizers remember, networks.
func TestInterruptedRunsGoOnAnywhere(t *testing.T) {
	args := []string{"-rows", "3001", "-batch", "113", "-steps", "8", "-dim", "5"}
	want, auc := trained(t, 1, 1, 0, args...)
	for _, c := range []struct{ from, to [2]int }{{[2]int{1, 2}, [2]int{3, 1}}, {[2]int{2, 2}, [2]int{1, 3}}, {[2]int{1, 1}, [2]int{1, 4}},
		{[2]int{1, 3}, [2]int{1, 1}}} {
		args := append(args[:len(args):len(args)], "-checkpoint", filepath.Join(t.TempDir(), "checkpoints"), "-every", "3")
		limit := func(tp int) []string { // with several ranks the tables do not fit one
			if tp > 1 {
				return append(args[:len(args):len(args)], "-memory", "0.4")
			}
			return args
		}
		trained(t, c.from[0], c.from[1], 5, limit(c.from[1])...)
		got, its := trained(t, c.to[0], c.to[1], 0, append(limit(c.to[1]), "-resume")...)
		if step, ok := programtest.Near(got, want); !ok || math.Abs(its-auc) > 1e-3 {
			t.Errorf("from mesh %v to %v, step %d: losses %v, want %v; AUC %v, want %v", c.from, c.to, step, got, want, its, auc)
		}
	}
}

func TestKilledRunsGoOn(t *testing.T) {
	programtest.Build(t).SurvivesKills(t, "-rows", "4000", "-batch", "64", "-steps", "200", "-dim", "4", "-json")
}

func TestProgramHasTheSameBits(t *testing.T) {
	ways := programtest.Ways()
	for i := range ways {
		ways[i].Full = ways[i].Full || ways[i].Ranks == 64 // of which 64 on two cores take their time
	}
	args := []string{"-rows", "4000", "-batch", "64", "-dim", "4", "-json"}
	example := programtest.Build(t)
	example.HasTheSameBits(t, ways, args...)
	t.Run("micro-batches", func(t *testing.T) { // of 128 lines, also in the last batch of an epoch of 5632
		ways := []programtest.Way{{Ranks: 3}, {Ranks: 1, Args: []string{"-unfused"}}, {Ranks: 1, Args: []string{"-micro", "2"}},
			{Ranks: 3, Args: []string{"-micro", "4"}}, {Ranks: 4, Args: []string{"-micro", "2", "-dp", "2"}},
			{Ranks: 1, Args: []string{"-micro", "4"}, Full: true}, {Ranks: 4, Args: []string{"-micro", "4"}, Full: true}}
		example.HasTheSameBits(t, ways, append(args, "-rows", "6257", "-batch", "512")...)
	})
	t.Run("bfloat16", func(t *testing.T) {
		for i := range ways { // which goes the same ways as float32
			ways[i].Full = ways[i].Full || ways[i].Env == nil && ways[i].Ranks != 3
		}
		example.HasTheSameBits(t, ways, append(args, "-bfloat16")...)
	})
}

// TestFlippedBitsAreFound flips a bit of a weight of which ranks have copies; and of a table, and of what its optimizer remembers, that one
// rank has, or ranks in turn, in memory that the backward pass updates or not. Without a flip 100 steps are as they should be.
func TestFlippedBitsAreFound(t *testing.T) {
	same := []string{"--same-bits"}
	programtest.Build(t).FindsFlips(t, []programtest.Flip{
		{Ranks: 3, Flags: same, Every: 1, Step: 98, Rank: 1, Tensor: "networks.6", Element: 355*17 + 5, Found: 98, Index: []int{17, 5}},
		{Ranks: 3, Flags: same, Every: 2, Step: 5, Rank: 2, Tensor: "tables.C3", Element: 4*7 + 2, Found: 5, Index: []int{7, 2}},
		{Ranks: 3, Flags: same, Every: 2, Step: 3, Rank: 1, Tensor: "tables.C6", Element: 4*2 + 1, Found: 3, Index: []int{7, 1}},
		{Ranks: 2, Flags: same, Args: []string{"-unfused"}, Every: 1, Step: 4, Rank: 1, Tensor: "optimizer.tables.C1.sum.0", Element: 9, Found: 4,
			Index: []int{9}},
		{Ranks: 4, Flags: same, Args: []string{"-dp", "2"}, Every: 1, Step: 2, Rank: 3, Tensor: "tables.C1", Element: 4, Found: 2,
			Index: []int{1, 0}},
	}, "-rows", "4000", "-batch", "64", "-dim", "4")
}

func TestEveryMeshTrainsTheSame(t *testing.T) {
	args := []string{"-rows", "6001", "-batch", "113", "-steps", "6", "-dim", "5"}
	want, auc := trained(t, 1, 1, 0, args...)
	if len(want) != 6 || !(want[5] < want[0]) {
		t.Fatalf("on one rank: %v", want)
	}
	for _, mesh := range [][2]int{{1, 2}, {2, 1}, {1, 3}, {2, 2}, {1, 4}} {
		args := args
		if mesh[1] > 1 { // then the tables do not fit one rank
			args = append(args[:len(args):len(args)], "-memory", "0.4")
		}
		got, its := trained(t, mesh[0], mesh[1], 0, args...)
		if math.Abs(its-auc) > 1e-3 {
			t.Errorf("mesh %v: AUC %v, want %v", mesh, its, auc)
		}
		if step, ok := programtest.Near(got, want); !ok {
			t.Errorf("mesh %v, step %d: losses %v, want %v", mesh, step, got, want)
		}
	}
}

// TestUnfused holds that the tables' optimizers fused with the backward pass do
// what they do after it.
func TestUnfused(t *testing.T) {
	for _, mesh := range [][2]int{{1, 1}, {2, 2}, {1, 3}} {
		args := []string{"-rows", "2000", "-batch", "64", "-steps", "5", "-dim", "4"}
		fused, _ := trained(t, mesh[0], mesh[1], 0, args...)
		apart, _ := trained(t, mesh[0], mesh[1], 0, append(args, "-unfused")...)
		for i := range fused {
			if len(apart) != len(fused) || fused[i] != apart[i] {
				t.Errorf("mesh %v: losses %v, unfused %v", mesh, fused, apart)
				break
			}
		}
	}
}

// TestMicroBatches holds that the parts of a step, also of a short one at the end of an epoch, have the losses of the whole step.
func TestMicroBatches(t *testing.T) {
	args := []string{"-rows", "701", "-batch", "114", "-steps", "7", "-dim", "4"} // the sixth step has 61 lines
	want, auc := trained(t, 1, 1, 0, args...)
	for _, mesh := range [][2]int{{1, 1}, {2, 1}, {1, 3}} {
		got, its := trained(t, mesh[0], mesh[1], 0, append(args, "-micro", "3")...)
		if step, ok := programtest.Near(got, want); !ok || math.Abs(its-auc) > 1e-3 {
			t.Errorf("mesh %v, step %d: losses %v, want %v; AUC %v, want %v", mesh, step, got, want, its, auc)
		}
	}
}

// A step has its own batch, whichever step came before it: one that was loaded ahead is for the next step alone.
func TestBatchesAreLoadedAhead(t *testing.T) {
	commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
		o, err := parse([]string{"-rows", "200", "-batch", "64", "-micro", "2"}, world.Size())
		if err != nil {
			return err
		}
		mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: 1}, dtensor.Axis{Name: "tp", Size: 2})
		if err != nil {
			return err
		}
		data, _, err := load(ctx, world, o, quiet)
		if err != nil {
			return err
		}
		tr, err := newTrainer(ctx, mesh, data, o, quiet)
		if err != nil {
			return err
		}
		defer tr.close()
		for _, step := range []int{0, 1, 2, 3, 4, 1, 2, 7} { // an epoch has three
			parts, err := tr.loaded(step)
			if err != nil {
				return err
			}
			var lines []int
			for _, b := range parts {
				lines = append(lines, b.lines...)
			}
			if want := tr.order.Batch(step); len(parts) != 2 || !slices.Equal(lines, want) {
				return fmt.Errorf("step %d has the lines %v in %d parts, want %v in 2", step, lines, len(parts), want)
			}
		}
		return nil
	})
}

// TestBFloat16Trains holds that a model of bfloat16 trains, on every mesh alike within a few roundings to 8 bits.
func TestBFloat16Trains(t *testing.T) {
	args := []string{"-rows", "2000", "-batch", "64", "-steps", "6", "-dim", "4"}
	wide, _ := trained(t, 1, 1, 0, args...)
	for _, more := range [][]string{nil, {"-dynamic", "1"}, {"-store", t.TempDir(), "-cache", "0.1"}} {
		for _, mesh := range [][2]int{{1, 1}, {1, 2}, {2, 2}} {
			got, _ := trained(t, mesh[0], mesh[1], 0, slices.Concat(args, []string{"-bfloat16"}, more)...)
			if !slices.EqualFunc(got, wide, func(a, b float64) bool { return math.Abs(a-b) <= 0x1p-7*b }) {
				t.Errorf("mesh %v, %v: losses %v, of float32 %v", mesh, more, got, wide)
			}
		}
	}
}

// TestSignalIsFound holds that the model finds what the counts do not tell.
func TestSignalIsFound(t *testing.T) {
	args := []string{"-rows", "16000", "-batch", "256", "-steps", "50"}
	if _, auc := trained(t, 1, 2, 0, args...); auc < 0.6 {
		t.Errorf("AUC %v after 50 steps", auc)
	}
}

// TestKeys holds that raw ids in one table of keys train on every mesh as on one rank, go
// on from a checkpoint on another, and let the model find what the counts do not tell.
func TestKeys(t *testing.T) {
	args := []string{"-dynamic", "2", "-rows", "3001", "-batch", "113", "-steps", "6", "-dim", "5"}
	want, auc := trained(t, 1, 1, 0, args...)
	for _, mesh := range [][2]int{{1, 2}, {2, 1}, {1, 3}, {2, 2}} {
		got, its := trained(t, mesh[0], mesh[1], 0, args...)
		if step, ok := programtest.Near(got, want); !ok || math.Abs(its-auc) > 1e-3 {
			t.Errorf("mesh %v, step %d: losses %v, want %v; AUC %v, want %v", mesh, step, got, want, its, auc)
		}
	}
	saved := append(args, "-checkpoint", filepath.Join(t.TempDir(), "checkpoints"), "-every", "3")
	trained(t, 2, 2, 4, saved...)
	got, its := trained(t, 1, 3, 0, append(saved, "-resume")...)
	if step, ok := programtest.Near(got, want); !ok || math.Abs(its-auc) > 1e-3 {
		t.Errorf("resumed, step %d: losses %v, want %v; AUC %v, want %v", step, got, want, its, auc)
	}
	if _, auc := trained(t, 1, 2, 0, "-dynamic", "8", "-rows", "16000", "-batch", "256", "-steps", "50"); auc < 0.6 {
		t.Errorf("AUC %v after 50 steps", auc)
	}
}

// A table on disks of which few rows are wanted most is dealt out in turn, where one axis divides it.
func TestPlaceOnDisks(t *testing.T) {
	demands := []embedding.Demand{{Name: "C1", Rows: 1 << 20, Dim: 16, IDs: 1, Sample: make([]int64, 512)}}
	for i := range demands[0].Sample {
		demands[0].Sample[i] = int64(i)
	}
	for _, c := range []struct {
		dp, tp int
		want   embedding.Layout
	}{{1, 4, embedding.RowCyclic("tp")}, {2, 2, embedding.RowWise("dp", "tp")}, {2, 1, embedding.RowWise("dp", "tp")}} {
		got, err := placeOnDisks(demands, embedding.TypicalRates(), &options{dp: c.dp, tp: c.tp, batch: 2048})
		if err != nil || len(got) != 1 || got[0].String() != c.want.String() {
			t.Errorf("%d by %d ranks: %v, %v; want %v", c.dp, c.tp, got, err, c.want)
		}
	}
}

// TestStore holds that tables on disks train on every mesh as in memory, to the bit on one like it, and go on from a
// checkpoint on another, on disks or not.
func TestStore(t *testing.T) {
	args := []string{"-rows", "3001", "-batch", "113", "-steps", "8", "-dim", "5"}
	want, auc := trained(t, 1, 1, 0, args...)
	stored := append(args[:len(args):len(args)], "-store", t.TempDir(), "-cache", "0.24")
	got, _ := trained(t, 1, 1, 0, stored...)
	if !slices.Equal(got, want) {
		t.Errorf("losses on a disk are %v, want %v", got, want)
	}
	for _, mesh := range [][2]int{{1, 2}, {2, 1}, {2, 2}} {
		got, its := trained(t, mesh[0], mesh[1], 0, stored...)
		if step, ok := programtest.Near(got, want); !ok || math.Abs(its-auc) > 1e-3 {
			t.Errorf("mesh %v, step %d: losses %v, want %v; AUC %v, want %v", mesh, step, got, want, its, auc)
		}
	}
	for _, to := range [][]string{stored, args} {
		saved := []string{"-checkpoint", filepath.Join(t.TempDir(), "checkpoints"), "-every", "3"}
		trained(t, 1, 2, 5, append(saved, stored...)...)
		got, its := trained(t, 2, 1, 0, append(append(saved, "-resume"), to...)...)
		if step, ok := programtest.Near(got, want); !ok || math.Abs(its-auc) > 1e-3 {
			t.Errorf("resumed, step %d: losses %v, want %v; AUC %v, want %v", step, got, want, its, auc)
		}
	}
}

// TestStores holds that small tables are in memory, that all together have the cache, and that there is room for what a step changes.
func TestStores(t *testing.T) {
	v := &criteo.Vocabulary{Rows: [criteo.Categorical]int{2000, 10, 6000, 90}}
	o := &options{store: "a", cache: 0.0096, dim: 4, batch: 16} // 600 rows; a step changes 52 of a table, at most
	got, err := stores(v, o, 1)
	if err != nil || len(got) != 2 || got[0] != (52+99)*16 || got[2] != (52+297)*16 {
		t.Errorf("got %v, %v; want 151 rows of table 0 and 349 of table 2", got, err)
	}
	o.cache = 1
	if got, err := stores(v, o, 1); len(got) != 0 || err != nil {
		t.Errorf("tables that fit are on disks: %v, %v", got, err)
	}
	o.cache = 0.0016
	if _, err := stores(v, o, 1); err == nil ||
		!strings.Contains(err.Error(), "-cache 0.0016: the rows that a step of 16 lines may change take 0.0") {
		t.Errorf("a cache of 100 rows: %v", err)
	}
}

// TestOtherLogIsRefused holds that a checkpoint of tables with the rows of one log's values
// does not go on with another log, and that one with raw ids does.
func TestOtherLogIsRefused(t *testing.T) {
	train := func(args ...string) (err error) {
		args = append([]string{"-rows", "500", "-dim", "2", "-batch", "50"}, args...)
		commtest.Run(t, 1, func(ctx context.Context, world *comm.Comm) error {
			o, err2 := parse(args, 1)
			if err2 != nil {
				return err2
			}
			mesh, err2 := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: 1}, dtensor.Axis{Name: "tp", Size: 1})
			if err2 != nil {
				return err2
			}
			data, _, err2 := load(ctx, world, o, quiet)
			if err2 != nil {
				return err2
			}
			tr, err2 := newTrainer(ctx, mesh, data, o, quiet)
			if err2 != nil {
				return err2
			}
			tr.run.Out = io.Discard
			err = tr.run.Do(ctx, world, quiet)
			return nil
		})
		return err
	}
	logs := t.TempDir()
	one, two := filepath.Join(logs, "one"), filepath.Join(logs, "two")
	for i, log := range []string{one, two} {
		if err := generate(&options{generate: log, rows: 500, seed: uint64(i)}, quiet); err != nil {
			t.Fatal(err)
		}
	}
	for _, dynamic := range []string{"0", "1"} {
		args := []string{"-checkpoint", filepath.Join(t.TempDir(), "checkpoints"), "-dynamic", dynamic, "-table-rows", "2"}
		if err := train(append(args, "-data", one, "-steps", "2")...); err != nil {
			t.Fatal(err)
		}
		err := train(append(args, "-data", two, "-steps", "4", "-resume")...)
		if wants := dynamic == "0"; wants != (err != nil) || wants && !strings.Contains(err.Error(), "-data was a log of the values") {
			t.Errorf("-dynamic %s: got %v", dynamic, err)
		}
		if err := train(append(args, "-data", one, "-steps", "4", "-resume")...); err != nil && dynamic == "0" {
			t.Error(err)
		}
	}
}

// TestWidths holds that the networks have the layers that the command line says.
func TestWidths(t *testing.T) {
	for _, c := range []struct {
		args []string
		want int // numbers in the networks
	}{
		{nil, 13*64 + 64 + 64*32 + 32 + 32*4 + 4 + (4+351)*128 + 128 + 128*64 + 64 + 64 + 1},
		{[]string{"-bottom", "7", "-top", "5,3,2"}, 13*7 + 7 + 7*4 + 4 + (4+351)*5 + 5 + 5*3 + 3 + 3*2 + 2 + 2 + 1},
		{[]string{"-bottom", "", "-top", ""}, 13*4 + 4 + (4 + 351) + 1},
	} {
		commtest.Run(t, 1, func(ctx context.Context, world *comm.Comm) error {
			o, err := parse(append([]string{"-rows", "50", "-dim", "4", "-dynamic", "1"}, c.args...), 1)
			if err != nil {
				return err
			}
			mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: 1}, dtensor.Axis{Name: "tp", Size: 1})
			if err != nil {
				return err
			}
			m, err := newModel(ctx, mesh, o, nil)
			if err != nil {
				return err
			}
			got := 0
			for _, p := range m.dense() {
				got += p.Numel()
			}
			if got != c.want {
				return fmt.Errorf("%q: %d numbers, want %d", c.args, got, c.want)
			}
			return nil
		})
	}
}

func TestBadCommandLines(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"-nosuch", "-nosuch"},
		{"log.txt", `"log.txt" is no flag`},
		{"-steps x", "-steps"},
		{"-steps -1", "-steps -1"},
		{"-dp 3", "-dp 3 does not divide the 4 ranks"},
		{"-dp 2 -tp 3", "-dp 2 -tp 3"},
		{"-batch 0", "-batch 0"},
		{"-dim 0", "-dim 0"},
		{"-rows -1", "-rows -1"},
		{"-lr 0", "-lr 0"},
		{"-memory -1", "-memory -1"},
		{"-dynamic -1", "-dynamic -1"},
		{"-dynamic 1 -memory 1", "give one of them"},
		{"-dynamic 1 -store a", "give one of them"},
		{"-store a -unfused", "give one of them"},
		{"-store a -cache 0", "-cache 0"},
		{"-micro 0", "-micro 0"},
		{"-micro 3", "-micro 3 does not divide -batch 512"},
		{"-micro 2 -dynamic 1", "give one of them"},
		{"-micro 2 -store a", "give one of them"},
		{"-cache 1e10", "-cache 1e+10"},
		{"-table-lr NaN", "-table-lr NaN"},
		{"-bottom 64,x", `"x" is no width`},
		{"-top 0", `"0" is no width`},
		{"-strict", "-strict"},
		{"-resume", "-checkpoint"},
		{"-every 0", "-every 0"},
		{"-data a -generate b", "give one of them"},
	} {
		if _, err := parse(strings.Fields(c.args), 4); err == nil || !strings.Contains(err.Error(), c.says) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want a line with %q", c.args, err, c.says)
		}
	}
}

func TestProgram(t *testing.T) {
	example := programtest.Build(t)
	dir := t.TempDir()
	log := filepath.Join(dir, "log.txt")
	if _, stderr, status := example.Run(2, "-generate", log, "-rows", "900"); status != 0 {
		t.Fatalf("status %d\n%s", status, stderr)
	}
	text, err := os.ReadFile(log)
	if err != nil || bytes.Count(text, []byte("\n")) != 900 {
		t.Fatalf("%d lines, %v", bytes.Count(text, []byte("\n")), err)
	}
	bad := filepath.Join(dir, "bad.txt")
	if err := os.WriteFile(bad, append([]byte("1\t2\t3\n"), text...), 0o666); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, status := example.Run(2, "-data", bad, "-steps", "3", "-batch", "64", "-json")
	if status != 0 {
		t.Fatalf("status %d\n%s", status, stderr)
	}
	var s summary
	programtest.Summary(t, stdout, &s)
	if s.Steps != 3 || len(s.Losses) != 3 || s.LossFirst != s.Losses[0] || s.LossLast != s.Losses[2] || s.NP != 2 || s.TP != 2 ||
		s.MalformedLines != 1 ||
		s.AUC == nil || s.LogisticAUC == nil || s.HeldOutLoss <= 0 || s.LinesPerSecond <= 0 || len(s.Plan) != criteo.Categorical {
		t.Errorf("summary %+v", s)
	}
	if !strings.Contains(stderr, "left out 1 malformed lines (1 wrong number of fields)") ||
		!strings.Contains(stderr, "line 1: 3 fields, want 40") {
		t.Errorf("malformed lines are not named:\n%s", stderr)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	var whole summary
	for _, args := range [][]string{nil, {"-store", dir, "-cache", "0.1"}} { // the same state in memory and on a disk
		stdout, stderr, status := example.Run(1, append(args, "-rows", "3000", "-steps", "5", "-batch", "32", "-dim", "4", "-json")...)
		if status != 0 {
			t.Fatalf("status %d\n%s", status, stderr)
		}
		programtest.Summary(t, stdout, &s)
		if args == nil {
			whole = s
		} else if s.StateSHA256 != whole.StateSHA256 || !strings.Contains(stderr, "wanted rows found there") {
			t.Errorf("on a disk the state has the sum %s, in memory %s; it says\n%s", s.StateSHA256, whole.StateSHA256, stderr)
		}
	}
	example.Refuses(t, "-cache 0.01: the rows that a step", 1, "-store", dir, "-cache", "0.01")
	example.Refuses(t, "-nosuch", 2, "-nosuch")
	example.Refuses(t, "-dp 3", 2, "-dp", "3")
	example.Refuses(t, "missing", 2, "-data", filepath.Join(dir, "missing"))
	example.Refuses(t, "0 good lines", 2, "-data", empty)
	example.Refuses(t, "do not fit 2 ranks of 1.0 kB (1000 bytes) each", 2, "-data", bad, "-memory", "0.001")
	example.Refuses(t, "line 1: 3 fields", 1, "-data", bad, "-strict")
	example.Refuses(t, "the loss on the held-out lines is", 2, "-rows", "300", "-steps", "1", "-lr", "1e30")
	if stdout, _, status := example.Run(2, "-h"); status != 0 || !strings.Contains(stdout, fmt.Sprint(invented)) {
		t.Errorf("-h: status %d\n%s", status, stdout)
	}
}

func quiet(string, ...any) {}
