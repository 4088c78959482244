package layout

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A dense is a small tensor, or what one rank holds of one.
type dense struct {
	shape  []int
	data   []int64
	offset []int // the global index of its first element
}

// An operator is a rule, and what it is the rule of: a function that every rank
// applies to what it holds.
type operator struct {
	rule   *Rule
	values [][]int64 // of the inputs
	apply  func(in []dense) []dense
}

// identity is what a rank without elements adds to a reduction.
func identity(op ReduceOp) int64 {
	return [...]int64{Sum: 0, Avg: 0, Prod: 1, Min: 1 << 60, Max: -1 << 60, Nodes: 0}[op]
}

// operators returns operators of every family, on shapes that are uneven, of size 1
// and smaller than a mesh.
func operators(t *testing.T, rnd *rand.Rand) []operator {
	n := func() int { return []int{1, 2, 3, 4, 5, 7}[rnd.IntN(6)] }
	a, b, c, d := n(), n(), n(), n()
	rule := func(r *Rule, err error) *Rule {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	add := func(x, y int64) int64 { return x + y }
	ops := []operator{
		contraction(rule(Contraction("matmul", "mk,kn->mn", [][]int{{a, b}, {b, c}}))),
		contraction(rule(Contraction("bmm", "...mk,...kn->...mn", [][]int{{d, a, b}, {d, b, c}}))),
		contraction(rule(Contraction("broadcast bmm", "...mk,...kn->...mn", [][]int{{d, 1, a, b}, {2, b, c}}))),
		contraction(rule(Contraction("linear", "...k,nk->...n", [][]int{{d, a, b}, {c, b}}, []int{c}))),
		contraction(rule(Indexed("attention", "hqd,hkd,hke->hqe", "kd", []int{2, a, b}, []int{2, c, b}, []int{2, c, d}))),
		contraction(rule(Contraction("dot", "k,k->", [][]int{{a}, {a}}))),
		contraction(rule(Contraction("outer", "m,n->mn", [][]int{{a}, {b}}))),
		pointwise(rule(Pointwise("add", Adds, []int{a, b}, []int{a, b})), add),
		pointwise(rule(Pointwise("broadcast add", Adds, []int{a, 1, b}, []int{c, 1}, []int{1})), add),
		pointwise(rule(Pointwise("add that wraps", AddsWrapping, []int{a, b}, []int{a, b})), add),
		pointwise(rule(Pointwise("sub", Subtracts, []int{a, b}, []int{b})), func(x, y int64) int64 { return x - y }),
		pointwise(rule(Pointwise("mul", Multiplies, []int{a, b}, []int{a, b})), func(x, y int64) int64 { return x * y }),
		pointwise(rule(Pointwise("scale by tensor", Multiplies, []int{a, b}, []int{1})), func(x, y int64) int64 { return x * y }),
		pointwise(rule(Pointwise("maximum", Maximizes, []int{a, b}, []int{a, 1})), func(x, y int64) int64 { return max(x, y) }),
		pointwise(rule(Pointwise("minimum", Minimizes, []int{a, b}, []int{a, 1})), func(x, y int64) int64 { return min(x, y) }),
		pointwise(rule(Pointwise("where", Opaque, []int{a, b}, []int{a, 1})), func(x, y int64) int64 { return x ^ y }),
		unary(rule(Pointwise("scale", Scales, []int{a, b})), func(x int64) int64 { return 3 * x }),
		unary(rule(Pointwise("neg", Negates, []int{a, b})), func(x int64) int64 { return -x }),
		unary(rule(Pointwise("relu", Monotone, []int{a, b})), func(x int64) int64 { return max(x, 20*unit) }),
		unary(rule(Pointwise("square", Opaque, []int{a, b})), func(x int64) int64 { return x * x }),
		rowwise(rule(Rowwise("rowwise", []int{-1}, []int{a, b, c}, []int{c}))),
		rowwise(rule(Rowwise("two dims", []int{0, 2}, []int{a, b, c}, []int{c}))),
		lookup(rule(Lookup("embedding", []int{a, b}, 0, []int{c, d})), a, 0),
		lookup(rule(Lookup("index_select", []int{a, b, c}, 1, []int{d})), b, 1),
		gather(rule(Gather("gather", []int{a, b}, 1, []int{a, c})), b, 1),
		gather(rule(Gather("gather of fewer rows", []int{a + 1, b}, 1, []int{a, c})), b, 1),
		scatter(rule(Scatter("scatter", []int{a, b}, 1, []int{a, c})), b, 1),
		scatter(rule(Scatter("scatter of fewer rows", []int{a + 1, b}, -1, []int{a, c})), b, 1),
		concat(rule(Concatenation("cat", 1, []int{a, b}, []int{a, c})), 1),
		summary(rule(Summary("first and last", []int{a, b, c}, 1, 2, -1)), 1),
	}
	for _, op := range []ReduceOp{Sum, Prod, Min, Max} {
		ops = append(ops,
			reduction(rule(Reduction(op.String(), op, []int{a, b, c}, []int{-2}, false)), op, []bool{false, true, false}, false),
			reduction(rule(Reduction(op.String()+" keep", op, []int{a, b, c}, []int{0, 2}, true)), op, []bool{true, false, true}, true),
			reduction(rule(Reduction(op.String()+" all", op, []int{a, b}, nil, false)), op, []bool{true, true}, false))
	}
	return ops
}

// withValues completes an operator with values for its inputs.
func withValues(r *Rule, apply func(in []dense) []dense) operator {
	o := operator{rule: r, apply: apply}
	for i := range r.Inputs() {
		v := someValues(numel(r.inShape[i]))
		rand.New(rand.NewPCG(1, uint64(i))).Shuffle(len(v), func(i, j int) { v[i], v[j] = v[j], v[i] })
		o.values = append(o.values, v)
	}
	return o
}

// fill returns a tensor of the given shape with f of every index.
func fill(shape []int, f func(index []int) int64) dense {
	x := dense{shape: shape, data: make([]int64, numel(shape))}
	for e := range x.data {
		x.data[e] = f(indexOf(e, shape))
	}
	return x
}

// at returns the element at an index; dimensions of size 1 are broadcast, leading
// ones of the index dropped.
func (x dense) at(index []int) int64 {
	index = index[len(index)-len(x.shape):]
	e := 0
	for d, n := range x.shape {
		i := index[d]
		if n == 1 {
			i = 0
		}
		e = e*n + i
	}
	return x.data[e]
}

// broadcast returns the shape that the inputs have together.
func broadcast(in []dense) []int {
	var shape []int
	for _, x := range in {
		shape = slices.Concat(slices.Repeat([]int{1}, max(0, len(x.shape)-len(shape))), shape)
		lead := len(shape) - len(x.shape)
		for d, n := range x.shape {
			if n != 1 {
				shape[lead+d] = n
			}
		}
	}
	return shape
}

func pointwise(r *Rule, f func(x, y int64) int64) operator {
	return withValues(r, func(in []dense) []dense {
		return []dense{fill(broadcast(in), func(index []int) int64 {
			v := in[0].at(index)
			for _, x := range in[1:] {
				v = f(v, x.at(index))
			}
			return v
		})}
	})
}

func unary(r *Rule, f func(x int64) int64) operator {
	return withValues(r, func(in []dense) []dense {
		return []dense{fill(in[0].shape, func(index []int) int64 { return f(in[0].at(index)) })}
	})
}

// contraction multiplies along the letters of the rule, then adds the addends.
func contraction(r *Rule) operator {
	return withValues(r, func(in []dense) []dense {
		var size [maxLetters + 1]int
		for i, letters := range r.in {
			for d, l := range letters {
				size[l] = in[i].shape[d]
			}
		}
		size[0] = 1
		var out []int
		var inner []letter
		for _, l := range r.out[0] {
			out = append(out, size[l])
		}
		for _, letters := range r.in {
			for _, l := range letters {
				if l != 0 && !slices.Contains(r.out[0], l) && !slices.Contains(inner, l) {
					inner = append(inner, l)
				}
			}
		}
		var loops []int
		for _, l := range inner {
			loops = append(loops, size[l])
		}
		return []dense{fill(out, func(index []int) int64 {
			var at [maxLetters + 1]int
			for d, l := range r.out[0] {
				at[l] = index[d]
			}
			at[0] = 0
			var total int64
			for e := range numel(loops) {
				for k, i := range indexOf(e, loops) {
					at[inner[k]] = i
				}
				term := int64(1)
				for i, x := range in {
					if r.addends&(1<<i) == 0 {
						term *= x.at(pick(at[:], r.in[i]))
					}
				}
				total += term
			}
			for i, x := range in {
				if r.addends&(1<<i) != 0 {
					total += x.at(pick(at[:], r.in[i]))
				}
			}
			return total
		})}
	})
}

func pick(at []int, letters []letter) []int {
	index := make([]int, len(letters))
	for d, l := range letters {
		index[d] = at[l]
	}
	return index
}

func reduction(r *Rule, op ReduceOp, reduced []bool, keep bool) operator {
	return withValues(r, func(in []dense) []dense {
		var out, whole []int
		for d, n := range in[0].shape {
			if reduced[d] {
				whole = append(whole, n)
				if keep {
					out = append(out, 1)
				}
			} else {
				out = append(out, n)
			}
		}
		return []dense{fill(out, func(index []int) int64 {
			v := identity(op)
			for e := range numel(whole) {
				inner := indexOf(e, whole)
				full := make([]int, len(reduced))
				k, j := 0, 0
				for d := range full {
					switch {
					case reduced[d]:
						full[d] = inner[k]
						k++
						if keep {
							j++
						}
					default:
						full[d] = index[j]
						j++
					}
				}
				v = reduce(op, []int64{v, in[0].at(full)})
			}
			return v
		})}
	})
}

// rowwise subtracts the sum over the whole dimensions, and adds the other inputs.
func rowwise(r *Rule) operator {
	return withValues(r, func(in []dense) []dense {
		return []dense{fill(in[0].shape, func(index []int) int64 {
			v := in[0].at(index)
			for e := range in[0].data {
				other := indexOf(e, in[0].shape)
				same := true
				for d, l := range r.in[0] {
					same = same && (r.whole&(1<<l) != 0 || other[d] == index[d])
				}
				if same {
					v -= in[0].data[e]
				}
			}
			for _, x := range in[1:] {
				v += x.at(index)
			}
			return v
		})}
	})
}

// lookup takes rows of a table of the given length; a rank gives 0 for a row that
// another one owns.
func lookup(r *Rule, rows, dim int) operator {
	o := withValues(r, func(in []dense) []dense {
		table, ids := in[0], in[1]
		shape := slices.Concat(table.shape[:dim], ids.shape, table.shape[dim+1:])
		return []dense{fill(shape, func(index []int) int64 {
			id := int(ids.at(index[dim:dim+len(ids.shape)])) - table.offset[dim]
			if id < 0 || id >= table.shape[dim] {
				return 0
			}
			return table.data[element(table.shape, slices.Concat(index[:dim], []int{id}, index[dim+len(ids.shape):]))]
		})}
	})
	for e := range o.values[1] {
		o.values[1][e] %= int64(rows)
	}
	return o
}

func gather(r *Rule, rows, dim int) operator {
	o := withValues(r, func(in []dense) []dense {
		from, at := in[0], in[1]
		return []dense{fill(at.shape, func(index []int) int64 {
			id := int(at.data[element(at.shape, index)]) - from.offset[dim]
			if id < 0 || id >= from.shape[dim] {
				return 0
			}
			index = slices.Clone(index)
			index[dim] = id
			return from.data[element(from.shape, index)]
		})}
	})
	for e := range o.values[1] {
		o.values[1][e] = (o.values[1][e] / unit) % int64(rows)
	}
	return o
}

// scatter puts src into the input; a rank leaves out what another one has.
func scatter(r *Rule, rows, dim int) operator {
	o := withValues(r, func(in []dense) []dense {
		to, at, src := in[0], in[1], in[2]
		out := slices.Clone(to.data)
		for e := range at.data {
			index := indexOf(e, at.shape)
			if index[dim] = int(at.data[e]) - to.offset[dim]; index[dim] >= 0 && index[dim] < to.shape[dim] {
				out[element(to.shape, index)] = src.data[e]
			}
		}
		return []dense{{shape: to.shape, data: out, offset: to.offset}}
	})
	for e := range o.values[1] {
		o.values[1][e] = (o.values[1][e] / unit) % int64(rows)
	}
	return o
}

func concat(r *Rule, dim int) operator {
	return withValues(r, func(in []dense) []dense {
		shape := slices.Clone(in[0].shape)
		shape[dim] += in[1].shape[dim]
		return []dense{fill(shape, func(index []int) int64 {
			i := slices.Clone(index)
			if i[dim] < in[0].shape[dim] {
				return in[0].data[element(in[0].shape, i)]
			}
			i[dim] -= in[0].shape[dim]
			return in[1].data[element(in[1].shape, i)]
		})}
	})
}

// summary takes, of each row along dim, its sum and its length, and its sum alone.
func summary(r *Rule, dim int) operator {
	return withValues(r, func(in []dense) []dense {
		sum := func(index []int) int64 {
			var v int64
			for i := range in[0].shape[dim] {
				full := slices.Clone(index)
				full[dim] = i
				v += in[0].data[element(in[0].shape, full)]
			}
			return v
		}
		pair := slices.Clone(in[0].shape)
		pair[dim] = 2
		return []dense{
			fill(pair, func(index []int) int64 {
				if index[dim] == 0 {
					return sum(index)
				}
				return int64(in[0].shape[dim])
			}),
			fill(slices.Delete(slices.Clone(in[0].shape), dim, dim+1), func(index []int) int64 {
				return sum(slices.Insert(slices.Clone(index), dim, 0))
			}),
		}
	})
}
