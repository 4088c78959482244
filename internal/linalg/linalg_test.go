package linalg

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// matrix returns a matrix that does not need to be well-behaved: pivots have to be looked for.
func matrix(rows, columns, start int) []float64 {
	list := make([]float64, rows*columns)
	for i := range list {
		at := i + start
		list[i] = math.Sin(float64(at*at + 1))
	}
	return list
}

func TestSolve(t *testing.T) {
	for _, shape := range [][2]int{{1, 1}, {4, 2}, {7, 1}, {3, 0}, {0, 2}} {
		n, k := shape[0], shape[1]
		for start := range 3 {
			a, b := matrix(n, n, start*n*n), matrix(n, k, start)
			x := slices.Clone(b)
			Solve(slices.Clone(a), x, n, k)
			checkProduct(t, fmt.Sprint("Solve", shape), a, x, b, n, k)
			for _, upper := range []bool{false, true} {
				x := slices.Clone(b)
				SolveTriangular(a, x, n, k, upper)
				checkProduct(t, fmt.Sprint("SolveTriangular", shape, upper), triangle(a, n, upper), x, b, n, k)
			}
		}
	}
}

// triangle returns one triangle of a matrix.
func triangle(a []float64, n int, upper bool) []float64 {
	a = slices.Clone(a)
	for i := range n {
		for j := range n {
			if i != j && (j > i) != upper {
				a[i*n+j] = 0
			}
		}
	}
	return a
}

// checkProduct fails unless a·b, [n, n] and [n, k], is want.
func checkProduct(t *testing.T, name string, a, b, want []float64, n, k int) {
	t.Helper()
	for i := range n {
		for c := range k {
			sum, size := 0.0, 0.0
			for j := range n {
				term := a[i*n+j] * b[j*k+c]
				sum, size = sum+term, size+math.Abs(term)
			}
			if w := want[i*k+c]; !(math.Abs(sum-w) <= 1e-12*(size+math.Abs(w))) {
				t.Fatalf("%s: row %d, column %d: %v, want %v", name, i, c, sum, w)
			}
		}
	}
}

func TestCholesky(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		for start := range 3 {
			x := matrix(n, n+2, start*n)
			want := make([]float64, n*n)
			for i := range n {
				for j := range n {
					for c := range n + 2 {
						want[i*n+j] += x[i*(n+2)+c] * x[j*(n+2)+c]
					}
				}
			}
			l := slices.Clone(want)
			Cholesky(l, n)
			transposed := make([]float64, n*n)
			for i, v := range l {
				row, column := i/n, i%n
				transposed[column*n+row] = v
				if column > row && v != 0 {
					t.Errorf("element %d,%d above the diagonal is %v", row, column, v)
				}
			}
			checkProduct(t, fmt.Sprint("Cholesky ", n), l, transposed, want, n, n)
		}
	}
	a := []float64{1, 2, 2, 1}
	Cholesky(a, 2)
	for _, v := range a {
		if !math.IsNaN(v) {
			t.Errorf("a matrix that is not positive definite gives %v", v)
		}
	}
}

func TestSlogdet(t *testing.T) {
	for name, c := range map[string]struct {
		a    []float64
		n    int
		sign float64
		det  float64
	}{
		"exchanged": {[]float64{0, 1, 1, 0}, 2, -1, 1},
		"turned":    {[]float64{0, 0, 2, 3, 0, 0, 0, 4, 0}, 3, 1, 24},
		"singular":  {[]float64{1, 2, 2, 4}, 2, 0, 0},
		"zero":      {[]float64{0, 0, 0, 0}, 2, 0, 0},
		"negative":  {[]float64{-3}, 1, -1, 3},
	} {
		if s, l := Slogdet(c.a, c.n); s != c.sign || math.Abs(math.Exp(l)-c.det) > 1e-12 {
			t.Errorf("%s: sign %v and logarithm %v, want %v and that of %v", name, s, l, c.sign, c.det)
		}
	}
	x := []float64{1, 1}
	Solve([]float64{1, 2, 2, 4}, x, 2, 1)
	for _, v := range x {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			t.Errorf("a matrix without inverse gives %v", v)
		}
	}
}
