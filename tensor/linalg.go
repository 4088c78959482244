package tensor

import (
	"math"
	"slices"
)

// The functions of this file compute with each matrix of the last two dimensions, on the host and in float64, and round
// their results once.

// Cholesky returns of each matrix of x, [..., N, N], which is symmetric and positive definite, the lower triangular L with
// L·Lᵀ = x. It reads the lower triangles. A matrix that is not positive definite gives NaN.
func Cholesky(x *Tensor) *Tensor {
	const op = "Cholesky"
	n := x.square(op)
	list := doubles(x)
	eachMatrix(list, n*n, func(a []float64) { cholesky(a, n) })
	return x.like(list, x.Shape()...)
}

// cholesky is Cholesky of one matrix, in place.
func cholesky(a []float64, n int) {
	for j := range n {
		row := a[j*n : (j+1)*n]
		for i := j; i < n; i++ {
			below := a[i*n : (i+1)*n]
			sum := below[j]
			for k, v := range row[:j] {
				sum -= v * below[k]
			}
			if i > j {
				below[j] = sum / row[j]
				continue
			}
			if !(sum > 0) {
				for k := range a {
					a[k] = math.NaN()
				}
				return
			}
			row[j] = math.Sqrt(sum)
		}
		clear(row[j+1:])
	}
}

// SolveTriangular returns the x with a·x = b for each matrix of a, [..., N, N], of which it reads the lower triangle, or the
// upper one, and b, [..., N, K], with the same dimensions before. A 0 on the diagonal gives what is not finite.
func SolveTriangular(a, b *Tensor, upper bool) *Tensor {
	const op = "SolveTriangular"
	n, k := a.equations(op, b)
	matrices, list := doubles(a), doubles(b)
	i := 0
	eachMatrix(list, n*k, func(x []float64) {
		solveTriangular(matrices[i*n*n:(i+1)*n*n], x, n, k, upper, false)
		i++
	})
	return b.like(list, b.Shape()...)
}

// solveTriangular makes x, [n, k], the solution of a·y = x. With unit the diagonal of a counts as ones.
func solveTriangular(a, x []float64, n, k int, upper, unit bool) {
	for step := range n {
		i, from, to := step, 0, step
		if upper {
			i = n - 1 - step
			from, to = i+1, n
		}
		row := x[i*k : (i+1)*k]
		for j := from; j < to; j++ {
			f := a[i*n+j]
			for c, v := range x[j*k : (j+1)*k] {
				row[c] -= f * v
			}
		}
		if !unit {
			for c := range row {
				row[c] /= a[i*n+i]
			}
		}
	}
}

// Solve returns the x with a·x = b for each matrix of a, [..., N, N], and b, [..., N, K], with the same dimensions before. A
// matrix that has no inverse gives what is not finite.
func Solve(a, b *Tensor) *Tensor {
	const op = "Solve"
	n, k := a.equations(op, b)
	matrices, list := doubles(a), doubles(b)
	i := 0
	eachMatrix(list, n*k, func(x []float64) {
		lu := matrices[i*n*n : (i+1)*n*n]
		rows, _ := factorize(lu, n)
		moved := make([]float64, 0, len(x))
		for _, r := range rows {
			moved = append(moved, x[r*k:(r+1)*k]...)
		}
		copy(x, moved)
		solveTriangular(lu, x, n, k, false, true)
		solveTriangular(lu, x, n, k, true, false)
		i++
	})
	return b.like(list, b.Shape()...)
}

// Slogdet returns the sign of the determinant of each matrix of x, [..., N, N], which is 0 if the determinant is, and the
// logarithm of its absolute value.
func Slogdet(x *Tensor) (sign, logabs *Tensor) {
	const op = "Slogdet"
	n := x.square(op)
	before := x.Shape()[:x.NDim()-2]
	count := 1
	for _, d := range before {
		count *= d
	}
	signs, logs := make([]float64, count), make([]float64, count)
	list := doubles(x)
	for i := range count {
		a := list[i*n*n : (i+1)*n*n]
		_, signs[i] = factorize(a, n)
		for j := range n {
			d := a[j*n+j]
			logs[i] += math.Log(math.Abs(d))
			switch {
			case d == 0:
				signs[i] = 0
			case d < 0:
				signs[i] = -signs[i]
			case d != d:
				signs[i] = d
			}
		}
	}
	return x.like(signs, before...), x.like(logs, before...)
}

// factorize makes a the triangular L and U of L·U, where the diagonal of L is ones; rows are those of a in the order of L·U,
// and sign is that of their permutation.
func factorize(a []float64, n int) (rows []int, sign float64) {
	rows, sign = make([]int, n), 1
	for i := range rows {
		rows[i] = i
	}
	for j := range n {
		best := j
		for i := j + 1; i < n; i++ {
			if math.Abs(a[i*n+j]) > math.Abs(a[best*n+j]) {
				best = i
			}
		}
		top := a[j*n : (j+1)*n]
		if best != j {
			for c, v := range a[best*n : (best+1)*n] {
				a[best*n+c], top[c] = top[c], v
			}
			rows[j], rows[best] = rows[best], rows[j]
			sign = -sign
		}
		if top[j] == 0 { // and so is all below
			continue
		}
		for i := j + 1; i < n; i++ {
			row := a[i*n : (i+1)*n]
			f := row[j] / top[j]
			row[j] = f
			for c := j + 1; c < n; c++ {
				row[c] -= f * top[c]
			}
		}
	}
	return rows, sign
}

// square returns the N of x, [..., N, N].
func (x *Tensor) square(op string) int {
	wantFloat(op, x)
	last := x.NDim() - 1
	if last < 1 || x.dims[last] != x.dims[last-1] {
		throwShape(op, "%v: want square matrices [..., N, N]", x.brief())
	}
	return x.dims[last]
}

// equations returns the N and K of a, [..., N, N], and b, [..., N, K].
func (a *Tensor) equations(op string, b *Tensor) (n, k int) {
	n = a.square(op)
	wantSameType(op, a, b)
	last := a.NDim() - 1
	if b.NDim() != a.NDim() || !slices.Equal(a.Shape()[:last], b.Shape()[:last]) {
		throwShape(op, "%v and %v: want [..., N, N] and [..., N, K] with the same dimensions before the last two", a.brief(), b.brief())
	}
	return n, b.dims[last]
}

// doubles returns the elements of x in a slice of its own.
func doubles(x *Tensor) []float64 {
	if x.dtype == Float64 {
		return ToSlice[float64](x)
	}
	wide := Cast(x, Float64)
	defer wide.Free()
	return ToSlice[float64](wide)
}

// like returns the elements in x's type on x's device.
func (x *Tensor) like(list []float64, shape ...int) *Tensor {
	wide := FromSlice(x.dev, list, shape...)
	if x.dtype == Float64 {
		return wide
	}
	defer wide.Free()
	return Cast(wide, x.dtype)
}

// eachMatrix calls f for each matrix of so many elements of list.
func eachMatrix(list []float64, size int, f func(matrix []float64)) {
	for at := 0; at < len(list); at += size {
		f(list[at : at+size])
	}
}
