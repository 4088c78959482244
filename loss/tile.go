package loss

import (
	"github.com/gorun-spmd/gorun/tensor"
)

// integers returns the elements of an int32 or int64 tensor.
func integers(t *tensor.Tensor) []int64 {
	return tensor.ToSlice[int64](tensor.Cast(t, tensor.Int64))
}

// tileElems is how many logits are copied at a time at most: 1 MiB of float32.
const tileElems = 1 << 18

// tiles calls f for runs of local positions at to at+k. The runs are short if f copies the
// logits there: if copied is set or a position's classes are not contiguous.
func (p *sharding) tiles(copied bool, f func(at, k int)) {
	if p.inner == 1 && !copied {
		if p.outer > 0 {
			f(0, p.outer)
		}
		return
	}
	most := max(1, tileElems/max(p.n, 1))
	run := p.inner
	if p.inner == 1 {
		run = p.outer
	}
	for first := 0; first < p.positions(); first += run {
		for at := 0; at < run; at += most {
			f(first+at, min(most, run-at))
		}
	}
}

// read returns k positions of x, which has the layout of the logits, as rows [k, n]: a view
// of x if a position's classes are contiguous, else a copy.
func (p *sharding) read(x *tensor.Tensor, at, k int) *tensor.Tensor {
	if p.inner == 1 {
		return tensor.Narrow(x.Reshape(p.outer, p.n), 0, at, k)
	}
	box := tensor.New(x.Device(), x.DType(), 1, p.n, k)
	defer box.Free()
	tensor.CopyBox(box, []int{0, 0, 0}, x.Reshape(p.outer, p.n, p.inner), []int{at / p.inner, 0, at % p.inner}, []int{1, p.n, k})
	return tensor.Transpose(box.Reshape(p.n, k), 0, 1)
}

// write copies rows [k, n] of k positions into x, unless they are a view of it.
func (p *sharding) write(x, rows *tensor.Tensor, at, k int) {
	if p.inner == 1 {
		return
	}
	box := tensor.Transpose(rows, 0, 1)
	defer box.Free()
	tensor.CopyBox(x.Reshape(p.outer, p.n, p.inner), []int{at / p.inner, 0, at % p.inner}, box.Reshape(1, p.n, k), []int{0, 0, 0},
		[]int{1, p.n, k})
}

// done frees rows of read, unless they are a view.
func (p *sharding) done(rows *tensor.Tensor) {
	if p.inner > 1 {
		rows.Free()
	}
}

// widened returns the rows of read in the type of the computation; free frees them.
func (p *sharding) widened(x *tensor.Tensor, at, k int) (rows *tensor.Tensor, free func()) {
	narrow := p.read(x, at, k)
	rows = tensor.Cast(narrow, p.wide)
	if rows == narrow {
		return rows, func() { p.done(rows) }
	}
	p.done(narrow)
	return rows, rows.Free
}
