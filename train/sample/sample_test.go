package sample

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func sampler(t *testing.T, o Options, seed uint64) *Sampler {
	t.Helper()
	s, err := New(o, seed)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func next(t *testing.T, s *Sampler, logits []float32, position int) int {
	t.Helper()
	id, err := s.Next(logits, position)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

var (
	nan = float32(math.NaN())
	inf = float32(math.Inf(1))
)

// TestFrequencies compares how often each token is chosen with its probability.
func TestFrequencies(t *testing.T) {
	logits := []float32{1, 0, nan, 3, 2, -inf, 3, -40}
	const draws = 20000
	for _, o := range []Options{
		{Temperature: 1}, {Temperature: 0.5}, {Temperature: 3}, {Temperature: 1, TopK: 3}, {Temperature: 2, TopK: 1},
		{Temperature: 1, TopK: 8}, {Temperature: 1, TopK: 1000}, {},
		{Temperature: 1, TopP: 0.5}, {Temperature: 2, TopP: 0.9}, {Temperature: 1, TopK: 3, TopP: 0.9}, {TopP: 0.1}, {Temperature: 1, TopP: 1},
	} {
		order := []int{3, 6, 4, 0, 1, 7} // by logit, then by id
		kept := order
		if o.TopK > 0 {
			kept = order[:min(o.TopK, len(order))]
		}
		want := make([]float64, len(logits))
		total := 0.0
		for _, id := range kept {
			if o.Temperature > 0 {
				want[id] = math.Exp(float64(logits[id]) / o.Temperature)
			} else if id == 3 {
				want[id] = 1
			}
			total += want[id]
		}
		if o.TopP > 0 {
			before, all := 0.0, total
			for _, id := range kept {
				if before >= o.TopP*all {
					total -= want[id]
					want[id] = 0
					continue
				}
				before += want[id]
			}
		}
		counts := make([]float64, len(logits))
		s := sampler(t, o, 7)
		for position := range draws {
			counts[next(t, s, logits, position)]++
		}
		for id := range logits {
			p := want[id] / total
			if limit := 6*math.Sqrt(draws*p*(1-p)) + 1e-9; math.Abs(counts[id]-draws*p) > limit {
				t.Errorf("%+v: token %d chosen %v times of %d, want %.0f ± %.0f", o, id, counts[id], draws, draws*p, limit)
			}
		}
	}
}

func TestChoiceDependsOnSeedAndPositionAlone(t *testing.T) {
	logits := make([]float32, 1000)
	draw := func(seed uint64, s *Sampler) (ids []int) {
		if s == nil {
			s = sampler(t, Options{Temperature: 1}, seed)
		}
		for position := range 10 {
			ids = append(ids, next(t, s, logits, position))
		}
		return ids
	}
	used := sampler(t, Options{Temperature: 1}, 1)
	first := draw(1, used)
	if again := draw(1, used); !slices.Equal(first, again) {
		t.Errorf("the same positions again: %v, before %v", again, first)
	}
	if other := draw(1, nil); !slices.Equal(first, other) {
		t.Errorf("another rank: %v, want %v", other, first)
	}
	if other := draw(2, nil); slices.Equal(first, other) {
		t.Errorf("another seed: the same %v", other)
	}
	slices.Sort(first)
	if len(slices.Compact(first)) < 8 {
		t.Errorf("positions give the same choice too often: %v", first)
	}
}

func TestExtremeLogits(t *testing.T) {
	s := sampler(t, Options{Temperature: 0.1}, 1)
	for position := range 100 {
		if id := next(t, s, []float32{-3e38, 3e38, -3e38}, position); id != 1 {
			t.Errorf("position %d: token %d, want 1", position, id)
		}
	}
	if id := next(t, s, []float32{5}, 0); id != 0 {
		t.Errorf("one logit: token %d", id)
	}
	for _, logits := range [][]float32{nil, {nan}, {inf, -inf, nan}} {
		if _, err := s.Next(logits, 0); err == nil || !strings.Contains(err.Error(), "diverged") {
			t.Errorf("logits %v: error %v", logits, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, o := range []Options{{Temperature: -1}, {Temperature: math.NaN()}, {Temperature: math.Inf(1)},
		{TopK: -1}, {TopP: -1}, {TopP: math.NaN()}} {
		if _, err := New(o, 0); err == nil || !strings.Contains(err.Error(), "choose") {
			t.Errorf("%+v: error %v", o, err)
		}
	}
}

func TestFormat(t *testing.T) {
	for _, c := range []struct {
		text    string
		columns int
		want    string
	}{
		{"", 80, "  │\n"},
		{"func f() {\n\tx\n}\n\n\n", 80, "  │ func f() {\n  │     x\n  │ }\n"},
		{"a\tb\r\n\n  c  \n", 80, "  │ a   b\n  │\n  │   c\n"},
		{"\x1b[31mred\x00\x7f\xff\u202e", 80, "  │ ␛[31mred␀␡\ufffd\ufffd\n"},
		{"0123456789abcdef", 14, "  │ 0123456789\n  │ abcdef\n"},
		{"0123456789", 0, "  │ 01234567\n  │ 89\n"},
		{"日本語é", 80, "  │ 日本語é\n"},
	} {
		if got := Format([]byte(c.text), c.columns); got != c.want {
			t.Errorf("Format(%q, %d):\n%q, want\n%q", c.text, c.columns, got, c.want)
		}
	}
}

func FuzzFormat(f *testing.F) {
	f.Add([]byte("a\tb\n\x1b\xff"), 20)
	f.Fuzz(func(t *testing.T, text []byte, columns int) {
		for _, r := range Format(text, columns) {
			if r != '\n' && r < ' ' || r == 0x7f || 0x80 <= r && r < 0xa0 {
				t.Errorf("Format(%q, %d) has the control character %U", text, columns, r)
			}
		}
	})
}
