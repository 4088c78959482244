// Package linalg computes with one small dense matrix in row-major order: it factorizes it and solves equations with it.
package linalg

import "math"

// Cholesky makes a, [n, n], which is symmetric and positive definite, the lower triangular L with L·Lᵀ = a. It reads the lower
// triangle. A matrix that is not positive definite becomes NaN.
func Cholesky(a []float64, n int) {
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

// SolveTriangular makes x, [n, k], the y with a·y = x. Of a, [n, n], it reads the lower triangle, or the upper one. A 0 on the
// diagonal gives what is not finite.
func SolveTriangular(a, x []float64, n, k int, upper bool) { solveTriangular(a, x, n, k, upper, false) }

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

// Solve replaces x, [n, k], by the solution y of a·y = x, and a, [n, n], by its factors. If a has no inverse, y has elements
// that are not finite.
func Solve(a, x []float64, n, k int) {
	rows, _ := factorize(a, n)
	moved := make([]float64, 0, len(x))
	for _, r := range rows {
		moved = append(moved, x[r*k:(r+1)*k]...)
	}
	copy(x, moved)
	solveTriangular(a, x, n, k, false, true)
	solveTriangular(a, x, n, k, true, false)
}

// Slogdet returns the sign of the determinant of a, [n, n], which is 0 if the determinant is, and the logarithm of its absolute
// value. It replaces a by its factors.
func Slogdet(a []float64, n int) (sign, logabs float64) {
	_, sign = factorize(a, n)
	for j := range n {
		d := a[j*n+j]
		logabs += math.Log(math.Abs(d))
		switch {
		case d == 0:
			sign = 0
		case d < 0:
			sign = -sign
		case d != d:
			sign = d
		}
	}
	return sign, logabs
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
