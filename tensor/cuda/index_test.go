package cuda

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

func TestIndex(t *testing.T) {
	c := newCheck(t, openGPU(t, false))
	for _, it := range []tensor.DType{tensor.Int32, tensor.Int64} {
		for _, dt := range numbers {
			name := fmt.Sprint(dt, it)
			x := c.arg(dt, 6, 20, 8)
			for d := range 3 {
				index := c.ids(it, 0, x.Dim(d), 13)
				c.same(fmt.Sprint("select ", name, d), 0, one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.IndexSelect(x[0], d, x[1]) }), x,
					index)
				shape := []int{6, 20, 8}
				shape[d] = 13
				c.same(fmt.Sprint("add ", name, d), rounding(dt), one(func(x []*tensor.Tensor) *tensor.Tensor {
					tensor.IndexAddTo(x[0], d, x[1], x[2])
					return x[0]
				}), x, index, c.arg(dt, shape...))
				pick := c.ids(it, 0, x.Dim(d), 5, 7, 6)
				c.same(fmt.Sprint("gather ", name, d), 0, one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.Gather(x[0], d, x[1]) }), x, pick)
				src := c.arg(dt, 5, 8, 7)
				c.same(fmt.Sprint("scatter ", name, d), 0, one(func(x []*tensor.Tensor) *tensor.Tensor {
					tensor.ScatterTo(x[0], d, x[1], x[2])
					return x[0]
				}), x, pick, src)
				c.same(fmt.Sprint("scatter add ", name, d), rounding(dt), one(func(x []*tensor.Tensor) *tensor.Tensor {
					tensor.ScatterAddTo(x[0], d, x[1], x[2])
					return x[0]
				}), x, pick, src)
				for _, op := range []kernel.ReduceOp{kernel.OpProd, kernel.OpAmin} { // on the host
					c.same(fmt.Sprint("scatter ", op, " ", name, d), 0, one(func(x []*tensor.Tensor) *tensor.Tensor {
						tensor.ScatterReduceTo(x[0], d, x[1], x[2], op, op == kernel.OpAmin)
						return x[0]
					}), x, pick, c.arg(dt, 5, 7, 6))
				}
			}
			c.same("one-hot "+name, 0, one(func(x []*tensor.Tensor) *tensor.Tensor { return oneHot(x[0], 3, 9, dt) }), c.ids(it, 0, 20, 4, 5))
		}
		for _, dev := range []tensor.Device{c.cpu, c.dev} {
			bad := tensor.Cast(tensor.FromSlice(dev, []int64{3, 1, 9, 2, -1}, 5), it)
			if pos, v, ok := tensor.CheckIndex(bad, 9); ok || pos != 2 || v != 9 {
				t.Errorf("CheckIndex on %v: %d, %d, %v", dev, pos, v, ok)
			}
			if _, _, ok := tensor.CheckIndex(bad, 0); ok {
				t.Errorf("CheckIndex on %v: nothing wrong with no rows", dev)
			}
			var err error
			func() {
				defer fault.Catch(&err)
				tensor.IndexSelect(tensor.Zeros(dev, tensor.Float32, 4, 2), 0, bad)
			}()
			if err == nil {
				t.Errorf("IndexSelect on %v took index 9 of 4", dev)
			}
		}
	}
}

// TestIndexAddOfMany adds more slices than a thread walks, at few places and at many.
func TestIndexAddOfMany(t *testing.T) {
	c := newCheck(t, openGPU(t, false))
	for _, dt := range numbers {
		tol := 0.0
		if dt == tensor.Float32 || dt == tensor.Float64 {
			tol = sum(dt)
		}
		for _, s := range [][4]int{{1, 3, 900, 1}, {1, 700, 500, 4}, {3, 5, 300, 1}, {2, 4, 65, 9}} {
			outer, n, count, inner := s[0], s[1], s[2], s[3]
			c.same(fmt.Sprint(dt, s), tol, one(func(x []*tensor.Tensor) *tensor.Tensor {
				tensor.IndexAddTo(x[0], 1, x[1], x[2])
				return x[0]
			}), c.arg(dt, outer, n, inner), c.ids(tensor.Int32, 0, n, count), c.arg(dt, outer, count, inner))
		}
	}
}

// TestLongSegments sums rows of which few ids have most, so that there are pieces, at
// each place where a segment may begin.
func TestLongSegments(t *testing.T) {
	c := newCheck(t, openGPU(t, false))
	for _, dt := range floats {
		for _, counts := range [][]int{{2000}, {piece}, {piece + 1}, {1, piece, 1}, {1, piece + 1, 1}, {3, 2*piece + 1, piece - 1, 300, 5, 1},
			{127, 1, 129, 1, 255, 1000}, {piece, piece, 2 * piece, 2 * piece}} {
			var ids []int64
			for id, n := range counts {
				ids = append(ids, slices.Repeat([]int64{int64(id)}, n)...)
			}
			c.rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
			for _, dim := range []int{1, 36, 132} {
				c.same(fmt.Sprint(dt, counts, dim), sum(dt), one(func(x []*tensor.Tensor) *tensor.Tensor {
					return tensor.Coalesce(x[0], x[1], 0, len(counts)).Values
				}), tensor.FromSlice(c.cpu, ids, len(ids)), c.arg(dt, len(ids), dim))
			}
		}
	}
}

func TestTables(t *testing.T) {
	c := newCheck(t, openGPU(t, false))
	for _, it := range []tensor.DType{tensor.Int32, tensor.Int64} {
		for _, dt := range floats {
			for _, n := range []int{0, 1, 2, 5, 2100} {
				for _, dim := range []int{1, 3, 8} {
					const lo, rows = 100, 50
					name := fmt.Sprint(it, dt, n, "x", dim)
					ids := tensor.New(c.cpu, it, 0)
					switch {
					case n > 2:
						ids = c.ids(it, 80, 170, n)
					case n > 0: // in range
						ids = c.ids(it, 100, 103, n)
					}
					table, values := c.arg(dt, rows, dim), c.arg(dt, n, dim)
					c.same("take "+name, 0, one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.TakeRows(x[0], x[1], lo) }), table, ids)
					c.same("unique "+name, 0, func(x []*tensor.Tensor) []*tensor.Tensor {
						u := tensor.Unique(x[0], lo, rows)
						return []*tensor.Tensor{u.Index, u.Start, u.Slot, u.Order}
					}, ids)
					c.same("row gradient "+name, rounding(dt), func(x []*tensor.Tensor) []*tensor.Tensor {
						g := tensor.Coalesce(x[0], x[1], lo, rows)
						tensor.SGD{LR: 0.5}.StepRows(x[2], g)
						power := tensor.RowPowSums(x[2], g.Index, 2)
						tensor.ScaleRowsTo(x[2], g.Index, power)
						return []*tensor.Tensor{g.Index, g.Values, power, x[2]}
					}, ids, values, table)
				}
			}
		}
	}
}

// TestUniqueOfMany has more ids than one block sorts, up to several groups of tiles, of
// one digit and of several, most of them out of range and none.
func TestUniqueOfMany(t *testing.T) {
	c := newCheck(t, openGPU(t, false))
	for _, s := range [][4]int{ // ids, the largest one, lo, rows
		{tile, 1 << 30, 0, 1 << 31}, {tile + 1, 1 << 30, 0, 1 << 31}, {9000, 1 << 20, 5, 1<<20 - 17}, {20*tile + 3, 1 << 17, 0, 1 << 16},
		{11 * tile, 3, 0, 256}, {9000, 1 << 20, 1 << 10, 1 << 9}, {9000, 10, 10, 1 << 20}, {9000, 10, 0, 0}, {9000, 1, 0, 1},
	} {
		c.same(fmt.Sprint(s), 0, func(x []*tensor.Tensor) []*tensor.Tensor {
			u := tensor.Unique(x[0], s[2], s[3])
			return []*tensor.Tensor{u.Index, u.Start, u.Slot, u.Order, u.Count()}
		}, c.ids(tensor.Int64, 0, s[1], s[0]))
	}
}

func TestOptimizers(t *testing.T) {
	c := newCheck(t, openGPU(t, false))
	for _, dt := range floats {
		p, g, m, v := c.arg(dt, 20, 7), c.arg(dt, 20, 7), c.arg(dt, 20, 7), tensor.Unary(kernel.OpAbs, c.arg(dt, 20, 7))
		for _, o := range []tensor.SGD{{LR: 0.1}, {LR: 0.1, WeightDecay: 0.01}, {LR: 0.1, Momentum: 0.9, Dampening: 0.1},
			{LR: 0.1, Momentum: 0.9, WeightDecay: 0.1, Nesterov: true}} {
			c.same(fmt.Sprintf("%+v %v", o, dt), rounding(dt), func(x []*tensor.Tensor) []*tensor.Tensor {
				o.Step(x[0], x[1], x[2], false)
				return []*tensor.Tensor{x[0], x[2]}
			}, p, g, m)
		}
		for _, coupled := range []bool{false, true} {
			o := tensor.Adam{LR: 0.01, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1, Coupled: coupled}
			c.same(fmt.Sprint("adam", dt, coupled), rounding(dt), func(x []*tensor.Tensor) []*tensor.Tensor {
				o.Step(x[0], x[1], x[2], x[3], 3)
				return x
			}, p, g, m, v)
		}
		index := tensor.FromSlice(c.cpu, []int64{2, 3, 11}, 3)
		c.same(fmt.Sprint("adam rows", dt), rounding(dt), func(x []*tensor.Tensor) []*tensor.Tensor {
			adamW.StepRows(x[0], tensor.Rows{Index: x[4], Values: x[1]}, x[2], x[3], 2)
			return x
		}, p, c.arg(dt, 3, 7), m, v, index)
		c.same(fmt.Sprint("adagrad rows", dt), rounding(dt), func(x []*tensor.Tensor) []*tensor.Tensor {
			tensor.Adagrad{LR: 0.1, Eps: 1e-10}.StepRows(x[0], tensor.Rows{Index: x[3], Values: x[1]}, x[2], nil)
			return x
		}, p, c.arg(dt, 3, 7), tensor.Unary(kernel.OpAbs, c.arg(dt, 20)), index)
	}
}

func TestProducts(t *testing.T) {
	eachGPU(t, func(t *testing.T, dev *Device) {
		c := newCheck(t, dev)
		for _, dt := range floats {
			for _, s := range [][3]int{{1, 1, 1}, {5, 7, 3}, {70, 65, 40}, {3, 4, 0}, {64, 64, 16}} {
				m, n, k := s[0], s[1], s[2]
				for _, trans := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
					a, b := c.arg(dt, m, k), c.arg(dt, k, n)
					if trans[0] {
						a = c.arg(dt, k, m)
					}
					if trans[1] {
						b = c.arg(dt, n, k)
					}
					c.same(fmt.Sprint(dt, s, trans), sum(dt), func(x []*tensor.Tensor) []*tensor.Tensor {
						y := tensor.MatMul(x[0], x[1], trans[0], trans[1])
						tensor.MatMulTo(x[2], x[0], x[1], trans[0], trans[1], true)
						return []*tensor.Tensor{y, x[2]}
					}, a, b, c.arg(dt, m, n))
				}
			}
			c.same(fmt.Sprint("batches", dt), sum(dt),
				one(func(x []*tensor.Tensor) *tensor.Tensor { return tensor.MatMul(x[0], x[1], false, true) }), c.arg(dt, 2, 1, 5, 6), c.arg(dt, 3, 4,
					6))
			for _, causal := range []bool{false, true} {
				c.same(fmt.Sprint("attention", dt, causal), sum(dt), func(x []*tensor.Tensor) []*tensor.Tensor {
					y, lse := tensor.Attention(x[0], x[1], x[2], causal)
					dq, dk, dv := tensor.AttentionGrad(x[3], x[0], x[1], x[2], y, lse, causal)
					return []*tensor.Tensor{y, lse, dq, dk, dv}
				}, c.arg(dt, 1, 2, 70, 8), c.arg(dt, 1, 2, 70, 8), c.arg(dt, 1, 2, 70, 5), c.arg(dt, 1, 2, 70, 5))
			}
			c.same(fmt.Sprint("attention to nothing", dt), sum(dt), func(x []*tensor.Tensor) []*tensor.Tensor {
				q, k := tensor.MulScalar(tensor.Unary(kernel.OpAbs, x[0]), math.Inf(-1)), tensor.AddScalar(tensor.Unary(kernel.OpAbs, x[1]), 1)
				y, lse := tensor.Attention(q, k, x[2], false)
				_, _, dv := tensor.AttentionGrad(x[3], q, k, x[2], y, lse, false)
				return []*tensor.Tensor{y, lse, dv}
			}, c.arg(dt, 1, 2, 3, 1), c.arg(dt, 1, 2, 5, 1), c.arg(dt, 1, 2, 5, 2), c.arg(dt, 1, 2, 3, 2))
		}
	})
}

// TestOffsetViews moves rows of 16·k bytes that lie at odd elements: what is moved at
// once must be no larger than what they are aligned to.
func TestOffsetViews(t *testing.T) {
	c := newCheck(t, openGPU(t, false))
	const rows, dim = 9, 16
	for _, dt := range all {
		for offset := range 3 {
			flat := tensor.Cast(c.ids(tensor.Int64, 0, 2, offset+rows*dim), dt)
			index := c.ids(tensor.Int64, 0, rows, 7)
			view := func(x *tensor.Tensor) *tensor.Tensor { return tensor.Narrow(x, 0, offset, rows*dim).Reshape(rows, dim) }
			c.same(fmt.Sprint(dt, offset), 0, func(x []*tensor.Tensor) []*tensor.Tensor {
				v := view(x[0])
				to := tensor.New(v.Device(), dt, 1+rows*dim/2)
				into := tensor.Narrow(to, 0, 1, rows*dim/2).Reshape(rows, dim/2)
				tensor.Fill(to, 1)
				tensor.Copy(into, tensor.Narrow(v, 1, 4, dim/2))
				return []*tensor.Tensor{
					tensor.IndexSelect(v, 0, x[1]), tensor.TakeRows(v, x[1], 2), tensor.Clone(tensor.Narrow(v, 1, offset, 8)),
					tensor.Clone(tensor.Transpose(v, 0, 1)), tensor.Clone(v), to,
				}
			}, flat, index)
		}
	}
}
