// Package dataset makes token ids of a corpus and serves them as batches.
//
// One rank prepares, the others get its bytes:
//
//	d, err := dataset.Prepare(dataset.Options{VocabSize: 16384}) // rank 0: seconds, or from the cache
//	data, err := d.MarshalBinary()                               // broadcast these …
//	d, err = dataset.Parse(data)                                 // … every other rank
//
// so that a cache directory that other ranks cannot see, or that nobody can
// write, makes no difference.
//
// Batches are a function of (seed, step, row) with row counted over the global
// batch: however many ranks divide the rows among them, the batch is the same.
package dataset

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/gorun-spmd/gorun/examples/train/internal/corpus"
	"github.com/gorun-spmd/gorun/examples/train/internal/tokenizer"
)

// DefaultVocabSize is the vocabulary Prepare makes unless told otherwise.
const DefaultVocabSize = 16384

// sampleBytes is how much of the training part the tokenizer learns from.
const sampleBytes = 16 << 20

// Options say what to prepare. The zero value is the Go standard library with
// the default vocabulary, cached in the user's cache directory.
type Options struct {
	Corpus    corpus.Options
	VocabSize int // token ids, bytes included; 0 means DefaultVocabSize

	// CacheDir is where prepared datasets are kept; "" means gorun/train in the
	// user's cache directory (os.UserCacheDir). The few newest are kept.
	CacheDir string

	// Warn is told, in one line, when the cache cannot be used. Prepare works
	// without it. nil ignores that.
	Warn func(text string)
}

// A Dataset is a corpus as token ids. Do not modify it: nothing else is copied
// when it is used.
type Dataset struct {
	Source    string // what was read, for people
	Tokenizer *tokenizer.Tokenizer

	// Train and HeldOut are the documents of each part, one after the other,
	// with tokenizer.EndOfText before, between and after them. The vocabulary
	// may be below Options.VocabSize if the text is short.
	Train, HeldOut []uint16

	// TrainBytes and HeldOutBytes are the sizes of the text that Train and
	// HeldOut stand for.
	TrainBytes, HeldOutBytes int

	Path   string // the cache file that has this dataset, "" if there is none
	Cached bool   // it was read from there rather than made anew
}

// HeldOutText returns the held-out documents, concatenated.
func (d *Dataset) HeldOutText() []byte {
	return d.Tokenizer.Decode(make([]byte, 0, d.HeldOutBytes), d.HeldOut)
}

// Prepare reads the corpus and returns its tokens: from the cache if the same
// text was prepared before, else by training a tokenizer and encoding, after
// which it writes the cache. Several processes may do so at once.
func Prepare(o Options) (*Dataset, error) {
	o.VocabSize = cmp.Or(o.VocabSize, DefaultVocabSize)
	if o.VocabSize < tokenizer.MinVocab || o.VocabSize > tokenizer.MaxVocab {
		return nil, fmt.Errorf("dataset: Prepare: a vocabulary of %d tokens; choose one from %d to %d",
			o.VocabSize, tokenizer.MinVocab, tokenizer.MaxVocab)
	}
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	text, err := corpus.Load(o.Corpus)
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

// key names the dataset that text with this vocabulary becomes: it differs when
// anything does that goes into the result.
func key(text *corpus.Corpus, vocabSize int) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s tokenizer %d vocabulary %d sample %d\n", magic, tokenizer.Version, vocabSize, sampleBytes)
	for _, part := range [][]corpus.Document{text.Train, text.HeldOut} {
		fmt.Fprintf(h, "part of %d\n", len(part))
		for _, doc := range part {
			h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(doc.Text))))
			h.Write(doc.Text)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// encode trains a tokenizer on a sample of text and encodes it all.
func encode(text *corpus.Corpus, vocabSize int) (*Dataset, error) {
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
	join := func(docs []corpus.Document) []uint16 {
		ids := []uint16{tokenizer.EndOfText}
		for _, doc := range docs {
			ids = append(encoder.Encode(ids, doc.Text), tokenizer.EndOfText)
		}
		return ids
	}
	d.Train, d.HeldOut = join(text.Train), join(text.HeldOut)
	return d, nil
}

// sample returns about limit bytes of docs, in blocks spread evenly over them
// so that one directory does not speak for all; everything if it is less.
func sample(docs []corpus.Document, limit int) [][]byte {
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
