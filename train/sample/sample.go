// Package sample chooses the next token from a model's logits, and shows what
// text came of it. Generate does it for a model on a mesh; a program that has all
// logits on a rank does it itself:
//
//	s, err := sample.New(sample.Options{Temperature: 0.8, TopK: 50}, seed)
//	for position := range 200 {
//		… logits of the next token …
//		id, err := s.Next(logits, position)
//		…
//	}
//	fmt.Print(sample.Format(text, 80))
package sample

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/gorun-spmd/gorun/internal/fault"
)

// Options say how adventurous the choice is. The zero value always takes the
// most probable token.
type Options struct {
	// Temperature divides the logits: 1 samples what the model believes, less
	// prefers probable tokens. 0 takes the most probable one.
	Temperature float64

	// TopK is how many of the most probable tokens are left to choose from. 0 leaves all.
	TopK int

	// TopP leaves of these the most probable ones that have the probability TopP together,
	// see loss.SampleOptions. 0 and 1 leave all.
	TopP float64

	// Whole has Generate hand on the whole text each time. Next does not look at it.
	Whole bool
}

// check returns an error for options out of their range.
func (o Options) check(call string) error {
	if o.Temperature < 0 || math.IsNaN(o.Temperature) || math.IsInf(o.Temperature, 0) {
		return fmt.Errorf("sample: %s: temperature %v; choose 0 (the most probable token) or more, usually 0.5 to 1", call, o.Temperature)
	}
	if o.TopK < 0 {
		return fmt.Errorf("sample: %s: the top %d tokens; choose 0 (all) or more", call, o.TopK)
	}
	if !(o.TopP >= 0 && o.TopP <= 1) {
		return fmt.Errorf("sample: %s: the top probability %v; choose one above 0, usually 0.9, or 0 (all)", call, o.TopP)
	}
	return nil
}

// A Sampler chooses tokens. It is for one goroutine.
type Sampler struct {
	options Options
	seed    uint64
	kept    []candidate // scratch, the most probable first if TopK limits them
}

// A candidate is a token that may be chosen.
type candidate struct {
	id    int
	logit float64
}

// New returns a Sampler whose choices depend on the seed.
func New(o Options, seed uint64) (_ *Sampler, err error) {
	defer fault.Locate(&err)
	if err := o.check("New"); err != nil {
		return nil, err
	}
	return &Sampler{options: o, seed: seed}, nil
}

// Next returns an id, below len(logits), for this position of the text. It is a
// function of the logits, the seed and the position alone, so ranks that hold
// the same logits choose the same token. Logits that are not finite are never
// chosen; an error says that none is finite.
//
//	logits [V]
func (s *Sampler) Next(logits []float32, position int) (int, error) {
	s.keep(logits)
	if len(s.kept) == 0 {
		return 0, fmt.Errorf("sample: Next: none of %d logits is finite: the model has diverged; train it with a lower learning rate",
			len(logits))
	}
	most := s.kept[0].logit
	for _, c := range s.kept {
		most = max(most, c.logit)
	}
	total := s.total(most)
	if s.options.TopP > 0 && s.options.TopP < 1 {
		s.keepNucleus(most, s.options.TopP*total)
		total = s.total(most)
	}
	rest := s.uniform(position) * total
	chosen := s.kept[0].id
	for _, c := range s.kept {
		w := s.weight(c.logit - most)
		if w == 0 {
			continue
		}
		chosen = c.id
		if rest -= w; rest < 0 {
			break
		}
	}
	return chosen, nil
}

// total returns the sum of the weights of s.kept.
func (s *Sampler) total(most float64) (total float64) {
	for _, c := range s.kept {
		total += s.weight(c.logit - most)
	}
	return total
}

// keepNucleus leaves in s.kept the largest logits until their weights add up to limit.
func (s *Sampler) keepNucleus(most, limit float64) {
	slices.SortStableFunc(s.kept, func(a, b candidate) int { return cmp.Compare(b.logit, a.logit) })
	sum := 0.0
	for i, c := range s.kept {
		if sum += s.weight(c.logit - most); sum >= limit {
			s.kept = s.kept[:i+1]
			return
		}
	}
}

// weight is exp(below/Temperature), at Temperature 0 its limit. below is how far
// a logit is from the largest: never above zero.
func (s *Sampler) weight(below float64) float64 {
	switch {
	case below == 0:
		return 1
	case s.options.Temperature == 0:
		return 0
	}
	return math.Exp(below / s.options.Temperature)
}

// keep fills s.kept with the finite logits: all of them in the order of ids, or
// the TopK largest, of equals those with the lower ids. At Temperature 0 that is
// one.
func (s *Sampler) keep(logits []float32) {
	s.kept = s.kept[:0]
	limit := s.options.TopK
	if s.options.Temperature == 0 {
		limit = 1
	}
	for id, l := range logits {
		c := candidate{id, float64(l)}
		switch {
		case math.IsNaN(c.logit) || math.IsInf(c.logit, 0):
			continue
		case limit == 0 || limit >= len(logits):
			s.kept = append(s.kept, c)
			continue
		case len(s.kept) == limit:
			if c.logit <= s.kept[limit-1].logit {
				continue
			}
			s.kept = s.kept[:limit-1]
		}
		at := sort.Search(len(s.kept), func(i int) bool { return s.kept[i].logit < c.logit })
		s.kept = slices.Insert(s.kept, at, c)
	}
}

// uniform returns a number in [0, 1), independent for every (seed, position).
func (s *Sampler) uniform(position int) float64 {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[0:], s.seed)
	binary.LittleEndian.PutUint64(key[8:], uint64(position))
	copy(key[24:], "sampling")
	return float64(rand.NewChaCha8(key).Uint64()>>11) / (1 << 53)
}
