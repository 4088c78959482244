package tensor

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	cpukernels "github.com/gorun-spmd/gorun/tensor/cpu"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// The tests of this file have sizes just below, at and just above those at which the
// CPU's kernels go another way: where they share work among goroutines, take it in
// pieces or sort it in more passes. Integers are exact in any order.

// around returns sizes just below, at and just above n.
func around(n int) []int { return []int{n - 1, n, n + 1} }

func TestElementwiseInParts(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	cpu, rng := NewCPU(nil), newRNG()
	for _, n := range slices.Concat(around(cpukernels.ParallelFrom/8), around(cpukernels.ParallelFrom)) {
		a, b := intArray(rng, -8, 9, n), intArray(rng, -8, 9, n)
		of := func(f func(x, y float64) float64) array {
			return build(a.shape, func(i []int) float64 { return f(a.data[i[0]], b.data[i[0]]) })
		}
		for _, dt := range []DType{Float32, BFloat16} {
			x, y := a.tensor(cpu, dt), b.tensor(cpu, dt)
			check(t, label("Add", dt, n), Add(x, y), of(func(x, y float64) float64 { return x + y }), 0)
			check(t, label("MulScalar", dt, n), MulScalar(x, 3), of(func(x, _ float64) float64 { return 3 * x }), 0)
		}
		x, y := a.tensor(cpu, Float32), b.tensor(cpu, Float32)
		check(t, label("Abs", n), Abs(x), of(func(x, _ float64) float64 { return math.Abs(x) }), 0)
		check(t, label("ReluGrad", n), UnaryGrad(kernel.OpRelu, x, nil, y), of(func(x, y float64) float64 {
			if y > 0 {
				return x
			}
			return 0
		}), 0)
		SGD{LR: 2, Momentum: 0.5}.Step(x, y, Clone(y), false)
		check(t, label("SGD", n), x, of(func(x, y float64) float64 { return x - 3*y }), 0)
	}
}

func TestCastsAndComparisonsInPieces(t *testing.T) {
	cpu, rng := NewCPU(nil), newRNG()
	for _, n := range slices.Concat(around(cpukernels.CastPiece), around(2*cpukernels.CastPiece)) {
		x := intArray(rng, 0, 100, n)
		for _, c := range [][2]DType{{Int32, BFloat16}, {Float64, Float16}, {BFloat16, Int64}, {Float16, BFloat16}, {Uint8, Float16}} {
			check(t, label(c, n), Cast(x.tensor(cpu, c[0]), c[1]), x, 0)
		}
	}
	for _, n := range slices.Concat(around(cpukernels.Repeats), around(2*cpukernels.Repeats)) {
		for _, s := range [][3][]int{{{3, n}, {3, 1}, {n}}, {{3, 1}, {n}, {3, n}}, {{n}, {3, n}, {3, 1}}, {{3, 1}, {1}, {n}}} {
			a, b, cond := intArray(rng, 0, 3, s[0]...), intArray(rng, 0, 3, s[1]...), intArray(rng, 0, 2, s[2]...)
			shape, _ := broadcastTogether(s[0], s[1])
			check(t, label("Gt", s), Compare(kernel.OpGt, a.tensor(cpu, Int16), b.tensor(cpu, Int16)), build(shape, func(i []int) float64 {
				if a.at(i...) > b.at(i...) {
					return 1
				}
				return 0
			}), 0)
			shape, _ = broadcastTogether(shape, s[2])
			got := Where(cond.tensor(cpu, Bool), a.tensor(cpu, Float32), b.tensor(cpu, Float32))
			check(t, label("Where", s), got, build(shape, func(i []int) float64 {
				if cond.at(i...) != 0 {
					return a.at(i...)
				}
				return b.at(i...)
			}), 0)
		}
	}
}

func TestReductionsInBlocks(t *testing.T) {
	cpu, rng := NewCPU(nil), newRNG()
	for _, c := range []struct {
		shapes [][]int
		dim    int
	}{
		{[][]int{{2, 3, cpukernels.ColumnTile - 1}, {2, 3, cpukernels.ColumnTile}, {2, 3, cpukernels.ColumnTile + 1},
			{2, 3, 2*cpukernels.ColumnTile + 3}}, 1},
		{[][]int{{2, 63, 5}, {2, 64, 5}, {2, 65, 5}, {1, 4096, 3}, {1, 4097, 3}}, 1}, // the blocks of sumBlock
		{[][]int{{3, 63}, {3, 64}, {3, 65}, {2, 4095}, {2, 4096}, {2, 4097}, {2, 16385}}, 1},
	} {
		for _, shape := range c.shapes {
			x := intArray(rng, -3, 4, shape...)
			ones := x // whose product is 1 or -1
			ones.data = slices.Clone(x.data)
			for i, v := range ones.data {
				ones.data[i] = math.Copysign(1, v)
			}
			dims := []int{c.dim}
			for _, dt := range []DType{Float32, Float64, Int16, Int64} {
				in, name := x.tensor(cpu, dt), label(dt, shape)
				check(t, "Sum"+name, Sum(in, dims, false), reduceWant(x, dims, false, sum), 0)
				check(t, "Amax"+name, Amax(in, dims, false), reduceWant(x, dims, false, fold(math.Inf(-1), math.Max)), 0)
				check(t, "Amin"+name, Amin(in, dims, false), reduceWant(x, dims, false, fold(math.Inf(1), math.Min)), 0)
				check(t, "Prod"+name, Prod(ones.tensor(cpu, dt), dims, false),
					reduceWant(ones, dims, false, fold(1, func(a, b float64) float64 { return a * b })), 0)
			}
		}
	}
}

// Ids are sorted by comparing them, or by 8 or 11 bits of the rows at a time.
func TestUniqueInPasses(t *testing.T) {
	cpu, rng := NewCPU(nil), newRNG()
	for _, n := range slices.Concat(around(64), []int{600}, around(4096)) { // of 600 some are out of range
		for _, rows := range slices.Concat([]int{1, 2}, around(1<<8), around(1<<11), around(1<<22), []int{1<<31 - 1, 1 << 31}) {
			const lo = 3
			ids := make([]int64, n)
			for i := range ids {
				ids[i] = lo + rng.Int64N(int64(min(rows, 1<<(1+i%31))))
				switch {
				case i%50 == 0:
					ids[i] = lo + int64(rows) - 1
				case i%50 == 1 && n == 600:
					ids[i] = []int64{lo - 1, lo + int64(rows), -1, math.MinInt64, math.MaxInt64}[i/50%5]
				}
			}
			var order []int
			for i, id := range ids {
				if id >= lo && id < lo+int64(rows) {
					order = append(order, i)
				}
			}
			slices.SortStableFunc(order, func(a, b int) int { return int(ids[a] - ids[b]) })
			u := Unique(FromSlice(cpu, ids, n), lo, rows)
			index, count, slot := Data[int64](u.Index), Data[int64](u.Count()), Data[int32](u.Slot)
			at := 0
			for k, row := range index {
				for range count[k] {
					if i := order[at]; ids[i] != row+lo || int(slot[i]) != k || int(Data[int32](u.Order)[at]) != i {
						t.Fatalf("%d ids of %d rows: id %d at %d is in slot %d, in order %v", n, rows, ids[i], i, slot[i], Data[int32](u.Order)[at])
					}
					at++
				}
			}
			if at != len(order) || u.Order.Numel() != at || !slices.IsSorted(index) || len(slices.Compact(slices.Clone(index))) != len(index) {
				t.Fatalf("%d ids of %d rows: %d of %d are in the %d distinct rows", n, rows, at, len(order), len(index))
			}
		}
	}
}

// A gradient is made in tiles of classes, past the caches if it is large.
func TestCrossEntropyGradientInTiles(t *testing.T) {
	cpu, rng := NewCPU(nil), newRNG()
	for _, classes := range slices.Concat(around(cpukernels.XentTile), around(2*cpukernels.XentTile)) {
		for _, n := range []int{3, cpukernels.XentAhead/(4*classes) + 1} {
			x, w := intArray(rng, -2, 3, n, classes), intArray(rng, 0, 3, classes)
			target := make([]int64, n)
			coef := intArray(rng, 0, 3, n, 3)
			for r := range target {
				target[r] = []int64{0, cpukernels.XentTile - 1, cpukernels.XentTile, int64(classes) - 1, int64(classes), -1}[r%6]
			}
			exps := map[float64]float64{}
			for v := -2.0; v < 3; v++ {
				exps[v] = math.Exp(v - 1)
			}
			want := newArray(n, classes)
			for i, v := range x.data {
				r, c := i/classes, i%classes
				want.data[i] = coef.data[3*r]*exps[v] - coef.data[3*r+2]*w.data[c]
				if int64(c) == target[r] {
					want.data[i] -= coef.data[3*r+1]
				}
			}
			got := CrossEntropyGrad(nil, x.tensor(cpu, Float32), FromSlice(cpu, target, n), 0, Full(cpu, Float32, 1, n), coef.tensor(cpu, Float32),
				w.tensor(cpu, Float32))
			check(t, label("gradient", n, classes), got, want, 1e-6)
		}
	}
}

// Random numbers are made in pieces, and shared among goroutines, from any element on.
func TestRandomInPieces(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	cpu, rng := NewCPU(nil), rand.New(rand.NewPCG(5, 5))
	key := Key{Seed: 8, Stream: 9}
	for _, n := range slices.Concat(around(cpukernels.RandomPiece), around(2*cpukernels.RandomPiece), around(cpukernels.ParallelFrom/8)) {
		global, offset := []int{3, n + 7}, []int{1, rng.IntN(7)}
		x := New(cpu, Float32, 2, n)
		FillUniform(x, key, 0, 1, global, offset)
		got := Data[float32](x)
		for _, i := range []int{0, 1, 2, 3, n / 3, n - 2, n - 1, n, n + 1, 2*n - 1} {
			at := (1+i/n)*global[1] + offset[1] + i%n
			if want := float32(key.Block(uint64(at) / 4)[at%4]>>8) / (1 << 24); got[i] != want {
				t.Errorf("%d numbers from %v on: number %d is %v, want %v", n, offset, i, got[i], want)
			}
		}
	}
}
