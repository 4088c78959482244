package backend

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/fold"
)

// However many elements a fold has, an element gets the same bits.
func TestFoldOfFewIsFoldOfMany(t *testing.T) {
	const many = 64
	rng := rand.New(rand.NewPCG(1, 2))
	for d := dtype.Float32; d.Size() > 0; d++ {
		for op := fold.Sum; op <= fold.Xor; op++ {
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
	for d := dtype.Float32; d.Size() > 0; d++ {
		for op := fold.Sum; op <= fold.Xor; op++ {
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
func noise(rng *rand.Rand, d dtype.DType, n int) []uint64 {
	words := make([]uint64, 2*n) // room for complex128
	b := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), n*d.Size())
	for i := range b {
		b[i] = byte(rng.Uint32())
		if d == dtype.Bool {
			b[i] &= 1
		}
	}
	if d.Float() { // numbers: which of several NaNs comes out is not promised
		for i := d.Size() - 1; i < len(b); i += d.Size() {
			b[i] &^= 0x40
		}
	}
	switch d {
	case dtype.Float32:
		unsafe.Slice((*float32)(unsafe.Pointer(&words[0])), n)[3] = float32(math.NaN())
	case dtype.Float64:
		unsafe.Slice((*float64)(unsafe.Pointer(&words[0])), n)[3] = math.NaN()
	}
	return words
}

// TestFoldKeepsToItsBuffers folds odd lengths of odd ranges, and looks at what
// lies around them.
func TestFoldKeepsToItsBuffers(t *testing.T) {
	const guard = 7
	for _, ranks := range []int{1, 2, 3, 5} {
		for _, n := range []int{0, 1, 15, 513, 5000} {
			for _, inPlace := range []bool{true, false} {
				srcs, dsts := make([]unsafe.Pointer, ranks), make([]unsafe.Pointer, ranks)
				out := make([][]float32, ranks)
				want := make([]float32, n)
				for r := range ranks {
					src := make([]float32, n+2*guard)
					for i := range n {
						src[guard+i] = float32(i%13) * float32(r+1)
						want[i] += src[guard+i]
					}
					out[r] = src
					if !inPlace {
						out[r] = make([]float32, n+2*guard)
					}
					srcs[r], dsts[r] = unsafe.Pointer(&src[guard]), unsafe.Pointer(&out[r][guard])
				}
				call := Call{Kind: AllReduceKind, Op: fold.Sum, Dst: Buffer{DType: dtype.Float32}}
				call.Fold(dsts, srcs, n)
				for r, o := range out {
					for i, x := range o {
						w := float32(0)
						if i >= guard && i < guard+n {
							w = want[i-guard]
						}
						if x != w {
							t.Fatalf("%d ranks, %d elements, in place %v: dst %d [%d] is %v, want %v", ranks, n, inPlace, r, i-guard, x, w)
						}
					}
				}
			}
		}
	}
}
