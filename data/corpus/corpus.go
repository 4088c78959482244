// Package corpus finds text to learn from and splits it into a training part
// and a held-out part.
//
// Without paths it reads the Go standard library's own source, which is on
// every machine that can build this program. The files alone decide what is read, in
// which order, and what is held out: it is the same on every rank and every machine,
// in whatever order the file system lists the files.
//
// Load returns the text. Prepare trains a tokenizer on the text, returns its tokens and
// keeps them in a cache. One rank prepares, the others get its bytes:
//
//	d, err := corpus.Prepare(corpus.PrepareOptions{VocabSize: 16384}) // rank 0: seconds, or from the cache
//	data, err := d.MarshalBinary()                                    // broadcast these …
//	d, err = corpus.Parse(data)                                       // … every other rank
//
// so that it does not matter whether other ranks see the cache directory, or anybody
// can write it. data.Share sends the bytes so.
package corpus

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/internal/fault"
)

// Default sizes of Options.
const (
	DefaultMaxBytes     = 64 << 20
	DefaultHeldOutBytes = 512 << 10
)

// Options say what to read. The zero value reads the Go standard library.
type Options struct {
	// Paths are files, and directories whose text files are read. Without paths the Go
	// standard library's source is read.
	Paths []string

	// MaxBytes bounds how much text is kept, and so the memory Load takes. Of more text,
	// Load keeps whole files, chosen as if at random. 0 means DefaultMaxBytes.
	MaxBytes int

	// HeldOutBytes bounds the held-out part, which is about 5 % of the text and
	// never more than this. 0 means DefaultHeldOutBytes.
	HeldOutBytes int
}

// A Document is the text of one file, or a part of it.
type Document struct {
	Name string // slash-separated path below the directory that was read, or the file's own name
	Text []byte // never empty
}

// A Corpus is text in two parts, each in the order of Options.Paths and, within
// a path, of names.
type Corpus struct {
	Source  string // what was read, for people: "the Go standard library"
	Train   []Document
	HeldOut []Document
	Skipped int // files passed over because they are empty or not text
}

// Load reads the text that o names. Its error names the path and what to do
// about it.
func Load(o Options) (_ *Corpus, err error) {
	defer fault.Locate(&err)
	if o.MaxBytes < 0 || o.HeldOutBytes < 0 {
		return nil, fmt.Errorf("corpus: Load: at most %d bytes of text with %d held out; sizes cannot be negative",
			o.MaxBytes, o.HeldOutBytes)
	}
	o.MaxBytes = cmp.Or(o.MaxBytes, DefaultMaxBytes)
	o.HeldOutBytes = cmp.Or(o.HeldOutBytes, DefaultHeldOutBytes)

	found, source, err := find(o.Paths)
	if err != nil {
		return nil, fmt.Errorf("corpus: %w", err)
	}
	files, skipped, err := read(found, o.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("corpus: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("corpus: %s: no text in %d files, they are empty or binary; name files of plain text",
			source, skipped)
	}
	c := &Corpus{Source: source, Skipped: skipped}
	c.Train, c.HeldOut = split(files, o.HeldOutBytes)
	if len(c.Train) == 0 || len(c.HeldOut) == 0 {
		return nil, fmt.Errorf("corpus: %s: %d bytes of text are too few to hold some out; give more text",
			source, size(c.Train)+size(c.HeldOut))
	}
	return c, nil
}

// TrainBytes returns the size of the training part.
func (c *Corpus) TrainBytes() int { return size(c.Train) }

// HeldOutBytes returns the size of the held-out part.
func (c *Corpus) HeldOutBytes() int { return size(c.HeldOut) }

func size(docs []Document) int {
	n := 0
	for _, d := range docs {
		n += len(d.Text)
	}
	return n
}

// errNotText is why a file named by the user cannot be used.
var errNotText = errors.New("not text (it has NUL bytes or is not in UTF-8); name files of plain text")

// byOrder puts files back into the order in which they were found.
func byOrder(files []file) {
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.order, b.order) })
}
