package data

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// counting returns the tokens 0, 1, …, n-1: a token is its own position.
func counting(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(i)
	}
	return ids
}

func sampler(t *testing.T, tokens, context int, seed uint64) *Sampler {
	t.Helper()
	s, err := NewSampler(counting(tokens), context, seed)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func batch(s *Sampler, step, first, rows int) (inputs, targets []int64) {
	inputs, targets = make([]int64, rows*s.context), make([]int64, rows*s.context)
	FillBatch(s, step, first, inputs, targets)
	return inputs, targets
}

func TestBatchRowsAreWindows(t *testing.T) {
	s := sampler(t, 1000, 7, 1)
	inputs, targets := batch(s, 3, 0, 20)
	for i := range inputs {
		if targets[i] != inputs[i]+1 {
			t.Errorf("element %d: input %d has target %d, want the next token", i, inputs[i], targets[i])
		}
		if i%7 > 0 && inputs[i] != inputs[i-1]+1 {
			t.Errorf("element %d: input %d follows %d", i, inputs[i], inputs[i-1])
		}
	}
}

func TestBatchDoesNotDependOnTheRanks(t *testing.T) {
	s := sampler(t, 1000, 5, 42)
	whole, targets := batch(s, 9, 0, 12)
	for _, ranks := range []int{1, 2, 3, 4, 12} {
		var parts, partTargets []int64
		for r := range ranks {
			first, last := r*12/ranks, (r+1)*12/ranks
			in, out := batch(s, 9, first, last-first)
			parts, partTargets = append(parts, in...), append(partTargets, out...)
		}
		if !slices.Equal(parts, whole) || !slices.Equal(partTargets, targets) {
			t.Errorf("%d ranks: the batch differs", ranks)
		}
	}
	narrow := make([]int32, 5)
	FillBatch(s, 9, 4, narrow, make([]int32, 5))
	for i, id := range narrow {
		if int64(id) != whole[20+i] {
			t.Errorf("as int32: input %d is %d, want %d", i, id, whole[20+i])
		}
	}
	empty, _ := batch(s, 9, 0, 0)
	if len(empty) != 0 {
		t.Errorf("no rows gave %v", empty)
	}
}

func TestBatchDependsOnSeedStepAndRow(t *testing.T) {
	const tokens = 60000
	base, _ := batch(sampler(t, tokens, 1, 1), 0, 0, 8)
	seed, _ := batch(sampler(t, tokens, 1, 2), 0, 0, 8)
	step, _ := batch(sampler(t, tokens, 1, 1), 1, 0, 8)
	row, _ := batch(sampler(t, tokens, 1, 1), 0, 8, 8)
	for name, other := range map[string][]int64{"seed": seed, "step": step, "row": row} {
		if slices.Equal(base, other) {
			t.Errorf("another %s: the same batch", name)
		}
	}
	want := []int64{56365, 35840, 52629, 37575} // as first drawn; a change would change the data of every run
	if !slices.Equal(base[:4], want) {
		t.Errorf("seed 1, step 0: rows begin at %v, want %v", base[:4], want)
	}
}

func TestBatchIsUniform(t *testing.T) {
	s := sampler(t, 12, 2, 5) // windows begin at 0 … 9
	const draws = 5000
	counts := make([]float64, 10)
	for step := range draws / 10 {
		inputs, _ := batch(s, step, 0, 10)
		for row := range 10 {
			counts[inputs[row*2]]++
		}
	}
	for place, n := range counts { // binomial: six standard deviations never happen
		if limit := 6 * math.Sqrt(draws*0.1*0.9); math.Abs(n-draws/10) > limit {
			t.Errorf("%v of %d windows begin at %d, want %d ± %.0f", n, draws, place, draws/10, limit)
		}
	}
}

func TestNewSamplerRefuses(t *testing.T) {
	for _, c := range []struct{ tokens, context int }{{0, 1}, {5, 5}, {5, 0}, {5, -1}} {
		_, err := NewSampler(counting(c.tokens), c.context, 0)
		if err == nil || !strings.Contains(err.Error(), "choose a context from 1 to") {
			t.Errorf("%d tokens, context %d: error %v", c.tokens, c.context, err)
		}
	}
	only := sampler(t, 6, 5, 0)
	inputs, _ := batch(only, 0, 0, 3)
	if !slices.Equal(inputs[10:], []int64{0, 1, 2, 3, 4}) {
		t.Errorf("the only window there is: %v", inputs[10:])
	}
}

func TestWindowsCoverEveryTargetOnce(t *testing.T) {
	for _, c := range []struct{ tokens, context int }{{0, 4}, {1, 4}, {2, 4}, {5, 4}, {6, 4}, {9, 4}, {10, 1}, {100, 7}} {
		w := NewWindows(counting(c.tokens), c.context)
		for _, rows := range []int{1, 3} {
			var seen []int64
			inputs, targets := make([]int64, rows*c.context), make([]int64, rows*c.context)
			for first := 0; first < w.Len(); first += rows {
				FillWindows(w, first, inputs, targets)
				for i := range inputs {
					if targets[i] == Ignore {
						if inputs[i] != 0 {
							t.Errorf("padding has input %d", inputs[i])
						}
						continue
					}
					if targets[i] != inputs[i]+1 {
						t.Errorf("input %d has target %d", inputs[i], targets[i])
					}
					seen = append(seen, targets[i])
				}
			}
			var want []int64
			for target := 1; target < c.tokens; target++ {
				want = append(want, int64(target))
			}
			if !slices.Equal(seen, want) {
				t.Errorf("%d tokens, context %d, %d rows: targets %v, want 1 … in order", c.tokens, c.context, rows, seen)
			}
			if len(want) != w.Targets() {
				t.Errorf("Targets() = %d, want %d", w.Targets(), len(want))
			}
		}
		inputs, targets := make([]int64, c.context), make([]int64, c.context)
		FillWindows(w, w.Len()+3, inputs, targets)
		if slices.ContainsFunc(targets, func(x int64) bool { return x != Ignore }) {
			t.Errorf("past the last window: targets %v, want all Ignore", targets)
		}
	}
}
