package comm

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// However many elements a fold has, an element gets the same bits.
func TestFoldOfFewIsFoldOfMany(t *testing.T) {
	const many = 64
	rng := rand.New(rand.NewPCG(1, 2))
	for d := Float32; d.Size() > 0; d++ {
		for op := Sum; op <= Xor; op++ {
			if op.Accepts(d) != nil {
				continue
			}
			var srcs []unsafe.Pointer
			for range 3 {
				srcs = append(srcs, unsafe.Pointer(unsafe.SliceData(noise(rng, d, many))))
			}
			call := Call{Kind: AllReduceKind, Op: op, Src: Buffer{DType: d}}
			fold := func(n int) []byte {
				words := make([]uint64, 2*many)
				call.Fold([]unsafe.Pointer{unsafe.Pointer(&words[0])}, srcs, n)
				return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), n*d.Size())
			}
			want := fold(many)
			for n := range 20 {
				if got := fold(n); !bytes.Equal(got, want[:len(got)]) {
					t.Errorf("%v of %v: %d elements give %x, as part of %d they give %x", op, d, n, got, many, want[:len(got)])
				}
			}
		}
	}
}

// The result may lie where a source does, as Fold says.
func TestFoldInPlace(t *testing.T) {
	const n = 3000
	for d := Float32; d.Size() > 0; d++ {
		for op := Sum; op <= Xor; op++ {
			if op.Accepts(d) != nil {
				continue
			}
			call := Call{Kind: AllReduceKind, Op: op, Src: Buffer{DType: d}}
			for ranks := 1; ranks <= 3; ranks++ {
				fold := func(into int) []byte { // the source that is the result too; -1: none
					rng := rand.New(rand.NewPCG(3, uint64(ranks)))
					dst := make([]uint64, 2*n)
					var srcs []unsafe.Pointer
					for r := range ranks {
						src := noise(rng, d, n)
						if r == into {
							dst = src
						}
						srcs = append(srcs, unsafe.Pointer(unsafe.SliceData(src)))
					}
					call.Fold([]unsafe.Pointer{unsafe.Pointer(&dst[0])}, srcs, n)
					return unsafe.Slice((*byte)(unsafe.Pointer(&dst[0])), n*d.Size())
				}
				want := fold(-1)
				for into := 0; into == 0 || into < ranks && ranks == 2; into++ {
					if got := fold(into); !bytes.Equal(got, want) {
						t.Errorf("%v of %v: %d sources into source %d give something else", op, d, ranks, into)
					}
				}
			}
		}
	}
}

// noise is n random elements.
func noise(rng *rand.Rand, d DType, n int) []uint64 {
	words := make([]uint64, 2*n) // room for complex128
	b := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), n*d.Size())
	for i := range b {
		b[i] = byte(rng.Uint32())
		if d == Bool {
			b[i] &= 1
		}
	}
	if d.Float() { // numbers: which of several NaNs comes out is not promised
		for i := d.Size() - 1; i < len(b); i += d.Size() {
			b[i] &^= 0x40
		}
	}
	switch d {
	case Float32:
		unsafe.Slice((*float32)(unsafe.Pointer(&words[0])), n)[3] = float32(math.NaN())
	case Float64:
		unsafe.Slice((*float64)(unsafe.Pointer(&words[0])), n)[3] = math.NaN()
	}
	return words
}
