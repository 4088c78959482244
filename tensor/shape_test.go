package tensor

import (
	"math"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/internal/ints"
)

var anyType = []DType{Float32, Float64, Float16, Int8, Int64, Bool}

// small has values that every type holds.
func small(shape ...int) array {
	a := newArray(shape...)
	for i := range a.data {
		a.data[i] = float64(i * 7 % 11 & 1)
	}
	return a
}

func TestReshapeShares(t *testing.T) {
	cpu := NewCPU(nil)
	x := Arange(cpu, Float32, 0, 24).Reshape(2, 3, 4)
	for _, shape := range [][]int{{24}, {4, -1}, {-1}, {1, 24, 1}, {2, 2, 2, 3}} {
		y := x.Reshape(shape...)
		if y.Ptr() != x.Ptr() || y.Numel() != 24 {
			t.Errorf("Reshape %v is %v", shape, y)
		}
	}
	if e := Zeros(cpu, Float32, 0, 3).Reshape(3, -1); !slices.Equal(e.Shape(), []int{3, 0}) {
		t.Errorf("empty: %v", e.Shape())
	}
	Data[float32](x.Reshape(24))[23] = 99
	if Data[float32](x)[23] != 99 {
		t.Error("a view does not share its memory")
	}
	wantThrow[*ShapeError](t, func() { x.Reshape(5, 5) }, "Reshape", "float32[2 3 4]", "[5 5]", "24", "25")
	wantThrow[*ShapeError](t, func() { x.Reshape(-1, -1) }, "one size may be -1")
	wantThrow[*ShapeError](t, func() { x.Reshape(7, -1) }, "7")
	wantThrow[*ShapeError](t, func() { x.Reshape(1, 1, 1, 1, 1, 1, 1, 1, 24) }, "9 dimensions")
}

func TestSqueeze(t *testing.T) {
	cpu := NewCPU(nil)
	x := Zeros(cpu, Float32, 2, 3)
	for dim, want := range map[int][]int{0: {1, 2, 3}, 1: {2, 1, 3}, 2: {2, 3, 1}, -1: {2, 3, 1}, -3: {1, 2, 3}} {
		y := Unsqueeze(x, dim)
		if !slices.Equal(y.Shape(), want) {
			t.Errorf("Unsqueeze %d is %v, want %v", dim, y.Shape(), want)
		}
	}
	wantThrow[*ShapeError](t, func() { Unsqueeze(x, 3) }, "Unsqueeze", "[-3, 2]")
}

func TestNarrowCatSplit(t *testing.T) {
	cpu := NewCPU(nil)
	for _, shape := range shapes {
		for dim := range shape {
			n := shape[dim]
			for _, dt := range anyType {
				x := small(shape...)
				in := x.tensor(cpu, dt)
				for _, cut := range [][2]int{{0, n}, {0, n / 2}, {n / 2, n - n/2}, {n, 0}} {
					want := slices.Clone(shape)
					want[dim] = cut[1]
					y := Narrow(in, dim, cut[0], cut[1])
					check(t, label("Narrow", dt, shape, dim, cut), y, build(want, func(i []int) float64 {
						j := slices.Clone(i)
						j[dim] += cut[0]
						return x.at(j...)
					}), 0)
				}
				pieces := Split(in, dim-len(shape), n/3, 0, n-n/3)
				check(t, label("Cat", dt, shape, dim), Cat(dim, pieces...), x, 0)
				total := 0
				for _, c := range Chunk(in, dim, 3) {
					total += c.Dim(dim)
				}
				if total != n {
					t.Errorf("Chunk %v along %d: %d elements of %d", shape, dim, total, n)
				}
				check(t, label("Cat of chunks", dt, shape, dim), Cat(dim, Chunk(in, dim, 3)...), x, 0)
			}
		}
	}
	x := Zeros(cpu, Float32, 2, 3)
	wantThrow[*ShapeError](t, func() { Narrow(x, 1, 2, 2) }, "Narrow", "[2, 4)", "dimension 1", "3")
	wantThrow[*ShapeError](t, func() { Narrow(x, 2, 0, 1) }, "dimension 2")
	wantThrow[*ShapeError](t, func() { Cat(0, x, Zeros(cpu, Float32, 2, 4)) }, "Cat", "[2 3]", "[2 4]")
	wantThrow[*ShapeError](t, func() { Cat(0) }, "nothing")
	wantThrow[*ShapeError](t, func() { Split(x, 1, 1, 1) }, "Split", "[1 1]", "2", "3")
	if got := []int{len(Chunk(Zeros(cpu, Int8, 5), 0, 4)), Chunk(Zeros(cpu, Int8, 5), 0, 4)[0].Dim(0)}; !slices.Equal(got, []int{3, 2}) {
		t.Errorf("torch.chunk cuts 5 in 4 as 2+2+1, got %v", got)
	}
}

func TestShapeGrads(t *testing.T) {
	rng := newRNG()
	x := func() array { return randomArray(rng, 3, 4, 2) }
	checkGrad(t, "Narrow",
		func(xs []*Tensor) *Tensor { return Narrow(xs[0], 1, 1, 2) },
		func(dy *Tensor, xs []*Tensor) []*Tensor { return []*Tensor{NarrowGrad(dy, 1, 1, 3, 4, 2)} }, x())
	checkGrad(t, "Cat",
		func(xs []*Tensor) *Tensor { return Cat(1, xs...) },
		func(dy *Tensor, xs []*Tensor) []*Tensor { return Split(dy, 1, 4, 1) }, x(), randomArray(rng, 3, 1, 2))
	checkGrad(t, "Stack",
		func(xs []*Tensor) *Tensor { return Stack(1, xs...) },
		func(dy *Tensor, xs []*Tensor) []*Tensor { return Unstack(dy, 1) }, x(), x())
	checkGrad(t, "Permute",
		func(xs []*Tensor) *Tensor { return Permute(xs[0], 2, 0, 1) },
		func(dy *Tensor, xs []*Tensor) []*Tensor {
			return []*Tensor{Permute(dy, InversePermutation([]int{2, 0, -2})...)}
		}, x())
	checkGrad(t, "Expand",
		func(xs []*Tensor) *Tensor { return Expand(xs[0], 5, 3, 4) },
		func(dy *Tensor, xs []*Tensor) []*Tensor { return []*Tensor{SumTo(dy, 3, 1)} }, randomArray(rng, 3, 1))
}

func TestPermute(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	big := [][]int{{65, 130}, {3, 33, 70}, {5, 2, 64, 3}, {1, 7, 1, 9}}
	for _, shape := range append(big, shapes...) {
		for range 3 {
			order := rng.Perm(len(shape))
			x := randomArray(rng, shape...)
			want := make([]int, len(shape))
			for i, d := range order {
				want[i] = shape[d]
			}
			wantArray := build(want, func(i []int) float64 {
				j := make([]int, len(i))
				for k, d := range order {
					j[d] = i[k]
				}
				return x.at(j...)
			})
			for _, dt := range []DType{Float32, Float64} {
				check(t, label("Permute", dt, shape, order), Permute(x.tensor(cpu, dt), order...), wantArray, 0)
			}
			y := small(shape...)
			for _, dt := range []DType{Float16, Int8} {
				p := Permute(y.tensor(cpu, dt), order...)
				check(t, label("Permute", dt, shape, order), Permute(p, InversePermutation(order)...), y, 0)
			}
		}
	}
	x := Zeros(cpu, Float32, 2, 3)
	wantThrow[*ShapeError](t, func() { Permute(x, 0, 0) }, "twice")
	wantThrow[*ShapeError](t, func() { Permute(x, 0) }, "Permute")
	wantThrow[*ShapeError](t, func() { Transpose(x, 0, 2) }, "dimension 2", "[-2, 2)")
}

func TestExpandSumTo(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	for _, c := range [][2][]int{{{3}, {2, 3}}, {{3, 1}, {3, 4}}, {{}, {2, 2}}, {{1, 3, 1}, {2, 3, 4}}, {{1}, {0}}, {{2, 3}, {2, 3}},
		{{1, 1}, {1, 1, 1}}, {{1, 300}, {200, 300}}} {
		x := randomArray(rng, c[0]...)
		wide := build(c[1], func(i []int) float64 { return x.at(i...) })
		sums := newArray(c[0]...)
		y := randomArray(rng, c[1]...)
		each(c[1], func(i []int) { sums.data[sums.offset(i)] += y.at(i...) })
		for _, dt := range floats {
			check(t, label("Expand", dt, c), Expand(x.tensor(cpu, dt), c[1]...), wide, 0)
			check(t, label("SumTo", dt, c), SumTo(y.tensor(cpu, dt), c[0]...), sums, 5*tolerance(dt))
		}
	}
	x := Zeros(cpu, Float32, 2, 3)
	wantThrow[*ShapeError](t, func() { Expand(x, 3, 3) }, "Expand", "[2 3]", "[3 3]")
	wantThrow[*ShapeError](t, func() { SumTo(x, 2) }, "SumTo", "[2 3]", "[2]")
}

func TestBoxes(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	for range 300 {
		nd := rng.IntN(5)
		sizes, dShape, sShape, dOff, sOff := make([]int, nd), make([]int, nd), make([]int, nd), make([]int, nd), make([]int, nd)
		for d := range nd {
			sizes[d], dOff[d], sOff[d] = rng.IntN(5), rng.IntN(3), rng.IntN(3)
			dShape[d], sShape[d] = sizes[d]+dOff[d]+rng.IntN(2), sizes[d]+sOff[d]+rng.IntN(2)
		}
		dst, src := small(dShape...), randomArray(rng, sShape...)
		want := array{dShape, slices.Clone(dst.data)}
		n := 0
		flat := []float64{7, 7}
		each(sizes, func(i []int) {
			to, from := slices.Clone(i), slices.Clone(i)
			for d := range i {
				to[d], from[d] = to[d]+dOff[d], from[d]+sOff[d]
			}
			want.data[want.offset(to)] = src.at(from...)
			flat = append(flat, src.at(from...))
			n++
		})
		for _, dt := range floats {
			d, s := dst.tensor(cpu, dt), src.tensor(cpu, dt)
			CopyBox(d, dOff, s, sOff, sizes)
			check(t, label("CopyBox", dt, dShape, dOff, sShape, sOff, sizes), d, want, 0)
			packed := Full(cpu, dt, 7, n+2)
			PackBox(packed, 2, s, sOff, sizes)
			check(t, label("PackBox", dt, sShape, sOff, sizes), packed, array{[]int{n + 2}, flat}, 0)
			d = dst.tensor(cpu, dt)
			UnpackBox(d, dOff, packed, 2, sizes)
			check(t, label("UnpackBox", dt, dShape, dOff, sizes), d, want, 0)
			ClearBox(d, dOff, sizes)
			cleared := array{dShape, slices.Clone(want.data)}
			each(sizes, func(i []int) {
				to := slices.Clone(i)
				for k := range to {
					to[k] += dOff[k]
				}
				cleared.data[cleared.offset(to)] = 0
			})
			check(t, label("ClearBox", dt, dShape, dOff, sizes), d, cleared, 0)
		}
	}
	x := Zeros(cpu, Float32, 2, 3)
	wantThrow[*ShapeError](t, func() { CopyBox(x, []int{1, 0}, x, []int{0, 0}, []int{2, 1}) }, "destination", "[2 1]", "[1 0]")
	wantThrow[*ShapeError](t, func() { PackBox(Zeros(cpu, Float32, 5), 0, x, []int{0, 0}, []int{2, 3}) }, "6 elements", "float32[5]")
}

func TestCreate(t *testing.T) {
	cpu := NewCPU(nil)
	for _, dt := range append([]DType{Float16, BFloat16}, numbers...) {
		check(t, label("Full", dt), Full(cpu, dt, 3, 2, 2), array{[]int{2, 2}, []float64{3, 3, 3, 3}}, 0)
		check(t, label("Zeros", dt), Zeros(cpu, dt, 3), newArray(3), 0)
		if dt != Float16 && dt != BFloat16 {
			check(t, label("Arange", dt), Arange(cpu, dt, 5, 3), array{[]int{3}, []float64{5, 6, 7}}, 0)
		}
	}
	if got := Full(cpu, Float32, 2.5).Item(); got != 2.5 {
		t.Errorf("Item is %v", got)
	}
	wantThrow[*ShapeError](t, func() { Zeros(cpu, Float32, 2).Item() }, "2 elements")
	wantThrow[*ShapeError](t, func() { New(cpu, Float32, 2, -1) }, "[2 -1]")
	wantThrow[*ShapeError](t, func() { New(cpu, Float32, math.MaxInt/2, 8) }, "New")
	wantThrow[*ShapeError](t, func() { FromSlice(cpu, []float32{1, 2, 3}, 2, 2) }, "3 elements", "[2 2]", "4")
	wantThrow[*TypeError](t, func() { Data[float64](Zeros(cpu, Float32, 2)) }, "float32[2]", "float64")
	var none DType
	wantThrow[*TypeError](t, func() { New(cpu, none, 2) }, "element type")
	x := FromSlice(cpu, []int32{1, 2, 3}, 3)
	y := Clone(x)
	Data[int32](x)[0] = 9
	if got := Data[int32](y); !slices.Equal(got, []int32{1, 2, 3}) {
		t.Errorf("Clone shares: %v", got)
	}
	other := To(x, NewCPU(nil))
	if got := ToSlice[int32](other); !slices.Equal(got, []int32{9, 2, 3}) || other.Device() == x.Device() {
		t.Errorf("To: %v", got)
	}
	if got, want := x.String(), "int32[3]{9 2 3}"; got != want {
		t.Errorf("String %q, want %q", got, want)
	}
	if got, want := Arange(cpu, Float32, 0, 100).Reshape(10, 10).String(), "float32[10 10]{0 1 2 3 4 5 6 7 …}"; got != want {
		t.Errorf("String %q, want %q", got, want)
	}
}

// Flip and Roll give each element the place that their definitions say.
func TestFlipAndRoll(t *testing.T) {
	cpu := NewCPU(nil)
	for _, shape := range [][]int{{7}, {17}, {4, 5}, {2, 3, 4}, {3, 1, 2}, {1, 1}, {0, 3}, {2, 0}} {
		n := ints.Product(shape)
		x := Arange(cpu, Float32, 0, n).Reshape(shape...)
		for dim, size := range shape {
			flipped, twice := ToSlice[float32](Flip(x, dim)), ToSlice[float32](Flip(x, dim, 0))
			for shift := range size + 1 {
				rolled := ToSlice[float32](Roll(x, shift, dim))
				for i := range n {
					at := UnravelIndex(i, shape)
					from := func(at []int) float32 {
						k := 0
						for d, j := range at {
							k = k*shape[d] + j
						}
						return float32(k)
					}
					there := slices.Clone(at)
					there[dim] = (at[dim] - shift + size) % size
					if got := rolled[i]; got != from(there) {
						t.Fatalf("%v: Roll(%d, %d): element %v is %v, want %v", shape, shift, dim, at, got, from(there))
					}
					there[dim] = size - 1 - at[dim]
					if got := flipped[i]; got != from(there) {
						t.Fatalf("%v: Flip(%d): element %v is %v, want %v", shape, dim, at, got, from(there))
					}
					if there[0] = shape[0] - 1 - at[0]; dim != 0 && twice[i] != from(there) {
						t.Fatalf("%v: Flip(%d, 0): element %v is %v, want %v", shape, dim, at, twice[i], from(there))
					}
				}
			}
		}
	}
}
