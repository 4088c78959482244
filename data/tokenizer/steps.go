package tokenizer

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// steps has the properties of tokens that the steps of a tokenizer.json determine.
type steps struct {
	byteLevel bool // characters of a token stand for bytes, see byteOfRune
	space     rune // stands for a space in tokens; 0: none does
}

// flat lists the steps of a sequence.
func (s *jsonStep) flat() []*jsonStep {
	if s == nil {
		return nil
	}
	var list []*jsonStep
	switch s.Type {
	case "Sequence":
		for _, inner := range [][]*jsonStep{s.Normalizers, s.PreTokenizers, s.Processors, s.Decoders} {
			for _, step := range inner {
				list = append(list, step.flat()...)
			}
		}
		return list
	}
	return []*jsonStep{s}
}

// steps enters into f the steps before and after the model.
func (file *jsonFile) steps(f *foreign) (steps, error) {
	var s steps
	for _, n := range file.Normalizer.flat() {
		form, isForm := normalForms[n.Type]
		switch {
		case isForm:
			f.normalize = append(f.normalize, form.Bytes)
		case n.Type == "Prepend":
			f.normalize = append(f.normalize, func(text []byte) []byte { return append([]byte(n.Prepend), text...) })
		case n.Type == "Replace" && n.Pattern != nil && n.Pattern.String != "":
			from, to := []byte(n.Pattern.String), []byte(n.Content)
			if string(from) == " " && utf8.RuneCount(to) == 1 {
				s.space, _ = utf8.DecodeRune(to)
			}
			f.normalize = append(f.normalize, func(text []byte) []byte { return bytes.ReplaceAll(text, from, to) })
		default:
			return s, fmt.Errorf("the normalizer %q is not one that this package has", n.Type)
		}
	}
	for _, p := range file.PreTokenizer.flat() {
		if err := p.preTokenizer(f, &s); err != nil {
			return s, err
		}
	}
	for _, p := range file.PostProcessor.flat() {
		switch p.Type {
		case "ByteLevel": // it changes offsets alone
		case "TemplateProcessing":
			if err := p.template(f); err != nil {
				return s, err
			}
		default:
			return s, fmt.Errorf("the post-processor %q is not one that this package has", p.Type)
		}
	}
	for _, d := range file.Decoder.flat() {
		switch d.Type {
		case "ByteLevel", "ByteFallback", "Fuse", "Replace": // the tokens' bytes say it
		case "Strip":
			f.leadingSpace = f.leadingSpace || d.Content == " " && d.Start == 1
		case "Metaspace":
			f.leadingSpace = d.prepends() != "never"
		default:
			return s, fmt.Errorf("the decoder %q is not one that this package has", d.Type)
		}
	}
	return s, nil
}

// preTokenizer enters pre-tokenizer p into f.
func (p *jsonStep) preTokenizer(f *foreign, s *steps) error {
	no := func(flag *bool, otherwise bool) bool { return flag == nil && !otherwise || flag != nil && !*flag }
	switch p.Type {
	case "ByteLevel":
		s.byteLevel = true
		if !no(p.PrefixSpace, false) {
			f.cut = append(f.cut, func(word []byte, first bool) [][]byte {
				if len(word) > 0 && word[0] != ' ' {
					word = append([]byte(" "), word...)
				}
				return [][]byte{word}
			})
		}
		if !no(p.Regex, true) {
			cut, err := splitter(gpt2Pattern)
			f.cut = append(f.cut, cut)
			return err
		}
	case "Split":
		if p.Pattern == nil || p.Behavior != "Isolated" && !(p.Behavior == "Removed" && p.Invert) {
			return fmt.Errorf("the pre-tokenizer Split with behavior %q and invert %v is not one that this package has", p.Behavior, p.Invert)
		}
		cut, err := splitter(cmp.Or(p.Pattern.Regex, regexp.QuoteMeta(p.Pattern.String)))
		f.cut = append(f.cut, cut)
		return err
	case "Digits":
		pattern := `\p{N}+`
		if p.Individual {
			pattern = `\p{N}`
		}
		cut, err := splitter(pattern)
		f.cut = append(f.cut, cut)
		return err
	case "Metaspace":
		mark, n := utf8.DecodeRuneInString(p.Replacement)
		if n == 0 || n != len(p.Replacement) {
			return fmt.Errorf("the pre-tokenizer Metaspace replaces spaces by %.40q; give one character", p.Replacement)
		}
		s.space = mark
		f.cut = append(f.cut, metaspace(p.Replacement, p.prepends(), no(p.Split, true)))
	default:
		return fmt.Errorf("the pre-tokenizer %q is not one that this package has", p.Type)
	}
	return nil
}

// prepends returns where a Metaspace puts a mark before a text: "always", "first" or "never".
func (p *jsonStep) prepends() string {
	if p.PrependScheme == "" && p.PrefixSpace != nil && !*p.PrefixSpace {
		return "never"
	}
	return cmp.Or(p.PrependScheme, "always")
}

// metaspace replaces spaces by a mark, and cuts before each mark unless whole is set.
func metaspace(mark, prepends string, whole bool) func([]byte, bool) [][]byte {
	return func(word []byte, first bool) [][]byte {
		text := bytes.ReplaceAll(word, []byte(" "), []byte(mark))
		if (prepends == "always" || prepends == "first" && first) && !bytes.HasPrefix(text, []byte(mark)) {
			text = append([]byte(mark), text...)
		}
		if whole {
			return [][]byte{text}
		}
		var words [][]byte
		for len(text) > 0 {
			n := len(text)
			if at := bytes.Index(text[min(len(mark), n):], []byte(mark)); at >= 0 && bytes.HasPrefix(text, []byte(mark)) {
				n = at + len(mark)
			} else if at := bytes.Index(text, []byte(mark)); at > 0 {
				n = at
			}
			words, text = append(words, text[:n]), text[n:]
		}
		return words
	}
}

// template enters the tokens that a TemplateProcessing puts before and after a single text.
func (p *jsonStep) template(f *foreign) error {
	seen := false
	for _, piece := range p.Single {
		if _, ok := piece["Sequence"]; ok {
			seen = true
			continue
		}
		special, ok := p.SpecialTokens[piece["SpecialToken"].ID]
		if !ok {
			return fmt.Errorf("the post-processor names %q, which is none of its special tokens", piece["SpecialToken"].ID)
		}
		if seen {
			f.suffix = append(f.suffix, special.IDs...)
		} else {
			f.prefix = append(f.prefix, special.IDs...)
		}
	}
	return nil
}

// gpt2Pattern cuts text as GPT-2 does (Radford et al. 2019, in its published encoder).
const gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// spaces is Unicode's white space as the inside of a character class; Go's \s is ASCII's.
const spaces = `\t-\r \x{85}\p{Z}`

// splitter returns a function that cuts words into the matches of pattern and the text between
// them. Go's regular expressions have no look-ahead; the patterns of tokenizers use it in one
// place, \s+(?!\S), which matches white space without its last character if a word follows.
// splitter does that by hand.
func splitter(pattern string) (func(word []byte, first bool) [][]byte, error) {
	translated := strings.ReplaceAll(pattern, `\s+(?!\S)|\s+`, `(?P<blank>\s+)`)
	translated = strings.ReplaceAll(translated, `\s+(?!\S)`, `(?P<blank>\s+)`)
	re, err := regexp.Compile(unicodeSpaces(translated))
	if err != nil {
		return nil, fmt.Errorf("the pattern %.200q cannot be read: %w", pattern, err)
	}
	blank := re.SubexpIndex("blank")
	return func(word []byte, _ bool) [][]byte {
		var words [][]byte
		for len(word) > 0 {
			at := re.FindSubmatchIndex(word)
			if at == nil {
				break
			}
			lo, hi := at[0], at[1]
			if blank > 0 && at[2*blank] >= 0 && hi < len(word) {
				if next, _ := utf8.DecodeRune(word[hi:]); !unicode.IsSpace(next) {
					_, n := utf8.DecodeLastRune(word[lo:hi])
					if hi-n > lo {
						hi -= n
					}
				}
			}
			if hi == lo { // nothing matched: no progress
				_, n := utf8.DecodeRune(word[hi:])
				lo, hi = lo+n, lo+n
			}
			if lo > 0 {
				words = append(words, word[:lo])
			}
			if hi > lo {
				words = append(words, word[lo:hi])
			}
			word = word[hi:]
		}
		if len(word) > 0 {
			words = append(words, word)
		}
		return words
	}, nil
}

// unicodeSpaces makes \s and \S of a pattern match Unicode's white space.
func unicodeSpaces(pattern string) string {
	var b strings.Builder
	class := false
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\' && i+1 < len(pattern):
			i++
			switch {
			case pattern[i] == 's' && class:
				b.WriteString(spaces)
			case pattern[i] == 's':
				b.WriteString("[" + spaces + "]")
			case pattern[i] == 'S' && !class:
				b.WriteString("[^" + spaces + "]")
			default:
				b.WriteString(pattern[i-1 : i+1])
			}
		default:
			class = c == '[' || class && c != ']'
			b.WriteByte(c)
		}
	}
	return b.String()
}

// byteOfRune maps each character of a file to its byte, as GPT-2's published encoder does:
// printable characters, spaces excepted, stand for themselves, and characters from U+0100 on for
// the other bytes, in order.
var byteOfRune = func() map[rune]byte {
	bytes := map[rune]byte{}
	next := rune(256)
	for b := range rune(256) {
		if '!' <= b && b <= '~' || 0xa1 <= b && b <= 0xac || 0xae <= b && b <= 0xff {
			bytes[b] = byte(b)
		} else {
			bytes[next] = byte(b)
			next++
		}
	}
	return bytes
}()

// fromByteLevel returns the bytes that a token stands for; ok is false if it has other characters.
func fromByteLevel(token string) (text []byte, ok bool) {
	for _, r := range token {
		b, ok := byteOfRune[r]
		if !ok {
			return nil, false
		}
		text = append(text, b)
	}
	return text, true
}
