package ngram

import "testing"

// BenchmarkLogProbs is a row of 1024 of 4096 tokens.
func BenchmarkLogProbs(b *testing.B) {
	tokens := text(1<<20, 4096, 3)
	m, err := New(tokens, 4096, 4)
	if err != nil {
		b.Fatal(err)
	}
	s, dst := m.NewScorer(1024, 1024), make([]float32, 1024)
	for i := 0; b.Loop(); i++ {
		at := i * 37 % (len(tokens) - 8)
		s.LogProbs(dst, tokens[at:at+4])
	}
}
