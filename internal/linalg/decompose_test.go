package linalg

import (
	"math"
	"slices"
	"testing"
)

// hard are matrices that algorithms stumble over: ranks that are not full, equal values, zeros, values far apart.
var hard = map[string]struct {
	m, n int
	f    func(i, j int) float64
}{
	"zeros":    {4, 3, func(i, j int) float64 { return 0 }},
	"ones":     {5, 5, func(i, j int) float64 { return 1 }},
	"identity": {4, 4, func(i, j int) float64 { return float64(max(0, 1-abs(i-j))) }},
	"of rank 2": {6, 5, func(i, j int) float64 {
		return math.Sin(float64(i))*math.Cos(float64(j)) + float64(i*j)
	}},
	"of rank 2, wide": {3, 7, func(i, j int) float64 { return float64(i + j) }},
	"far apart":       {4, 4, func(i, j int) float64 { return math.Pow(10, -5*float64(i+j)) }},
	"on the diagonal": {4, 4, func(i, j int) float64 { return float64(max(0, 1-abs(i-j))) * math.Pow(10, -30*float64(i)) }},
	"large":           {4, 3, func(i, j int) float64 { return 1e300 * math.Sin(float64(i*i+j)) }},
	"small":           {3, 3, func(i, j int) float64 { return 1e-300 * math.Sin(float64(i*i+j)) }},
	"beside":          {6, 6, func(i, j int) float64 { return float64(max(0, 1-abs(abs(i-j)-1))) }},
	"one column":      {5, 1, func(i, j int) float64 { return float64(i) }},
	"of Hilbert":      {12, 12, func(i, j int) float64 { return 1 / float64(i+j+1) }},
	"of 40":           {40, 40, func(i, j int) float64 { return math.Sin(float64(i*j+i) + float64(j*j)) }},
	"tall":            {50, 20, func(i, j int) float64 { return math.Sin(float64(i*i + 3*j)) }},
}

func abs(i int) int { return max(i, -i) }

// checkOrthonormal fails unless the columns of q, [m, k], are orthonormal.
func checkOrthonormal(t *testing.T, name string, q []float64, m, k int) {
	t.Helper()
	for i := range k {
		for j := range k {
			sum := 0.0
			for r := range m {
				sum += q[r*k+i] * q[r*k+j]
			}
			if want := float64(max(0, 1-abs(i-j))); !(math.Abs(sum-want) <= 1e-13*float64(m)) {
				t.Fatalf("%s: columns %d and %d have the product %v", name, i, j, sum)
			}
		}
	}
}

// checkFactors fails unless a·diag(d)·b, of [m, k] and [k, n], is want, by as much as float64 rounds its largest elements.
func checkFactors(t *testing.T, name string, a, d, b, want []float64, m, k, n int) {
	t.Helper()
	most := 0.0
	for _, v := range want {
		most = max(most, math.Abs(v))
	}
	for i := range m {
		for j := range n {
			sum := 0.0
			for l := range k {
				f := 1.0
				if d != nil {
					f = d[l]
				}
				sum += a[i*k+l] * f * b[l*n+j]
			}
			if w := want[i*n+j]; !(math.Abs(sum-w) <= 1e-13*most) {
				t.Fatalf("%s: element %d,%d is %v, want %v", name, i, j, sum, w)
			}
		}
	}
}

func TestDecompositions(t *testing.T) {
	for name, c := range hard {
		m, n := c.m, c.n
		k, a := min(m, n), make([]float64, m*n)
		for i := range a {
			a[i] = c.f(i/n, i%n)
		}
		q, r := QR(slices.Clone(a), m, n)
		checkOrthonormal(t, "QR "+name, q, m, k)
		checkFactors(t, "QR "+name, q, nil, r, a, m, k, n)
		for i, v := range r {
			if i/n > i%n && v != 0 {
				t.Errorf("QR %s: element %d,%d below the diagonal is %v", name, i/n, i%n, v)
			}
		}

		u, s, vh := SVD(slices.Clone(a), m, n)
		checkOrthonormal(t, "SVD u "+name, u, m, k)
		checkOrthonormal(t, "SVD vh "+name, transposed(vh, k, n), n, k)
		checkFactors(t, "SVD "+name, u, s, vh, a, m, k, n)
		for i, v := range s {
			if !(v >= 0) || i > 0 && v > s[i-1] {
				t.Errorf("SVD %s: singular values %v", name, s)
			}
		}
		if m != n {
			continue
		}
		for i := range n { // symmetric; what is above the diagonal is not read
			for j := range i {
				a[j*n+i] = a[i*n+j]
			}
		}
		d, v := Eigh(slices.Clone(a), n)
		checkOrthonormal(t, "Eigh "+name, v, n, n)
		checkFactors(t, "Eigh "+name, v, d, transposed(v, n, n), a, n, n, n)
		if !slices.IsSorted(d) {
			t.Errorf("Eigh %s: eigenvalues %v", name, d)
		}
	}
}

// Small singular values are exact where rows are orthogonal.
func TestSmallSingularValues(t *testing.T) {
	_, s, _ := SVD([]float64{0, 3e-12, 0, 2, 0, 0, 0, 0, 1e-100}, 3, 3)
	for i, want := range []float64{2, 3e-12, 1e-100} {
		if math.Abs(s[i]/want-1) > 1e-15 {
			t.Errorf("singular value %d is %v, want %v", i, s[i], want)
		}
	}
}

func TestDecompositionsOfNaN(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1)} {
		x := func() []float64 { return []float64{1, 2, v, 3} }
		q, r := QR(x(), 2, 2)
		d, vectors := Eigh(x(), 2)
		u, s, vh := SVD(x(), 2, 2)
		for i, y := range [][]float64{q, r, d, vectors, u, s, vh} {
			if !math.IsNaN(y[0]) {
				t.Errorf("result %d of %v is %v", i, v, y)
			}
		}
	}
}
