package dtensor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// composed are the functions of PyTorch that docs/pytorch.md makes of operators.
var composed = map[string]func(in []T) T{
	"hypot":  two(func(a, b T) T { return a.Square().Add(b.Square()).Sqrt() }),
	"xlogy":  two(func(x, y T) T { return xlogy(x.Relu(), y.Abs()) }),
	"logit":  one(func(x T) T { return logit(x.Scale(0.4).AddScalar(0.5)) }),
	"sinc":   one(func(x T) T { return sinc(x.Relu()) }),
	"frac":   one(func(x T) T { x = x.Scale(9); return x.Sub(x.Trunc()) }),
	"relu6":  one(func(x T) T { return x.Scale(9).Clamp(0, 6) }),
	"selu":   one(func(x T) T { return x.ELU(1.6732632423543772).Scale(1.0507009873554805) }),
	"glu":    one(func(x T) T { h := x.Chunk(-1, 2); return h[0].Mul(h[1].Sigmoid()) }),
	"median": one(func(x T) T { n := x.Dim(0); s, _ := x.Sort(0, false); return s.Narrow(0, (n-1)/2, 1).Squeeze(0) }),
	"heaviside": two(func(x, v T) T {
		x, v = x.Relu().Detach(), v.Detach()
		return x.CompareScalar(kernel.OpEq, 0).Where(v, x.CompareScalar(kernel.OpGt, 0).Cast(v.DType()))
	}),
	"copysign": two(func(a, b T) T { return b.CompareScalar(kernel.OpLt, 0).Where(a.Abs().Neg(), a.Abs()) }),
	"nan_to_num": one(func(x T) T {
		x = x.AddScalar(-0.5).Log()
		return x.MaskedFill(x.Compare(kernel.OpNe, x), 0).Clamp(-math.MaxFloat64, math.MaxFloat64)
	}),
	"isfinite": one(func(x T) T {
		return x.AddScalar(-0.5).Log().Abs().CompareScalar(kernel.OpLt, math.Inf(1))
	}),
	"addcmul": func(in []T) T {
		c, a, b, value := in[0], in[1], in[2], 0.3
		return c.Add(a.Mul(b).Scale(value))
	},
	"addmm": func(in []T) T {
		c, a, b, beta, alpha := in[0], in[1], in[2], 0.2, 0.3
		return c.Scale(beta).Add(a.MatMul(b).Scale(alpha))
	},
	"addcdiv": func(in []T) T {
		c, a, b, value := in[0], in[1], in[2], 0.3
		return c.Add(a.Div(b).Scale(value))
	},
	"CrossNet": func(in []T) T {
		x0, x, w, b := in[0], in[1], in[2], in[3]
		return x0.Mul(x.Linear(w, b)).Add(x)
	},
	"LowRankCrossNet": func(in []T) T {
		x0, x, v, w, b := in[0], in[1], in[2], in[3], in[4]
		return x0.Mul(x.Linear(v, nil).Linear(w, b)).Add(x)
	},
	"FactorizationMachine": one(func(x T) T {
		return x.Sum([]int{1}, true).Square().Sub(x.Square().Sum([]int{1}, true)).Scale(0.5)
	}),
	"SwishLayerNorm": func(in []T) T {
		x, w, b := in[0], in[1], in[2]
		return x.Mul(x.LayerNorm(w, b, 1e-5).Sigmoid())
	},
	"bilinear":          func(in []T) T { a, b, w := in[0], in[1], in[2]; return dtensor.Einsum("bi,oij,bj->bo", a, w, b) },
	"pairwise_distance": two(func(a, b T) T { return a.Sub(b).AddScalar(1e-6).Norm(2, []int{-1}, false) }),
	"threshold":         one(func(x T) T { t, v := 0.3, 2.0; return x.MaskedFill(x.CompareScalar(kernel.OpLe, t), v) }),
	"gumbel_softmax": two(func(x, u T) T {
		u, tau := u.Detach().Scale(0.4).AddScalar(0.5), 0.7
		return x.Sub(u.Log().Neg().Log()).Scale(1 / tau).Softmax(-1)
	}),
	"multinomial": two(func(x, u T) T {
		p, u, k := x.Softmax(-1), u.Detach().Scale(0.4).AddScalar(0.5), 2
		_, i := p.Div(u.Log().Neg()).TopK(k, -1)
		return i
	}),
	"softsign":   one(func(x T) T { return x.Div(x.Abs().AddScalar(1)) }),
	"tanhshrink": one(func(x T) T { return x.Sub(x.Tanh()) }),
	"softshrink": one(func(x T) T { l := 0.3; return x.Sub(x.Clamp(-l, l)) }),
	"hardshrink": one(func(x T) T { l := 0.3; return x.MaskedFill(x.Abs().CompareScalar(kernel.OpLe, l), 0) }),
	"celu":       one(func(x T) T { a := 0.5; return x.Scale(1 / a).ELU(1).Scale(a) }),
	"softmin":    one(func(x T) T { return x.Neg().Softmax(-1) }),
	"count_nonzero": one(func(x T) T {
		return x.Relu().CompareScalar(kernel.OpNe, 0).Sum([]int{-1}, false)
	}),
	"nansum": one(func(x T) T {
		x = x.AddScalar(-0.5).Log()
		return x.MaskedFill(x.Compare(kernel.OpNe, x), 0).Sum([]int{-1}, false)
	}),
	"kthvalue": one(func(x T) T { k := 2; s, _ := x.Sort(-1, false); return s.Narrow(-1, k-1, 1).Squeeze(-1) }),
	"quantile": one(func(x T) T {
		s, _ := x.Sort(0, false)
		at := 0.3 * float64(x.Dim(0)-1)
		k := int(at)
		lo, hi := s.Narrow(0, k, 1), s.Narrow(0, k+1, 1)
		return lo.Add(hi.Sub(lo).Scale(at - float64(k))).Squeeze(0)
	}),
	"bincount": one(func(x T) T {
		n := 5
		x = x.Scale(2).AddScalar(2).Cast(tensor.Int64)
		return x.OneHot(n, tensor.Int64).Sum([]int{0}, false)
	}),
	"diff": one(func(x T) T { n := x.Dim(0); return x.Narrow(0, 1, n-1).Sub(x.Narrow(0, 0, n-1)) }),
	"trapezoid": one(func(x T) T {
		n, dx := x.Dim(0), 0.1
		return x.Narrow(0, 1, n-1).Add(x.Narrow(0, 0, n-1)).Sum([]int{0}, false).Scale(dx / 2)
	}),
	"cov": one(func(x T) T {
		d := x.Sub(x.Mean([]int{1}, true))
		return d.MatMul(d.Transpose(0, 1)).Scale(1 / float64(x.Dim(1)-1))
	}),
	"diag": one(func(v T) T {
		n, mesh := v.Dim(0), v.Mesh()
		return v.Unsqueeze(1).Mul(dtensor.Arange(mesh, tensor.Int64, 0, n, mesh.Every(layout.Replicate())...).OneHot(n, v.DType()))
	}),
	"kron": two(func(a, b T) T {
		return dtensor.Einsum("ij,kl->ikjl", a, b).Reshape(a.Dim(0)*b.Dim(0), a.Dim(1)*b.Dim(1))
	}),
	"cross": two(func(a, b T) T {
		return a.Roll(-1, -1).Mul(b.Roll(-2, -1)).Sub(a.Roll(-2, -1).Mul(b.Roll(-1, -1)))
	}),
	"tensordot": two(func(a, b T) T { return dtensor.Einsum("ijk,jkl->il", a, b) }),
	"cdist":     two(func(a, b T) T { return a.Unsqueeze(1).Sub(b.Unsqueeze(0)).Norm(2, []int{-1}, false) }),
	"cosine_similarity": two(func(a, b T) T {
		last := []int{-1}
		return a.Mul(b).Sum(last, false).Div(a.Norm(2, last, false).Mul(b.Norm(2, last, false)).Clamp(1e-8, math.Inf(1)))
	}),
	"index_fill": one(func(x T) T {
		n, i, v := x.Dim(0), list(x.Mesh(), 4, 0, 4), 0.5
		return x.MaskedFill(i.OneHot(n, tensor.Bool).Any([]int{0}, false).Unsqueeze(1), v)
	}),
	"index": one(func(x T) T {
		i, j := list(x.Mesh(), 4, 0, 4), list(x.Mesh(), 2, 0, 2)
		return x.Flatten(0, 1).IndexSelect(0, i.Scale(float64(x.Dim(1))).Add(j))
	}),
	"equal": two(func(a, b T) T {
		a, b = a.Relu().Scale(0), b.Relu().Scale(0)
		return a.Compare(kernel.OpEq, b).All(nil, false)
	}),
	"isclose": two(func(a, b T) T {
		b = a.Add(b.Scale(2e-5).Mul(a))
		return a.Sub(b).Abs().Compare(kernel.OpLe, b.Abs().Scale(1e-5).AddScalar(1e-8))
	}),
	"isin": one(func(x T) T {
		i := list(x.Mesh(), 4, 0, 4)
		x = x.Scale(9).Cast(tensor.Int64)
		return x.Unsqueeze(-1).Compare(kernel.OpEq, i).Any([]int{-1}, false)
	}),
	"slice_scatter": two(func(x, y T) T {
		n, from, to := x.Dim(0), 1, 3
		return dtensor.Cat(0, x.Narrow(0, 0, from), y, x.Narrow(0, to, n-to))
	}),
	"index_copy": two(func(x, y T) T {
		i := list(x.Mesh(), 4, 0)
		return x.IndexPut([]*dtensor.Tensor{i}, y, false)
	}),
	"scatter_reduce": two(func(x, y T) T {
		y = halves(y)
		i := list(x.Mesh(), 0, 2, 0, 2, 2, 0, 3, 3, 3, 3, 3, 1, 0, 1, 2, 3, 0, 1).Reshape(3, 6)
		var all []T
		for _, op := range []layout.ReduceOp{layout.Sum, layout.Avg, layout.Prod, layout.Max, layout.Min} {
			for _, self := range []bool{true, false} {
				x := x
				if self {
					x = halves(x)
				}
				all = append(all, x.ScatterReduce(1, i, y, op, self).Scale(float64(len(all)+1)))
			}
		}
		return dtensor.Cat(1, all...)
	}),
	"index_reduce": two(func(x, y T) T {
		i, self := list(x.Mesh(), 4, 0, 4), false
		return x.ScatterReduce(0, i.Unsqueeze(1).Expand(y.Shape()...), y, layout.Max, self)
	}),
	"logcumsumexp": one(func(x T) T { return x.LogCumsumExp(0) }),
	"affine_grid": one(func(theta T) T {
		h, w, mesh := 3, 4, theta.Mesh()
		ramp := func(n int) T {
			i := dtensor.Arange(mesh, tensor.Int64, 0, n, mesh.Every(layout.Replicate())...).Cast(theta.DType())
			return i.AddScalar(0.5).Scale(2 / float64(n)).AddScalar(-1)
		}
		xs, ys := ramp(w).Expand(h, w), ramp(h).Unsqueeze(1).Expand(h, w)
		return dtensor.Einsum("bij,hwj->bhwi", theta, dtensor.Stack(-1, xs, ys, xs.PowScalar(0)))
	}),
	"meshgrid": two(func(a, b T) T {
		n, m := a.Dim(0), b.Dim(0)
		return dtensor.Stack(0, a.Unsqueeze(1).Expand(n, m), b.Expand(n, m))
	}),
	"cartesian_prod": two(func(a, b T) T {
		n, m := a.Dim(0), b.Dim(0)
		return dtensor.Stack(1, a.RepeatInterleave(m, 0), b.Repeat(n))
	}),
	"nanmean": one(func(x T) T {
		x = x.AddScalar(-0.5).Log()
		nan := x.Compare(kernel.OpNe, x)
		return x.MaskedFill(nan, 0).Sum([]int{1}, false).Div(nan.LogicalNot().Cast(x.DType()).Sum([]int{1}, false))
	}),
	"corrcoef": one(func(x T) T {
		d := x.Sub(x.Mean([]int{1}, true))
		d = d.Div(d.Norm(2, []int{1}, true))
		return d.MatMul(d.Transpose(0, 1))
	}),
	"diag_embed": one(func(v T) T {
		n, mesh := v.Dim(-1), v.Mesh()
		return v.Unsqueeze(-1).Mul(dtensor.Arange(mesh, tensor.Int64, 0, n, mesh.Every(layout.Replicate())...).OneHot(n, v.DType()))
	}),
	"logaddexp2": two(func(a, b T) T { return a.Scale(math.Ln2).LogAddExp(b.Scale(math.Ln2)).Scale(1 / math.Ln2) }),
	"isinf":      one(func(x T) T { x = x.Round().Log(); return x.Abs().CompareScalar(kernel.OpEq, math.Inf(1)) }),
	"associative_scan": two(func(a, b T) T {
		for n, have := a.Dim(0), 1; have < n; have *= 2 {
			last := a.Narrow(0, have, n-have)
			b = dtensor.Cat(0, b.Narrow(0, 0, have), last.Mul(b.Narrow(0, 0, n-have)).Add(b.Narrow(0, have, n-have)))
			a = dtensor.Cat(0, a.Narrow(0, 0, have), last.Mul(a.Narrow(0, 0, n-have)))
		}
		return b
	}),
	"fake_quantize_per_tensor_affine": one(func(x T) T {
		x, scale, lo, hi := x.Scale(3), 0.25, -2.0, 1.75
		c := x.Clamp(lo-scale/2, hi+scale/2)
		return c.Add(c.Detach().Scale(1/scale).Round().Scale(scale).Clamp(lo, hi).Sub(c.Detach()))
	}),
	"cumulative_trapezoid": one(func(x T) T {
		n, dx := x.Dim(0), 0.5
		return x.Narrow(0, 1, n-1).Add(x.Narrow(0, 0, n-1)).Cumsum(0).Scale(dx / 2)
	}),
	"block_diag": two(func(a, b T) T {
		return a.Pad(0, 0, b.Dim(0), 0).Pad(1, 0, b.Dim(1), 0).Add(b.Pad(0, a.Dim(0), 0, 0).Pad(1, a.Dim(1), 0, 0))
	}),
	"select_scatter": two(func(x, y T) T {
		i, n := 2, x.Dim(0)
		return dtensor.Cat(0, x.Narrow(0, 0, i), y.Unsqueeze(0), x.Narrow(0, i+1, n-i-1))
	}),
	"vander": one(func(x T) T {
		return dtensor.Stack(1, x.PowScalar(0), x, x.PowScalar(2), x.PowScalar(3))
	}),
	"linalg.cholesky":         one(func(x T) T { x = positive(x); return x.Cholesky() }),
	"linalg.solve":            two(func(a, b T) T { a = turned(a).Flip(-2); return a.Solve(b) }),
	"linalg.solve_triangular": two(func(a, b T) T { a = turned(a); return a.SolveTriangular(b, true) }),
	"linalg.slogdet": one(func(a T) T {
		a = turned(a)
		sign, logabs := a.Slogdet()
		return dtensor.Stack(0, sign, logabs)
	}),
	"linalg.det": one(func(a T) T { sign, logabs := turned(a).Slogdet(); return sign.Mul(logabs.Exp()) }),
	"linalg.inv": one(func(a T) T {
		n, mesh := a.Dim(-1), a.Mesh()
		a = turned(a)
		ones := dtensor.Arange(mesh, tensor.Int64, 0, n, mesh.Every(layout.Replicate())...).OneHot(n, a.DType())
		return a.Solve(ones.Expand(a.Shape()...))
	}),
	"linalg.lstsq": two(func(a, b T) T {
		q, r := a.QR()
		return r.SolveTriangular(q.Transpose(-2, -1).MatMul(b), true)
	}),
	"linalg.qr": one(func(x T) T {
		x = bent(x)
		q, r := x.QR()
		qt, rt := x.Transpose(-2, -1).QR()
		return flat(q, r, qt, rt)
	}),
	"linalg.eigh": one(func(x T) T {
		x = bent(x).Add(bent(x).Transpose(-2, -1))
		values, vectors := x.Eigh()
		exp := vectors.Mul(values.Exp().Unsqueeze(-2)).MatMul(vectors.Transpose(-2, -1))
		return flat(values, vectors.Square().Mul(values.Unsqueeze(-2)), exp)
	}),
	"linalg.svd": one(func(x T) T {
		var parts []T
		for _, x := range []T{bent(x), bent(x).Transpose(-2, -1)} {
			u, s, vh := x.SVD()
			parts = append(parts, s, u.Square(), vh.Square(), u.MatMul(vh))
		}
		return flat(parts...)
	}),
	"linalg.pinv": one(func(x T) T {
		x = bent(x)
		u, s, vh := x.SVD()
		return vh.Transpose(-2, -1).MatMul(u.Div(s.Unsqueeze(-2)).Transpose(-2, -1))
	}),
	"linalg.matrix_power": one(func(x T) T { return x.MatMul(x).MatMul(x) }),
	"cholesky_solve": two(func(x, b T) T {
		l := positive(x).Cholesky()
		return l.Transpose(-2, -1).SolveTriangular(l.SolveTriangular(b, false), true)
	}),
	"cholesky_inverse": one(func(x T) T {
		l := positive(x).Cholesky()
		n, mesh := l.Dim(-1), l.Mesh()
		ones := dtensor.Arange(mesh, tensor.Int64, 0, n, mesh.Every(layout.Replicate())...).OneHot(n, l.DType())
		return l.Transpose(-2, -1).SolveTriangular(l.SolveTriangular(ones.Expand(l.Shape()...), false), true)
	}),
	"fmax": two(func(a, b T) T { return fmax(fmax(a.AddScalar(-0.2).Log(), b), b.AddScalar(-0.1).Log()) }),
	"nanmedian": one(func(x T) T {
		x = x.AddScalar(-0.1).Log()
		k := x.Compare(kernel.OpEq, x).Cast(tensor.Int64).Sum([]int{0}, true).AddScalar(-1).Relu().ShiftRight(list(x.Mesh(), 1))
		s, _ := x.Sort(0, false)
		return s.Gather(0, k).Squeeze(0)
	}),
	"searchsorted": two(func(edges, v T) T {
		edges, _ = edges.Sort(0, false)
		return edges.Compare(kernel.OpLt, v.Unsqueeze(-1)).Cast(tensor.Int64).Sum([]int{-1}, false)
	}),
	"addr": func(in []T) T {
		c, a, b, beta, alpha := in[0], in[1], in[2], 0.2, 0.3
		return c.Scale(beta).Add(dtensor.Einsum("i,j->ij", a, b).Scale(alpha))
	},
	"addbmm": func(in []T) T {
		c, a, b, beta, alpha := in[0], in[1], in[2], 0.2, 0.3
		return c.Scale(beta).Add(dtensor.Einsum("bij,bjk->ik", a, b).Scale(alpha))
	},
	"ldexp": two(func(x, e T) T { e = e.Detach().Scale(4).Round(); return x.Mul(e.Exp2()) }),
	"dist":  two(func(a, b T) T { return a.Sub(b).Norm(2, nil, false) }),
	"local_response_norm": one(func(x T) T {
		n, c, alpha, beta, k := 3, x.Dim(1), 0.5, 0.75, 1.0
		sums := x.Square().Pad(1, n/2, (n-1)/2, 0).Cumsum(1).Pad(1, 1, 0, 0)
		sums = sums.Narrow(1, n, c).Sub(sums.Narrow(1, 0, c))
		return x.Div(sums.Scale(alpha / float64(n)).AddScalar(k).PowScalar(beta))
	}),
	"diagonal_scatter": two(func(x, v T) T {
		n, mesh := v.Dim(0), v.Mesh()
		on := dtensor.Arange(mesh, tensor.Int64, 0, n, mesh.Every(layout.Replicate())...).OneHot(n, tensor.Bool)
		return on.Where(v.Unsqueeze(1).Expand(n, n), x)
	}),
	"renorm": one(func(x T) T {
		m, n := 0.8, x.Norm(2, []int{1}, true)
		return x.Mul(n.CompareScalar(kernel.OpGt, m).Where(n.AddScalar(1e-7).PowScalar(-1).Scale(m), n.PowScalar(0)))
	}),
	"take": one(func(x T) T { i := list(x.Mesh(), 4, 0, 4); return x.Reshape(-1).IndexSelect(0, i) }),
	"masked_scatter": two(func(x, y T) T {
		mask := x.CompareScalar(kernel.OpGt, 0)
		i := mask.Reshape(-1).Cumsum(0).AddScalar(-1).Relu()
		return mask.Where(y.Reshape(-1).IndexSelect(0, i).Reshape(x.Shape()...), x)
	}),
	"Tensor.unfold": one(func(x T) T {
		i, size := list(x.Mesh(), 0, 1, 2, 2, 3, 4), 3
		return x.IndexSelect(0, i).Reshape(-1, size, x.Dim(1)).Transpose(1, 2)
	}),
	"pixel_shuffle": one(func(x T) T {
		r, b, c, h, w := 2, x.Dim(0), x.Dim(1)/4, x.Dim(2), x.Dim(3)
		return x.Reshape(b, c, r, r, h, w).Permute(0, 1, 4, 2, 5, 3).Reshape(b, c, h*r, w*r)
	}),
	"pixel_unshuffle": one(func(x T) T {
		r, b, c, h, w := 2, x.Dim(0), x.Dim(1), x.Dim(2)/2, x.Dim(3)/2
		return x.Reshape(b, c, h, r, w, r).Permute(0, 1, 3, 5, 2, 4).Reshape(b, c*r*r, h, w)
	}),
	"channel_shuffle": one(func(x T) T {
		g, c := 3, x.Dim(1)
		return x.Reshape(x.Dim(0), g, c/g, -1).Transpose(1, 2).Reshape(x.Shape()...)
	}),
	"pad, circular": one(func(x T) T {
		n, p := x.Dim(-1), 2
		return dtensor.Cat(-1, x.Narrow(-1, n-p, p), x, x.Narrow(-1, 0, p))
	}),
	"pad, reflect": one(func(x T) T {
		n, p := x.Dim(-1), 2
		return dtensor.Cat(-1, x.Narrow(-1, 1, p).Flip(-1), x, x.Narrow(-1, n-p-1, p).Flip(-1))
	}),
	"pad, replicate": one(func(x T) T {
		n, p := x.Dim(-1), 2
		return dtensor.Cat(-1, x.Narrow(-1, 0, 1).RepeatInterleave(p, -1), x, x.Narrow(-1, n-1, 1).RepeatInterleave(p, -1))
	}),
	"adaptive_avg_pool2d": one(func(x T) T { return x.Mean([]int{-2, -1}, true) }),
}

func xlogy(x, y T) T { return x.Mul(y.MaskedFill(x.CompareScalar(kernel.OpEq, 0), 1).Log()) }
func logit(x T) T    { return x.Log().Sub(x.Neg().Log1p()) }
func fmax(a, b T) T {
	return a.Compare(kernel.OpNe, a).Where(b, b.Compare(kernel.OpNe, b).Where(a, a.Maximum(b)))
}
func sinc(x T) T {
	p := x.Scale(math.Pi).MaskedFill(x.CompareScalar(kernel.OpEq, 0), 1e-20)
	return p.Sin().Div(p)
}

// list makes a replicated list of integers.
func list(mesh *dtensor.Mesh, v ...int64) T {
	return dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), v, len(v)), mesh.Every(layout.Replicate())...)
}

// wave makes input k, sin(0.7·i + k + 1), divided along dimension 0.
func wave(mesh *dtensor.Mesh, k int, shape ...int) T {
	n := 1
	for _, s := range shape {
		n *= s
	}
	v := make([]float64, n)
	for i := range v {
		v[i] = math.Sin(0.7*float64(i) + float64(k) + 1)
	}
	place := layout.Shard(0)
	if len(shape) == 0 {
		place = layout.Replicate()
	}
	return dtensor.Distribute(mesh, tensor.FromSlice(mesh.Device(), v, shape...), place)
}

// A recorded is what PyTorch computes of a function, written by testdata/pytorch.py.
type recorded struct {
	Name   string
	Inputs [][]int
	Shape  []int
	Output []float64
	Grads  [][]float64
}

// The functions that docs/pytorch.md makes of operators have PyTorch's values and gradients, of shards too, and the page has
// them all.
func TestFunctionsOfPyTorch(t *testing.T) {
	text, err := os.ReadFile("testdata/pytorch.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []recorded
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("pytorch_test.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/pytorch.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([\\w.]+(?:, \\w+)?)` \\| (.*) \\|$").FindAllStringSubmatch(string(page), -1) {
		rows[m[1]] = m[2]
	}
	if len(all) != len(composed) || len(all) != len(rows) {
		t.Errorf("%d functions are recorded, %d are here, %d rows in pytorch.md", len(all), len(composed), len(rows))
	}
	for _, r := range all {
		f := composed[r.Name]
		if f == nil || rows[r.Name] == "" {
			t.Errorf("%s is not in pytorch.md, or not here", r.Name)
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]*\\([^`]*)`").FindAllStringSubmatch(rows[r.Name], -1) {
			if !strings.Contains(string(source), m[1]) {
				t.Errorf("%s: pytorch.md has %s, this file has not", r.Name, m[1])
			}
		}
		onMesh(t, []int{2}, func(ctx context.Context, mesh *dtensor.Mesh) error {
			if err := r.compare(ctx, mesh, f); err != nil {
				return fmt.Errorf("%s: %w", r.Name, err)
			}
			return nil
		})
	}
}

// turned and positive are pytorch.py's.
func turned(x T) T   { return onDiagonal(x.Scale(0.2), -2) }
func positive(x T) T { return onDiagonal(x.MatMul(x.Transpose(-2, -1)), 1) }

// bent and flat are pytorch.py's.
func bent(x T) T { return x.Mul(x).Mul(x) }
func flat(parts ...T) T {
	for i, p := range parts {
		parts[i] = p.Reshape(-1)
	}
	return dtensor.Cat(0, parts...)
}

// halves returns x rounded to halves, so that numbers are equal and 0, with the gradient of x.
func halves(x T) T { return x.Sub(x.Detach()).Add(x.Detach().Scale(2).Round().Scale(0.5)) }

func (r *recorded) compare(ctx context.Context, mesh *dtensor.Mesh, f func(in []T) T) error {
	var in []T
	for k, shape := range r.Inputs {
		in = append(in, wave(mesh, k, shape...))
	}
	var out T
	sum := func() T {
		y := f(in)
		out = y.Detach().Cast(tensor.Float64)
		dtensor.Keep(out)
		return y.Cast(tensor.Float64).Mul(wave(mesh, 8, y.Shape()...)).Sum(nil, false)
	}
	var grads []dtensor.Grad
	var err error
	if slices.ContainsFunc(r.Grads, func(g []float64) bool { return len(g) > 0 }) {
		_, grads, err = dtensor.ValueAndGrad(ctx, sum, in...)
	} else { // it has no gradient
		err = dtensor.Try(ctx, mesh, func() { sum() })
	}
	if err != nil {
		return err
	}
	near := func(got, want float64) bool { return math.Abs(got-want) <= 1e-9*(1+math.Abs(want)) }
	if got := tensor.ToSlice[float64](out.Full()); !slices.Equal(out.Shape(), r.Shape) || !slices.EqualFunc(got, r.Output, near) {
		return fmt.Errorf("%v %v, want %v %v", out.Shape(), got, r.Shape, r.Output)
	}
	for i, want := range r.Grads {
		if len(want) == 0 {
			continue // none in PyTorch
		}
		if got := tensor.ToSlice[float64](grads[i].Dense().Full()); !slices.EqualFunc(got, want, near) {
			return fmt.Errorf("gradient %d is %v, want %v", i, got, want)
		}
	}
	return nil
}
