package tensor

import (
	"fmt"
	"math"
	"testing"
)

// matrices returns numbers of which no matrix needs to be well-behaved: pivots have to be looked for.
func matrices(dev Device, dt DType, shape ...int) *Tensor {
	x := New(dev, Float64, shape...)
	Edit(x, func(list []float64) {
		for i := range list {
			list[i] = math.Sin(float64(i*i + 1))
		}
	})
	return Cast(x, dt)
}

func TestSolve(t *testing.T) {
	dev := NewCPU(nil)
	for _, dt := range []DType{Float64, Float32, BFloat16} {
		for _, shape := range [][3]int{{1, 1, 1}, {3, 4, 2}, {2, 7, 1}, {1, 3, 0}, {0, 2, 2}} {
			a, b := matrices(dev, dt, shape[0], shape[1], shape[1]), matrices(dev, dt, shape[0], shape[1], shape[2])
			for name, solved := range map[string][2]*Tensor{
				"Solve":           {a, Solve(a, b)},
				"SolveTriangular": {triangle(a, false), SolveTriangular(a, b, false)},
				"upper":           {triangle(a, true), SolveTriangular(a, b, true)},
			} {
				if solved[1].DType() != dt {
					t.Fatalf("%s of %v gives %v", name, dt, solved[1].DType())
				}
				checkProduct(t, fmt.Sprint(name, shape, dt), solved[0], solved[1], b)
			}
		}
	}
}

// triangle returns one triangle of each matrix.
func triangle(a *Tensor, upper bool) *Tensor {
	list, n := doubles(a), a.Dim(-1)
	eachMatrix(list, n*n, func(m []float64) {
		for i := range n {
			for j := range n {
				if i != j && (j > i) != upper {
					m[i*n+j] = 0
				}
			}
		}
	})
	return a.like(list, a.Shape()...)
}

// checkProduct fails unless a·b is want, by as much as the type of b rounds.
func checkProduct(t *testing.T, name string, a, b, want *Tensor) {
	t.Helper()
	n, k := a.Dim(-1), b.Dim(-1)
	x, y, z := doubles(a), doubles(b), doubles(want)
	tol := map[DType]float64{Float64: 1e-12, Float32: 1e-5, BFloat16: 0x1p-7}[b.DType()]
	for m := range a.Dim(0) {
		for i := range n {
			for c := range k {
				sum, size := 0.0, 0.0
				for j := range n {
					term := x[(m*n+i)*n+j] * y[(m*n+j)*k+c]
					sum, size = sum+term, size+math.Abs(term)
				}
				if w := z[(m*n+i)*k+c]; !(math.Abs(sum-w) <= tol*(size+math.Abs(w))) {
					t.Fatalf("%s: matrix %d, row %d, column %d: %v, want %v", name, m, i, c, sum, w)
				}
			}
		}
	}
}

func TestCholesky(t *testing.T) {
	dev := NewCPU(nil)
	for _, n := range []int{1, 2, 5} {
		x := matrices(dev, Float64, 3, n, n+2)
		want := MatMul(x, x, false, true)
		l := Cholesky(want)
		checkProduct(t, fmt.Sprint("Cholesky ", n), l, Transpose(l, 1, 2), want)
		for i, v := range doubles(l) {
			if row, column := i/n%n, i%n; column > row && v != 0 {
				t.Errorf("element %d,%d above the diagonal is %v", row, column, v)
			}
		}
	}
	for _, v := range doubles(Cholesky(FromSlice(dev, []float64{1, 2, 2, 1}, 2, 2))) {
		if !math.IsNaN(v) {
			t.Errorf("a matrix that is not positive definite gives %v", v)
		}
	}
}

func TestSlogdet(t *testing.T) {
	dev := NewCPU(nil)
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
		sign, logabs := Slogdet(FromSlice(dev, c.a, c.n, c.n))
		if s, l := sign.Item(), logabs.Item(); s != c.sign || math.Abs(math.Exp(l)-c.det) > 1e-12 {
			t.Errorf("%s: sign %v and logarithm %v, want %v and that of %v", name, s, l, c.sign, c.det)
		}
	}
	for _, v := range doubles(Solve(FromSlice(dev, []float64{1, 2, 2, 4}, 2, 2), FromSlice(dev, []float64{1, 1}, 2, 1))) {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			t.Errorf("a matrix without inverse gives %v", v)
		}
	}
}
