package tokenizer

import (
	"container/heap"
	"slices"
)

// An Encoder encodes text with a Tokenizer and remembers the words it has seen.
// One goroutine uses it. The zero Encoder is not usable; see NewEncoder.
type Encoder struct {
	tok   *Tokenizer
	known map[string]span // the ids of each word seen, as a span
	ids   []int32
	words int // how many words to remember before starting afresh
}

// A span is ids[start:start+n].
type span struct {
	start uint32
	n     uint32
}

// rememberedWords bounds an Encoder's memory to about 50 MB.
const rememberedWords = 1 << 19

// NewEncoder returns an Encoder for tok.
func NewEncoder(tok *Tokenizer) *Encoder {
	return &Encoder{tok: tok, known: map[string]span{}, words: rememberedWords}
}

// Encode appends the ids of text to dst and returns it. text may have any bytes, and
// Decode returns them.
func (e *Encoder) Encode(dst []int32, text []byte) []int32 {
	if e.tok.foreign != nil {
		return e.foreign(dst, text)
	}
	for len(text) > 0 {
		n := wordLength(text)
		if n == 1 {
			dst = append(dst, int32(text[0]))
		} else {
			s, ok := e.known[string(text[:n])]
			if !ok {
				s = e.learn(text[:n])
			}
			dst = append(dst, e.ids[s.start:s.start+s.n]...)
		}
		text = text[n:]
	}
	return dst
}

// learn encodes a word and remembers it.
func (e *Encoder) learn(word []byte) span {
	if len(e.known) >= e.words {
		clear(e.known)
		e.ids = e.ids[:0]
	}
	start := len(e.ids)
	if e.tok.foreign != nil {
		e.ids = e.tok.foreign.units(e.ids, word)
	} else {
		for _, b := range word {
			e.ids = append(e.ids, int32(b))
		}
	}
	joined := e.tok.join(e.ids[start:])
	e.ids = e.ids[:start+len(joined)]
	s := span{uint32(start), uint32(len(joined))}
	e.known[string(word)] = s
	return s
}

// join joins the tokens of a word, in place: always the pair that was learnt first, until
// no pair joins. After a join it looks up only the new pairs, so that long words are fast
// too.
func (t *Tokenizer) join(tokens []int32) []int32 {
	if len(tokens) > maxWordBytes {
		return t.joinLong(tokens)
	}
	// ranks[i] is the rank of tokens[i] and tokens[i+1], 0 if they do not join.
	var ranks [maxWordBytes]int32
	for i := 1; i < len(tokens); i++ {
		ranks[i-1] = t.ranks[pair{tokens[i-1], tokens[i]}]
	}
	for len(tokens) > 0 {
		at, rank := -1, int32(0)
		for i, r := range ranks[:len(tokens)-1] {
			if r != 0 && (rank == 0 || r < rank) {
				at, rank = i, r
			}
		}
		if rank == 0 {
			break
		}
		copy(ranks[at+1:], ranks[at+2:])
		tokens = append(tokens[:at+1], tokens[at+2:]...)
		tokens[at] = t.joined[rank-1]
		if at > 0 {
			ranks[at-1] = t.ranks[pair{tokens[at-1], tokens[at]}]
		}
		if at+1 < len(tokens) {
			ranks[at] = t.ranks[pair{tokens[at], tokens[at+1]}]
		}
	}
	return tokens
}

// joinLong is join for a word of any length, in n·log n steps.
func (t *Tokenizer) joinLong(tokens []int32) []int32 {
	next, previous := make([]int, len(tokens)), make([]int, len(tokens))
	var queue ranked
	push := func(at int) { // the pair that begins at tokens[at]
		if at >= 0 && next[at] < len(tokens) {
			p := pair{tokens[at], tokens[next[at]]}
			if rank := t.ranks[p]; rank != 0 {
				heap.Push(&queue, place{rank, at, p})
			}
		}
	}
	for i := range tokens {
		next[i], previous[i] = i+1, i-1
	}
	for i := range tokens {
		push(i)
	}
	for len(queue) > 0 {
		top := heap.Pop(&queue).(place)
		at := top.at
		if tokens[at] != top.pair.left || next[at] >= len(tokens) || tokens[next[at]] != top.pair.right {
			continue // one of the two has been joined since
		}
		gone := next[at]
		tokens[at], tokens[gone] = t.joined[top.rank-1], -1
		if next[at] = next[gone]; next[at] < len(tokens) {
			previous[next[at]] = at
		}
		push(previous[at])
		push(at)
	}
	return slices.DeleteFunc(tokens, func(id int32) bool { return id < 0 })
}

// A place is a pair of adjacent tokens that join.
type place struct {
	rank int32
	at   int
	pair pair
}

// ranked is a heap (container/heap) with the pair that was learnt first on top, of equal
// ones the leftmost.
type ranked []place

func (r ranked) Len() int      { return len(r) }
func (r ranked) Swap(i, j int) { r[i], r[j] = r[j], r[i] }
func (r ranked) Less(i, j int) bool {
	return r[i].rank < r[j].rank || r[i].rank == r[j].rank && r[i].at < r[j].at
}
func (r *ranked) Push(x any) { *r = append(*r, x.(place)) }
func (r *ranked) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}
