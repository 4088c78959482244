package ngram

import (
	"math"
	"testing"
)

// slow is the formula of Model's doc comment, over maps.
func slow(tokens []int32, vocab, n int, context []int32, w int32) float64 {
	u := NewUnigram(tokens, vocab)
	p := math.Exp(u.LogProb(0, w))
	for k := 1; k < n && k <= len(context); k++ {
		type gram struct {
			c string
			w int32
		}
		key := func(c []int32) string {
			s := ""
			for _, t := range c {
				s += string(rune(t + 1))
			}
			return s
		}
		counts, totals, once, twice := map[gram]int{}, map[string]int{}, 0, 0
		for i := k; i < len(tokens); i++ {
			c := key(tokens[i-k : i])
			counts[gram{c, tokens[i]}]++
			totals[c]++
		}
		for _, n := range counts {
			switch n {
			case 1:
				once++
			case 2:
				twice++
			}
		}
		d := 0.5
		if once > 0 && twice > 0 {
			d = float64(once) / float64(once+2*twice)
		}
		c := key(context[len(context)-k:])
		if totals[c] == 0 {
			break
		}
		rest := 1.0
		for g, n := range counts {
			if g.c == c && (n > 1 || k == 1) {
				rest -= (float64(n) - d) / float64(totals[c])
			}
		}
		p *= rest
		if n := counts[gram{c, w}]; n > 1 || n == 1 && k == 1 {
			p += (float64(n) - d) / float64(totals[c])
		}
	}
	return p
}

func TestModelIsItsFormula(t *testing.T) {
	for _, c := range []struct{ n, vocab, order int }{{0, 3, 3}, {1, 3, 2}, {60, 4, 4}, {300, 7, 3}, {300, 5, 1}} {
		tokens := text(c.n, c.vocab, 9)
		m, err := New(tokens, c.vocab, c.order)
		if err != nil {
			t.Fatal(err)
		}
		packed, _ := m.MarshalBinary()
		if m, err = Parse(packed); err != nil || m.Order() != c.order {
			t.Fatalf("order %d: %v", m.Order(), err)
		}
		low, high := m.NewScorer(0, c.vocab/2), m.NewScorer(c.vocab/2, c.vocab-c.vocab/2)
		logs := make([]float32, c.vocab)
		for _, context := range [][]int32{nil, {0}, {1, 2}, {0, 1, 2}, {2, 2, 2, 2}, {0, 1, 2, 0, 1}} {
			low.LogProbs(logs[:c.vocab/2], context)
			high.LogProbs(logs[c.vocab/2:], context)
			sum := 0.0
			for w := range c.vocab {
				want := slow(tokens, c.vocab, c.order, context, int32(w))
				got := math.Exp(m.LogProb(context, int32(w)))
				sum += got
				if math.Abs(got-want) > 1e-6 || math.Abs(math.Exp(float64(logs[w]))-want) > 1e-6 {
					t.Errorf("%+v: p(%d|%v) is %v, as a row %v, want %v", c, w, context, got, math.Exp(float64(logs[w])), want)
				}
			}
			if math.Abs(sum-1) > 1e-5 {
				t.Errorf("%+v: the probabilities after %v sum to %v", c, context, sum)
			}
		}
	}
}

func TestParseDamaged(t *testing.T) {
	m, err := New(text(50, 4, 1), 4, 3)
	if err != nil {
		t.Fatal(err)
	}
	packed, _ := m.MarshalBinary()
	for n := range packed {
		if _, err := Parse(packed[:n]); err == nil {
			t.Errorf("cut to %d bytes: no error", n)
		}
	}
	for _, order := range []int{0, MaxOrder + 1} {
		if _, err := New(nil, 4, order); err == nil {
			t.Errorf("order %d: no error", order)
		}
	}
}
