package simd

import (
	"fmt"
	"unsafe"
)

// A Level is an instruction set that kernels exist for.
type Level uint8

// The levels.
const (
	Scalar     Level = iota // plain Go
	NEON                    // arm64's Advanced SIMD: 4 float32 at a time
	AVX2                    // AVX2, FMA and F16C: 8 float32 at a time
	AVX512                  // AVX-512 F, BW, DQ and VL: 16 float32 at a time
	AVX512BF16              // AVX512 and AVX-512 BF16, by which package gemm multiplies bfloat16
	AMX                     // AVX512BF16 and the tiles of AMX-BF16, by which it does so where there are any
)

// String names the level.
func (l Level) String() string {
	return [...]string{"scalar", "NEON", "AVX2", "AVX-512", "AVX-512 BF16", "AMX"}[l]
}

// A kernelSet has the kernels that a level offers.
type kernelSet [kernels]bool

func setOf(list ...kernel) (s kernelSet) {
	for _, k := range list {
		s[k] = true
	}
	return s
}

// allBut returns all kernels but those of the list.
func allBut(list ...kernel) kernelSet {
	s := setOf(list...)
	for k := range s {
		s[k] = !s[k]
	}
	return s
}

// offers has the kernels of each level; for the others its plain loop runs. So an instruction
// set may begin with a single kernel.
var offers = [...]kernelSet{
	Scalar:     {},
	NEON:       neonKernels,
	AVX2:       allBut(zipRowsKernel, fromRowsBF16Kernel, toRowsBF16Kernel, normalsKernel),
	AVX512:     allBut(),
	AVX512BF16: allBut(),
	AMX:        allBut(),
}

// best is the highest level of this processor without AMX, and never changes.
var best = detect()

// Best returns the highest level of this processor for all but products of bfloat16.
func Best() Level { return best }

// BestBF16 returns the fastest level of this processor for products of bfloat16. Tiles are kilobytes of registers,
// which a process has to ask for, and which make the frames of its signals larger: BestBF16 asks for them, so only what
// multiplies bfloat16 calls it.
func BestBF16() Level { return fastestBF16(hasTiles(), allowTiles, pairsSlow()) }

// fastestBF16 returns AMX on a processor that has tiles and whose system allows them. Without them it returns the best
// level, but AVX512 if products of pairs are slow: those of float32 are faster then.
func fastestBF16(tiles bool, allow func() bool, slow bool) Level {
	switch {
	case tiles && allow():
		return AMX
	case slow:
		return min(best, AVX512)
	default:
		return best
	}
}

// Levels returns the levels of this processor, from Scalar to the highest.
func Levels() []Level {
	list := []Level{Scalar}
	if best == NEON {
		return append(list, NEON)
	}
	most := max(best, BestBF16())
	for l := AVX2; l <= most; l++ {
		list = append(list, l)
	}
	return list
}

// A Mode is how a function runs: by which instruction set, and whether its stores are
// non-temporal, which is to say that they go past the caches. The exported functions run at
// the highest level, in the mode that Writing returns or in the ordinary one. Each is a method
// of Mode as well, so that tests run it in every mode.
type Mode struct {
	Level       Level
	NonTemporal bool // from AVX-512 on, and for copies with AVX2; there are no prefetches then
}

// String names the mode.
func (m Mode) String() string {
	if m.NonTemporal {
		return m.Level.String() + " with non-temporal stores"
	}
	return m.Level.String()
}

// has reports whether kernel k exists in this mode; else the plain loop runs.
func (m Mode) has(k kernel) bool { return offers[m.Level][k] }

// code is the mode as an assembly function of amd64 takes it: 1 for AVX2, 2 from AVX512 on,
// and there one more for non-temporal stores.
func (m Mode) code() uint8 {
	l := max(1, min(m.Level, AVX512)-AVX2+1)
	if m.NonTemporal && m.wide() {
		l++
	}
	return uint8(l)
}

// wide tells an assembly function of amd64 which of its two halves to run.
func (m Mode) wide() bool { return m.Level >= AVX512 }

// bytes is the length of a vector of amd64.
func (m Mode) bytes() int {
	if m.wide() {
		return 64
	}
	return 32
}

// ordinary is the highest level with ordinary stores.
var ordinary = Mode{Level: best}

// Ordinary returns the mode of the highest level with ordinary stores.
func Ordinary() Mode { return ordinary }

// chunk is the most elements of one call of assembly. So a call lasts some 50 µs at most,
// even from slow memory.
const chunk = 1 << 14

// Number are the element types the arithmetic functions accept.
type Number interface {
	float32 | float64 | int8 | int16 | int32 | int64 | uint8
}

// same panics unless every length is n.
func same(op string, n int, lengths ...int) {
	for _, l := range lengths {
		if l != n {
			panic(fmt.Sprintf("simd: %s: lengths %d and %d", op, n, l))
		}
	}
}

// is32 reports whether T is float32, the type that has kernels, and is64 whether it is float64, which has a few.
func is32[T Number]() bool {
	var zero T
	_, ok := any(zero).(float32)
	return ok
}

func is64[T Number]() bool {
	var zero T
	_, ok := any(zero).(float64)
	return ok
}

// as32 is s, whose elements are float32.
func as32[T Number](s []T) []float32 { return bitsIn[float32](s) }

// at is the address of s[i], or nil if s is nil.
func at(s []float32, i int) *float32 {
	if s == nil {
		return nil
	}
	return &s[i]
}

// noPrefetch is the mode of kernels that change a slice in place, and of those that only
// read. As NonTemporal they do not prefetch; their stores are ordinary ones.
var noPrefetch = Mode{Level: best, NonTemporal: prefetchSlows()}

// Apart returns the mode for kernels that change short rows of a table in place, in any order: what lies behind
// a row is not what comes next, so they do not prefetch it. The caller prefetches.
func Apart() Mode { return Mode{Level: best, NonTemporal: ordinary.wide()} }

// nonTemporalFrom is the number of bytes read and written from which stores are
// non-temporal: the caches would not keep all of the result.
const nonTemporalFrom = 24 << 20

// Writing returns the mode for kernels that compute dst, or rows of it, from slices of
// the same length. It is NonTemporal if dst is large and none of the slices that are
// read: a non-temporal store does not first read the memory that it overwrites. The caller
// calls Done on the mode after the last kernel.
func Writing[T Elem](dst []T, read ...[]T) Mode {
	for _, r := range read {
		if unsafe.SliceData(r) == unsafe.SliceData(dst) {
			return ordinary
		}
	}
	return Moving((1 + len(read)) * len(dst) * int(unsafe.Sizeof(*new(T))))
}

// computed is Writing for kernels that are bound by arithmetic rather than by memory. They
// are faster with prefetches, and so without non-temporal stores, except on processors
// where prefetches make kernels slower.
func computed[T Elem](dst []T, read ...[]T) Mode {
	if noPrefetch.NonTemporal {
		return Writing(dst, read...)
	}
	return ordinary
}

// Moving is Writing for a kernel that reads and writes a number of bytes, in slices that do
// not overlap.
func Moving(bytes int) Mode {
	return Mode{Level: ordinary.Level, NonTemporal: ordinary.wide() && bytes >= nonTemporalFrom}
}

// Copying is Moving for copies alone. Their stores are non-temporal with AVX2 too.
func Copying(bytes int) Mode {
	return Mode{Level: ordinary.Level, NonTemporal: ordinary.Level >= AVX2 && bytes >= nonTemporalFrom}
}

// Done orders the stores of this mode before later stores, which non-temporal ones need.
func (m Mode) Done() {
	if m.NonTemporal {
		Fence()
	}
}

// Fence orders the non-temporal stores of this goroutine before later stores.
func Fence() { storeFence() }
