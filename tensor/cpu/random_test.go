package cpu

import (
	"math"
	"slices"
	"testing"
	"unsafe"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/philox"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// TestRandomFloats compares what is made as float32 with what is made as float64 and rounded, bit for bit.
func TestRandomFloats(t *testing.T) {
	words := make([]uint32, 1000)
	philox.Key{Seed: 1}.Words(words, 0)
	words = append(words, 0, 1, 1<<31-1, 1<<31, math.MaxUint32-1, math.MaxUint32)
	var all []kernel.RandomNumbers
	for _, p := range []float64{0, 1e-12, 0.1, 0.5, 0x1p-32, 3 * 0x1p-33, 1 - 0x1p-33, 1, 2, -1, math.NaN()} {
		all = append(all, kernel.RandomNumbers{Op: kernel.OpBernoulli, A: p})
	}
	for _, c := range [][2]float64{{0, 1}, {-1, 1}, {-0.0625, 0.0625}, {3, 3}, {-1, 0}, {1e-3, 1e30}, {1, 1 + 0x1p-23}} {
		all = append(all, kernel.RandomNumbers{Op: kernel.OpUniform, A: c[0], B: c[1], Least: c[0],
			Most: float64(math.Nextafter32(float32(c[1]), float32(c[0])))}, kernel.RandomNumbers{Op: kernel.OpNormal, A: c[0], B: c[1]})
	}
	for _, r := range all {
		values, got, want := make([]float64, len(words)), make([]float32, len(words)), make([]float32, len(words))
		randomFloats(&r, got, words)
		randomValues(r.Op, values, words, r.A, r.B, r.Least, r.Most)
		castFrom(dtype.Float32, unsafe.Pointer(&want[0]), values)
		if !slices.EqualFunc(got, want, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
			t.Errorf("%v of %v and %v differ", r.Op, r.A, r.B)
		}
		if r.Op != kernel.OpBernoulli {
			continue
		}
		var piece randomPiece
		flags, numbers := make([]bool, 700), make([]float64, 700)
		r.Key, r.DType = philox.Key{Seed: 2}, dtype.Bool
		piece.run(&r, unsafe.Pointer(&flags[0]), 5, len(flags))
		r.DType = dtype.Float64
		piece.run(&r, unsafe.Pointer(&numbers[0]), 5, len(numbers))
		for i, flag := range flags {
			if flag != (numbers[i] == 1) {
				t.Fatalf("flag %d of probability %v is %v, and as a number %v", i, r.A, flag, numbers[i])
			}
		}
	}
}
