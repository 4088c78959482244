package tokenizer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/gorun-spmd/gorun/internal/fault"
)

// Load reads a tokenizer that Hugging Face's tokenizers or GPT-2's program has written: path
// is a tokenizer.json, or a folder with one, or a folder with GPT-2's vocab.json and merges.txt.
func Load(path string) (_ *Tokenizer, err error) {
	defer fault.Locate(&err)
	t, err := load(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: Load %s: %w", path, err)
	}
	return t, nil
}

func load(path string) (*Tokenizer, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%w; name a tokenizer.json, or a folder with one, or with vocab.json and merges.txt", err)
	}
	if !info.IsDir() {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		return parseJSON(text)
	}
	text, err := os.ReadFile(filepath.Join(path, "tokenizer.json"))
	if err == nil {
		return parseJSON(text)
	}
	vocab, errVocab := os.ReadFile(filepath.Join(path, "vocab.json"))
	merges, errMerges := os.ReadFile(filepath.Join(path, "merges.txt"))
	if errors.Is(err, fs.ErrNotExist) && errVocab == nil && errMerges == nil {
		return parseGPT2(vocab, merges)
	}
	return nil, fmt.Errorf("%w; name a folder with tokenizer.json, or with vocab.json and merges.txt", err)
}

// ParseJSON returns the tokenizer in the text of a tokenizer.json.
func ParseJSON(text []byte) (_ *Tokenizer, err error) {
	defer fault.Locate(&err)
	t, err := parseJSON(text)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: ParseJSON: %w", err)
	}
	return t, nil
}

// endOfText is the only added token that the files of GPT-2 have.
const endOfText = "<|endoftext|>"

func parseGPT2(vocab, merges []byte) (*Tokenizer, error) {
	var file jsonFile
	if err := json.Unmarshal(vocab, &file.Model.Vocab); err != nil {
		return nil, fmt.Errorf("vocab.json: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(merges))
	for lines.Scan() {
		if line := lines.Text(); line != "" && !strings.HasPrefix(line, "#version") {
			left, right, ok := strings.Cut(line, " ")
			if !ok {
				return nil, fmt.Errorf("merges.txt: %.40q has no space", line)
			}
			file.Model.Merges = append(file.Model.Merges, jsonMerge{left, right})
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("merges.txt: %w", err)
	}
	if id, ok := file.Model.Vocab[endOfText]; ok {
		file.Added = []jsonAdded{{ID: id, Content: endOfText}}
	}
	file.PreTokenizer = &jsonStep{Type: "ByteLevel"}
	return file.build()
}

// jsonFile has the parts of a tokenizer.json that this package reads.
type jsonFile struct {
	Added         []jsonAdded `json:"added_tokens"`
	Normalizer    *jsonStep   `json:"normalizer"`
	PreTokenizer  *jsonStep   `json:"pre_tokenizer"`
	PostProcessor *jsonStep   `json:"post_processor"`
	Decoder       *jsonStep   `json:"decoder"`
	Model         struct {
		Type         string           `json:"type"`
		Dropout      *float64         `json:"dropout"`
		Unknown      *string          `json:"unk_token"`
		Prefix       string           `json:"continuing_subword_prefix"`
		Suffix       string           `json:"end_of_word_suffix"`
		FuseUnknown  bool             `json:"fuse_unk"`
		ByteFallback bool             `json:"byte_fallback"`
		IgnoreMerges bool             `json:"ignore_merges"`
		Vocab        map[string]int32 `json:"vocab"`
		Merges       []jsonMerge      `json:"merges"`
	} `json:"model"`
}

type jsonAdded struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	Left       bool   `json:"lstrip"`
	Right      bool   `json:"rstrip"`
}

// A jsonMerge is written as "a b" or as ["a", "b"].
type jsonMerge [2]string

func (m *jsonMerge) UnmarshalJSON(text []byte) error {
	var both string
	if json.Unmarshal(text, &both) == nil {
		left, right, ok := strings.Cut(both, " ")
		if !ok {
			return fmt.Errorf("the merge %.40q has no space", both)
		}
		*m = jsonMerge{left, right}
		return nil
	}
	var list []string
	if err := json.Unmarshal(text, &list); err != nil || len(list) != 2 {
		return fmt.Errorf("the merge %.40s is no pair of texts", text)
	}
	*m = jsonMerge(list)
	return nil
}

// jsonStep is a normalizer, a pre-tokenizer, a post-processor or a decoder.
type jsonStep struct {
	Type          string      `json:"type"`
	Normalizers   []*jsonStep `json:"normalizers"`
	PreTokenizers []*jsonStep `json:"pretokenizers"`
	Processors    []*jsonStep `json:"processors"`
	Decoders      []*jsonStep `json:"decoders"`

	Prepend       string       `json:"prepend"` // Prepend
	Content       string       `json:"content"` // Replace
	Pattern       *jsonPattern `json:"pattern"` // Replace, Split
	Behavior      string       `json:"behavior"`
	Invert        bool         `json:"invert"`
	PrefixSpace   *bool        `json:"add_prefix_space"` // ByteLevel, Metaspace
	Regex         *bool        `json:"use_regex"`
	Replacement   string       `json:"replacement"` // Metaspace
	PrependScheme string       `json:"prepend_scheme"`
	Split         *bool        `json:"split"`
	Individual    bool         `json:"individual_digits"`
	Start         int          `json:"start"` // Strip

	Single        []map[string]struct{ ID string } `json:"single"` // TemplateProcessing
	SpecialTokens map[string]struct{ IDs []int32 } `json:"special_tokens"`
}

type jsonPattern struct{ String, Regex string }

func parseJSON(text []byte) (*Tokenizer, error) {
	var file jsonFile
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	if m := &file.Model; m.Type != "BPE" && (m.Type != "" || m.Merges == nil) {
		return nil, fmt.Errorf("the model is %q, not BPE; only byte-pair encodings can be read", m.Type)
	}
	return file.build()
}

// build makes the Tokenizer of a file.
func (file *jsonFile) build() (*Tokenizer, error) {
	m := &file.Model
	switch {
	case m.Dropout != nil && *m.Dropout != 0:
		return nil, errors.New("the model has dropout, which is for training it; set it to null")
	case m.Prefix != "" || m.Suffix != "":
		return nil, fmt.Errorf("the model marks parts of words with %q and %q, which this package does not have", m.Prefix, m.Suffix)
	}
	size, err := file.size()
	if err != nil {
		return nil, err
	}
	f := &foreign{unknown: -1, fuseUnknown: m.FuseUnknown}
	steps, err := file.steps(f)
	if err != nil {
		return nil, err
	}
	for _, id := range slices.Concat(f.prefix, f.suffix) {
		if id < 0 || int(id) >= size {
			return nil, fmt.Errorf("the post-processor adds the id %d, the vocabulary has %d", id, size)
		}
	}
	t := &Tokenizer{ranks: make(map[pair]int32, len(m.Merges)), tokens: make([][]byte, size), foreign: f}
	f.alphabet(t, m.Vocab, steps)
	if !steps.byteLevel && !m.ByteFallback {
		for b := range f.bytes {
			f.bytes[b] = -1
		}
	}
	if m.Unknown != nil {
		id, ok := m.Vocab[*m.Unknown]
		if !ok {
			return nil, fmt.Errorf("the vocabulary does not have %q, its token for what is unknown", *m.Unknown)
		}
		f.unknown = id
	}
	if m.IgnoreMerges {
		f.words = map[string]int32{}
		for id, token := range t.tokens {
			if len(token) > 0 {
				f.words[f.text(token, steps)] = int32(id)
			}
		}
	}
	for i, merge := range m.Merges {
		left, okLeft := m.Vocab[merge[0]]
		right, okRight := m.Vocab[merge[1]]
		id, ok := m.Vocab[merge[0]+merge[1]]
		if !ok || !okLeft || !okRight {
			return nil, fmt.Errorf("merge %d joins %.40q and %.40q, and the vocabulary does not have all three tokens", i, merge[0], merge[1])
		}
		t.joined = append(t.joined, id)
		if p := (pair{left, right}); t.ranks[p] == 0 {
			t.ranks[p] = int32(len(t.joined))
		}
	}
	return t, f.add(t, file.Added)
}

// text returns the bytes of a token as they stand in a cut word: with s.space for spaces,
// unless the tokenizer is byte-level.
func (f *foreign) text(token []byte, s steps) string {
	if s.byteLevel {
		return string(token)
	}
	return strings.ReplaceAll(string(token), " ", string(s.space))
}

// size returns the number of ids. It refuses a few tokens with very large ids.
func (file *jsonFile) size() (int, error) {
	most := int32(-1)
	for token, id := range file.Model.Vocab {
		if id < 0 {
			return 0, fmt.Errorf("token %.40q has the id %d", token, id)
		}
		most = max(most, id)
	}
	for _, a := range file.Added {
		if a.ID < 0 {
			return 0, fmt.Errorf("token %.40q has the id %d", a.Content, a.ID)
		}
		most = max(most, a.ID)
	}
	if n := len(file.Model.Vocab) + len(file.Added); most >= int32(1<<16+8*n) {
		return 0, fmt.Errorf("the largest id is %d, of %d tokens", most, n)
	}
	return int(most) + 1, nil
}

// alphabet fills in the bytes of each token, and the tokens of single bytes or characters.
func (f *foreign) alphabet(t *Tokenizer, vocab map[string]int32, s steps) {
	for b := range f.bytes {
		f.bytes[b] = -1
	}
	if !s.byteLevel {
		f.runes = map[rune]int32{}
	}
	for _, token := range slices.Sorted(maps.Keys(vocab)) {
		id := vocab[token]
		if s.byteLevel {
			if text, ok := fromByteLevel(token); ok {
				if t.tokens[id] = text; len(text) == 1 {
					f.bytes[text[0]] = id
				}
			} else {
				t.tokens[id] = []byte(token)
			}
			continue
		}
		var b byte
		if n, err := fmt.Sscanf(token, "<0x%02X>", &b); n == 1 && err == nil && len(token) == len("<0x00>") {
			t.tokens[id], f.bytes[b] = []byte{b}, id
			continue
		}
		if r, n := utf8.DecodeRuneInString(token); n == len(token) && n > 0 && r != utf8.RuneError {
			f.runes[r] = id
		}
		t.tokens[id] = []byte(token)
		if s.space != 0 {
			t.tokens[id] = []byte(strings.ReplaceAll(token, string(s.space), " "))
		}
	}
}

// add enters the added tokens.
func (f *foreign) add(t *Tokenizer, list []jsonAdded) error {
	for _, a := range list {
		switch {
		case a.Content == "":
			return fmt.Errorf("the added token %d stands for no text", a.ID)
		case a.SingleWord:
			return fmt.Errorf("the added token %.40q is a single_word, which this package does not have", a.Content)
		}
		t.tokens[a.ID] = []byte(a.Content)
		first := &f.added[a.Content[0]]
		*first = append(*first, added{a.Content, a.ID, a.Left, a.Right})
		slices.SortStableFunc(*first, func(x, y added) int { return len(y.text) - len(x.text) })
	}
	return nil
}

// normalForms are Unicode's, by the names that the file has.
var normalForms = map[string]norm.Form{"NFC": norm.NFC, "NFD": norm.NFD, "NFKC": norm.NFKC, "NFKD": norm.NFKD}
