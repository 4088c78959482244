package tokenizer

// An Encoder encodes text with a Tokenizer and remembers the words it has seen.
// It is for one goroutine. The zero Encoder is not usable; see NewEncoder.
type Encoder struct {
	tok   *Tokenizer
	known map[string]span // what each word seen became: a span of ids
	ids   []uint16
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

// Encode appends the ids of text to dst and returns it. Any bytes can be
// encoded, and Decode returns them.
func (e *Encoder) Encode(dst []uint16, text []byte) []uint16 {
	for len(text) > 0 {
		n := wordLength(text)
		if n == 1 {
			dst = append(dst, uint16(text[0]))
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
	for _, b := range word {
		e.ids = append(e.ids, uint16(b))
	}
	joined := e.tok.encodeWord(e.ids[start:])
	e.ids = e.ids[:start+len(joined)]
	s := span{uint32(start), uint32(len(joined))}
	e.known[string(word)] = s
	return s
}

// encodeWord joins tokens, a word's bytes, in place: always the pair that was
// learnt first, until none is left. It looks up only the pairs that a join
// makes, so that unusual words are fast too.
func (t *Tokenizer) encodeWord(tokens []uint16) []uint16 {
	// joins[i] is what tokens[i] and tokens[i+1] join to, 0 if they do not.
	var joins [maxWordBytes]uint16
	for i := 1; i < len(tokens); i++ {
		joins[i-1] = t.ids[pair{tokens[i-1], tokens[i]}]
	}
	for {
		at, id := -1, uint16(0)
		for i, candidate := range joins[:len(tokens)-1] {
			if candidate != 0 && (id == 0 || candidate < id) {
				at, id = i, candidate
			}
		}
		if id == 0 {
			return tokens
		}
		copy(joins[at+1:], joins[at+2:])
		tokens = append(tokens[:at+1], tokens[at+2:]...)
		tokens[at] = id
		if at > 0 {
			joins[at-1] = t.ids[pair{tokens[at-1], id}]
		}
		if at+1 < len(tokens) {
			joins[at] = t.ids[pair{id, tokens[at+1]}]
		}
	}
}
