//go:build linux

package runtime

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	goruntime "runtime"
	"testing"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/tensor/cuda"
	"github.com/gorun-spmd/gorun/tensor/cuda/cudatest"
)

// TestDeviceFolds compares what a GPU folds, a fake one or with GORUN_TEST_GPU=1 the
// machine's, with what the CPU does: bit by bit, except which NaN it is, and which zero
// the least and the largest of two with different signs are.
func TestDeviceFolds(t *testing.T) {
	if os.Getenv("GORUN_TEST_GPU") != "1" {
		t.Setenv("GORUN_CUDA_LIB", cudatest.Library(t))
	}
	t.Setenv("GORUN_CUBLAS_LIB", "none")
	drv, err := cuda.Load()
	if err != nil {
		t.Fatal(err)
	}
	dev, err := drv.Open(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := stage{Stage: dev.Stage()}
	const most = 700 * 8 * 9 // bytes
	room, err := s.Alloc(2 * most)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Free(room, 2*most) // the fake driver looks for writes outside
	rng := rand.New(rand.NewPCG(1, 2))
	for d := comm.Float32; d.Valid(); d++ {
		for op := comm.Sum; op <= comm.Xor; op++ {
			if op.Accepts(d) != nil {
				continue
			}
			for _, c := range []struct{ ranks, n int }{{1, 700}, {2, 1}, {2, 700}, {3, 255}, {5, 256}, {5, 257}, {9, 31}} {
				what := fmt.Sprintf("%v of %v[%d] of %d ranks", op, d, c.n, c.ranks)
				src := noise(rng, d, c.ranks*c.n)
				want, got := make([]uint64, c.n), make([]uint64, c.n)
				size := c.n * d.Size()
				var srcs []unsafe.Pointer
				for r := range c.ranks {
					srcs = append(srcs, unsafe.Add(unsafe.Pointer(&src[0]), r*size))
				}
				call := comm.Call{Kind: comm.AllReduceKind, Op: op, Src: comm.Buffer{DType: d}}
				call.Fold([]unsafe.Pointer{unsafe.Pointer(&want[0])}, srcs, c.n)

				copies, err := s.Open(2)
				if err != nil {
					t.Fatal(err)
				}
				dst := comm.Buffer{Ptr: unsafe.Add(room, most), Count: c.n, DType: d}
				for _, err := range []error{
					copies.FromHost(1, room, unsafe.Pointer(&src[0]), c.ranks*size),
					copies.Fold(1, op, dst, room, c.ranks),
					copies.ToHost(1, unsafe.Pointer(&got[0]), dst.Ptr, size),
					copies.Close(),
				} {
					if err != nil {
						t.Fatalf("%s: %v", what, err)
					}
				}
				goruntime.KeepAlive(src) // it was read meanwhile
				for i := range c.n {
					a, b := element(d, got, i), element(d, want, i)
					x, y := value(d, a), value(d, b)
					if !bytes.Equal(a, b) && !(x != x && y != y) && !((op == comm.Min || op == comm.Max) && d.Float() && x == 0 && y == 0) {
						t.Fatalf("%s: element %d is %x, want %x", what, i, a, b)
					}
				}
			}
		}
	}
}

// noise is n random elements: of numbers some are zero, infinite, subnormal or NaN.
func noise(rng *rand.Rand, d comm.DType, n int) []uint64 {
	words := make([]uint64, n)
	for i := range n {
		e := element(d, words, i)
		for k := range e {
			e[k] = byte(rng.Uint32())
		}
		top := &e[len(e)-1]
		switch kind := rng.IntN(12); {
		case d == comm.Bool:
			e[0] &= 1
		case d.Float() && kind == 0: // as it is: any number
		case d.Float() && kind == 1:
			*top &= 0x80 // subnormal, or nearly
		case d.Float() && kind == 2:
			clear(e[:len(e)-1])
			*top &= 0x80 // zero
		case d.Float() && kind == 3 && rng.IntN(8) == 0:
			clear(e)
			copy(e[len(e)-2:], map[comm.DType][]byte{comm.Float32: {0x80, 0x7f}, comm.Float64: {0xf0, 0x7f}, comm.Float16: {0, 0x7c},
				comm.BFloat16: {0x80, 0x7f}}[d])
		case d.Float():
			*top = *top&0x80 | 0x3c | *top&3 // about 1
		}
	}
	return words
}

// element returns the bytes of element i.
func element(d comm.DType, words []uint64, i int) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words))[i*d.Size() : (i+1)*d.Size()]
}

// value is a floating-point element as a number, 1 for one of another type.
func value(d comm.DType, e []byte) float64 {
	switch p := unsafe.Pointer(&e[0]); d {
	case comm.Float32:
		return float64(*(*float32)(p))
	case comm.Float64:
		return *(*float64)(p)
	case comm.Float16:
		return float64((*(*dtype.F16)(p)).Float32())
	case comm.BFloat16:
		return float64((*(*dtype.BF16)(p)).Float32())
	}
	return 1
}
