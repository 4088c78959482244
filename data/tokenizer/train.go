package tokenizer

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/internal/fault"
)

// Train learns a vocabulary of vocabSize ids from texts: it starts with the
// bytes and joins, again and again, the pair of adjacent tokens that occurs
// most often, counted over all words. Of two pairs that are equally frequent
// the one with the lower ids is joined first. It stops early, with a smaller
// vocabulary, when no pair occurs twice.
//
// vocabSize must be between MinVocab and MaxVocab.
func Train(texts [][]byte, vocabSize int) (_ *Tokenizer, err error) {
	defer fault.Locate(&err)
	if vocabSize < MinVocab || vocabSize > MaxVocab {
		return nil, fmt.Errorf("tokenizer: Train: a vocabulary of %d ids; choose one from %d (the bytes and the end of text) to %d",
			vocabSize, MinVocab, MaxVocab)
	}
	t := newTrainer(texts)
	var merges []pair
	for len(merges) < vocabSize-MinVocab {
		p, ok := t.mostFrequent()
		if !ok {
			break
		}
		t.join(p, int32(MinVocab+len(merges)))
		merges = append(merges, p)
	}
	tok, err := build(merges)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: Train: %w", err)
	}
	return tok, nil
}

// A trainer keeps the count of every pair up to date while pairs are joined,
// so that a merge costs as much as the words it changes.
type trainer struct {
	words []word
	pairs map[pair]*occurrences
	queue candidates
}

// A word is a distinct word of the text: its tokens so far, how often it occurs.
type word struct {
	tokens []int32
	count  int
}

// occurrences are those of a pair. count is exact: the sum over words of the word's count
// times the number of the pair's occurrences in it. words lists every word that has the
// pair, and perhaps words that no longer have it.
type occurrences struct {
	count int
	words []int32
}

func newTrainer(texts [][]byte) *trainer {
	t := &trainer{words: distinctWords(texts), pairs: map[pair]*occurrences{}}
	for w := range t.words {
		t.add(w, 0)
	}
	for p, o := range t.pairs {
		t.queue = append(t.queue, candidate{p, o.count})
	}
	heap.Init(&t.queue)
	return t
}

// distinctWords cuts texts into words and returns those that a merge could
// change, each once, in byte order.
func distinctWords(texts [][]byte) []word {
	counts := map[string]*int{}
	for _, text := range texts {
		for len(text) > 0 {
			n := wordLength(text)
			if count := counts[string(text[:n])]; count != nil {
				*count++
			} else if n > 1 {
				one := 1
				counts[string(text[:n])] = &one
			}
			text = text[n:]
		}
	}
	distinct := make([]string, 0, len(counts))
	for s := range counts {
		distinct = append(distinct, s)
	}
	slices.Sort(distinct)
	words := make([]word, len(distinct))
	for i, s := range distinct {
		tokens := make([]int32, len(s))
		for j := range len(s) {
			tokens[j] = int32(s[j])
		}
		words[i] = word{tokens, *counts[s]}
	}
	return words
}

// add counts the pairs of word w and lists w with each that contains the token
// fresh; with all of them if fresh is 0.
func (t *trainer) add(w int, fresh int32) {
	tokens := t.words[w].tokens
	for i := 1; i < len(tokens); i++ {
		p := pair{tokens[i-1], tokens[i]}
		o := t.pairs[p]
		if o == nil {
			o = &occurrences{}
			t.pairs[p] = o
		}
		o.count += t.words[w].count
		isNew := fresh == 0 || p.left == fresh || p.right == fresh
		if isNew && (len(o.words) == 0 || o.words[len(o.words)-1] != int32(w)) {
			o.words = append(o.words, int32(w))
		}
	}
}

// mostFrequent returns the pair to join next; ok is false if none occurs twice.
func (t *trainer) mostFrequent() (p pair, ok bool) {
	for len(t.queue) > 0 {
		top := &t.queue[0]
		count := t.pairs[top.pair].count
		switch {
		case count < 2:
			heap.Pop(&t.queue)
		case count != top.count: // joins since it was queued have lowered it
			top.count = count
			heap.Fix(&t.queue, 0)
		default:
			return top.pair, true
		}
	}
	return pair{}, false
}

// join replaces p by id in every word. Only pairs with id in them can become
// more frequent, so only those are queued.
func (t *trainer) join(p pair, id int32) {
	listed := t.pairs[p].words
	t.pairs[p].words = nil
	for _, w := range listed {
		tokens := t.words[w].tokens
		for i := 1; i < len(tokens); i++ {
			t.pairs[pair{tokens[i-1], tokens[i]}].count -= t.words[w].count
		}
		t.words[w].tokens = joinPair(tokens, p, id)
		t.add(int(w), id)
	}
	queued := map[pair]bool{}
	for _, w := range listed {
		tokens := t.words[w].tokens
		for i := 1; i < len(tokens); i++ {
			q := pair{tokens[i-1], tokens[i]}
			if (q.left == id || q.right == id) && !queued[q] {
				queued[q] = true
				heap.Push(&t.queue, candidate{q, t.pairs[q].count})
			}
		}
	}
}

// joinPair replaces p by id from left to right, in place.
func joinPair(tokens []int32, p pair, id int32) []int32 {
	kept := tokens[:0]
	for i := 0; i < len(tokens); i++ {
		if i+1 < len(tokens) && tokens[i] == p.left && tokens[i+1] == p.right {
			kept = append(kept, id)
			i++
		} else {
			kept = append(kept, tokens[i])
		}
	}
	return kept
}

// A candidate is a pair with its count when it was queued, never below its
// count now.
type candidate struct {
	pair  pair
	count int
}

// candidates is a heap (container/heap) with the most frequent pair on top.
type candidates []candidate

func (c candidates) Len() int      { return len(c) }
func (c candidates) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c candidates) Less(i, j int) bool {
	return cmp.Or(
		cmp.Compare(c[j].count, c[i].count),
		cmp.Compare(c[i].pair.left, c[j].pair.left),
		cmp.Compare(c[i].pair.right, c[j].pair.right),
	) < 0
}
func (c *candidates) Push(x any) { *c = append(*c, x.(candidate)) }
func (c *candidates) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}
