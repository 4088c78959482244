package main

import (
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
	"github.com/gorun-spmd/gorun/data"
	"github.com/gorun-spmd/gorun/data/corpus"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/programtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// small is a command line for a model and a batch of which nothing divides by
// three or four.
var small = []string{"-context", "9", "-width", "12", "-heads", "3", "-layers", "2", "-batch", "5", "-lr", "0.01"}

// text is a token stream with something to learn.
func text(vocab int) []int32 {
	tokens := make([]int32, 4000)
	for i := range tokens {
		tokens[i] = int32((i*i/3 + i) % vocab)
	}
	return tokens
}

// losses trains for some steps on a mesh, in process, and returns the loss of
// each and that of the held-out text. If stop is positive the run is
// interrupted after so many steps.
func losses(t *testing.T, dp, tp, stop int, args ...string) []float64 {
	t.Helper()
	var all []float64
	const vocab = 261
	commtest.Run(t, dp*tp, func(ctx context.Context, world *comm.Comm) error {
		o, err := parse(append(append([]string{"-steps", "6", "-dp", strconv.Itoa(dp), "-tp", strconv.Itoa(tp)}, small...), args...),
			world.Size())
		if err != nil {
			return err
		}
		mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: dp}, dtensor.Axis{Name: "tp", Size: tp})
		if err != nil {
			return err
		}
		m, err := newModel(ctx, mesh, o, vocab)
		if err != nil {
			return err
		}
		if o.ngram > 1 {
			if err := m.startFrom(ctx, world, func() []int32 { return text(vocab) }, o.ngram); err != nil {
				return err
			}
		}
		data := &corpus.Dataset{Train: text(vocab), HeldOut: text(vocab)[:100]}
		tr, err := newTrainer(mesh, m, data, data.Train, o)
		if err != nil {
			return err
		}
		if tr.run.Out = io.Discard; stop > 0 {
			err := tr.run.Do(programtest.Interrupted(ctx, stop, &tr.run.OnStep), world, quiet)
			if !errors.Is(err, context.Canceled) {
				return fmt.Errorf("interrupted training returned %w", err)
			}
			return nil
		}
		if err := tr.run.Do(ctx, world, quiet); err != nil {
			return err
		}
		nats, targets, err := tr.heldOut(ctx)
		if err != nil {
			return err
		}
		if targets != 99 || nats <= 0 {
			return fmt.Errorf("held out: %v nats over %d targets", nats, targets)
		}
		if world.Rank() == 0 {
			all = append(tr.run.Losses, nats/float64(targets))
		}
		return nil
	})
	return all
}

func TestInterruptedRunsGoOnAnywhere(t *testing.T) {
	want := losses(t, 1, 1, 0)
	for _, c := range []struct{ from, to [2]int }{{[2]int{1, 2}, [2]int{3, 1}}, {[2]int{2, 2}, [2]int{1, 1}}, {[2]int{1, 1}, [2]int{1, 4}}} {
		dir := filepath.Join(t.TempDir(), "checkpoints")
		losses(t, c.from[0], c.from[1], 4, "-checkpoint", dir, "-every", "3")
		for _, step := range []string{"step-000003", "step-000004"} { // -every, and the interrupt
			if _, err := os.Stat(filepath.Join(dir, step)); err != nil {
				t.Error(err)
			}
		}
		got := losses(t, c.to[0], c.to[1], 0, "-checkpoint", dir, "-resume")
		if step, ok := programtest.Near(got, want); !ok {
			t.Errorf("from mesh %v to %v, step %d: losses %v, want %v", c.from, c.to, step, got, want)
		}
	}
}

func TestEveryMeshTrainsTheSame(t *testing.T) {
	for _, args := range [][]string{nil, {"-tied"}} {
		want := losses(t, 1, 1, 0, args...)
		if len(want) != 7 || !(want[5] < want[0]) {
			t.Fatalf("%v: on one rank: %v", args, want)
		}
		for _, mesh := range [][2]int{{1, 2}, {2, 1}, {1, 3}, {3, 1}, {2, 2}, {1, 4}, {4, 1}} {
			got := losses(t, mesh[0], mesh[1], 0, args...)
			if step, ok := programtest.Near(got, want); !ok {
				t.Errorf("%v: mesh %v, step %d: losses %v, want %v", args, mesh, step, got, want)
			}
		}
	}
}

// A network that begins with counts has their loss at first, and trains alike on every mesh.
func TestBeginsWithCounts(t *testing.T) {
	want, alone := losses(t, 1, 1, 0, "-ngram", "3"), losses(t, 1, 1, 0)
	if !(want[0] < alone[0]/4) { // the text is one that counts tell nearly all about
		t.Errorf("the first loss is %v, without counts %v", want[0], alone[0])
	}
	for _, mesh := range [][2]int{{1, 2}, {2, 2}, {1, 3}} {
		got := losses(t, mesh[0], mesh[1], 0, "-ngram", "3")
		if step, ok := programtest.Near(got, want); !ok {
			t.Errorf("mesh %v, step %d: losses %v, want %v", mesh, step, got, want)
		}
	}
}

// With the same bits logits are cut at leaves over three ranks, 3, 3 and 2 of 128 classes, where the head is in equal parts.
func TestCountsHaveTheSameBits(t *testing.T) {
	const vocab = 1024
	var want []float32
	for tp := 1; tp <= 3; tp++ {
		commtest.Run(t, tp, func(ctx context.Context, world *comm.Comm) error {
			o, err := parse(append([]string{"-tp", strconv.Itoa(tp)}, small...), tp)
			if err != nil {
				return err
			}
			mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: 1}, dtensor.Axis{Name: "tp", Size: tp})
			if err != nil {
				return err
			}
			mesh.SetSameBits(true)
			m, err := newModel(ctx, mesh, o, vocab)
			if err != nil {
				return err
			}
			if err := m.startFrom(ctx, world, func() []int32 { return text(vocab) }, 3); err != nil {
				return err
			}
			return dtensor.Try(ctx, mesh, func() {
				ids := dtensor.Uniform(mesh, dtensor.Key{Seed: 5}, 0, vocab, []int{2, 9}, layout.Replicate(), layout.Replicate()).Cast(tensor.Int64)
				got := tensor.ToSlice[float32](m.logits(ids.Redistribute(layout.Shard(0), layout.Replicate()), 0).Full())
				if tp == 1 {
					want = got
				} else if !slices.Equal(got, want) {
					t.Errorf("%d ranks: rank %d has other logits than one rank", tp, world.Rank())
				}
			})
		})
	}
}

// A model of bfloat16 trains, on every mesh alike within a few roundings to 8 bits.
func TestBFloat16Trains(t *testing.T) {
	wide := losses(t, 1, 1, 0)
	for _, mesh := range [][2]int{{1, 1}, {1, 2}, {2, 1}, {2, 2}} {
		got := losses(t, mesh[0], mesh[1], 0, "-bfloat16")
		if !slices.EqualFunc(got, wide, func(a, b float64) bool { return math.Abs(a-b) <= 0x1p-7*b }) {
			t.Errorf("mesh %v: losses %v, of float32 %v", mesh, got, wide)
		}
	}
}

// TestTableGradientIsSparse holds that no gradient of the untied token table is
// a dense [V, C], and what a step of a tensor-parallel model communicates.
func TestTableGradientIsSparse(t *testing.T) {
	commtest.Run(t, 2, func(ctx context.Context, world *comm.Comm) error {
		o, err := parse(append([]string{"-steps", "1", "-tp", "2"}, small...), 2)
		if err != nil {
			return err
		}
		mesh, err := dtensor.NewMesh(world, dtensor.Axis{Name: "dp", Size: 1}, dtensor.Axis{Name: "tp", Size: 2})
		if err != nil {
			return err
		}
		m, err := newModel(ctx, mesh, o, 261)
		if err != nil {
			return err
		}
		tr, err := newTrainer(mesh, m, &corpus.Dataset{}, text(261), o)
		if err != nil {
			return err
		}
		sample, err := data.NewSampler(text(261), o.context, o.seed)
		if err != nil {
			return err
		}
		_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
			ids, targets := sample.Batch(mesh, "dp", 0, 0, o.batch)
			return m.loss(ids, targets)
		}, tr.params...)
		if err != nil {
			return err
		}
		rows, ok := grads[0].Rows()
		if !ok || rows.Index.Numel() > o.batch*o.context {
			return fmt.Errorf("the gradient of the token table is %v", grads[0].Dense())
		}
		if p := m.head.Placements(); p[1] != layout.Shard(0) || m.head.Local().Shape()[0] > 131 {
			return fmt.Errorf("the head is %v, %v on rank %d", m.head, m.head.Local().Shape(), world.Rank())
		}
		return nil
	})
}

func TestBadCommandLines(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"-nosuch", "-nosuch"},
		{"-steps x", "-steps"},
		{"-steps -1", "-steps -1"},
		{"-dp 3", "-dp 3 does not divide the 4 ranks"},
		{"-dp 2 -tp 3", "-dp 2 -tp 3"},
		{"-heads 5", "-heads 5 does not divide -width 192"},
		{"-batch 0", "-batch 0"},
		{"-minutes -2", "-minutes -2"},
		{"-lr 0", "-lr 0"},
		{"-clip NaN", "-clip NaN"},
		{"-sample -1", "-sample -1"},
		{"-ngram 9", "-ngram 9: give 1 to 8"},
		{"-resume", "-checkpoint"},
		{"-every 0", "-every 0"},
	} {
		if _, err := parse(strings.Fields(c.args), 4); err == nil || !strings.Contains(err.Error(), c.says) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want a line with %q", c.args, err, c.says)
		}
	}
}

func TestMeshFromFlags(t *testing.T) {
	for _, c := range []struct {
		args   string
		dp, tp int
	}{{"", 1, 4}, {"-dp 2", 2, 2}, {"-tp 2", 2, 2}, {"-dp 4 -tp 1", 4, 1}, {"-tp 4", 1, 4}} {
		o, err := parse(strings.Fields(c.args), 4)
		if err != nil || o.dp != c.dp || o.tp != c.tp {
			t.Errorf("%q: %+v, %v; want dp %d tp %d", c.args, o, err, c.dp, c.tp)
		}
	}
}

// words writes a small text and returns its path.
func words(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(path, []byte(strings.Repeat("the quick brown fox jumps over the lazy dog\n", 400)), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestKilledRunsGoOn(t *testing.T) {
	programtest.Build(t).SurvivesKills(t, "-data", words(t), "-steps", "300", "-vocab", "300", "-batch", "6", "-context", "16", "-width", "24",
		"-heads", "6",
		"-layers", "1", "-sample", "0", "-plot", "", "-json")
}

func TestProgramHasTheSameBits(t *testing.T) {
	more := []programtest.Way{{Ranks: 1, Args: []string{"-micro", "2"}}, {Ranks: 3, Args: []string{"-micro", "4"}}}
	args := []string{"-data", words(t), "-vocab", "300", "-batch", "16", "-context", "32", "-width", "24", "-heads", "6", "-layers", "1",
		"-sample", "0", "-plot", "", "-json"}
	example := programtest.Build(t)
	example.HasTheSameBits(t, append(programtest.Ways(), more...), args...)
	t.Run("nodes", func(t *testing.T) { // wide enough for ranks to have nodes of the sums of products and classes
		ways := []programtest.Way{{Ranks: 2}, {Ranks: 4}, {Ranks: 4, Args: []string{"-dp", "2"}}, {Ranks: 4, Args: []string{"-dp", "4"}},
			{Ranks: 2, Args: []string{"-micro", "2", "-dp", "2"}}, {Ranks: 2, Env: []string{"GODEBUG=cpu.avx512f=off"}}, {Ranks: 8, Full: true},
			{Ranks: 2, Env: []string{"GODEBUG=cpu.avx2=off"}, Steps: 2, Full: true}, {Ranks: 6, Args: []string{"-dp", "3"}, Full: true},
			{Ranks: 4, Killed: true, Full: true}, {Ranks: 2, Launcher: []string{"mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-np"}}}
		wide := slices.Concat(args, []string{"-width", "256", "-heads", "8", "-vocab", "512"})
		example.HasTheSameBits(t, ways, wide...)
		ways = slices.DeleteFunc(ways, func(w programtest.Way) bool { return slices.Contains(w.Args, "-micro") }) // not with bfloat16
		for i := range ways {
			ways[i].Full = i != 2
		}
		example.HasTheSameBits(t, ways, append(wide, "-bfloat16")...)
	})
	t.Run("bfloat16", func(t *testing.T) {
		ways := programtest.Ways()
		for i := range ways { // which goes the same ways as float32
			ways[i].Full = ways[i].Full || ways[i].Env == nil && ways[i].Ranks != 3
		}
		example.HasTheSameBits(t, ways, append(args, "-bfloat16")...)
	})
}

// TestFlippedBitsAreFound flips a bit of a weight that ranks have copies of, and of one that they divide, an input of a product; and
// bits of products.
func TestFlippedBitsAreFound(t *testing.T) {
	args := []string{"-data", words(t), "-vocab", "300", "-batch", "6", "-context", "16", "-width", "24", "-heads", "6", "-layers", "1",
		"-sample", "0", "-plot", ""} // 289 tokens, of which the first of two ranks has 145
	same := []string{"--same-bits"}
	programtest.Build(t).FindsFlips(t, []programtest.Flip{
		{Ranks: 3, Args: []string{"-dp", "3"}, Every: 4, Step: 6, Rank: 1, Tensor: "model.head", Element: 24*17 + 5, Found: 8,
			Index: []int{17, 5}},
		{Ranks: 3, Flags: same, Args: []string{"-dp", "3"}, Every: 2, Step: 3, Rank: 2, Tensor: "model.head", Element: 7, Found: 3,
			Index: []int{0, 7}},
		{Ranks: 2, Flags: same, Args: []string{"-tp", "2"}, Every: 1, Step: 3, Rank: 1, Tensor: "model.head", Element: 24 + 3, Found: 3,
			Index: []int{146, 3}},
		{Ranks: 4, Flags: same, Args: []string{"-tp", "2"}, Every: 2, Step: 3, Rank: 3, Tensor: "model.tokens", Element: 24*140 + 1, Found: 3,
			Index: []int{285, 1}},
		{Ranks: 1, Flags: same, Every: 2, Step: 5, Tensor: "model.norm.weight", Element: 11, Found: 5, Index: []int{11}},
		{Ranks: 2, Flags: same, Args: []string{"-tp", "2"}, Every: 2, Step: 3, Rank: 1, Found: 3},
		{Ranks: 3, Flags: same, Args: []string{"-dp", "3"}, Every: 1, Step: 4, Rank: 0, Found: 4},
		{Ranks: 4, Flags: same, Args: []string{"-tp", "2", "-bfloat16"}, Every: 3, Step: 7, Rank: 3, Found: 7},
	}, args...)
}

// TestOperatorsAreNamed flips a bit of a product of the forward pass, of its last one, and of two of the gradient's.
func TestOperatorsAreNamed(t *testing.T) {
	programtest.Build(t).NamesOperators(t, []programtest.Way{
		{Ranks: 2}, {Ranks: 3}, {Ranks: 3, Args: []string{"-dp", "3"}}, {Ranks: 4, Args: []string{"-dp", "2"}},
	}, []programtest.WrongProduct{
		{Ranks: 2, Rank: 1, Product: 5, Op: "Linear"}, {Ranks: 3, Args: []string{"-dp", "3"}, Rank: 2, Product: 8, Op: "Linear"},
		{Ranks: 2, Rank: 0, Product: 9, Op: "Linear", Backward: true}, {Ranks: 1, Rank: 0, Product: 12, Op: "Linear", Backward: true},
		{Ranks: 2, Rank: 0, Product: 4, Op: "ScaledDotProductAttention"},
		{Ranks: 1, Rank: 0, Product: 17, Op: "ScaledDotProductAttention", Backward: true},
	}, "-data", words(t), "-vocab", "300", "-batch", "6", "-context", "16", "-width", "24", "-heads", "6", "-layers", "1", "-sample", "0",
		"-plot", "")
}

func TestProgram(t *testing.T) {
	example := programtest.Build(t)
	dir := t.TempDir()
	corpus := words(t)
	plot := filepath.Join(dir, "loss.png")
	stdout, stderr, status := example.Run(2, "-steps", "4", "-vocab", "300", "-batch", "4", "-context", "16", "-width", "16", "-layers", "1",
		"-sample", "5", "-plot", plot, "-json", corpus)
	if status != 0 {
		t.Fatalf("status %d\n%s", status, stderr)
	}
	var s summary
	programtest.Summary(t, stdout, &s)
	if s.Steps != 4 || len(s.Losses) != 4 || s.LossFirst != s.Losses[0] || s.LossLast != s.Losses[3] || s.NP != 2 || s.TP != 2 ||
		s.BitsPerByte <= 0 || s.UnigramBitsPerByte <= 0 || s.GzipBitsPerByte <= 0 || s.TokensPerSecond <= 0 {
		t.Errorf("summary %+v", s)
	}
	if info, err := os.Stat(plot); err != nil || info.Size() < 1000 {
		t.Errorf("loss curve: %v", err)
	}

	if _, stderr, status := example.Run(2, "-bfloat16", "-tied", "-steps", "2", "-vocab", "300", "-width", "16", "-layers", "1", "-sample",
		"5", "-plot", "", corpus); status != 0 {
		t.Errorf("of bfloat16: status %d\n%s", status, stderr)
	}

	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	example.Refuses(t, "-nosuch", 2, "-nosuch")
	example.Refuses(t, "-dp 3", 2, "-dp", "3")
	example.Refuses(t, "missing", 2, "-data", filepath.Join(dir, "missing"))
	example.Refuses(t, "empty", 2, empty)
	example.Refuses(t, "-heads 7", 1, "-heads", "7")
	example.Refuses(t, "no checkpoint in", 2, "-steps", "1", "-checkpoint", filepath.Join(dir, "none"), "-resume", corpus)
	example.Refuses(t, "not a directory", 2, "-steps", "1", "-checkpoint", corpus, corpus)
	example.Refuses(t, "name a file in a folder that can be written", 2, "-plot", filepath.Join(dir, "none", "loss.png"), "-data",
		filepath.Join(dir, "missing"))
	example.Refuses(t, "lower -lr: optim: ClipGradNorm", 2, "-steps", "2", "-lr", "1e30", "-vocab", "300", "-width", "32", "-layers", "1",
		"-plot", "", corpus)
	example.Refuses(t, "the loss on the held-out text is NaN; lower -lr", 2, "-steps", "1", "-lr", "1e300", "-vocab", "300", "-width", "32",
		"-layers", "1", "-plot", "", corpus)
	if stdout, _, status := example.Run(2, "-h"); status != 0 || !strings.Contains(stdout, fmt.Sprint(defaultMinutes)) {
		t.Errorf("-h: status %d\n%s", status, stdout)
	}
}

func quiet(string, ...any) {}
