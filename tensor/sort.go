package tensor

import (
	"cmp"
	"math"
	"slices"

	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/tensor/cpu"
)

// Sort returns the elements along dim in ascending order, or with descending the largest
// first, and their positions, Int64. Equal elements keep their order. NaN is larger than
// any number, as in torch.sort. The host sorts; it copies the elements of a GPU.
func Sort(x *Tensor, dim int, descending bool) (values, index *Tensor) {
	const op = "Sort"
	wantComparable(op, x)
	dim = x.axis(op, dim)
	if last := x.NDim() - 1; dim != last {
		values, index = Sort(Transpose(x, dim, last), last, descending)
		return Transpose(values, dim, last), Transpose(index, dim, last)
	}
	order := make([]int64, x.numel)
	sortRows(x, order, x.dims[dim], descending)
	index = FromSlice(x.dev, order, x.Shape()...)
	return Gather(x, dim, index), index
}

// sortRows sets order to the positions of the elements of each row of x, sorted. A row has n
// elements.
func sortRows(x *Tensor, order []int64, n int, descending bool) {
	switch dt := x.dtype; {
	case dt == Float32 && n <= math.MaxInt32:
		sortFloat32s(Read[float32](x), order, n, descending)
	case dt == Float32:
		sortKeys(Read[float32](x), order, n, descending, orderOfFloat[float32])
	case dt == Float64:
		sortKeys(Read[float64](x), order, n, descending, orderOfFloat[float64])
	case dt.Float():
		wide := Cast(x, Float32)
		sortRows(wide, order, n, descending)
		wide.Free()
	case dt == Int64:
		sortKeys(Read[int64](x), order, n, descending, orderOfInt)
	default: // integers that Int64 holds, and Bool
		wide := Cast(x, Int64)
		sortRows(wide, order, n, descending)
		wide.Free()
	}
}

// sortKeys is sortRows of elems, which it compares by their keys.
func sortKeys[T dtype.Elem](elems []T, order []int64, n int, descending bool, key func(T) uint64) {
	row, spare := make([]keyed, n), make([]keyed, n)
	for lo := 0; lo < len(elems); lo += n {
		for i, v := range elems[lo : lo+n] {
			k := key(v)
			if descending {
				k = ^k
			}
			row[i] = keyed{k, int64(i)}
		}
		row, spare = sortKeyed(row, spare)
		for i, it := range row {
			order[lo+i] = it.at
		}
	}
}

// A keyed is the key of an element, and where it is.
type keyed struct {
	key uint64
	at  int64
}

// leastRadix is the least number of elements for which a radix sort is faster: it goes through its counts.
const leastRadix = 128

// sortKeyed sorts row, whose elements are in the order of at, by keys; equal keys keep their order. It is a radix sort that leaves out
// the bytes that all keys share. The result is the first one returned, of row and spare.
func sortKeyed(row, spare []keyed) (sorted, other []keyed) {
	if len(row) < leastRadix {
		slices.SortFunc(row, func(a, b keyed) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.at, b.at)) })
		return row, spare
	}
	some, all := uint64(0), ^uint64(0)
	for _, it := range row {
		some, all = some|it.key, all&it.key
	}
	for shift := 0; shift < 64; shift += 8 {
		if (some^all)>>shift&0xff == 0 {
			continue
		}
		var at [256]int
		for _, it := range row {
			at[it.key>>shift&0xff]++
		}
		next := 0
		for i, n := range at {
			at[i], next = next, next+n
		}
		for _, it := range row {
			d := it.key >> shift & 0xff
			spare[at[d]] = it
			at[d]++
		}
		row, spare = spare, row
	}
	return row, spare
}

// sortFloat32s is sortRows of elems, whose keys and positions have 32 bits each.
func sortFloat32s(elems []float32, order []int64, n int, descending bool) {
	keys, spare := make([]uint64, n), make([]uint64, n)
	for lo := 0; lo < len(elems); lo += n {
		for i, v := range elems[lo : lo+n] {
			k := orderOfFloat32(v)
			if descending {
				k = ^k
			}
			keys[i] = uint64(k)<<32 | uint64(i)
		}
		for i, k := range cpu.SortRows(keys, spare, 1<<32) {
			order[lo+i] = int64(uint32(k))
		}
	}
}

// orderOfFloat maps numbers to integers of the same order: both zeros to one, NaN to the
// largest.
func orderOfFloat[T dtype.Float](v T) uint64 {
	x := float64(v)
	if x != x {
		return math.MaxUint64
	}
	bits := math.Float64bits(x + 0) // -0 + 0 is 0
	if bits>>63 != 0 {
		return ^bits
	}
	return bits | 1<<63
}

// orderOfFloat32 is orderOfFloat of float32.
func orderOfFloat32(v float32) uint32 {
	if v != v {
		return math.MaxUint32
	}
	return cpu.OrderOf(v)
}

func orderOfInt(v int64) uint64 { return uint64(v) ^ 1<<63 }
