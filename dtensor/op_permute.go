package dtensor

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// Permute reorders the dimensions: dimension i of the result is dims[i] of t.
//
//	t       result
//	S(i)    S(j) where dims[j] = i
//	R, P    the same
//
// Its gradient is the permutation back.
func (t *Tensor) Permute(dims ...int) *Tensor {
	if len(dims) != t.NDim() {
		refuse("Permute", fmt.Sprintf("%v does not name the %d dimensions", slices.Clone(dims), t.NDim()), "", operand("input", t))
	}
	order := make([]int, len(dims))
	seen, packed := 0, 0
	for i, d := range dims {
		order[i] = t.dim("Permute", d)
		seen |= 1 << order[i]
		packed = packed<<4 | order[i]
	}
	if seen != 1<<t.NDim()-1 {
		refuse("Permute", fmt.Sprintf("%v names a dimension twice", order), "", operand("input", t))
	}
	m := t.spec.mesh
	r := t.viewRule(ruleKey{op: "Permute", attr: [3]int{packed}}, false, func(in layout.Layout) (layout.View, error) {
		return layout.Permute(in, order...)
	})
	in := t.to(r.in[0], "Permute")
	out := m.viewed(r, in, func(x *tensor.Tensor) *tensor.Tensor {
		if staysInOrder(x, order) {
			return x.Reshape(r.out[0].local...)
		}
		return tensor.Permute(x, order...)
	})
	if t.tracked() {
		back := make([]int, len(order))
		for i, d := range order {
			back[d] = i
		}
		out.recordView("Permute", func(gy *Tensor) { in.accumulate(gy.Permute(back...)) })
	}
	return out
}

// staysInOrder reports whether an order of x's dimensions leaves its elements where they are: dimensions of size 1 alone move.
func staysInOrder(x *tensor.Tensor, order []int) bool {
	last := -1
	for _, d := range order {
		if x.Dim(d) == 1 {
			continue
		}
		if d < last {
			return false
		}
		last = d
	}
	return true
}

// Transpose swaps two dimensions; see Permute.
func (t *Tensor) Transpose(d0, d1 int) *Tensor {
	if t.NDim() == 0 {
		return t.lift().Transpose(d0, d1).Reshape()
	}
	d0, d1 = t.dim("Transpose", d0), t.dim("Transpose", d1)
	order := ints.Range(t.NDim())
	order[d0], order[d1] = d1, d0
	return t.Permute(order...)
}

// Expand repeats t to shape, to which t's shape broadcasts; -1 keeps a size.
//
//	t                            result
//	S(i), i keeps its size       S(i)
//	S(i), i has size 1           R
//	R, P                         the same
//
// Its gradient is dy summed over what was repeated.
func (t *Tensor) Expand(shape ...int) *Tensor {
	lead := len(shape) - t.NDim()
	full := slices.Clone(shape)
	ok := lead >= 0
	for d := lead; ok && d < len(full); d++ {
		own := t.spec.shape[d-lead]
		if full[d] == -1 {
			full[d] = own
		}
		ok = full[d] == own || own == 1 && full[d] >= 0
	}
	if !ok {
		refuse("Expand", fmt.Sprintf("its shape does not broadcast to %v", slices.Clone(shape)), "only sizes of 1 can be repeated",
			operand("input", t))
	}
	if slices.Equal(full, t.spec.shape) {
		return t
	}
	m := t.spec.mesh
	key := ruleKey{op: "Expand"}
	key.in[1] = m.shapeSpec("Expand", full)
	r := t.viewRule(key, false, func(in layout.Layout) (layout.View, error) { return layout.Expand(in, full) })
	in := t.to(r.in[0], "Expand")
	out := m.viewed(r, in, func(x *tensor.Tensor) *tensor.Tensor { return tensor.Expand(x, r.out[0].local...) })
	if t.tracked() {
		out.recordTwice("Expand", func(gy *Tensor) { in.accumulate(gy.sumTo(t.spec.shape)) })
	}
	return out
}
