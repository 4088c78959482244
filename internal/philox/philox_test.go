package philox

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"testing"
)

// The vectors are those of the authors' Random123, file kat_vectors, for
// "philox4x32 10": counter, key, result.
func TestPhiloxKnownAnswers(t *testing.T) {
	for _, c := range []struct {
		block uint64
		key   Key
		want  [4]uint32
	}{
		{0, Key{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{math.MaxUint64, Key{math.MaxUint64, math.MaxUint64}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{0x85a308d3_243f6a88, Key{0x299f31d0_a4093822, 0x03707344_13198a2e}, [4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := c.key.Block(c.block); got != c.want {
			t.Errorf("%x %x: got %x, want %x", c.block, c.key, got, c.want)
		}
	}
}

func TestWordsAreByIndex(t *testing.T) {
	k := Key{7, 3}
	all := make([]uint32, 64)
	k.Words(all, 0)
	for first := range 9 {
		for n := range 20 {
			part := make([]uint32, n)
			k.Words(part, uint64(first))
			if !slices.Equal(part, all[first:first+n]) {
				t.Fatalf("words %d to %d differ from those of the whole", first, first+n)
			}
		}
	}
}

// tailProbability is P(Z > z).
func tailProbability(z float64) float64 { return 0.5 * math.Erfc(z/math.Sqrt2) }

func TestNormalInvertsTheDistribution(t *testing.T) {
	for i := range 400000 {
		word := uint32(i*10737) & 0x7fffffff
		if i < 100000 {
			word = uint32(i) // the far tail
		}
		p := float64(uint64(word)<<1|1) * (1.0 / (1 << 33))
		z := Normal(word)
		// The error in z is that in p over the density.
		density := math.Exp(-z*z/2) / math.Sqrt(2*math.Pi)
		if diff := (tailProbability(z) - p) / density; math.Abs(diff) > 1e-7 {
			t.Fatalf("word %#x: z = %v is off by %v", word, z, diff)
		}
		if Normal(word|1<<31) != -z {
			t.Fatalf("word %#x is not symmetric", word)
		}
	}
}

func TestNormalMoments(t *testing.T) {
	const n = 1 << 18
	words := make([]uint32, n)
	Key{1, 2}.Words(words, 0)
	var m1, m2, m4 float64
	for _, w := range words {
		z := Normal(w)
		m1, m2, m4 = m1+z, m2+z*z, m4+z*z*z*z
	}
	// Four standard deviations: 1/√n, √(2/n), √(96/n).
	if m1 /= n; math.Abs(m1) > 4/math.Sqrt(n) {
		t.Errorf("mean %v", m1)
	}
	if m2 /= n; math.Abs(m2-1) > 4*math.Sqrt(2.0/n) {
		t.Errorf("second moment %v", m2)
	}
	if m4 /= n; math.Abs(m4-3) > 4*math.Sqrt(96.0/n) {
		t.Errorf("fourth moment %v", m4)
	}
}

// The bits must be the same on every architecture. The hash was recorded on amd64.
func TestNormalBitsAreFixed(t *testing.T) {
	h := fnv.New64a()
	words := make([]uint32, 4096)
	Key{42, 0}.Words(words, 0)
	for _, w := range words {
		fmt.Fprintf(h, "%x ", math.Float64bits(Normal(w)))
	}
	const want = 0xe23ff09edf51de2a
	if got := h.Sum64(); got != want {
		t.Errorf("hash of 4096 normals is %#x, want %#x", got, uint64(want))
	}
}

func BenchmarkWords(b *testing.B) {
	words := make([]uint32, 1024)
	b.SetBytes(4096)
	for range b.N {
		Key{1, 2}.Words(words, 0)
	}
}

func BenchmarkNormal(b *testing.B) {
	words, z := make([]uint32, 1024), make([]float64, 1024)
	Key{1, 2}.Words(words, 0)
	b.SetBytes(4096)
	for range b.N {
		for i, w := range words {
			z[i] = Normal(w)
		}
	}
}
