package dtensor

import (
	"fmt"
	"math"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/linalg"
	"github.com/gorun-spmd/gorun/tensor"
)

// The layouts of these operators are those of Cholesky.

// QR returns of each matrix of x, [..., M, N], a q, [..., M, K], of orthonormal columns and an upper triangular r, [..., K, N],
// with q·r = x; K is the lesser of M and N. It is torch.linalg.qr with mode reduced, and has its signs. An axis that divides
// dimensions before the last two goes on to do so; others have whole matrices on every rank. The host computes, in float64. The
// gradient is finite where the first K columns of x are independent. A matrix with an element that is not finite gives NaN.
func (x *Tensor) QR() (q, r *Tensor) {
	const op = "QR"
	defer x.spec.mesh.Span(op).End()
	x.wantMatrices(op)
	x = x.Redistribute(x.wholeMatrices()...)
	m, n := x.Dim(-2), x.Dim(-1)
	k := min(m, n)
	parts := x.decomposed(op, [][]int{{m, k}, {k, n}}, func(a []float64) [][]float64 {
		q, r := linalg.QR(a, m, n)
		return [][]float64{q, r}
	})
	q, r = parts[0], parts[1]
	first := func() *Tensor { return r.Narrow(-1, 0, k) }
	// solved returns the gradient of the first k columns of x: (g + q·s)·r⁻ᵀ, where s is symmetric and has p's upper triangle.
	solved := func(g, p *Tensor) *Tensor {
		y := q.MatMul(p.Triu(0).Add(p.Triu(1).Transpose(-2, -1)))
		if g != nil {
			y = y.Add(g)
		}
		return first().SolveTriangular(y.Transpose(-2, -1), true).Transpose(-2, -1)
	}
	q = recordOperators(op, q, []*Tensor{x}, func(gy *Tensor) []Grad {
		return []Grad{Dense(solved(gy, q.Transpose(-2, -1).MatMul(gy).Neg()).Pad(-1, 0, n-k, 0))}
	})
	r = recordOperators(op, r, []*Tensor{x}, func(gy *Tensor) []Grad {
		p := gy.Narrow(-1, 0, k).MatMul(first().Transpose(-2, -1))
		if n == k {
			return []Grad{Dense(solved(nil, p))}
		}
		g := gy.Narrow(-1, k, n-k) // of qᵀ times the other columns of x
		back := r.Narrow(-1, k, n-k).MatMul(g.Transpose(-2, -1))
		return []Grad{Dense(Cat(-1, solved(q.MatMul(back), p.Sub(back)), q.MatMul(g)))}
	})
	return q, r
}

// Eigh returns of each matrix of x, [..., N, N], which is symmetric, the eigenvalues, [..., N], in ascending order, and the
// eigenvectors, [..., N, N], as orthonormal columns: x·vectors = vectors·diag(values), as torch.linalg.eigh. It reads the lower
// triangles. The sign of a vector is any, and so are the vectors of equal values among themselves; both are the same in every
// layout. An axis that divides dimensions before the last two goes on to do so; others have whole matrices on every rank. The host
// computes, in float64. The gradient is symmetric, and that by the vectors finite where no two values are equal. A matrix with an
// element that is not finite gives NaN.
func (x *Tensor) Eigh() (values, vectors *Tensor) {
	const op = "Eigh"
	defer x.spec.mesh.Span(op).End()
	x.wantSquare(op)
	x = x.Redistribute(x.wholeMatrices()...)
	n := x.Dim(-1)
	parts := x.decomposed(op, [][]int{{n}, {n, n}}, func(a []float64) [][]float64 {
		d, v := linalg.Eigh(a, n)
		return [][]float64{d, v}
	})
	values, vectors = parts[0], parts[1]
	values = recordOperators(op, values, []*Tensor{x}, func(gy *Tensor) []Grad {
		return []Grad{Dense(vectors.Mul(gy.Unsqueeze(-2)).MatMul(vectors.Transpose(-2, -1)))}
	})
	vectors = recordOperators(op, vectors, []*Tensor{x}, func(gy *Tensor) []Grad {
		t := vectors.Transpose(-2, -1)
		g := vectors.MatMul(t.MatMul(gy).Div(differences(values))).MatMul(t)
		return []Grad{Dense(g.Add(g.Transpose(-2, -1)).Scale(0.5))}
	})
	return values, vectors
}

// SVD returns of each matrix of x, [..., M, N], its singular values s, [..., K], in descending order, and u, [..., M, K], and vh,
// [..., K, N], of orthonormal columns and rows, with u·diag(s)·vh = x; K is the lesser of M and N. It is torch.linalg.svd without
// full_matrices. A column of u and the row of vh beside it may both have the other sign; they are the same in every layout. An axis that
// divides dimensions before the last two goes on to do so; others have whole matrices on every rank. The host computes, in
// float64. The gradient by u and vh is finite where no two values are equal and, unless M = N, none is 0. A matrix with an element
// that is not finite gives NaN.
func (x *Tensor) SVD() (u, s, vh *Tensor) {
	const op = "SVD"
	defer x.spec.mesh.Span(op).End()
	x.wantMatrices(op)
	x = x.Redistribute(x.wholeMatrices()...)
	m, n := x.Dim(-2), x.Dim(-1)
	k := min(m, n)
	parts := x.decomposed(op, [][]int{{m, k}, {k}, {k, n}}, func(a []float64) [][]float64 {
		u, s, vh := linalg.SVD(a, m, n)
		return [][]float64{u, s, vh}
	})
	u, s, vh = parts[0], parts[1], parts[2]
	// turned returns the skew part of p, twice, over the differences of squares.
	turned := func(p *Tensor) *Tensor { return p.Sub(p.Transpose(-2, -1)).Div(differences(s.Square())) }
	u = recordOperators(op, u, []*Tensor{x}, func(gy *Tensor) []Grad {
		p := u.Transpose(-2, -1).MatMul(gy)
		g := u.MatMul(turned(p).Mul(s.Unsqueeze(-2)))
		if m > k {
			g = g.Add(gy.Sub(u.MatMul(p)).Div(s.Unsqueeze(-2)))
		}
		return []Grad{Dense(g.MatMul(vh))}
	})
	s = recordOperators(op, s, []*Tensor{x}, func(gy *Tensor) []Grad {
		return []Grad{Dense(u.Mul(gy.Unsqueeze(-2)).MatMul(vh))}
	})
	vh = recordOperators(op, vh, []*Tensor{x}, func(gy *Tensor) []Grad {
		p := gy.MatMul(vh.Transpose(-2, -1))
		g := turned(p.Transpose(-2, -1)).Mul(s.Unsqueeze(-1)).MatMul(vh)
		if n > k {
			g = g.Add(gy.Sub(p.MatMul(vh)).Div(s.Unsqueeze(-1)))
		}
		return []Grad{Dense(u.MatMul(g))}
	})
	return u, s, vh
}

// differences returns values[j] - values[i] at [i, j], and infinity on the diagonals.
func differences(values *Tensor) *Tensor {
	n := values.Dim(-1)
	diagonal := Arange(values.Mesh(), tensor.Int64, 0, n, values.Mesh().Every(layout.Replicate())...).OneHot(n, tensor.Bool)
	return values.Unsqueeze(-2).Sub(values.Unsqueeze(-1)).MaskedFill(diagonal, math.Inf(1))
}

// decomposed returns what f gives for each matrix of x, of these shapes in place of x's last two dimensions.
func (x *Tensor) decomposed(op string, shapes [][]int, f func(a []float64) [][]float64) []*Tensor {
	last := x.NDim() - 2
	lists := make([][]float64, len(shapes))
	if !x.spec.mesh.outside() {
		for a := range matrices(doubles(x.local), x.Dim(-2)*x.Dim(-1)) {
			for i, part := range f(a) {
				lists[i] = append(lists[i], part...)
			}
		}
	}
	parts := make([]*Tensor, len(shapes))
	for i, shape := range shapes {
		parts[i] = x.matrixwise(op, slices.Concat(x.Shape()[:last], shape), func() *tensor.Tensor {
			return like(x.local, lists[i], slices.Concat(x.local.Shape()[:last], shape)...)
		})
	}
	return parts
}

// wantMatrices throws unless x is [..., M, N] of floating-point numbers.
func (x *Tensor) wantMatrices(op string) {
	if x.NDim() < 2 {
		refuse(op, fmt.Sprintf("x has shape %v", x.Shape()), "give matrices, [..., M, N]; Unsqueeze a vector", operand("x", x))
	}
	x.wantFloat(op)
}
