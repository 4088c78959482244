package tensor

import (
	"github.com/gorun-spmd/gorun/tensor/cpu"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// ScatterReduceTo folds elements into dst along dimension dim, in row-major order:
//
//	dst[i][index[i][j][k]][k] = op(dst[i][index[i][j][k]][k], src[i][j][k])   for dim 1
//
// With alone, the first element that is put in a place is not folded with what is there, but takes its
// place. src has index's shape, which is at most dst's in the other dimensions. A NaN stays in a
// maximum or minimum. It is computed on the host.
func ScatterReduceTo(dst *Tensor, dim int, index, src *Tensor, op kernel.ReduceOp, alone bool) {
	const name = "ScatterReduceTo"
	dim = dst.axis(name, dim)
	if op != kernel.OpAmax && op != kernel.OpAmin {
		wantNumber(name, dst)
	}
	wantSameType(name, dst, src)
	if index.dims != src.dims {
		throwShape(name, "index %v and src %v: want one shape", index.brief(), src.brief())
	}
	dst.pick(name, "dst", dim, index, src) // what does not fit
	wantInRange(name, index, dst.dims[dim])
	switch {
	case dst.dtype == Float32:
		scatterFold[float32](dst, dim, index, src, op, alone)
	case dst.dtype == Float64:
		scatterFold[float64](dst, dim, index, src, op, alone)
	case dst.dtype == Int64:
		scatterFold[int64](dst, dim, index, src, op, alone)
	default:
		wide := Int64 // integers that it holds, and Bool; a product or a sum wraps as theirs does
		if dst.dtype.Float() {
			wide = Float32
		}
		d, s := Cast(dst, wide), Cast(src, wide)
		ScatterReduceTo(d, dim, index, s, op, alone)
		CastTo(dst, d)
		d.Free()
		s.Free()
	}
}

// scatterFold is ScatterReduceTo of elements of type T.
func scatterFold[T float32 | float64 | int64](dst *Tensor, dim int, index, src *Tensor, op kernel.ReduceOp, alone bool) {
	strides, n := make([]int, dst.NDim()), 1
	for d := dst.NDim() - 1; d >= 0; d-- {
		strides[d], n = n, n*dst.dims[d]
	}
	var taken []bool // where the first element has been put
	if alone {
		taken = make([]bool, dst.numel)
	}
	wide := Cast(index, Int64)
	at, elems := Read[int64](wide), Read[T](src)
	last := dst.NDim() - 1
	run, step := src.dims[last], 1
	if dim == last {
		step = 0
	}
	Edit(dst, func(to []T) {
		where := make([]int, last) // the coordinates of a run of src
		for i := 0; i < len(elems); i += run {
			base := 0
			for d, x := range where {
				if d != dim {
					base += x * strides[d]
				}
			}
			from, index := elems[i:i+run], at[i:i+run]
			if !alone {
				cpu.FoldRun(op, to[base:], from, index, step, strides[dim])
			} else {
				for j, v := range from {
					if k := base + j*step + int(index[j])*strides[dim]; taken[k] {
						to[k] = cpu.Combine(op, to[k], v)
					} else {
						to[k], taken[k] = v, true
					}
				}
			}
			for d := last - 1; d >= 0; d-- {
				if where[d]++; where[d] < src.dims[d] {
					break
				}
				where[d] = 0
			}
		}
	})
	keepAlive(wide, src)
}
