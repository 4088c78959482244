package philox

import (
	"math"
	"testing"

	"github.com/gorun-spmd/gorun/internal/simd"
)

// TestVectorBlocks compares the blocks of each level with those of Block, for lengths around those that a level writes at a time, and
// with a counter of blocks that passes 2³² and 2⁶⁴.
func TestVectorBlocks(t *testing.T) {
	for _, level := range simd.Levels() {
		m, written := simd.Mode{Level: level}, 0
		for _, key := range []Key{{}, {1, 2}, {0xfedcba9876543210, math.MaxUint64}, {math.MaxUint64, 1 << 40}} {
			rounds := key.rounds()
			for _, first := range []uint64{0, 5, 1<<32 - 3, 1 << 40, math.MaxUint64 - 4} {
				for _, n := range []int{0, 1, 31, 32, 33, 63, 64, 65, 95, 96, 127, 128, 500, 1 << 15} {
					dst := make([]uint32, n+1)
					dst[n] = 77
					k := m.PhiloxBlocks(dst[:n], first, key.Stream, &rounds)
					written += k
					if k%4 != 0 || k > n || dst[n] != 77 {
						t.Fatalf("%v: %d words are written of %d, and what follows is %d", level, k, n, dst[n])
					}
					for i := 0; i < k; i += 4 {
						if want := key.Block(first + uint64(i/4)); [4]uint32(dst[i:]) != want {
							t.Fatalf("%v, %+v from %d: words %d are %x, want %x", level, key, first, i, dst[i:i+4], want)
						}
					}
				}
			}
		}
		if (level >= simd.AVX2) != (written > 0) {
			t.Errorf("%v has written %d words", level, written)
		}
	}
}

// TestVectorNormals compares the numbers of each level with those of Normal, bit for bit: words of all octaves, whose boundaries are
// among them, and their negatives.
func TestVectorNormals(t *testing.T) {
	var words []uint32
	for e := range 32 {
		for _, d := range []uint32{0, 1, 2, 3} {
			w := uint32(1)<<e + d - 2
			words = append(words, w, w^1<<31, ^w)
		}
	}
	random := make([]uint32, 1<<20)
	Key{Seed: 3}.Words(random, 0)
	words = append(words, random...)
	for _, level := range simd.Levels() {
		m, mapped := simd.Mode{Level: level}, 0
		for _, c := range []struct{ mean, std float64 }{{0, 1}, {-0.1, 0.02}, {1e30, 1e-30}, {0, 1e-42}} {
			for _, n := range []int{0, 1, 7, 8, 9, 16, 100, len(words)} {
				its, dst := words[len(words)-n:], make([]float32, n+1)
				if n > 1000 {
					its = words
				}
				dst[n] = 77
				k := m.Normals(dst[:n], its, c.mean, c.std, &byPower)
				mapped += k
				if k > n || dst[n] != 77 {
					t.Fatalf("%v: %d numbers of %d are mapped, and what follows is %v", level, k, n, dst[n])
				}
				for i, w := range its[:k] {
					if want := float32(math.FMA(c.std, Normal(w), c.mean)); math.Float32bits(dst[i]) != math.Float32bits(want) {
						t.Fatalf("%v: word %#x is %v, want %v", level, w, dst[i], want)
					}
				}
			}
		}
		if (level >= simd.AVX512) != (mapped > 0) {
			t.Errorf("%v has mapped %d words", level, mapped)
		}
	}
}
