package tokenizer

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// program is a text with everything that wordLength distinguishes.
const program = "// Package p is a sample.\npackage p\n\nfunc add(x, y int) int {\n\treturn x + y // é, 1234567\n}\n" +
	"\r\n    indented  by   spaces \n\t\tif add(1, 22) != 333 {\n\t\t\tpanic(\"add\")\n\t\t}\n\tadd(add(1,2),add(3,4))\n  \n"

func trained(t testing.TB, vocabSize int, texts ...string) *Tokenizer {
	t.Helper()
	var all [][]byte
	for _, text := range texts {
		all = append(all, []byte(text))
	}
	tok, err := Train(all, vocabSize)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// trainNaive is Train without its bookkeeping: every pair is counted anew for
// every merge.
func trainNaive(text string, vocabSize int) []pair {
	words := distinctWords([][]byte{[]byte(text)})
	var merges []pair
	for id := MinVocab; id < vocabSize; id++ {
		counts := map[pair]int{}
		for _, w := range words {
			for i := 1; i < len(w.tokens); i++ {
				counts[pair{w.tokens[i-1], w.tokens[i]}] += w.count
			}
		}
		var best candidate
		for p, count := range counts {
			c := candidates{{p, count}, best}
			if count >= 2 && (best.count == 0 || c.Less(0, 1)) {
				best = c[0]
			}
		}
		if best.count == 0 {
			break
		}
		merges = append(merges, best.pair)
		for i := range words {
			words[i].tokens = joinPair(words[i].tokens, best.pair, int32(id))
		}
	}
	return merges
}

func TestTrainAgreesWithNaive(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	texts := []string{"", "a", "aa", "aaaaaaa aaaaaaaa aaa", "abababab abab ba", program, strings.Repeat(program, 3)}
	for range 30 { // few letters, so that pairs overlap and frequencies tie
		text := make([]byte, rng.IntN(400))
		for i := range text {
			text[i] = "aaab  \n("[rng.IntN(8)]
		}
		texts = append(texts, string(text))
	}
	for _, text := range texts {
		for _, size := range []int{MinVocab, MinVocab + 1, MinVocab + 10, MinVocab + 200} {
			got, want := trained(t, size, text).merges, trainNaive(text, size)
			if !slices.Equal(got, want) {
				t.Errorf("Train(%.40q, %d): merges %v, naive %v", text, size, got, want)
			}
		}
	}
}

func TestTrainStopsWhenNothingRepeats(t *testing.T) {
	if got := trained(t, 1000, "abcdefgh").VocabSize(); got != MinVocab {
		t.Errorf("vocabulary of a text without repeats: %d, want %d", got, MinVocab)
	}
	if got := trained(t, 1000, strings.Repeat("ab ", 5)).VocabSize(); got != MinVocab+2 {
		t.Errorf("vocabulary of \"ab ab …\": %d, want %d (\"ab\" and \" ab\")", got, MinVocab+2)
	}
}

func TestTrainRefusesVocabulary(t *testing.T) {
	for _, size := range []int{-1, 0, 256, MaxVocab + 1} {
		_, err := Train(nil, size)
		if err == nil || !strings.Contains(err.Error(), "from 257") {
			t.Errorf("Train(nil, %d): error %v, want one that names the range", size, err)
		}
	}
}

func TestWordLength(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"a", []string{"a"}},
		{"x := foo_1(y)", []string{"x", " :=", " foo_1", "(y", ")"}},
		{"x {\n\t\treturn", []string{"x", " {\n\t\t", "return"}},
		{"f(g.h(*a),\r\n  b))", []string{"f", "(g", ".h", "(*", "a", "),\r\n  ", "b", "))"}},
		{"x\n\n\t}\n", []string{"x", "\n\n\t", "}\n"}},
		{" .x \"y", []string{" .", "x", " \"", "y"}},
		{"a  b   \n c ", []string{"a", " ", " b", "   ", "\n ", "c", " "}},
		{"12345 67", []string{"123", "45", " 67"}},
		{"é\t\t//x", []string{"é", "\t\t", "//", "x"}},
		{"  \tx", []string{"  ", "\t", "x"}},
		{strings.Repeat("z", 70), []string{strings.Repeat("z", 32), strings.Repeat("z", 32), strings.Repeat("z", 6)}},
		{"  " + strings.Repeat("/", 40), []string{" ", " " + strings.Repeat("/", 31), strings.Repeat("/", 9)}},
	} {
		var got []string
		for text := []byte(c.text); len(text) > 0; {
			n := wordLength(text)
			got = append(got, string(text[:n]))
			text = text[n:]
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("words of %q: %q, want %q", c.text, got, c.want)
		}
	}
}

func TestEncodeJoins(t *testing.T) {
	tok := trained(t, 1000, strings.Repeat(program, 2))
	e := NewEncoder(tok)
	ids := e.Encode(nil, []byte(program))
	words := 0
	for text := []byte(program); len(text) > 0; words++ {
		text = text[wordLength(text):]
	}
	if len(ids) != words { // every word occurs twice, so all of it was joined
		t.Errorf("%d ids for %d words", len(ids), words)
	}
	if again := e.Encode(nil, []byte(program)); !slices.Equal(ids, again) {
		t.Errorf("the second encoding differs from the first")
	}
	if slices.Contains(ids, EndOfText) {
		t.Errorf("Encode returned EndOfText")
	}
	if got := e.Encode(ids[:3:3], []byte("add")); !slices.Equal(got[:3], ids[:3]) || len(got) <= 3 {
		t.Errorf("Encode did not append to dst")
	}
	if got := tok.Decode([]byte("x"), []int32{'y', EndOfText, 'z'}); string(got) != "xyz" {
		t.Errorf("Decode around EndOfText: %q, want %q", got, "xyz")
	}
}

// encodeNaive joins all places of the pair learnt first, again and again.
func encodeNaive(t *Tokenizer, word []byte) []int32 {
	var tokens []int32
	for _, b := range word {
		tokens = append(tokens, int32(b))
	}
	for i, m := range t.merges {
		tokens = joinPair(tokens, m, int32(MinVocab+i))
	}
	return tokens
}

func TestEncodeAgreesWithNaive(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	tok := trained(t, 700, strings.Repeat(program, 2), strings.Repeat("aaab abab bbaa aaaaaaaa ", 9))
	for range 3000 {
		word := make([]byte, 1+rng.IntN(maxWordBytes))
		for i := range word {
			word[i] = "aaabbdreturn"[rng.IntN(12)]
		}
		if got, want := NewEncoder(tok).Encode(nil, word), encodeNaive(tok, word); !slices.Equal(got, want) {
			t.Fatalf("Encode(%q) = %v, naive %v", word, got, want)
		}
	}
}

func TestEncoderForgets(t *testing.T) {
	tok := trained(t, 400, program)
	small, large := NewEncoder(tok), NewEncoder(tok)
	small.words = 3
	text := []byte(strings.Repeat(program, 2))
	got, want := small.Encode(nil, text), large.Encode(nil, text)
	if !slices.Equal(got, want) {
		t.Errorf("an encoder that remembers 3 words gives other ids")
	}
	if len(small.known) > 3 {
		t.Errorf("%d words remembered, want at most 3", len(small.known))
	}
}

func FuzzRoundTrip(f *testing.F) {
	for _, seed := range []string{"", "\x00", program, "\xff\xfe\x80", "日本語 text", strings.Repeat("ab", 50), strings.Repeat(" ", 99)} {
		f.Add([]byte(seed))
	}
	tok := trained(f, 600, strings.Repeat(program, 2), strings.Repeat("日本語 ab", 9))
	shared := NewEncoder(tok)
	f.Fuzz(func(t *testing.T, text []byte) {
		ids := NewEncoder(tok).Encode(nil, text)
		if got := tok.Decode(nil, ids); !bytes.Equal(got, text) {
			t.Errorf("Decode(Encode(%q)) = %q", text, got)
		}
		if got := shared.Encode(nil, text); !slices.Equal(got, ids) {
			t.Errorf("Encode(%q) = %v with a used encoder, %v with a new one", text, got, ids)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	tok := trained(b, 1000, program)
	noise := make([]byte, 1<<18) // one long identifier: no word is seen twice
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range noise {
		noise[i] = byte('a' + rng.IntN(26))
	}
	for name, text := range map[string][]byte{"program": []byte(strings.Repeat(program, 1000)), "noise": noise} {
		b.Run(name, func(b *testing.B) {
			var ids []int32
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				ids = NewEncoder(tok).Encode(ids[:0], text)
			}
		})
	}
}

// TestVersionNamesTheAlgorithm fails when Train or wordLength changes what they
// make: then raise Version, so that no cache serves the old vocabulary, and
// record the new sum.
func TestVersionNamesTheAlgorithm(t *testing.T) {
	data, err := trained(t, 400, strings.Repeat(program, 2)).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("version %d: %x", Version, sha256.Sum256(data))
	if want := "version 1: 5305dbf33deb959577614d0a3e1fcf791b30833d1fef12401022d1dd705a692c"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
