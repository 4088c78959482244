package programtest

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/checkpoint"
)

// lossesOf returns the losses in the JSON object that a run with -json prints last.
func lossesOf(t testing.TB, stdout string) []float64 {
	t.Helper()
	var s struct{ Losses []float64 }
	Summary(t, stdout, &s)
	return s.Losses
}

// Near returns the first step at which the losses of two runs differ by more than
// 1e-4 of their value; ok is true if there is none and the runs are of equal length.
func Near(got, want []float64) (step int, ok bool) {
	for i := range min(len(got), len(want)) {
		if !(math.Abs(got[i]-want[i]) <= 1e-4*math.Abs(want[i])) {
			return i, false
		}
	}
	return min(len(got), len(want)), len(got) == len(want)
}

// SurvivesKills kills runs of the program at a random step and lets them go on. It checks that
// their losses are those of a run that nobody killed. A run goes on when it is started again by
// hand with another number of ranks, by gorun --max-restarts, and by gorun --elastic from
// memory. args must have -json.
func (p *Program) SurvivesKills(t *testing.T, args ...string) {
	stdout, stderr, status := p.Run(1, args...)
	if status != 0 {
		t.Fatalf("status %d\n%s", status, stderr)
	}
	want := lossesOf(t, stdout)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, seed))
	check := func(t *testing.T, stdout string) {
		got := lossesOf(t, stdout)
		if step, ok := Near(got, want); !ok {
			t.Errorf("step %d: %d losses %v …, want %d of them %v …", step, len(got), got[step:min(step+3, len(got))], len(want),
				want[step:min(step+3, len(want))])
		}
	}
	t.Run("again with another np", func(t *testing.T) {
		for {
			dir := filepath.Join(t.TempDir(), "checkpoints")
			j := p.started(t, dir, rng, 2, nil, args)
			if err := j.Process.Kill(); err != nil { // its ranks go with it
				t.Fatal(err)
			}
			if j.Wait(); j.ProcessState.ExitCode() == 0 {
				t.Log("it ended before it was killed: once more")
				continue
			}
			stdout, stderr, status := p.Run(3, append(args, "-checkpoint", dir, "-resume")...)
			if status != 0 || !strings.Contains(stderr, "resumed at step ") {
				t.Fatalf("status %d\n%s", status, stderr)
			}
			check(t, stdout)
			return
		}
	})
	// restarted returns a run in which a rank was killed and gorun started the ranks again.
	restarted := func(t *testing.T, flags, args []string) *Job {
		for {
			j := p.started(t, filepath.Join(t.TempDir(), "checkpoints"), rng, 2, flags, args)
			if ranks := p.ranks(); len(ranks) > 0 {
				_ = ranks[rng.IntN(len(ranks))].Kill() // it may have ended just now
			}
			if err := j.Wait(); err != nil {
				t.Fatalf("%v\n%s", err, &j.Stderr)
			}
			if strings.Contains(j.Stderr.String(), "resumed at step ") {
				return j
			}
			t.Log("it ended before a rank was killed: once more")
		}
	}
	t.Run("by gorun itself", func(t *testing.T) { check(t, restarted(t, []string{"--max-restarts", "2"}, args).Stdout.String()) })
	t.Run("by gorun from memory", func(t *testing.T) {
		stdout, stderr, status := p.Run(2, args...)
		if status != 0 {
			t.Fatalf("status %d\n%s", status, stderr)
		}
		// A checkpoint of a later step would be preferred, so each step has a snapshot.
		j := restarted(t, []string{"--elastic", "restart"}, append(args[:len(args):len(args)], "-snapshot", "1"))
		if !strings.Contains(j.Stderr.String(), " from memory\n") {
			t.Fatalf("the run did not go on from memory\n%s", &j.Stderr)
		}
		if got, want := lossesOf(t, j.Stdout.String()), lossesOf(t, stdout); !slices.Equal(got, want) {
			t.Errorf("%d losses %v …, and of an undisturbed run %d, %v …", len(got), got[:1], len(want), want[:1])
		}
	})
}

// started starts a run that saves in dir. It returns at a random step after the first
// checkpoint, or when the run has ended.
func (p *Program) started(t *testing.T, dir string, rng *rand.Rand, n int, flags, args []string) *Job {
	t.Helper()
	return p.startedAt(t, dir, 4+rng.IntN(40), rng, n, flags, args)
}

// startedAt is started that returns soon after the given step has been saved.
func (p *Program) startedAt(t *testing.T, dir string, least int, rng *rand.Rand, n int, flags, args []string) *Job {
	t.Helper()
	j := p.command(n, flags, append(args[:len(args):len(args)], "-checkpoint", dir, "-every", "4"))
	if err := j.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Process.Kill() })
	for {
		e, ok, err := checkpoint.Latest(dir)
		if err != nil {
			t.Fatal(err)
		}
		if ok && e.Step >= least || p.gone(j) {
			time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
			return j
		}
		time.Sleep(time.Millisecond)
	}
}
