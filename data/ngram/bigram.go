package ngram

import (
	"math"
	"slices"
)

// A Bigram predicts a token from the one before it with interpolated Kneser-Ney
// smoothing (Kneser and Ney 1995; Chen and Goodman 1999, section 2.7). With
// n(c,w) the number of times w follows c, n(c) = Σ n(c,w), and followers(c) the
// number of different w with n(c,w) > 0:
//
//	p(w|c) = max(n(c,w)−D, 0)/n(c)  +  D·followers(c)/n(c) · q(w)
//	q(w)   = max(leaders(w)−D, 0)/P +  D·W/P · 1/V
//
// leaders(w) is the number of different c that w follows, P the number of
// different pairs, W the number of tokens that follow any, V the vocabulary. A
// token that nothing follows predicts by q alone.
type Bigram struct {
	discount float64 // D

	// The different followers of c, ascending, are followers[start[c]:start[c+1]],
	// each with its count at the same index.
	start     []int
	followers []int32
	counts    []uint32

	totals []int     // totals[c] == n(c)
	lower  []float64 // lower[w] == q(w)
}

// NewBigram fits a Bigram to tokens, each below vocabSize. It takes time and
// memory in proportion to their number.
func NewBigram(tokens []int32, vocabSize int) *Bigram {
	b := &Bigram{start: make([]int, vocabSize+1), totals: make([]int, vocabSize)}
	b.count(tokens)
	b.discount = discount(b.counts)
	b.fitLower(vocabSize)
	return b
}

// count fills start, followers, counts and totals. It sorts the tokens by what
// comes before them, then counts the equal ones of each group.
func (b *Bigram) count(tokens []int32) {
	vocabSize := len(b.totals)
	if len(tokens) > 0 {
		for _, c := range tokens[:len(tokens)-1] {
			b.totals[c]++
		}
	}
	next := make([]int, vocabSize) // where the next follower of c goes
	for c := 1; c < vocabSize; c++ {
		next[c] = next[c-1] + b.totals[c-1]
	}
	grouped := make([]int32, max(0, len(tokens)-1))
	for i := 1; i < len(tokens); i++ {
		c := tokens[i-1]
		grouped[next[c]] = tokens[i]
		next[c]++
	}
	seen := make([]uint32, vocabSize) // counts of the group at hand, else zero
	for c := range vocabSize {
		first := len(b.followers)
		for _, w := range grouped[next[c]-b.totals[c] : next[c]] {
			if seen[w] == 0 {
				b.followers = append(b.followers, w)
			}
			seen[w]++
		}
		slices.Sort(b.followers[first:])
		for _, w := range b.followers[first:] {
			b.counts = append(b.counts, seen[w])
			seen[w] = 0
		}
		b.start[c+1] = len(b.followers)
	}
}

// discount estimates D as n₁/(n₁+2n₂), nₖ the number of pairs that occur k
// times (Ney, Essen and Kneser 1994); ½ where there are too few to tell.
func discount(counts []uint32) float64 {
	once, twice := 0, 0
	for _, n := range counts {
		switch n {
		case 1:
			once++
		case 2:
			twice++
		}
	}
	if once == 0 || twice == 0 {
		return 0.5
	}
	return float64(once) / float64(once+2*twice)
}

// fitLower fills lower, the distribution q.
func (b *Bigram) fitLower(vocabSize int) {
	leaders := make([]int, vocabSize)
	for _, w := range b.followers {
		leaders[w]++
	}
	pairs, known := float64(len(b.followers)), 0
	for _, n := range leaders {
		if n > 0 {
			known++
		}
	}
	b.lower = make([]float64, vocabSize)
	for w, n := range leaders {
		if known == 0 { // no pairs at all
			b.lower[w] = 1 / float64(vocabSize)
			continue
		}
		b.lower[w] = max(float64(n)-b.discount, 0)/pairs + b.discount*float64(known)/pairs/float64(vocabSize)
	}
}

// LogProb returns ln p(next|previous).
func (b *Bigram) LogProb(previous, next int32) float64 {
	total := float64(b.totals[previous])
	if total == 0 {
		return math.Log(b.lower[next])
	}
	first, last := b.start[previous], b.start[previous+1]
	p := b.discount * float64(last-first) / total * b.lower[next]
	if i, ok := slices.BinarySearch(b.followers[first:last], next); ok {
		p += max(float64(b.counts[first+i])-b.discount, 0) / total
	}
	return math.Log(p)
}
