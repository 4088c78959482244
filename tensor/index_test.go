package tensor

import (
	"slices"
	"testing"
)

var indexTypes = []DType{Int32, Int64}

func TestIndexSelect(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	for _, shape := range shapes {
		for dim, n := range shape {
			for _, count := range []int{0, 1, 2 * n} {
				if n == 0 {
					count = 0
				}
				at := intArray(rng, 0, max(n, 1), count)
				outShape := slices.Clone(shape)
				outShape[dim] = count
				x, src := randomArray(rng, shape...), intArray(rng, 0, 3, outShape...)
				want := build(outShape, func(i []int) float64 {
					j := slices.Clone(i)
					j[dim] = int(at.data[i[dim]])
					return x.at(j...)
				})
				base := intArray(rng, 0, 3, shape...)
				added := array{base.shape, slices.Clone(base.data)}
				each(outShape, func(i []int) {
					j := slices.Clone(i)
					j[dim] = int(at.data[i[dim]])
					added.data[added.offset(j)] += src.at(i...)
				})
				for _, it := range indexTypes {
					index := at.tensor(cpu, it)
					for _, dt := range numbers {
						if !dt.Int() {
							check(t, label("IndexSelect", dt, it, shape, dim), IndexSelect(x.tensor(cpu, dt), dim, index), want, 0)
						}
						dst := base.tensor(cpu, dt)
						IndexAddTo(dst, dim, index, src.tensor(cpu, dt))
						check(t, label("IndexAddTo", dt, it, shape, dim), dst, added, 0)
					}
				}
			}
		}
	}
	x := Zeros(cpu, Float32, 2, 3)
	bad := FromSlice(cpu, []int64{0, 2, 3, -1}, 4)
	wantThrow[*IndexError](t, func() { IndexSelect(x, 1, bad) }, "IndexSelect", "index 3 at position 2", "[0, 3)")
	wantThrow[*IndexError](t, func() { IndexSelect(x, 0, FromSlice(cpu, []int32{-1}, 1)) }, "index -1")
	wantThrow[*TypeError](t, func() { IndexSelect(x, 0, Zeros(cpu, Float32, 1)) }, "int64 or int32")
	if pos, v, ok := CheckIndex(bad, 3); pos != 2 || v != 3 || ok {
		t.Errorf("CheckIndex: %d %d %v", pos, v, ok)
	}
	if _, _, ok := CheckIndex(bad, 3); ok {
		t.Error("CheckIndex accepts 3 of 3")
	}
	checkGrad(t, "IndexSelect", func(xs []*Tensor) *Tensor {
		return IndexSelect(xs[0], 1, FromSlice(xs[0].Device(), []int64{2, 0, 2}, 3))
	}, func(dy *Tensor, xs []*Tensor) []*Tensor {
		return []*Tensor{IndexSelectGrad(dy, 1, FromSlice(dy.Device(), []int64{2, 0, 2}, 3), 2, 3, 2)}
	}, randomArray(rng, 2, 3, 2))
}

func TestGatherScatter(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	for range 300 {
		shape := randomShape(rng)
		if len(shape) == 0 {
			continue
		}
		dim := rng.IntN(len(shape))
		picks, wider := make([]int, len(shape)), make([]int, len(shape))
		for d, n := range shape {
			if picks[d] = rng.IntN(n + 1); d == dim && n > 0 {
				picks[d] = rng.IntN(8)
			}
			wider[d] = picks[d] + rng.IntN(2)
		}
		at := intArray(rng, 0, max(shape[dim], 1), picks...)
		x, src := intArray(rng, 0, 5, shape...), intArray(rng, 0, 5, wider...)
		where := func(i []int) []int {
			j := slices.Clone(i)
			j[dim] = int(at.at(i...))
			return j
		}
		want := build(picks, func(i []int) float64 { return x.data[x.offset(where(i))] })
		set, added := array{shape, slices.Clone(x.data)}, array{shape, slices.Clone(x.data)}
		each(picks, func(i []int) {
			v := src.data[src.offset(i)]
			if s := src.shape; slices.Contains(s, 1) { // offset takes 1 for a broadcast; indices are 0 there
				v = src.at(i...)
			}
			set.data[set.offset(where(i))] = v
			added.data[added.offset(where(i))] += v
		})
		for _, it := range indexTypes {
			index := at.tensor(cpu, it)
			for _, dt := range numbers {
				name := label(dt, it, shape, picks, dim)
				check(t, "Gather"+name, Gather(x.tensor(cpu, dt), dim, index), want, 0)
				dst := x.tensor(cpu, dt)
				ScatterTo(dst, dim, index, src.tensor(cpu, dt))
				check(t, "ScatterTo"+name, dst, set, 0)
				dst = x.tensor(cpu, dt)
				ScatterAddTo(dst, dim, index, src.tensor(cpu, dt))
				check(t, "ScatterAddTo"+name, dst, added, 0)
			}
		}
	}
	x, index := Zeros(cpu, Float32, 2, 3), Zeros(cpu, Int64, 3, 3)
	wantThrow[*ShapeError](t, func() { Gather(x, 1, index) }, "Gather", "int64[3 3]", "float32[2 3]", "dimension 0")
	wantThrow[*ShapeError](t, func() { Gather(x, 0, Zeros(cpu, Int64, 3)) }, "numbers of dimensions")
	wantThrow[*IndexError](t, func() { Gather(x, 0, Full(cpu, Int32, 5, 1, 1)) }, "index 5", "[0, 2)")
	at := []int64{2, 0, 0, 1}
	checkGrad(t, "Gather", func(xs []*Tensor) *Tensor { return Gather(xs[0], 1, FromSlice(xs[0].Device(), at, 2, 2)) },
		func(dy *Tensor, xs []*Tensor) []*Tensor {
			return []*Tensor{GatherGrad(dy, 1, FromSlice(dy.Device(), at, 2, 2), 2, 3)}
		}, randomArray(rng, 2, 3))
}

func TestOneHot(t *testing.T) {
	cpu := NewCPU(nil)
	ids := []int64{3, 5, -1, 6, 4}
	want := build([]int{5, 3}, func(i []int) float64 {
		if ids[i[0]] == int64(i[1]+3) {
			return 1
		}
		return 0
	})
	for _, dt := range append([]DType{Float16, BFloat16, Bool}, numbers...) {
		check(t, label("OneHot", dt), OneHot(FromSlice(cpu, ids, 5), 3, 3, dt), want, 0)
	}
	if got := OneHot(Zeros(cpu, Int32, 2, 0), 0, 4, Float32).Shape(); !slices.Equal(got, []int{2, 0, 4}) {
		t.Errorf("shape %v", got)
	}
}

func TestRows(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	for _, c := range [][5]int{{5, 3, 20, 0, 5}, {5, 3, 20, 4, 15}, {3000, 2, 500, 1000, 5000}, {4, 0, 7, 0, 4}, {0, 3, 4, 0, 9},
		{6, 2, 0, 0, 6}, {70000, 1, 2000, 0, 70000}, {3, 2, 1000, 1, 5}, {1, 1, 600, 0, 1}} {
		n, dim, count, lo, all := c[0], c[1], c[2], c[3], c[4]
		table, ids := randomArray(rng, n, dim), intArray(rng, -1, all+1, count)
		dy := intArray(rng, -3, 4, count, dim)
		owned := func(i int) (int, bool) { r := int(ids.data[i]) - lo; return r, r >= 0 && r < n }
		want := build([]int{count, dim}, func(i []int) float64 {
			if r, ok := owned(i[0]); ok {
				return table.data[r*dim+i[1]]
			}
			return 0
		})
		dense := newArray(n, dim)
		counts := map[int]float64{}
		for i := range count {
			if r, ok := owned(i); ok {
				counts[r]++
				for d := range dim {
					dense.data[r*dim+d] += dy.data[i*dim+d]
				}
			}
		}
		for _, it := range indexTypes {
			id := ids.tensor(cpu, it)
			u := Unique(id, lo, n)
			index, slot, order := ToSlice[int64](u.Index), ToSlice[int32](u.Slot), ToSlice[int32](u.Order)
			if !slices.IsSorted(index) || len(index) != len(counts) {
				t.Fatalf("%v: Unique gives %d rows of %d", c, len(index), len(counts))
			}
			for k, r := range index {
				if got := float64(ToSlice[int64](u.Count())[k]); got != counts[int(r)] {
					t.Fatalf("%v: row %d occurs %v times, not %v", c, r, counts[int(r)], got)
				}
			}
			for i, s := range slot {
				if r, ok := owned(i); ok != (s >= 0) || ok && index[s] != int64(r) {
					t.Fatalf("%v: position %d has slot %d", c, i, s)
				}
			}
			for k := 1; k < len(order); k++ {
				a, b := order[k-1], order[k]
				if slot[a] > slot[b] || slot[a] == slot[b] && a >= b {
					t.Fatalf("%v: positions %d and %d are out of order", c, a, b)
				}
			}
			for _, dt := range floats {
				name := label(dt, it, c)
				in := table.tensor(cpu, dt)
				check(t, "TakeRows"+name, TakeRows(in, id, lo), want, 0)
				dst := Full(cpu, dt, 7, count, dim)
				TakeRowsTo(dst, in, id, lo, false)
				check(t, "TakeRowsTo"+name, dst, build(want.shape, func(i []int) float64 {
					if _, ok := owned(i[0]); !ok {
						return 7
					}
					return want.at(i...)
				}), 0)
				rows := Coalesce(id, dy.tensor(cpu, dt), lo, n)
				check(t, "TakeRowsGrad"+name, DenseRows(rows, n), dense, 0)
				again := Coalesce(Cat(0, rows.Index, rows.Index), Cat(0, rows.Values, rows.Values), 0, n)
				addRowsTo("", in, again, 0.5)
				check(t, "addRowsTo"+name, in, build(table.shape, func(i []int) float64 {
					return table.data[i[0]*dim+i[1]] + dense.data[i[0]*dim+i[1]]
				}), tolerance(dt))
			}
		}
	}
	x := Zeros(cpu, Float32, 4, 2)
	wantThrow[*IndexError](t, func() { DenseRows(Rows{FromSlice(cpu, []int64{4}, 1), Zeros(cpu, Float32, 1, 2)}, 4) }, "DenseRows",
		"index 4", "[0, 4)")
	add := func() { SGD{LR: 1}.StepRows(x, Rows{FromSlice(cpu, []int64{3}, 1), Zeros(cpu, Float32, 1, 3)}) }
	wantThrow[*ShapeError](t, add, "SGD", "rows of it")
	wantThrow[*ShapeError](t, func() { TakeRows(Zeros(cpu, Float32, 3), Zeros(cpu, Int64, 1), 0) }, "2-D table")
}

// Values of one row are added in the order in which they stand: with numbers of
// very different size another order gives another result.
func TestSumRowsKeepsTheOrder(t *testing.T) {
	cpu := NewCPU(nil)
	ids := FromSlice(cpu, []int64{1, 0, 1, 1}, 4)
	values := FromSlice(cpu, []float32{1e8, 5, 1, -1e8}, 4, 1)
	got := ToSlice[float32](Coalesce(ids, values, 0, 2).Values)
	if want := []float32{5, 0}; !slices.Equal(got, want) { // (1e8 + 1) - 1e8 is 0 in float32
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestRenormRows(t *testing.T) {
	cpu := NewCPU(nil)
	for _, dt := range floats {
		table := Cast(FromSlice(cpu, []float64{3, 4, 1, 1, -6, 8}, 3, 2), dt)
		index := FromSlice(cpu, []int64{2, 0}, 2)
		check(t, "RowPowSums", RowPowSums(table, index, 2), array{[]int{2}, []float64{100, 25}}, 0)
		ScaleRowsTo(table, index, Cast(FromSlice(cpu, []float64{0.5, 2}, 2), dt))
		check(t, "ScaleRowsTo", table, array{[]int{3, 2}, []float64{6, 8, 1, 1, -3, 4}}, 0)
	}
}
