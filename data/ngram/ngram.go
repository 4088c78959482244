// Package ngram has language models that count tokens, pairs and longer n-grams. They are
// fitted in seconds, so they are baselines that a trained model has to beat; see [Measure].
//
// All are measured in bits per byte of the held-out text, which does not depend
// on how the text was cut into tokens:
//
//	bits per byte = Σ −log₂ p(token i | tokens before it) / bytes of text
package ngram

import (
	"math"

	"github.com/gorun-spmd/gorun/metrics"
)

// Scores are bits per byte on one held-out text.
type Scores struct{ Unigram, Bigram, Gzip float64 }

// Measure fits the models to the training tokens, each below vocabSize, and
// scores them on the held-out tokens, which stand for text; gzip packs text
// itself. text must not be empty.
func Measure(train, heldOut []int32, vocabSize int, text []byte) (Scores, error) {
	gzip, err := metrics.GzipBitsPerByte(text)
	if err != nil {
		return Scores{}, err
	}
	return Scores{
		Unigram: BitsPerByte(NewUnigram(train, vocabSize), heldOut, len(text)),
		Bigram:  BitsPerByte(NewBigram(train, vocabSize), heldOut, len(text)),
		Gzip:    gzip,
	}, nil
}

// A Predictor gives the probability of a token after another.
type Predictor interface {
	// LogProb returns ln p(next | previous). It is finite for every pair of
	// tokens of the vocabulary.
	LogProb(previous, next int32) float64
}

// BitsPerByte returns the bits per byte of m for tokens[1:], each after the one before
// it. textBytes, above zero, is the size of the text that the tokens stand for.
func BitsPerByte(m Predictor, tokens []int32, textBytes int) float64 {
	nats := 0.0
	for i := 1; i < len(tokens); i++ {
		nats -= m.LogProb(tokens[i-1], tokens[i])
	}
	return metrics.BitsPerByte(nats, textBytes)
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
func NewUnigram(tokens []int32, vocabSize int) *Unigram {
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
func (u *Unigram) LogProb(_, next int32) float64 { return u.logs[next] }
