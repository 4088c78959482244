// Package baseline says how well simple means predict a text, so that a trained
// model has something to be measured against: token frequencies, pairs of
// tokens, and gzip.
//
// All are measured in bits per byte of the held-out text, which does not depend
// on how the text was cut into tokens:
//
//	bits per byte = Σ −log₂ p(token i | tokens before it) / bytes of text
package baseline

import (
	"compress/gzip"
	"fmt"
	"math"
)

// Scores are bits per byte on one held-out text.
type Scores struct{ Unigram, Bigram, Gzip float64 }

// Measure fits the models to the training tokens, each below vocabSize, and
// scores them on the held-out tokens, which stand for text; gzip packs text
// itself. text must not be empty.
func Measure(train, heldOut []uint16, vocabSize int, text []byte) (Scores, error) {
	gzip, err := Gzip(text)
	if err != nil {
		return Scores{}, err
	}
	return Scores{
		Unigram: BitsPerByte(NewUnigram(train, vocabSize), heldOut, len(text)),
		Bigram:  BitsPerByte(NewBigram(train, vocabSize), heldOut, len(text)),
		Gzip:    gzip,
	}, nil
}

// A Model gives the probability of a token after another.
type Model interface {
	// LogProb returns ln p(next | previous). It is finite for every pair of
	// tokens of the vocabulary.
	LogProb(previous, next uint16) float64
}

// BitsPerByte returns what m needs for tokens[1:], each after the one before
// it, with textBytes the size of the text the tokens stand for, above zero.
func BitsPerByte(m Model, tokens []uint16, textBytes int) float64 {
	nats := 0.0
	for i := 1; i < len(tokens); i++ {
		nats -= m.LogProb(tokens[i-1], tokens[i])
	}
	return FromNats(nats, textBytes)
}

// FromNats converts a sum of −ln p over the tokens of a text of textBytes bytes
// to bits per byte.
func FromNats(nats float64, textBytes int) float64 {
	return nats / math.Ln2 / float64(textBytes)
}

// ToNats is the inverse of FromNats. Divided by the number of tokens it is a
// loss that can be drawn beside a model's.
func ToNats(bitsPerByte float64, textBytes int) float64 {
	return bitsPerByte * math.Ln2 * float64(textBytes)
}

// Gzip returns the bits per byte of text after gzip -9. text must not be empty.
func Gzip(text []byte) (float64, error) {
	var size counter
	z, err := gzip.NewWriterLevel(&size, gzip.BestCompression)
	if err != nil {
		return 0, fmt.Errorf("baseline: Gzip: %w", err)
	}
	if _, err := z.Write(text); err != nil {
		return 0, fmt.Errorf("baseline: Gzip: %w", err)
	}
	if err := z.Close(); err != nil {
		return 0, fmt.Errorf("baseline: Gzip: %w", err)
	}
	return 8 * float64(size) / float64(len(text)), nil
}

// A counter is an io.Writer that only counts.
type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// A Unigram predicts a token by its frequency:
//
//	p(w) = (n(w) + ½) / (N + V/2)
//
// where w occurs n(w) times among N tokens and the vocabulary has V (the
// estimator of Krichevsky and Trofimov 1981).
type Unigram struct {
	logs []float64 // logs[w] == ln p(w)
}

// NewUnigram fits a Unigram to tokens, each below vocabSize.
func NewUnigram(tokens []uint16, vocabSize int) *Unigram {
	counts := make([]int, vocabSize)
	for _, w := range tokens {
		counts[w]++
	}
	u := &Unigram{logs: make([]float64, vocabSize)}
	total := math.Log(float64(len(tokens)) + float64(vocabSize)/2)
	for w, n := range counts {
		u.logs[w] = math.Log(float64(n)+0.5) - total
	}
	return u
}

// LogProb returns ln p(next), whatever the previous token.
func (u *Unigram) LogProb(_, next uint16) float64 { return u.logs[next] }
