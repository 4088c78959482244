package tokenizer

import (
	"bytes"
	"slices"
	"unicode"
	"unicode/utf8"
)

// foreign says how a tokenizer of another program cuts text into words, and a word into the
// tokens that are joined.
type foreign struct {
	added     [256][]added // tokens that stand for a certain text, by its first byte, the longest first
	normalize []func(text []byte) []byte
	cut       []func(word []byte, first bool) [][]byte // each cuts the words of the one before; first: it begins the text
	prefix    []int32                                  // what goes before a text
	suffix    []int32                                  // and after it

	bytes       [256]int32     // tokens of single bytes, -1: none
	runes       map[rune]int32 // tokens of single characters; nil: a word is cut into bytes
	unknown     int32          // the token for characters without one; -1: they are left out
	fuseUnknown bool           // several unknown characters in a row become one token

	words        map[string]int32 // words that are tokens whatever the merges say; nil: none
	leadingSpace bool             // decoding leaves out the space that a text begins with
}

// added is a token that stands for a text which is neither normalized nor cut.
type added struct {
	text        string
	id          int32
	left, right bool // it takes the white space to its left or right along
}

// Prefix returns a new slice of the tokens that go before a text, such as <s>.
func (t *Tokenizer) Prefix() []int32 {
	if t.foreign == nil {
		return nil
	}
	return slices.Clone(t.foreign.prefix)
}

// Suffix returns a new slice of the tokens that go after a text.
func (t *Tokenizer) Suffix() []int32 {
	if t.foreign == nil {
		return nil
	}
	return slices.Clone(t.foreign.suffix)
}

// ID returns the token that stands for exactly this text, such as "<|endoftext|>"; ok is false if
// there is none.
func (t *Tokenizer) ID(text string) (id int32, ok bool) {
	if t.foreign != nil && text != "" {
		for _, a := range t.foreign.added[text[0]] {
			if a.text == text {
				return a.id, true
			}
		}
	}
	for i, token := range t.tokens {
		if len(token) > 0 && string(token) == text {
			return int32(i), true
		}
	}
	return 0, false
}

// foreign encodes text with a tokenizer of another program. As in that program, the text of
// an added token becomes this token wherever it stands.
func (e *Encoder) foreign(dst []int32, text []byte) []int32 {
	f, first := e.tok.foreign, true
	for from, at := 0, 0; ; {
		var hit *added
		if at < len(text) {
			if hit = f.addedAt(text[at:]); hit == nil {
				at++
				continue
			}
		}
		before := text[from:at]
		if hit != nil && hit.left {
			before = bytes.TrimRightFunc(before, unicode.IsSpace)
		}
		dst = e.segment(dst, before, first)
		if hit == nil {
			return dst
		}
		dst = append(dst, hit.id)
		at += len(hit.text)
		if hit.right {
			at = len(text) - len(bytes.TrimLeftFunc(text[at:], unicode.IsSpace))
		}
		from, first = at, false
	}
}

// addedAt returns the longest added token that text begins with, nil if there is none.
func (f *foreign) addedAt(text []byte) *added {
	for i, a := range f.added[text[0]] {
		if len(a.text) <= len(text) && string(text[:len(a.text)]) == a.text {
			return &f.added[text[0]][i]
		}
	}
	return nil
}

// segment encodes text without added tokens; first: nothing is before it.
func (e *Encoder) segment(dst []int32, text []byte, first bool) []int32 {
	if len(text) == 0 {
		return dst
	}
	f := e.tok.foreign
	for _, n := range f.normalize {
		text = n(text)
	}
	words := [][]byte{text}
	for _, cut := range f.cut {
		var finer [][]byte
		for i, w := range words {
			finer = append(finer, cut(w, first && i == 0)...)
		}
		words = finer
	}
	for _, w := range words {
		if id, ok := f.words[string(w)]; ok {
			dst = append(dst, id)
			continue
		}
		s, ok := e.known[string(w)]
		if !ok {
			s = e.learn(w)
		}
		dst = append(dst, e.ids[s.start:s.start+s.n]...)
	}
	return dst
}

// units appends the tokens of a word before any are joined.
func (f *foreign) units(dst []int32, word []byte) []int32 {
	unknown := false // the last one was
	put := func(id int32) {
		if id >= 0 {
			dst, unknown = append(dst, id), false
		}
	}
	for len(word) > 0 {
		r, n := rune(-1), 1
		known := false
		if f.runes != nil {
			r, n = utf8.DecodeRune(word)
			id, ok := f.runes[r]
			if known = ok && (r != utf8.RuneError || n > 1); known {
				put(id)
			}
		}
		if !known {
			known = !slices.ContainsFunc(word[:n], func(b byte) bool { return f.bytes[b] < 0 })
			for i := 0; known && i < n; i++ {
				put(f.bytes[word[i]])
			}
		}
		if !known && f.unknown >= 0 && !(unknown && f.fuseUnknown) {
			put(f.unknown)
			unknown = true
		}
		word = word[n:]
	}
	return dst
}

// decode appends the bytes of ids without the space that they begin with.
func (f *foreign) decode(dst []byte, tokens [][]byte, ids []int32) []byte {
	start := len(dst)
	for _, id := range ids {
		if dst = append(dst, tokens[id]...); start >= 0 && len(dst) > start {
			if dst[start] == ' ' {
				dst = slices.Delete(dst, start, start+1)
			}
			start = -1
		}
	}
	return dst
}
