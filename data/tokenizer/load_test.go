package tokenizer

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// recorded are the kinds of tokenizers in testdata, see record.js there.
var recorded = []string{"gpt2", "llama3", "llama2", "metaspace"}

func loaded(t testing.TB, name string) *Tokenizer {
	t.Helper()
	tok, err := Load(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestLoadEncodesAsRecorded compares with what Hugging Face's tokenizers made of some texts.
func TestLoadEncodesAsRecorded(t *testing.T) {
	for _, name := range recorded {
		tok := loaded(t, name)
		text, err := os.ReadFile(filepath.Join("testdata", name, "cases.json"))
		if err != nil {
			t.Fatal(err)
		}
		cases := 0
		for d := json.NewDecoder(bytes.NewReader(text)); d.More(); cases++ {
			var c struct {
				Text, Decoded string
				IDs, Whole    []int32
			}
			if err := d.Decode(&c); err != nil {
				t.Fatal(err)
			}
			encoder := NewEncoder(tok)
			for range 2 { // the second time words are known
				if ids := encoder.Encode(nil, []byte(c.Text)); !slices.Equal(ids, c.IDs) {
					t.Errorf("%s: %.60q is %v, want %v", name, c.Text, ids, c.IDs)
				}
			}
			whole := append(encoder.Encode(tok.Prefix(), []byte(c.Text)), tok.Suffix()...)
			if !slices.Equal(whole, c.Whole) {
				t.Errorf("%s: %.60q with what goes before and after is %v, want %v", name, c.Text, whole, c.Whole)
			}
			if got := string(tok.Decode(nil, c.IDs)); strings.ToValidUTF8(got, "\ufffd") != c.Decoded {
				t.Errorf("%s: %v stands for %q, want %q", name, c.IDs, got, c.Decoded)
			}
		}
		if cases < 20 {
			t.Errorf("%s: only %d cases", name, cases)
		}
	}
}

func TestLoadTwoFiles(t *testing.T) {
	one, two := loaded(t, "gpt2"), loaded(t, "gpt2-two-files")
	text := []byte("func it's <|endoftext|> done()")
	if a, b := NewEncoder(one).Encode(nil, text), NewEncoder(two).Encode(nil, text); !slices.Equal(a, b) {
		t.Errorf("%v from tokenizer.json, %v from vocab.json and merges.txt", a, b)
	}
	id, ok := two.ID("<|endoftext|>")
	if !ok || int(id) != two.VocabSize()-1 {
		t.Errorf("the end of the text is %d, %v", id, ok)
	}
	if _, ok := two.ID("no such token"); ok {
		t.Error("a token that is not there")
	}
	if _, err := two.MarshalBinary(); err == nil {
		t.Error("a tokenizer that was read is written in another format")
	}
}

// TestLongWordsJoinAlike compares the two ways to join.
func TestLongWordsJoinAlike(t *testing.T) {
	tok := trained(t, MinVocab+60, program)
	for _, word := range []string{"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "returnreturn x, yy + funcfunc", program[:31], program[40:71]} {
		ids := make([]int32, len(word))
		for i := range ids {
			ids[i] = int32(word[i])
		}
		if a, b := tok.join(slices.Clone(ids)), tok.joinLong(slices.Clone(ids)); !slices.Equal(a, b) {
			t.Errorf("%q joins to %v, in the long way to %v", word, a, b)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	for _, c := range []struct{ text, says string }{
		{`{`, "unexpected end"},
		{`{"model":{"type":"WordPiece","vocab":{}}}`, "not BPE"},
		{`{"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}}`, "merge 0"},
		{`{"model":{"type":"BPE","vocab":{"a":0},"merges":["ab"]}}`, "no space"},
		{`{"model":{"type":"BPE","vocab":{"a":0},"merges":[["a"]]}}`, "no pair"},
		{`{"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}}`, "the id -1"},
		{`{"model":{"type":"BPE","vocab":{"a":2000000000},"merges":[]}}`, "largest id"},
		{`{"model":{"type":"BPE","vocab":{},"merges":[],"dropout":0.1}}`, "dropout"},
		{`{"model":{"type":"BPE","vocab":{},"merges":[],"end_of_word_suffix":"</w>"}}`, "</w>"},
		{`{"model":{"type":"BPE","vocab":{},"merges":[],"unk_token":"?"}}`, `"?"`},
		{`{"normalizer":{"type":"Lowercase"},"model":{"type":"BPE","vocab":{},"merges":[]}}`, "Lowercase"},
		{`{"pre_tokenizer":{"type":"BertPreTokenizer"},"model":{"type":"BPE","vocab":{},"merges":[]}}`, "BertPreTokenizer"},
		{`{"pre_tokenizer":{"type":"Split","behavior":"Isolated","pattern":{"Regex":"a(?=b)"}},"model":{"type":"BPE","vocab":{},"merges":[]}}`,
			"a(?=b)"},
		{`{"post_processor":{"type":"BertProcessing"},"model":{"type":"BPE","vocab":{},"merges":[]}}`, "BertProcessing"},
		{`{"decoder":{"type":"CTC"},"model":{"type":"BPE","vocab":{},"merges":[]}}`, "CTC"},
		{`{"added_tokens":[{"id":0,"content":"x","single_word":true}],"model":{"type":"BPE","vocab":{},"merges":[]}}`, "single_word"},
	} {
		if _, err := ParseJSON([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.says) ||
			!strings.Contains(err.Error(), "(at tokenizer/load_test.go:") {
			t.Errorf("%s: %v, want %q", c.text, err, c.says)
		}
	}
	if _, err := Load(t.TempDir()); err == nil || !strings.Contains(err.Error(), "vocab.json and merges.txt") {
		t.Errorf("an empty folder: %v", err)
	}
	if _, err := Load("nowhere"); err == nil || !strings.Contains(err.Error(), "no such file or directory; name a tokenizer.json") {
		t.Errorf("no folder: %v", err)
	}
}

func FuzzParseJSON(f *testing.F) {
	for _, name := range recorded {
		text, err := os.ReadFile(filepath.Join("testdata", name, "tokenizer.json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, "it's the first <s> line\n  of 2")
	}
	f.Add([]byte(`{"pre_tokenizer":{"type":"Split","behavior":"Isolated","pattern":{"Regex":"x*"}},`+
		`"model":{"type":"BPE","vocab":{},"merges":[]}}`), "abc")
	f.Fuzz(func(t *testing.T, file []byte, text string) {
		tok, err := ParseJSON(file)
		if err != nil {
			return
		}
		for _, id := range NewEncoder(tok).Encode(tok.Prefix(), []byte(text)) {
			if int(id) >= tok.VocabSize() {
				t.Fatalf("id %d of a vocabulary of %d", id, tok.VocabSize())
			}
		}
	})
}
