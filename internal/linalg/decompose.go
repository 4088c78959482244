package linalg

import (
	"cmp"
	"math"
	"slices"
)

// QR returns of a, [m, n], which it overwrites, a q, [m, k], of orthonormal columns and an upper triangular r, [k, n], with q·r = a; k
// is the lesser of m and n. Signs are those of LAPACK's Householder reflections. An element that is not finite gives NaN.
func QR(a []float64, m, n int) (q, r []float64) {
	exp, finite := scaled(a)
	if !finite {
		filled(a, math.NaN())
	}
	k, columns := min(m, n), transposed(a, m, n)
	taus := householder(columns, m, n)
	r = upperOf(columns, m, n)
	for i, v := range r {
		r[i] = math.Ldexp(v, exp)
	}
	return transposed(reflected(columns, taus, m, k), k, m), r
}

// householder makes of n columns of m elements those of R, on and above the diagonal, and below it the vectors of the
// reflections 1 - tau·v·vᵀ whose product is Q; the first element of each v is 1, which is not there.
func householder(columns []float64, m, n int) (taus []float64) {
	taus = make([]float64, min(m, n))
	for j := range taus {
		v := columns[j*m+j : (j+1)*m]
		taus[j] = reflection(v)
		for c := j + 1; c < n; c++ {
			reflect(v, taus[j], columns[c*m+j:(c+1)*m])
		}
	}
	return taus
}

// reflection makes of v the vector, except for its first element, of the reflection that brings v to a multiple of the first unit
// vector; v[0] is that multiple.
func reflection(v []float64) (tau float64) {
	below := math.Sqrt(dot(v[1:], v[1:]))
	if below == 0 {
		return 0
	}
	alpha := v[0]
	v[0] = -math.Copysign(math.Hypot(alpha, below), alpha)
	for i := range v[1:] {
		v[i+1] /= alpha - v[0]
	}
	return (v[0] - alpha) / v[0]
}

// reflect makes x its reflection by tau and v, whose first element counts as 1.
func reflect(v []float64, tau float64, x []float64) {
	f := tau * (x[0] + dot(v[1:], x[1:]))
	x[0] -= f
	for i, w := range v[1:] {
		x[i+1] -= f * w
	}
}

// upperOf returns the R, [K, N], of what householder left.
func upperOf(columns []float64, m, n int) []float64 {
	r := make([]float64, min(m, n)*n)
	for c := range n {
		for i := range min(c+1, m) {
			r[i*n+c] = columns[c*m+i]
		}
	}
	return r
}

// reflected returns the first k columns of Q, one after the other, of what householder left.
func reflected(columns, taus []float64, m, k int) []float64 {
	q := make([]float64, k*m)
	for j := k - 1; j >= 0; j-- {
		q[j*m+j] = 1
		for c := j; c < k; c++ {
			reflect(columns[j*m+j:(j+1)*m], taus[j], q[c*m+j:(c+1)*m])
		}
	}
	return q
}

// Eigh returns of a, [n, n], which is symmetric and which it overwrites, the eigenvalues in ascending order, and the eigenvectors,
// [n, n], as orthonormal columns: a·vectors = vectors·diag(values). It reads the lower triangle. The sign of a vector is any, and so
// are the vectors of equal values among themselves. An element that is not finite gives NaN.
func Eigh(a []float64, n int) (values, vectors []float64) {
	values, rows := eigen(a, n)
	return values, transposed(rows, n, n)
}

// eigen returns the eigenvalues of a, whose lower triangle it reads, in ascending order, and their vectors as rows. It overwrites a.
func eigen(a []float64, n int) (d, rows []float64) {
	exp, finite := scaled(a)
	d, off, rows := tridiagonal(a, n)
	if !finite || !implicitQL(d, off, rows, n) {
		return filled(d, math.NaN()), filled(rows, math.NaN())
	}
	for i := range d {
		d[i] = math.Ldexp(d[i], exp)
	}
	order := ascending(d)
	return taken(d, order, 1), taken(rows, order, n)
}

// tridiagonal brings a, whose lower triangle it reads and which it overwrites, by reflections to a matrix with the diagonal d
// and off beside it. rows is the transpose of their product Q, with a = Q·T·Qᵀ.
func tridiagonal(a []float64, n int) (d, off, rows []float64) {
	for i := range n {
		for j := range i {
			a[j*n+i] = a[i*n+j]
		}
	}
	d, off, taus, p := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	for k := range n - 1 {
		v := a[k*n+k+1 : (k+1)*n]
		tau := reflection(v)
		off[k], taus[k], v[0] = v[0], tau, 1
		p := p[:len(v)]
		for i := range p {
			p[i] = tau * dot(a[(k+1+i)*n+k+1:(k+2+i)*n], v)
		}
		f := tau / 2 * dot(p, v)
		for i := range p {
			p[i] -= f * v[i]
		}
		for i := range p {
			row := a[(k+1+i)*n+k+1 : (k+2+i)*n]
			for j := range row {
				row[j] -= v[i]*p[j] + p[i]*v[j]
			}
		}
	}
	rows = make([]float64, n*n)
	for i := range n {
		d[i], rows[i*n+i] = a[i*n+i], 1
	}
	for k := n - 2; k >= 0; k-- {
		for r := k + 1; r < n; r++ {
			reflect(a[k*n+k+1:(k+1)*n], taus[k], rows[r*n+k+1:(r+1)*n])
		}
	}
	return d, off, rows
}

// implicitQL makes d the eigenvalues of the matrix with the diagonal d and off beside it, and turns rows along: the QL algorithm
// with implicit shifts (Dubrulle, Martin and Wilkinson, 1968). It returns false if it does not converge.
func implicitQL(d, off, rows []float64, n int) bool {
	const most = 60
	for l := range n {
		for tries := 0; ; tries++ {
			m := l
			for m < n-1 && math.Abs(off[m]) > 0x1p-52*(math.Abs(d[m])+math.Abs(d[m+1])) {
				m++
			}
			if m == l {
				break
			}
			if tries == most {
				return false
			}
			g := (d[l+1] - d[l]) / (2 * off[l])
			g = d[m] - d[l] + off[l]/(g+math.Copysign(math.Hypot(g, 1), g))
			sin, cos, p := 1.0, 1.0, 0.0
			i := m - 1
			for ; i >= l; i-- {
				f, b := sin*off[i], cos*off[i]
				r := math.Hypot(f, g)
				off[i+1] = r
				if r == 0 {
					d[i+1] -= p
					break
				}
				sin, cos = f/r, g/r
				g = d[i+1] - p
				r = (d[i]-g)*sin + 2*cos*b
				p = sin * r
				d[i+1] = g + p
				g = cos*r - b
				rotate(rows[i*n:(i+1)*n], rows[(i+1)*n:(i+2)*n], cos, sin)
			}
			if i < l {
				d[l] -= p
				off[l] = g
			}
			off[m] = 0
		}
	}
	return true
}

// SVD returns of a, [m, n], which it overwrites, its k singular values s in descending order, and u, [m, k], and vh, [k, n], of
// orthonormal columns and rows, with u·diag(s)·vh = a; k is the lesser of m and n. A column of u and the row of vh beside it may
// both have the other sign. An element that is not finite gives NaN.
func SVD(a []float64, m, n int) (u, s, vh []float64) {
	if m >= n {
		columns, s, rows := singular(transposed(a, m, n), m, n)
		return transposed(columns, n, m), s, rows
	}
	rows, s, columns := singular(a, n, m)
	return transposed(columns, m, m), s, rows
}

// singular returns of a matrix of n columns of m ≥ n elements, one after the other, the columns of U, the singular values, and the rows
// of Vᵀ. It overwrites the columns: V of the eigenvectors of AᵀA brings them to about orthogonal ones, and rotations of two
// columns, the one-sided Jacobi method (Hestenes, 1958), do the rest, so that small values are as exact as large ones.
func singular(columns []float64, m, n int) (u, s, rows []float64) {
	exp, finite := scaled(columns)
	if !finite {
		return filled(columns, math.NaN()), filled(make([]float64, n), math.NaN()), filled(make([]float64, n*n), math.NaN())
	}
	square := make([]float64, n*n)
	for i := range n {
		for j := range i + 1 {
			square[i*n+j] = dot(columns[i*m:(i+1)*m], columns[j*m:(j+1)*m])
		}
	}
	_, rows = eigen(square, n)
	u = make([]float64, n*m)
	for i := range n {
		for j, f := range rows[i*n : (i+1)*n] {
			for k, v := range columns[j*m : (j+1)*m] {
				u[i*m+k] += f * v
			}
		}
	}
	orthogonalize(u, rows, m, n)
	s = make([]float64, n)
	for i := range s {
		s[i] = -math.Sqrt(dot(u[i*m:(i+1)*m], u[i*m:(i+1)*m])) // so that the largest come first
	}
	order := ascending(s)
	u, s, rows = taken(u, order, m), taken(s, order, 1), taken(rows, order, n)
	for i := range s {
		s[i] = -s[i]
		for k := range u[i*m : (i+1)*m] {
			u[i*m+k] /= s[i]
		}
		if s[i] == 0 {
			completed(u, i, m)
		}
		s[i] = math.Ldexp(s[i], exp)
	}
	return u, s, rows
}

// orthogonalize rotates n vectors of m elements until they are orthogonal, and rows along.
func orthogonalize(vectors, rows []float64, m, n int) {
	const most = 60
	for range most {
		done := true
		for i := range n {
			a := vectors[i*m : (i+1)*m]
			for j := range i {
				b := vectors[j*m : (j+1)*m]
				p := dot(a, b)
				if p == 0 {
					continue
				}
				aa, bb := dot(a, a), dot(b, b)
				if math.Abs(p) <= 0x1p-50*math.Sqrt(aa)*math.Sqrt(bb) {
					continue
				}
				done = false
				z := (aa - bb) / (2 * p)
				t := math.Copysign(1/(math.Abs(z)+math.Hypot(z, 1)), z)
				cos := 1 / math.Hypot(t, 1)
				rotate(a, b, cos, -t*cos)
				rotate(rows[i*n:(i+1)*n], rows[j*n:(j+1)*n], cos, -t*cos)
			}
		}
		if done {
			return
		}
	}
}

// completed makes vector at of m elements one that is orthonormal to those before it: of the unit vector that is farthest from them.
func completed(vectors []float64, at, m int) {
	best, most := 0, -1.0
	for k := range m {
		left := 1.0
		for i := range at {
			left -= vectors[i*m+k] * vectors[i*m+k]
		}
		if left > most {
			best, most = k, left
		}
	}
	x := vectors[at*m : (at+1)*m]
	clear(x)
	x[best] = 1
	for range 2 { // the second time takes away what the first one rounded
		for i := range at {
			v := vectors[i*m : (i+1)*m]
			f := dot(v, x)
			for k := range x {
				x[k] -= f * v[k]
			}
		}
	}
	norm := math.Sqrt(dot(x, x))
	for k := range x {
		x[k] /= norm
	}
}

// rotate makes a, b of equal lengths cos·a - sin·b and sin·a + cos·b.
func rotate(a, b []float64, cos, sin float64) {
	for k, v := range a {
		w := b[k]
		a[k], b[k] = cos*v-sin*w, sin*v+cos*w
	}
}

// dot returns the sum of the products of two lists of one length.
func dot(a, b []float64) float64 {
	sum := 0.0
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}

// scaled multiplies the elements by 2^-exp, which brings the largest one below 1, so that no square overflows. If an element
// is not finite, it changes nothing and finite is false.
func scaled(a []float64) (exp int, finite bool) {
	most := 0.0
	for _, v := range a {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return 0, false
		}
		most = max(most, math.Abs(v))
	}
	_, exp = math.Frexp(most)
	for i, v := range a {
		a[i] = math.Ldexp(v, -exp)
	}
	return exp, true
}

// ascending returns the positions of the elements in ascending order; equal ones stay as they are.
func ascending(list []float64) []int {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(list[i], list[j]) })
	return order
}

// taken returns the rows of list, of width elements each, in an order.
func taken(list []float64, order []int, width int) []float64 {
	to := make([]float64, 0, len(list))
	for _, i := range order {
		to = append(to, list[i*width:(i+1)*width]...)
	}
	return to
}

// filled makes all elements v.
func filled(list []float64, v float64) []float64 {
	for i := range list {
		list[i] = v
	}
	return list
}

// transposed returns the transpose of a matrix of m rows and n columns.
func transposed(a []float64, m, n int) []float64 {
	t := make([]float64, len(a))
	for i := range m {
		for j := range n {
			t[j*m+i] = a[i*n+j]
		}
	}
	return t
}
