// Package tokenizer turns bytes into token ids and back: a byte-level
// byte-pair encoding (Sennrich et al. 2016, "Neural Machine Translation of Rare
// Words with Subword Units"; over bytes as in GPT-2).
//
// The vocabulary is
//
//	0 … 255       the single bytes, so that every input has an encoding
//	EndOfText     the mark between two documents; it stands for no bytes
//	257 …         one token for each merge, in the order they were learnt
//
// Text is first cut into words (see wordLength): an identifier with the space or
// mark before it, punctuation with the line end and indentation after it. Merges
// never cross a word, so a word is encoded once and then looked up.
//
//	tok, err := tokenizer.Train(texts, 16384)
//	enc := tokenizer.NewEncoder(tok)
//	ids := enc.Encode(nil, text)
//	tok.Decode(nil, ids) // equals text, whatever its bytes
//
// Training is a function of its input alone: the same texts give the same
// merges on every machine.
//
// # Tokenizers of other programs
//
// Load reads the byte-pair encodings that Hugging Face's tokenizers writes, as
// models of GPT-2's and Llama's kind have them, and those of GPT-2 itself:
//
//	tok, err := tokenizer.Load("model/") // tokenizer.json, or vocab.json and merges.txt
//	ids := tokenizer.NewEncoder(tok).Encode(tok.Prefix(), []byte("Hello"))
//
// Ids have the meaning of the file. If a file asks for something that this package does
// not have, the error names it.
package tokenizer

import "fmt"

// Version names the algorithm: how text is cut into words and how merges are
// chosen. A cache of tokenizers or ids has it in its key.
const Version = 1

const (
	// EndOfText is the id of the mark between documents. Encode never returns it.
	EndOfText = 256

	// MinVocab is the smallest vocabulary: the bytes and EndOfText.
	MinVocab = 257

	// MaxVocab is the largest that Train makes: files hold ids as uint16.
	MaxVocab = 1 << 16

	// maxWordBytes bounds a word, and so a token: encoding a word of n bytes
	// takes up to n² steps.
	maxWordBytes = 32
)

// A Tokenizer is an immutable vocabulary. It may be shared by goroutines; to
// encode, each takes an Encoder of its own.
type Tokenizer struct {
	merges  []pair         // what Train learnt, in order: merges[i] makes token MinVocab+i; nil if it was read
	ranks   map[pair]int32 // the index of a merge in that order, plus 1
	joined  []int32        // joined[ranks[p]-1] is the token that p joins to
	tokens  [][]byte       // tokens[id] are the bytes id stands for; len(tokens) is the vocabulary
	foreign *foreign       // how a tokenizer of other programs cuts text; nil for one that Train made
}

// A pair is two adjacent tokens.
type pair struct{ left, right int32 }

// build makes the tables of a Tokenizer and checks that Train could have made the merges.
func build(merges []pair) (*Tokenizer, error) {
	if len(merges) > MaxVocab-MinVocab {
		return nil, fmt.Errorf("%d merges, at most %d fit", len(merges), MaxVocab-MinVocab)
	}
	t := &Tokenizer{
		merges: merges,
		ranks:  make(map[pair]int32, len(merges)),
		tokens: make([][]byte, MinVocab, MinVocab+len(merges)),
	}
	for b := range EndOfText {
		t.tokens[b] = []byte{byte(b)}
	}
	for i, m := range merges {
		id := MinVocab + i
		for _, part := range []int32{m.left, m.right} {
			if int(part) >= id || part == EndOfText {
				return nil, fmt.Errorf("merge %d joins token %d, which it may not", i, part)
			}
		}
		if _, twice := t.ranks[m]; twice {
			return nil, fmt.Errorf("merge %d joins tokens %d and %d a second time", i, m.left, m.right)
		}
		left, right := t.tokens[m.left], t.tokens[m.right]
		if n := len(left) + len(right); n > maxWordBytes {
			return nil, fmt.Errorf("merge %d makes a token of %d bytes, at most %d are allowed", i, n, maxWordBytes)
		}
		token := make([]byte, 0, len(left)+len(right))
		t.tokens = append(t.tokens, append(append(token, left...), right...))
		t.ranks[m] = int32(i + 1)
		t.joined = append(t.joined, int32(id))
	}
	return t, nil
}

// VocabSize returns the number of ids, EndOfText included. It is below the size
// that Train was asked for if the text had fewer repeated pairs.
func (t *Tokenizer) VocabSize() int { return len(t.tokens) }

// Token returns the bytes that id stands for: none for EndOfText, and for ids that the
// vocabulary of another program leaves out. The caller must not modify them. id must be
// below VocabSize.
func (t *Tokenizer) Token(id int32) []byte { return t.tokens[id] }

// Decode appends the bytes that ids stand for to dst and returns it. Each id
// must be below VocabSize.
func (t *Tokenizer) Decode(dst []byte, ids []int32) []byte {
	if t.foreign != nil && t.foreign.leadingSpace {
		return t.foreign.decode(dst, t.tokens, ids)
	}
	for _, id := range ids {
		dst = append(dst, t.tokens[id]...)
	}
	return dst
}
