// Package philox makes random numbers that depend on a key and an index alone.
//
// Element i of a stream is a function of (seed, stream, i). There is no state, so any
// part of a tensor can be made anywhere, in any order, and is the same for every
// sharding. The generator is Philox4x32-10 of Salmon et
// al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Normals come from
// one fixed set of polynomials evaluated with fused multiply-adds, so that every
// architecture, and a GPU, gives the same bits.
package philox

import (
	"math"

	"github.com/gorun-spmd/gorun/internal/simd"
)

//go:generate go run gen.go

// A Key chooses a sequence of random numbers. Different streams of one seed are
// independent, for parameters that must not be alike.
type Key struct {
	Seed   uint64
	Stream uint64
}

// What is added to the two halves of the key after each round.
const weyl0, weyl1 = 0x9E3779B9, 0xBB67AE85

// Block returns the four random words of elements 4·block to 4·block+3: Philox
// with the seed as key and (block, stream) as counter, low words first.
func (k Key) Block(block uint64) [4]uint32 {
	c0, c1, c2, c3 := uint32(block), uint32(block>>32), uint32(k.Stream), uint32(k.Stream>>32)
	k0, k1 := uint32(k.Seed), uint32(k.Seed>>32)
	for range 10 {
		p0, p1 := uint64(c0)*0xD2511F53, uint64(c2)*0xCD9E8D57
		c0, c1, c2, c3 = uint32(p1>>32)^c1^k0, uint32(p1), uint32(p0>>32)^c3^k1, uint32(p0)
		k0, k1 = k0+weyl0, k1+weyl1
	}
	return [4]uint32{c0, c1, c2, c3}
}

// rounds returns the keys of the ten rounds, two of each.
func (k Key) rounds() (keys [20]uint64) {
	k0, k1 := uint32(k.Seed), uint32(k.Seed>>32)
	for i := range 10 {
		keys[2*i], keys[2*i+1] = uint64(k0), uint64(k1)
		k0, k1 = k0+weyl0, k1+weyl1
	}
	return keys
}

// fewestVectorWords is how many words are made at least with vector instructions.
const fewestVectorWords = 32

// Words fills dst with the random words of elements first, first+1, ….
func (k Key) Words(dst []uint32, first uint64) {
	block, lane := first/4, int(first%4)
	if lane != 0 {
		w := k.Block(block)
		n := copy(dst, w[lane:])
		dst, block = dst[n:], block+1
	}
	if len(dst) >= fewestVectorWords {
		keys := k.rounds()
		n := simd.Ordinary().PhiloxBlocks(dst, block, k.Stream, &keys)
		dst, block = dst[n:], block+uint64(n/4)
	}
	for ; len(dst) >= 4; block++ {
		*(*[4]uint32)(dst) = k.Block(block)
		dst = dst[4:]
	}
	if len(dst) > 0 {
		w := k.Block(block)
		copy(dst, w[:])
	}
}

// Uniform maps a random word to [0, 1): a multiple of 2⁻²⁴.
func Uniform(word uint32) float64 { return float64(word>>8) * (1.0 / (1 << 24)) }

// Normal maps a random word to the standard normal distribution, by the inverse of
// its distribution function: the sign is the top bit, and the other 31 bits k give
// the probability p = (2k+1)·2⁻³³ of the tail beyond |z|; |z| is at most 6.3. Each octave
// of p has a polynomial in t = m - 1.5 for 2k+1 = m·2ᵉ. Its absolute error is below 1e-7,
// about the rounding error of float32.
func Normal(word uint32) float64 {
	v := uint64(word&0x7fffffff)<<1 | 1
	bits := math.Float64bits(float64(v)) // exact
	e := bits>>52 - 1023
	t := math.Float64frombits(bits&(1<<52-1)|1023<<52) - 1.5
	c := &tail[e&31]
	z := math.FMA(c[0], t, c[1])
	z = math.FMA(z, t, c[2])
	z = math.FMA(z, t, c[3])
	z = math.FMA(z, t, c[4])
	z = math.FMA(z, t, c[5])
	z = math.FMA(z, t, c[6])
	z = math.FMA(z, t, c[7])
	z = math.FMA(z, t, c[8])
	return math.Float64frombits(math.Float64bits(z) ^ uint64(word>>31)<<63)
}

// Normals sets dst[i] to std·Normal(words[i]) + mean, rounded once in float64 and then to float32.
func Normals(dst []float32, words []uint32, mean, std float64) {
	n := simd.Ordinary().Normals(dst, words, mean, std, &byPower)
	for i, w := range words[n:] {
		dst[n+i] = float32(math.FMA(std, Normal(w), mean))
	}
}

// byPower is tail by power and then by octave.
var byPower = func() (powers [len(tail[0])][len(tail)]float64) {
	for octave, c := range tail {
		for i, v := range c {
			powers[i][octave] = v
		}
	}
	return powers
}()

// Tail returns the table of Normal, 32 octaves of 9 coefficients, for a device that
// evaluates it itself.
func Tail() []float64 {
	flat := make([]float64, 0, len(tail)*len(tail[0]))
	for _, c := range tail {
		flat = append(flat, c[:]...)
	}
	return flat
}
