package dtensor_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// Einsum is the sum over all values of all letters of the product of the operands'
// elements.
func TestEinsum(t *testing.T) {
	for _, c := range []struct {
		equation string
		spelled  string // with letters for "...", and with a result
		shapes   [][]int
	}{
		{"ab,bc,cd->ad", "ab,bc,cd->ad", [][]int{{2, 3}, {3, 5}, {5, 4}}},
		{"a,b,c,d", "a,b,c,d->abcd", [][]int{{2}, {3}, {1}, {4}}},
		{"ab,ab,ab->b", "ab,ab,ab->b", [][]int{{2, 3}, {2, 3}, {2, 3}}},
		{"abc,cd,de,ea->b", "abc,cd,de,ea->b", [][]int{{2, 3, 4}, {4, 2}, {2, 3}, {3, 2}}},
		{"ii", "ii->", [][]int{{4, 4}}},
		{"ii->i", "ii->i", [][]int{{4, 4}}},
		{"iji->ji", "iji->ji", [][]int{{3, 2, 3}}},
		{"iiijj->ij", "iiijj->ij", [][]int{{2, 2, 2, 3, 3}}},
		{"bii,bij->bj", "bii,bij->bj", [][]int{{2, 3, 3}, {2, 3, 2}}},
		{"...ij,...jk->...ik", "xyij,xyjk->xyik", [][]int{{2, 3, 2, 4}, {2, 3, 4, 2}}},
		{"...ij,jk", "xij,jk->xik", [][]int{{3, 2, 4}, {4, 2}}},
		{"...i,...i", "xyi,yi->xy", [][]int{{2, 3, 4}, {3, 4}}},
		{"i...,...->i...", "ixy,xy->ixy", [][]int{{4, 2, 3}, {1, 3}}},
		{"...->", "xy->", [][]int{{2, 3}}},
		{"...ii->...", "xii->x", [][]int{{3, 2, 2}}},
		{"ab,ab->ab", "ab,ab->ab", [][]int{{2, 3}, {2, 1}}},
		{"ab->ba", "ab->ba", [][]int{{2, 3}}},
		{",a", ",a->a", [][]int{{}, {3}}},
		{"ab,bc,ca", "ab,bc,ca->", [][]int{{2, 0}, {0, 3}, {3, 2}}},
	} {
		for _, mesh := range [][]int{{1}, {3}} {
			onMesh(t, mesh, func(ctx context.Context, m *dtensor.Mesh) error {
				in := make([]T, len(c.shapes))
				for i, s := range c.shapes {
					p := layout.Replicate()
					if len(s) > 0 {
						p = layout.Shard(i % len(s))
					}
					in[i] = dtensor.Normal(m, dtensor.Key{Seed: 5, Stream: uint64(i)}, 0, 1, s, p).Cast(tensor.Float64)
				}
				return dtensor.Try(ctx, m, func() {
					out := dtensor.Einsum(c.equation, in...)
					got, want := tensor.ToSlice[float64](out.Full()), naiveEinsum(c.spelled, in)
					if len(got) != len(want) {
						failf("%s: %v has %d elements, want %d", c.equation, out, len(got), len(want))
					}
					for i := range got {
						if math.Abs(got[i]-want[i]) > 1e-12 {
							failf("%s: element %d is %v, want %v", c.equation, i, got[i], want[i])
						}
					}
				})
			})
		}
	}
}

// naiveEinsum walks all values of all letters. An operand of size 1 is repeated.
func naiveEinsum(equation string, in []T) []float64 {
	left, out, _ := strings.Cut(equation, "->")
	terms := strings.Split(left, ",")
	sizes, value := map[rune]int{}, map[rune]int{}
	var letters []rune
	for i, term := range terms {
		for d, l := range term {
			if _, seen := sizes[l]; !seen {
				letters = append(letters, l)
			}
			sizes[l] = max(sizes[l], in[i].Shape()[d])
			if in[i].Shape()[d] == 0 {
				sizes[l] = 0
			}
		}
	}
	position := func(term string, shape []int) (at int) {
		for d, l := range term {
			n := sizes[l]
			if shape != nil {
				n = shape[d]
			}
			at = at*n + value[l]%max(n, 1)
		}
		return at
	}
	n := 1
	for _, l := range out {
		n *= sizes[l]
	}
	sum := make([]float64, n)
	data := make([][]float64, len(in))
	for i, x := range in {
		data[i] = tensor.ToSlice[float64](x.Full())
	}
	var walk func(k int)
	walk = func(k int) {
		if k < len(letters) {
			for value[letters[k]] = range sizes[letters[k]] {
				walk(k + 1)
			}
			return
		}
		product := 1.0
		for i, term := range terms {
			product *= data[i][position(term, in[i].Shape())]
		}
		sum[position(out, nil)] += product
	}
	walk(0)
	return sum
}

func TestEinsumRefusals(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		x := dtensor.Zeros(m, tensor.Float32, []int{2, 3}, layout.Shard(0))
		for _, equation := range []string{"ab,bc->ac", "a", "abc", "ab->abc", "ab->aa", "aa", "a1", "a.b", "...a...", "ab->a...b...", "...abc"} {
			var wrong *dtensor.LayoutError
			if err := dtensor.Try(ctx, m, func() { dtensor.Einsum(equation, x) }); !errors.As(err, &wrong) {
				return fmt.Errorf("%s: %v", equation, err)
			}
		}
		var wrong *dtensor.LayoutError
		if err := dtensor.Try(ctx, m, func() { dtensor.Einsum("ab,ab", x, x.Permute(1, 0)) }); !errors.As(err, &wrong) {
			return fmt.Errorf("other sizes: %v", err)
		}
		return nil
	})
}

// Where an index repeats, the last element in order stays, in every layout; the others
// have no gradient.
func TestScatter(t *testing.T) {
	R, S := layout.Replicate(), layout.Shard
	for _, p := range [][2]layout.Placement{{R, R}, {S(0), S(0)}, {S(1), R}, {S(1), S(1)}, {R, S(1)}} {
		onMesh(t, []int{3}, func(ctx context.Context, m *dtensor.Mesh) error {
			x := dtensor.Full(m, tensor.Float32, 9, []int{2, 4}, p[0])
			index := dtensor.Distribute(m, tensor.FromSlice(m.Device(), []int64{1, 3, 1, 0, 0, 0}, 2, 3), p[1])
			src := dtensor.Distribute(m, tensor.FromSlice(m.Device(), []float32{1, 2, 3, 4, 5, 6}, 2, 3), p[1])
			var out T
			_, grads, err := dtensor.ValueAndGrad(ctx, func() T {
				out = x.Scatter(1, index, src)
				dtensor.Keep(out)
				return out.Sum(nil, false)
			}, x, src)
			if err != nil {
				return err
			}
			for i, c := range []struct {
				got  T
				want []float32
			}{
				{out, []float32{9, 3, 9, 2, 6, 9, 9, 9}},
				{grads[0].Dense(), []float32{1, 0, 1, 0, 0, 1, 1, 1}},
				{grads[1].Dense(), []float32{0, 1, 1, 0, 0, 1}},
			} {
				if err := dtensor.Try(ctx, m, func() {
					if got := tensor.ToSlice[float32](c.got.Full()); fmt.Sprint(got) != fmt.Sprint(c.want) {
						failf("%v: result %d is %v, want %v", p, i, got, c.want)
					}
				}); err != nil {
					return err
				}
			}
			var bad *tensor.IndexError
			if err := dtensor.Try(ctx, m, func() { x.Scatter(1, index.Redistribute(R).AddScalar(1), src) }); p[1].IsReplicate() &&
				!errors.As(err, &bad) {
				return fmt.Errorf("an index out of range: %v", err)
			}
			var wrong *dtensor.LayoutError
			if err := dtensor.Try(ctx, m, func() { x.Scatter(1, index.Redistribute(R), x) }); p[1].IsReplicate() && !errors.As(err, &wrong) {
				return fmt.Errorf("an index of another shape: %v", err)
			}
			return nil
		})
	}
}
