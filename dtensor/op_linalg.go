package dtensor

import (
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/linalg"
	"github.com/gorun-spmd/gorun/tensor"
)

// Operators on the matrices of the last two dimensions, of which each is on one rank:
//
//	x                              result
//	R                              R
//	S(i), i before the last two    S(i)
//	others                         R, after a gather or a reduction
//
// The host computes, in float64; what lies on a GPU is copied there and back. Their gradients are made of these operators
// and of products.

// Cholesky returns of each matrix of x, [..., N, N], which is symmetric and positive definite, the lower triangular L with
// L·Lᵀ = x, as torch.linalg.cholesky. It reads the lower triangles. For a matrix that is not positive definite it throws a
// *LayoutError that names it, and aborts the mesh where ranks have other matrices.
// An axis that divides dimensions before the last two goes on to do so; others have whole matrices on every rank. The host
// computes, in float64. The gradient is symmetric.
func (x *Tensor) Cholesky() *Tensor {
	const op = "Cholesky"
	defer x.spec.mesh.Span(op).End()
	x.wantSquare(op)
	x = x.Redistribute(x.wholeMatrices()...)
	l := x.matrixwise(op, x.Shape(), func() *tensor.Tensor {
		n, list := x.Dim(-1), doubles(x.local)
		i := 0
		for a := range matrices(list, n*n) {
			if linalg.Cholesky(a, n); n > 0 && math.IsNaN(a[0]) {
				x.refuseMatrix(op, i, "is not positive definite", anyShard(x.spec))
			}
			i++
		}
		return like(x.local, list, x.local.Shape()...)
	})
	return recordOperators(op, l, []*Tensor{x}, func(gy *Tensor) []Grad {
		t := l.Transpose(-2, -1)
		p := t.MatMul(gy)
		p = p.Tril(0).Add(p.Tril(-1)).Scale(0.5)                                   // half of the diagonal
		g := t.SolveTriangular(t.SolveTriangular(p, true).Transpose(-2, -1), true) // L⁻ᵀ·pᵀ·L⁻¹
		return []Grad{Dense(g.Add(g.Transpose(-2, -1)).Scale(0.5))}
	})
}

// SolveTriangular returns the y with x·y = b for each matrix of x, [..., N, N], of which it reads the lower triangle, or with
// upper the upper one, as torch.linalg.solve_triangular. b is [..., N, K], with the same dimensions before the last two. A 0 on
// the diagonal gives what is not finite. The layouts are those of Solve.
func (x *Tensor) SolveTriangular(b *Tensor, upper bool) *Tensor {
	return x.solve("SolveTriangular", b, func(a, b []float64, n, k int) (ok bool) {
		linalg.SolveTriangular(a, b, n, k, upper)
		return true
	},
		func(x, gy *Tensor) *Tensor { return x.Transpose(-2, -1).SolveTriangular(gy, !upper) },
		func(ga *Tensor) *Tensor {
			if upper {
				return ga.Triu(0)
			}
			return ga.Tril(0)
		})
}

// Solve returns the y with x·y = b for each matrix of x, [..., N, N], and b, [..., N, K], with the same dimensions before the
// last two, as torch.linalg.solve. The inverse is Solve of ones on the diagonal. For a matrix that has no inverse, as its factors
// show, it throws a *LayoutError that names it, and aborts the mesh where ranks have other matrices or columns.
//
//	x                              b                              result
//	R                              R                              R
//	R                              S(last)                        S(last)
//	S(i), i before the last two    S(i)                           S(i)
//	others                                                        one of these rows: matrices are whole
//
// The host computes, in float64.
func (x *Tensor) Solve(b *Tensor) *Tensor { return x.solveSquare(b, true) }

// solveSquare is Solve, which with regular refuses a matrix that has no inverse.
func (x *Tensor) solveSquare(b *Tensor, regular bool) *Tensor {
	return x.solve("Solve", b, func(a, b []float64, n, k int) (ok bool) {
		linalg.Solve(a, b, n, k)
		for i := 0; regular && i < n; i++ {
			if a[i*n+i] == 0 {
				return false
			}
		}
		return true
	},
		func(x, gy *Tensor) *Tensor { return x.Transpose(-2, -1).solveSquare(gy, false) },
		func(ga *Tensor) *Tensor { return ga })
}

// solve is an operator that solves x·y = b, of which f makes b, [n, k], the y for a, [n, n], unless a has no inverse. back
// solves the transposed equation; part leaves of a gradient of x what f reads.
func (x *Tensor) solve(op string, b *Tensor, f func(a, b []float64, n, k int) (ok bool), back func(x, gy *Tensor) *Tensor,
	part func(ga *Tensor) *Tensor) *Tensor {
	defer x.spec.mesh.Span(op).End()
	sameMesh(op, x, b)
	x.wantSquare(op)
	last := x.NDim() - 1
	if b.NDim() != x.NDim() || !slices.Equal(b.Shape()[:last], x.Shape()[:last]) {
		refuse(op, fmt.Sprintf("x has shape %v and b %v", x.Shape(), b.Shape()),
			"give x [..., N, N] and b [..., N, K] with the same dimensions before the last two; Expand one, or Unsqueeze a vector",
			operand("x", x), operand("b", b))
	}
	if x.DType() != b.DType() {
		refuse(op, fmt.Sprintf("x holds %v, b %v", x.DType(), b.DType()), "Cast one of them", operand("x", x), operand("b", b))
	}
	px, pb := x.wholeMatrices(), b.wholeMatrices()
	if !slices.ContainsFunc(px, layout.Placement.IsShard) {
		px = pb
	}
	pb = slices.Clone(px)
	for i, p := range b.Placements() {
		if px[i].IsReplicate() && p.Shards(last) {
			pb[i] = p
		}
	}
	x, b = x.Redistribute(px...), b.Redistribute(pb...)
	y := b.matrixwise(op, b.Shape(), func() *tensor.Tensor {
		n, k := x.Dim(-1), b.local.Dim(-1)
		as, list := doubles(x.local), doubles(b.local)
		i := 0
		for m := range matrices(list, n*k) {
			if !f(as[i*n*n:(i+1)*n*n], m, n, k) {
				x.refuseMatrix(op, i, "has no inverse", anyShard(b.spec))
			}
			i++
		}
		return like(b.local, list, b.local.Shape()...)
	})
	return recordOperators(op, y, []*Tensor{x, b}, func(gy *Tensor) []Grad {
		gb := back(x, gy)
		return []Grad{Dense(part(gb.MatMul(y.Transpose(-2, -1)).Neg())), Dense(gb)}
	})
}

// Slogdet returns the sign of the determinant of each matrix of x, [..., N, N], 0 if the determinant is, and the logarithm of
// its absolute value, both [...], as torch.linalg.slogdet. The layouts are those of Cholesky. The sign has no gradient.
func (x *Tensor) Slogdet() (sign, logabs *Tensor) {
	const op = "Slogdet"
	defer x.spec.mesh.Span(op).End()
	x.wantSquare(op)
	x = x.Redistribute(x.wholeMatrices()...)
	shape := x.Shape()[:x.NDim()-2]
	var s, l *tensor.Tensor
	if !x.spec.mesh.outside() {
		before := x.local.Shape()[:len(shape)]
		signs, logs := make([]float64, ints.Product(before)), make([]float64, ints.Product(before))
		n, list := x.Dim(-1), doubles(x.local)
		for i := range signs {
			signs[i], logs[i] = linalg.Slogdet(list[i*n*n:(i+1)*n*n], n)
		}
		s, l = like(x.local, signs, before...), like(x.local, logs, before...)
	}
	sign = x.matrixwise(op, shape, func() *tensor.Tensor { return s })
	logabs = x.matrixwise(op, shape, func() *tensor.Tensor { return l })
	return sign, recordOperators(op, logabs, []*Tensor{x}, func(gy *Tensor) []Grad {
		n := x.Dim(-1)
		ones := Arange(x.Mesh(), tensor.Int64, 0, n, x.Mesh().Every(layout.Replicate())...).OneHot(n, x.DType())
		diagonal := ones.Mul(gy.Unsqueeze(-1).Unsqueeze(-1)) // [..., N, N]
		return []Grad{Dense(x.Transpose(-2, -1).solveSquare(diagonal, false))}
	})
}

// refuseMatrix throws what is wrong with matrix i of those that this rank has. divided says that the ranks have other ones: then
// the others cannot see it, and the mesh is aborted.
func (x *Tensor) refuseMatrix(op string, i int, problem string, divided bool) {
	offset, _ := x.Offset()
	at := tensor.UnravelIndex(i, x.local.Shape()[:x.NDim()-2])
	for d := range at {
		at[d] += offset[d]
	}
	err := &LayoutError{Op: op, Operands: []Operand{operand("x", x)}, Problem: fmt.Sprintf("the matrix at %v %s", at, problem),
		Remedy: "add a small number to its diagonal, or look at what made it"}
	if divided {
		x.spec.mesh.abort(err)
	}
	fault.Throw(err)
}

// wantSquare throws unless x is [..., N, N] of floating-point numbers.
func (x *Tensor) wantSquare(op string) {
	if x.NDim() < 2 || x.Dim(-1) != x.Dim(-2) {
		refuse(op, fmt.Sprintf("x has shape %v", x.Shape()), "give square matrices, [..., N, N]", operand("x", x))
	}
	x.wantFloat(op)
}

// wantFloat throws unless x holds floating-point numbers.
func (x *Tensor) wantFloat(op string) {
	if !x.DType().Float() {
		refuse(op, fmt.Sprintf("x holds %v", x.DType()), "Cast it to a floating-point type", operand("x", x))
	}
}

// wholeMatrices returns x's placements with Replicate in place of those that divide the last two dimensions, or are Partial.
func (x *Tensor) wholeMatrices() []layout.Placement {
	to := x.Placements()
	for i, p := range to {
		if d, ok := p.Dim(); !ok || d >= x.NDim()-2 {
			to[i] = layout.Replicate()
		}
	}
	return to
}

// matrixwise returns a tensor of the shape, laid out as x, of which f makes this rank's part.
func (x *Tensor) matrixwise(op string, shape []int, f func() *tensor.Tensor) *Tensor {
	m := x.spec.mesh
	if m.outside() {
		return m.Wrap(op, tensor.New(m.Device(), x.DType(), 0), nil, false, shape, x.Placements()...)
	}
	return m.Wrap(op, f(), nil, false, shape, x.Placements()...)
}

// doubles returns the elements of x in a slice of its own.
func doubles(x *tensor.Tensor) []float64 {
	wide := tensor.Cast(x, tensor.Float64)
	if wide != x {
		defer wide.Free()
	}
	return tensor.ToSlice[float64](wide)
}

// like returns the elements in x's type on x's device.
func like(x *tensor.Tensor, list []float64, shape ...int) *tensor.Tensor {
	wide := tensor.FromSlice(x.Device(), list, shape...)
	y := tensor.Cast(wide, x.DType())
	if y != wide {
		wide.Free()
	}
	return y
}

// matrices lists the matrices in list, which have a number of elements each.
func matrices(list []float64, elements int) iter.Seq[[]float64] {
	return slices.Chunk(list, max(1, elements))
}
