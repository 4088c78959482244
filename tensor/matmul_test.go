package tensor

import (
	"slices"
	"testing"
)

// matmulWant is the definition for arguments of at least two dimensions.
func matmulWant(a, b array, transA, transB bool) array {
	flip := func(x array, trans bool) array {
		if !trans {
			return x
		}
		shape := slices.Clone(x.shape)
		n := len(shape)
		shape[n-1], shape[n-2] = shape[n-2], shape[n-1]
		return build(shape, func(i []int) float64 {
			j := slices.Clone(i)
			j[n-1], j[n-2] = j[n-2], j[n-1]
			return x.at(j...)
		})
	}
	a, b = flip(a, transA), flip(b, transB)
	na, nb := len(a.shape), len(b.shape)
	shape, _ := broadcastTogether(a.shape[:na-2], b.shape[:nb-2])
	shape = append(shape, a.shape[na-2], b.shape[nb-1])
	return build(shape, func(i []int) float64 {
		s := 0.0
		ia, ib := slices.Clone(i), slices.Clone(i)
		for k := range a.shape[na-1] {
			ia[len(i)-1], ib[len(i)-2] = k, k
			if a.shape[na-1] == 1 { // at() would take a size of 1 for a broadcast
				ia[len(i)-1], ib[len(i)-2] = 0, 0
			}
			s += a.at(ia...) * b.at(ib...)
		}
		return s
	})
}

// A matmulCase is batch shapes of a and b, and M, N, K.
type matmulCase struct {
	a, b    []int
	m, n, k int
}

// shapes returns those of a and b.
func (c matmulCase) shapes(transA, transB bool) (a, b []int) {
	a, b = append(slices.Clone(c.a), c.m, c.k), append(slices.Clone(c.b), c.k, c.n)
	if transA {
		a = append(slices.Clone(c.a), c.k, c.m)
	}
	if transB {
		b = append(slices.Clone(c.b), c.n, c.k)
	}
	return a, b
}

var matmulCases = []matmulCase{
	{nil, nil, 3, 4, 5}, {nil, nil, 1, 1, 1}, {nil, nil, 17, 33, 65}, {nil, nil, 0, 3, 2}, {nil, nil, 3, 0, 2}, {nil, nil, 2, 3, 0},
	{[]int{2}, []int{2}, 3, 4, 5}, {[]int{2}, nil, 3, 4, 5}, {nil, []int{3}, 2, 2, 2}, {[]int{2, 1}, []int{3}, 2, 3, 4},
	{[]int{0}, nil, 2, 2, 2}, {[]int{2, 3}, []int{2, 3}, 1, 5, 2}, {[]int{1}, []int{4}, 2, 1, 3}, {[]int{2, 1, 2}, []int{1, 3, 1}, 2, 2, 2},
	{[]int{2, 2}, nil, 3, 2, 0},
}

func TestMatMul(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	for _, c := range matmulCases {
		for trans := range 4 {
			transA, transB := trans&1 != 0, trans&2 != 0
			sa, sb := c.shapes(transA, transB)
			a, b := randomArray(rng, sa...), randomArray(rng, sb...)
			want := matmulWant(a, b, transA, transB)
			for _, dt := range floats {
				x, y, tol := a.tensor(cpu, dt), b.tensor(cpu, dt), 10*tolerance(dt)
				name := label(dt, sa, sb, transA, transB)
				got := MatMul(x, y, transA, transB)
				check(t, "MatMul"+name, got, want, tol)
				MatMulTo(got, x, y, transA, transB, true)
				check(t, "MatMulTo += "+name, got, build(want.shape, func(i []int) float64 { return 2 * want.at(i...) }), 2*tol)
				MatMulTo(got, x, y, transA, transB, false)
				check(t, "MatMulTo = "+name, got, want, tol)
			}
		}
	}
	a, b := Zeros(cpu, Float32, 2, 3), Zeros(cpu, Float32, 2, 3)
	wantThrow[*ShapeError](t, func() { MatMul(a, b, false, false) }, "MatMul", "float32[2 3]", "inner sizes 3 and 2")
	wantThrow[*ShapeError](t, func() { MatMul(Zeros(cpu, Float32, 2, 2, 2), Zeros(cpu, Float32, 3, 2, 2), false, false) },
		"batch sizes 2 and 3")
	wantThrow[*ShapeError](t, func() { MatMul(Full(cpu, Float32, 1), b, false, false) }, "Mul")
	wantThrow[*ShapeError](t, func() { MatMulTo(a, a, b, false, true, false) }, "destination", "[2 2]", "[2 3]")
	square := Zeros(cpu, Float32, 2, 2)
	wantThrow[*UseError](t, func() { MatMulTo(square, square, Clone(square), false, false, false) }, "MatMulTo", "argument too")
	wantThrow[*TypeError](t, func() { MatMul(Zeros(cpu, Int32, 2, 2), Zeros(cpu, Int32, 2, 2), false, false) }, "MatMul", "Cast")
}

func TestMatMulVectors(t *testing.T) {
	cpu := NewCPU(nil)
	m := FromSlice(cpu, []float64{1, 2, 3, 4, 5, 6}, 2, 3)
	v, w := FromSlice(cpu, []float64{1, 0, 2}, 3), FromSlice(cpu, []float64{1, 10}, 2)
	check(t, "matrix·vector", MatMul(m, v, false, false), array{[]int{2}, []float64{7, 16}}, 0)
	check(t, "vector·matrix", MatMul(w, m, false, false), array{[]int{3}, []float64{41, 52, 63}}, 0)
	check(t, "vector·vector", MatMul(v, v, false, false), array{[]int{}, []float64{5}}, 0)
}

func TestMatMulGrad(t *testing.T) {
	rng := newRNG()
	for _, c := range matmulCases[:len(matmulCases)-1] {
		if c.m > 5 || len(c.a) > 2 {
			continue
		}
		for trans := range 4 {
			transA, transB := trans&1 != 0, trans&2 != 0
			sa, sb := c.shapes(transA, transB)
			checkGrad(t, label("MatMul", sa, sb, transA, transB),
				func(xs []*Tensor) *Tensor { return MatMul(xs[0], xs[1], transA, transB) },
				func(dy *Tensor, xs []*Tensor) []*Tensor {
					da, db := MatMulGrad(dy, xs[0], xs[1], transA, transB, true, true)
					return []*Tensor{da, db}
				}, randomArray(rng, sa...), randomArray(rng, sb...))
		}
	}
	for _, s := range [][2][]int{{{3}, {3}}, {{2, 3}, {3}}, {{3}, {3, 2}}, {{3}, {2, 3, 4}}} {
		checkGrad(t, label("MatMul", s),
			func(xs []*Tensor) *Tensor { return MatMul(xs[0], xs[1], false, false) },
			func(dy *Tensor, xs []*Tensor) []*Tensor {
				da, db := MatMulGrad(dy, xs[0], xs[1], false, false, true, true)
				return []*Tensor{da, db}
			}, randomArray(rng, s[0]...), randomArray(rng, s[1]...))
	}
}

func TestLinear(t *testing.T) {
	rng := newRNG()
	for _, c := range []struct {
		shape []int
		out   int
	}{{[]int{3}, 5}, {[]int{2, 3}, 5}, {[]int{2, 4, 3}, 5}, {[]int{0, 3}, 5}, {[]int{2, 3}, 0}, {[]int{2, 0}, 5}, {[]int{0}, 5}, {[]int{4, 0},
		0}} {
		checkGrad(t, label("Linear", c),
			func(xs []*Tensor) *Tensor { return Linear(xs[0], xs[1], xs[2]) },
			func(dy *Tensor, xs []*Tensor) []*Tensor {
				dx, dw, db := LinearGrad(dy, xs[0], xs[1], true, true, true)
				return []*Tensor{dx, dw, db}
			}, randomArray(rng, c.shape...), randomArray(rng, c.out, c.shape[len(c.shape)-1]), randomArray(rng, c.out))
	}
	cpu := NewCPU(nil)
	x, w, bias := randomArray(rng, 2, 3), randomArray(rng, 4, 3), randomArray(rng, 4)
	want := matmulWant(x, w, false, true)
	for i := range want.data {
		want.data[i] += bias.data[i%4]
	}
	for _, dt := range floats {
		check(t, label("Linear", dt), Linear(x.tensor(cpu, dt), w.tensor(cpu, dt), bias.tensor(cpu, dt)), want, tolerance(dt))
	}
	wantThrow[*ShapeError](t, func() { Linear(x.tensor(cpu, Float32), w.tensor(cpu, Float32), x.tensor(cpu, Float32)) }, "bias", "4 outputs")
}
