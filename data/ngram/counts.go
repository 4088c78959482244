package ngram

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"
	"unsafe"
)

// A Model predicts a token from the Order-1 tokens before it, by interpolated absolute
// discounting (Ney, Essen and Kneser 1994, "On structuring probabilistic dependences in
// stochastic language modelling"). With c the k-1 tokens before w, c' all of them but the
// first, and n(c,w) how often w followed c:
//
//	p(w|c) = max(n(c,w)−D, 0)/n(c) + λ(c)·p(w|c')
//
// D is n₁/(n₁+2n₂) of the order k, nⱼ the number of k-grams that occur j times, and λ(c)
// makes the sum over w one. Without context p is that of Unigram. Of n-grams that occur
// once, a Model keeps only pairs: the others would take most of the memory and add little
// accuracy.
//
// Several goroutines may use a Model; each takes a Scorer of its own.
type Model struct {
	unigram []float32 // [V] p(w)
	orders  []order   // orders[k-2] is of contexts of k-1 tokens
}

// An order has the contexts of one length, sorted by their hash.
type order struct {
	contexts []uint64  // hashes
	rest     []float32 // λ of each
	start    []uint32  // the followers of contexts[i] are at start[i]:start[i+1]
	tokens   []int32   // the followers, ascending for each context
	shares   []float32 // (n−D)/n(c) of each
}

// MaxOrder is the largest Order of a Model.
const MaxOrder = 8

// New counts tokens, each in [0, vocab), for a Model of an order from 1 to MaxOrder. It takes
// time n·log n for n tokens, and a goroutine for each order.
func New(tokens []int32, vocab, n int) (*Model, error) {
	if n < 1 || n > MaxOrder {
		return nil, fmt.Errorf("ngram: New: order %d; choose one from 1 to %d", n, MaxOrder)
	}
	if vocab > 1<<tokenBits {
		return nil, fmt.Errorf("ngram: New: a vocabulary of %d tokens; at most %d fit", vocab, 1<<tokenBits)
	}
	m := &Model{orders: make([]order, n-1)}
	u := NewUnigram(tokens, vocab)
	for w := range vocab {
		m.unigram = append(m.unigram, float32(math.Exp(u.logs[w])))
	}
	var all sync.WaitGroup
	for k := range m.orders {
		all.Go(func() { m.orders[k] = count(tokens, k+1) })
	}
	all.Wait()
	return m, nil
}

// Order returns how many tokens an n-gram of the Model has.
func (m *Model) Order() int { return len(m.orders) + 1 }

// tokenBits is how many bits of a key are the token; the others are the hash of its context.
const tokenBits = 18

// hash returns 46 bits that stand for a context. Of some million contexts no two are
// likely to have the same.
func hash(context []int32) uint64 {
	x := uint64(len(context))
	for _, t := range context {
		x = (x ^ uint64(t)) * 0x9e3779b97f4a7c15
		x ^= x >> 29
	}
	return x >> tokenBits
}

// count makes the order of contexts of length tokens.
func count(tokens []int32, length int) order {
	keys := make([]uint64, 0, len(tokens))
	for i := length; i < len(tokens); i++ {
		keys = append(keys, hash(tokens[i-length:i])<<tokenBits|uint64(tokens[i]))
	}
	slices.Sort(keys)
	once, twice := 0, 0
	for lo, hi := 0, 0; lo < len(keys); lo = hi {
		hi = run(keys, lo, 0)
		switch hi - lo {
		case 1:
			once++
		case 2:
			twice++
		}
	}
	discount, least := 0.5, 2
	if once > 0 && twice > 0 {
		discount = float64(once) / float64(once+2*twice)
	}
	if length == 1 {
		least = 1
	}
	var o order
	for lo, end := 0, 0; lo < len(keys); lo = end {
		end = run(keys, lo, tokenBits)
		total, kept, first := float64(end-lo), 0.0, len(o.tokens)
		for hi := lo; hi < end; {
			from := hi
			hi = run(keys, from, 0)
			if n := hi - from; n >= least {
				share := (float64(n) - discount) / total
				kept += share
				o.tokens = append(o.tokens, int32(keys[from]&(1<<tokenBits-1)))
				o.shares = append(o.shares, float32(share))
			}
		}
		if len(o.tokens) > first {
			o.contexts = append(o.contexts, keys[lo]>>tokenBits)
			o.rest = append(o.rest, float32(1-kept))
			o.start = append(o.start, uint32(first))
		}
	}
	o.start = append(o.start, uint32(len(o.tokens)))
	return o
}

// run returns the end of the keys from lo on that are equal except for the lowest bits.
func run(keys []uint64, lo, bits int) int {
	hi := lo + 1
	for hi < len(keys) && keys[hi]>>bits == keys[lo]>>bits {
		hi++
	}
	return hi
}

// A Scorer computes the probabilities of some tokens of a Model's vocabulary. One goroutine
// uses it.
type Scorer struct {
	model   *Model
	first   int
	logs    []float32 // ln of the unigram's probabilities
	pairs   []float32 // ln(p(w) + share/λ) of each follower in the Model's first order
	extra   []float64 // what longer contexts add to a token, 0 while nothing is computed
	touched []int     // where extra is not 0
}

// NewScorer returns a Scorer of the tokens first, first+1, … of which there are n.
func (m *Model) NewScorer(first, n int) *Scorer {
	s := &Scorer{model: m, first: first, extra: make([]float64, n)}
	for _, p := range m.unigram[first : first+n] {
		s.logs = append(s.logs, float32(math.Log(float64(p))))
	}
	if len(m.orders) == 0 {
		return s
	}
	o := &m.orders[0]
	s.pairs = make([]float32, len(o.tokens))
	for c := range o.contexts {
		for i := o.start[c]; i < o.start[c+1]; i++ {
			if w := int(o.tokens[i]); first <= w && w < first+n {
				s.pairs[i] = float32(math.Log(float64(m.unigram[w]) + float64(o.shares[i])/float64(o.rest[c])))
			}
		}
	}
	return s
}

// LogProbs fills dst [n] with ln p(first+i | context), where context has all tokens before. It
// costs a copy of n numbers, and a logarithm for each token that the Model has seen after the
// last two or more tokens of the context.
func (s *Scorer) LogProbs(dst []float32, context []int32) {
	scale, known := 1.0, -1 // p = scale·(what the pairs say + s.extra); known is the context of the pairs
	for k := range min(len(s.model.orders), len(context)) {
		o := &s.model.orders[k]
		c, ok := slices.BinarySearch(o.contexts, hash(context[len(context)-k-1:]))
		if !ok {
			break // then no longer context is known either
		}
		scale *= float64(o.rest[c])
		if k == 0 {
			known = c
			continue
		}
		for i, w := range o.followers(c, s.first, len(s.logs)) {
			if s.extra[w] == 0 {
				s.touched = append(s.touched, w)
			}
			s.extra[w] += float64(o.shares[i]) / scale
		}
	}
	shift := float32(math.Log(scale))
	for i, l := range s.logs {
		dst[i] = l + shift
	}
	if known < 0 {
		return
	}
	for i, w := range s.model.orders[0].followers(known, s.first, len(s.logs)) {
		dst[w] = s.pairs[i] + shift
	}
	for _, w := range s.touched {
		dst[w] = float32(math.Log(math.Exp(float64(dst[w])) + scale*s.extra[w]))
		s.extra[w] = 0
	}
	s.touched = s.touched[:0]
}

// followers gives, for each follower of a context that is one of n tokens from first on, its
// index in the order and its place among the n.
func (o *order) followers(context, first, n int) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		lo, hi := int(o.start[context]), int(o.start[context+1])
		from, _ := slices.BinarySearch(o.tokens[lo:hi], int32(first))
		for i := lo + from; i < hi; i++ {
			if w := int(o.tokens[i]) - first; w >= n || !yield(i, w) {
				return
			}
		}
	}
}

// LogProb returns ln p(next | context).
func (m *Model) LogProb(context []int32, next int32) float64 {
	p := float64(m.unigram[next])
	for k := range min(len(m.orders), len(context)) {
		o := &m.orders[k]
		c, ok := slices.BinarySearch(o.contexts, hash(context[len(context)-k-1:]))
		if !ok {
			break
		}
		p *= float64(o.rest[c])
		if i, ok := slices.BinarySearch(o.tokens[o.start[c]:o.start[c+1]], next); ok {
			p += float64(o.shares[int(o.start[c])+i])
		}
	}
	return math.Log(p)
}

// BitsPerByte returns the Model's bits per byte for tokens[1:], each after those before it.
// textBytes, above zero, is the size of the text that the tokens stand for.
func (m *Model) BitsPerByte(tokens []int32, textBytes int) float64 {
	nats := 0.0
	for i := 1; i < len(tokens); i++ {
		nats -= m.LogProb(tokens[max(0, i-len(m.orders)):i], tokens[i])
	}
	return nats / math.Ln2 / float64(textBytes)
}

// MarshalBinary returns the Model as bytes, for another rank of the same program. Its
// error is always nil. Each table has the number of its elements before it, in 8 bytes, and begins at a multiple of 8.
func (m *Model) MarshalBinary() ([]byte, error) {
	var data []byte
	put := func(n int, v any) {
		data = binary.LittleEndian.AppendUint64(data, uint64(n))
		data, _ = binary.Append(data, binary.LittleEndian, v)
		data = append(data, make([]byte, -len(data)&7)...)
	}
	put(len(m.unigram), m.unigram)
	put(len(m.orders), []byte{})
	for _, o := range m.orders {
		put(len(o.contexts), o.contexts)
		put(len(o.rest), o.rest)
		put(len(o.start), o.start)
		put(len(o.tokens), o.tokens)
		put(len(o.shares), o.shares)
	}
	return data, nil
}

// Parse returns the Model that MarshalBinary wrote. The Model keeps data, which must not change.
func Parse(data []byte) (*Model, error) {
	t := tables{data: data}
	m := &Model{unigram: table[float32](&t)}
	n := t.count()
	if n > MaxOrder {
		return nil, fmt.Errorf("ngram: Parse: %d orders", n)
	}
	m.orders = make([]order, n)
	for k := range m.orders {
		o := &m.orders[k]
		*o = order{table[uint64](&t), table[float32](&t), table[uint32](&t), table[int32](&t), table[float32](&t)}
		if t.err == nil && (len(o.rest) != len(o.contexts) || len(o.start) != len(o.contexts)+1 || len(o.shares) != len(o.tokens)) {
			return nil, fmt.Errorf("ngram: Parse: the tables of order %d do not fit together", k+2)
		}
	}
	return m, t.err
}

// tables are what MarshalBinary wrote and Parse has not read.
type tables struct {
	data []byte
	err  error
}

// count reads the number before a table; 0 after an error.
func (t *tables) count() uint64 {
	if t.err != nil || len(t.data) < 8 {
		t.err = errors.New("ngram: Parse: the data ends too early")
		return 0
	}
	n := binary.LittleEndian.Uint64(t.data)
	t.data = t.data[8:]
	return n
}

// table reads a table: a part of the data itself, or a copy where this processor cannot read the data in place.
func table[T uint64 | uint32 | int32 | float32](t *tables) (v []T) {
	n := t.count()
	width := uint64(unsafe.Sizeof(*new(T)))
	if n > uint64(len(t.data))/width {
		t.err = fmt.Errorf("ngram: Parse: %d elements in %d bytes", n, len(t.data))
		return nil
	}
	size := int(n * width)
	its := t.data[:size]
	if padded := (size + 7) &^ 7; padded > len(t.data) {
		t.err = errors.New("ngram: Parse: the data ends too early")
	} else {
		t.data = t.data[padded:]
	}
	if p := unsafe.Pointer(unsafe.SliceData(its)); littleEndian && uintptr(p)%unsafe.Alignof(*new(T)) == 0 {
		return unsafe.Slice((*T)(p), n)
	}
	v = make([]T, n)
	_, _ = binary.Decode(its, binary.LittleEndian, v) // its length is right
	return v
}

// littleEndian says that this processor keeps numbers as MarshalBinary writes them.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1
