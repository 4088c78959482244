package ngram

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gorun-spmd/gorun/metrics"
)

// text returns n tokens below vocabSize that depend on the token before them;
// the highest never occurs if n allows it.
func text(n, vocabSize int, seed uint64) []int32 {
	rng := rand.New(rand.NewPCG(seed, 1))
	tokens := make([]int32, n)
	for i := 1; i < n; i++ {
		if rng.IntN(3) > 0 {
			tokens[i] = int32(int(tokens[i-1]+1) % max(1, vocabSize-1))
		} else {
			tokens[i] = int32(rng.IntN(max(1, vocabSize-1)))
		}
	}
	return tokens
}

func TestProbabilitiesSumToOne(t *testing.T) {
	for _, c := range []struct{ n, vocabSize int }{{0, 1}, {0, 5}, {1, 5}, {2, 5}, {3, 2}, {50, 7}, {500, 40}} {
		tokens := text(c.n, c.vocabSize, 3)
		for name, m := range map[string]Predictor{"unigram": NewUnigram(tokens, c.vocabSize), "bigram": NewBigram(tokens, c.vocabSize)} {
			for previous := range c.vocabSize {
				sum := 0.0
				for next := range c.vocabSize {
					sum += math.Exp(m.LogProb(int32(previous), int32(next)))
				}
				if math.Abs(sum-1) > 1e-12 {
					t.Errorf("%s of %d tokens, vocabulary %d: probabilities after %d sum to %v", name, c.n, c.vocabSize, previous, sum)
				}
			}
		}
	}
}

// naive is the formula of Bigram's doc comment over maps.
func naive(tokens []int32, vocabSize int, d float64, c, w int32) float64 {
	type pair struct{ c, w int32 }
	n := map[pair]float64{}
	for i := 1; i < len(tokens); i++ {
		n[pair{tokens[i-1], tokens[i]}]++
	}
	total, followers, leaders := 0.0, 0.0, map[int32]float64{}
	for p, count := range n {
		if p.c == c {
			total += count
			followers++
		}
		leaders[p.w]++
	}
	q := 1 / float64(vocabSize)
	if pairs := float64(len(n)); pairs > 0 {
		q = max(leaders[w]-d, 0)/pairs + d*float64(len(leaders))/pairs*q
	}
	if total == 0 {
		return q
	}
	return max(n[pair{c, w}]-d, 0)/total + d*followers/total*q
}

func TestBigramAgreesWithItsFormula(t *testing.T) {
	for _, n := range []int{0, 1, 2, 10, 300} {
		const vocabSize = 12
		tokens := text(n, vocabSize, uint64(n))
		b := NewBigram(tokens, vocabSize)
		for c := range int32(vocabSize) {
			for w := range int32(vocabSize) {
				got, want := math.Exp(b.LogProb(c, w)), naive(tokens, vocabSize, b.discount, c, w)
				if math.Abs(got-want) > 1e-12 {
					t.Errorf("%d tokens: p(%d|%d) = %v, formula %v", n, w, c, got, want)
				}
			}
		}
	}
}

func TestDiscount(t *testing.T) {
	for _, c := range []struct {
		counts []uint32
		want   float64
	}{
		{nil, 0.5},
		{[]uint32{1, 1, 5}, 0.5},
		{[]uint32{2, 2}, 0.5},
		{[]uint32{1, 1, 1, 2, 9}, 3.0 / 5},
	} {
		if got := discount(c.counts); got != c.want {
			t.Errorf("discount(%v) = %v, want %v", c.counts, got, c.want)
		}
	}
}

func TestUnigramByHand(t *testing.T) {
	u := NewUnigram([]int32{0, 1, 1}, 3)
	for w, want := range []float64{1.5 / 4.5, 2.5 / 4.5, 0.5 / 4.5} {
		if got := math.Exp(u.LogProb(0, int32(w))); math.Abs(got-want) > 1e-15 {
			t.Errorf("p(%d) = %v, want %v", w, got, want)
		}
	}
}

func TestBitsPerByte(t *testing.T) {
	uniform := NewUnigram(nil, 16) // 4 bits a token
	if got := BitsPerByte(uniform, make([]int32, 9), 4); math.Abs(got-8) > 1e-12 {
		t.Errorf("8 targets of 4 bits over 4 bytes: %v bits per byte, want 8", got)
	}
	train, heldOut := text(20000, 50, 1), text(2000, 50, 2)
	unigram := BitsPerByte(NewUnigram(train, 50), heldOut, len(heldOut))
	bigram := BitsPerByte(NewBigram(train, 50), heldOut, len(heldOut))
	// The source takes log2(50) bits with frequencies alone; from the token before,
	// the entropy of (2/3, 1/3 over 49) is H(1/3) + log2(49)/3 = 2.8.
	if math.Abs(unigram-math.Log2(49)) > 0.05 || math.Abs(bigram-2.8) > 0.1 {
		t.Errorf("unigram %.3f, want 5.61; bigram %.3f, want 2.8", unigram, bigram)
	}
}

func TestMeasure(t *testing.T) {
	train, heldOut := text(5000, 20, 1), text(500, 20, 2)
	content := make([]byte, 700)
	got, err := Measure(train, heldOut, 20, content)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := metrics.GzipBitsPerByte(content)
	if err != nil {
		t.Fatal(err)
	}
	want := Scores{
		Unigram: BitsPerByte(NewUnigram(train, 20), heldOut, 700),
		Bigram:  BitsPerByte(NewBigram(train, 20), heldOut, 700),
		Gzip:    packed,
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if back := metrics.BitsPerByte(metrics.Nats(got.Bigram, 700), 700); math.Abs(back-got.Bigram) > 1e-15 {
		t.Errorf("to nats and back: %v, want %v", back, got.Bigram)
	}
}
