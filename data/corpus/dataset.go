package corpus

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/gorun-spmd/gorun/data/tokenizer"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// DefaultVocabSize is the default of PrepareOptions.VocabSize.
const DefaultVocabSize = 16384

// sampleBytes is how much of the training part the tokenizer learns from.
const sampleBytes = 16 << 20

// A PrepareOptions says what to prepare. The zero value is the Go standard library with
// the default vocabulary, cached in the user's cache directory.
type PrepareOptions struct {
	Corpus    Options
	VocabSize int // token ids, bytes included; 0 means DefaultVocabSize

	// CacheDir is where prepared datasets are kept; "" means gorun/train in the
	// user's cache directory (os.UserCacheDir). The few newest are kept.
	CacheDir string

	// Warn is called with a line of text if the cache cannot be used; Prepare goes on
	// without the cache. nil: no warning.
	Warn func(text string)
}

// A Dataset is a corpus as token ids. Do not modify it: its users share its memory.
type Dataset struct {
	Source    string // what was read, for people
	Tokenizer *tokenizer.Tokenizer

	// Train and HeldOut are the documents of each part, one after the other,
	// with tokenizer.EndOfText before, between and after them. The vocabulary
	// may be below PrepareOptions.VocabSize if the text is short.
	Train, HeldOut []int32

	// TrainBytes and HeldOutBytes are the sizes of the text that Train and
	// HeldOut stand for.
	TrainBytes, HeldOutBytes int

	Path   string // the cache file that has this dataset, "" if there is none
	Cached bool   // it was read from Path rather than made anew
}

// HeldOutText returns the held-out documents, concatenated.
func (d *Dataset) HeldOutText() []byte {
	return d.Tokenizer.Decode(make([]byte, 0, d.HeldOutBytes), d.HeldOut)
}

// Part returns every nth document of Train, with tokenizer.EndOfText before, between and after them. If
// there are fewer than 4·n documents, it is the last nth of the tokens instead.
func (d *Dataset) Part(n int) []int32 {
	return d.pick(n, true)
}

// Rest returns what Part leaves, in the same form.
func (d *Dataset) Rest(n int) []int32 {
	return d.pick(n, false)
}

// pick returns Part, or Rest.
func (d *Dataset) pick(n int, part bool) []int32 {
	var ends []int // of documents, their last token
	for i, id := range d.Train {
		if id == tokenizer.EndOfText {
			ends = append(ends, i)
		}
	}
	if len(ends)-1 < 4*n {
		at := len(d.Train) - len(d.Train)/n
		if part {
			return d.Train[at:]
		}
		return d.Train[:at]
	}
	wants := func(i int) bool { return (i%n == n-1) == part }
	size := 1
	for i, end := range ends[1:] {
		if wants(i) {
			size += end - ends[i]
		}
	}
	picked := append(make([]int32, 0, size), tokenizer.EndOfText)
	for i, end := range ends[1:] {
		if wants(i) {
			picked = append(picked, d.Train[ends[i]+1:end+1]...)
		}
	}
	return picked
}

// Prepare reads the corpus and returns its tokens. It takes them from the cache if the
// same text was prepared before; otherwise it trains a tokenizer, encodes the text and
// writes the cache. Several processes may do so at once.
func Prepare(o PrepareOptions) (_ *Dataset, err error) {
	defer fault.Locate(&err)
	o.VocabSize = cmp.Or(o.VocabSize, DefaultVocabSize)
	if o.VocabSize < tokenizer.MinVocab || o.VocabSize > tokenizer.MaxVocab {
		return nil, fmt.Errorf("corpus: Prepare: a vocabulary of %d tokens; choose one from %d to %d",
			o.VocabSize, tokenizer.MinVocab, tokenizer.MaxVocab)
	}
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	text, err := Load(o.Corpus)
	if err != nil {
		return nil, err
	}
	store := openCache(o.CacheDir)
	name := key(text, o.VocabSize)
	if d, err := store.read(name); err != nil {
		o.Warn(err.Error())
	} else if d != nil {
		d.Source = text.Source // the same text may lie elsewhere now
		return d, nil
	}
	d, err := encode(text, o.VocabSize)
	if err != nil {
		return nil, err
	}
	if d.Path, err = store.write(name, d); err != nil {
		o.Warn(err.Error())
	}
	return d, nil
}

// key returns the name of the dataset made from text with this vocabulary. It depends on
// everything that the result depends on.
func key(text *Corpus, vocabSize int) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s tokenizer %d vocabulary %d sample %d\n", magic, tokenizer.Version, vocabSize, sampleBytes)
	for _, part := range [][]Document{text.Train, text.HeldOut} {
		fmt.Fprintf(h, "part of %d\n", len(part))
		for _, doc := range part {
			h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(doc.Text))))
			h.Write(doc.Text)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// encode trains a tokenizer on a sample of text and encodes it all.
func encode(text *Corpus, vocabSize int) (*Dataset, error) {
	tok, err := tokenizer.Train(sample(text.Train, sampleBytes), vocabSize)
	if err != nil {
		return nil, err
	}
	d := &Dataset{
		Source:       text.Source,
		Tokenizer:    tok,
		TrainBytes:   text.TrainBytes(),
		HeldOutBytes: text.HeldOutBytes(),
	}
	encoder := tokenizer.NewEncoder(tok)
	join := func(docs []Document) []int32 {
		ids := []int32{tokenizer.EndOfText}
		for _, doc := range docs {
			ids = append(encoder.Encode(ids, doc.Text), tokenizer.EndOfText)
		}
		return ids
	}
	d.Train, d.HeldOut = join(text.Train), join(text.HeldOut)
	return d, nil
}

// sample returns about limit bytes of docs, or all if they are fewer, in blocks spread
// evenly over them, so that every directory is represented.
func sample(docs []Document, limit int) [][]byte {
	const blockBytes = 16 << 10
	total := 0
	for _, doc := range docs {
		total += len(doc.Text)
	}
	every := max(1, (total+limit-1)/limit) // one block in so many
	var blocks [][]byte
	n := 0
	for _, doc := range docs {
		for at := 0; at < len(doc.Text); at += blockBytes {
			if n%every == 0 {
				blocks = append(blocks, doc.Text[at:min(at+blockBytes, len(doc.Text))])
			}
			n++
		}
	}
	return blocks
}
