package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// An elementwise is a function of slices, and its definition for one element.
// The first slice of both is the destination; v[0] is what it holds before.
type elementwise struct {
	name   string
	slices int
	run    func(l Mode, s [][]float32)
	want   func(v []float64) float64
	ulps   float64
}

var elementwises = []elementwise{
	{"add", 3, func(l Mode, s [][]float32) { l.Add(s[0], s[1], s[2]) }, func(v []float64) float64 { return v[1] + v[2] }, 0.5},
	{"sub", 3, func(l Mode, s [][]float32) { l.Sub(s[0], s[1], s[2]) }, func(v []float64) float64 { return v[1] - v[2] }, 0.5},
	{"mul", 3, func(l Mode, s [][]float32) { l.Mul(s[0], s[1], s[2]) }, func(v []float64) float64 { return v[1] * v[2] }, 0.5},
	{"div", 3, func(l Mode, s [][]float32) { l.Div(s[0], s[1], s[2]) }, func(v []float64) float64 { return v[1] / v[2] }, 0.51},
	{"max", 3, func(l Mode, s [][]float32) { l.Max(s[0], s[1], s[2]) }, func(v []float64) float64 { return max(v[1], v[2]) }, 0},
	{"min", 3, func(l Mode, s [][]float32) { l.Min(s[0], s[1], s[2]) }, func(v []float64) float64 { return min(v[1], v[2]) }, 0},
	{"add2", 4, func(l Mode, s [][]float32) { l.add2(s[0], s[3], s[1], s[2]) }, func(v []float64) float64 { return v[1] + v[2] }, 0.5},
	{"add2 second", 4, func(l Mode, s [][]float32) { l.add2(s[3], s[0], s[1], s[2]) }, func(v []float64) float64 { return v[1] + v[2] }, 0.5},
	{"addTo", 2, func(l Mode, s [][]float32) { l.addTo(s[0], s[1]) }, func(v []float64) float64 { return v[0] + v[1] }, 0.5},
	{"axpy", 2, func(l Mode, s [][]float32) { l.axpy(s[0], s[1], 1.5) }, func(v []float64) float64 { return v[0] + 1.5*v[1] }, 0.51},
	{"addScalar", 2, func(l Mode, s [][]float32) { l.AddScalar(s[0], s[1], 1.5) }, func(v []float64) float64 { return v[1] + 1.5 }, 0.5},
	{"scale", 2, func(l Mode, s [][]float32) { l.Scale(s[0], s[1], 1.7) }, func(v []float64) float64 { return v[1] * float64(float32(1.7)) },
		0.5},
	{"maxScalar", 2, func(l Mode, s [][]float32) { l.MaxScalar(s[0], s[1], 1.5) }, func(v []float64) float64 { return max(v[1], 1.5) }, 0},
	{"minScalar", 2, func(l Mode, s [][]float32) { l.MinScalar(s[0], s[1], 1.5) }, func(v []float64) float64 { return min(v[1], 1.5) }, 0},
	{"divBy", 2, func(l Mode, s [][]float32) { l.DivBy(s[0], s[1], 1.5) }, func(v []float64) float64 { return v[1] / 1.5 }, 0.51},
	{"divInto", 2, func(l Mode, s [][]float32) { l.DivInto(s[0], s[1], 1.5) }, func(v []float64) float64 { return 1.5 / v[1] }, 0.51},
	{"subFrom", 2, func(l Mode, s [][]float32) { l.SubFrom(s[0], s[1], 1.5) }, func(v []float64) float64 { return 1.5 - v[1] }, 0.5},
	{"fmod", 3, func(l Mode, s [][]float32) { l.Fmod(s[0], s[1], s[2]) }, func(v []float64) float64 { return math.Mod(v[1], v[2]) }, 0},
	{"remainder", 3, func(l Mode, s [][]float32) { l.Remainder(s[0], s[1], s[2]) }, wantRemainder, 0.5},
	{"floorDivide", 3, func(l Mode, s [][]float32) { l.FloorDivide(s[0], s[1], s[2]) }, wantFloorDivide, 0.5},
	{"atan2", 3, func(l Mode, s [][]float32) { l.Atan2(s[0], s[1], s[2]) }, func(v []float64) float64 { return math.Atan2(v[1], v[2]) }, 3},
	{"fill", 1, func(l Mode, s [][]float32) { l.fill(s[0], 1.5) }, func(v []float64) float64 { return 1.5 }, 0},
	{"reluGrad", 3, func(l Mode, s [][]float32) { l.reluGrad(s[0], s[1], s[2]) }, func(v []float64) float64 {
		if v[1] <= 0 {
			return 0
		}
		return v[2]
	}, 0},
	{"clamp", 2, func(l Mode, s [][]float32) { l.clamp(s[0], s[1], -0.5, 0.75) },
		func(v []float64) float64 { return min(max(v[1], -0.5), 0.75) }, 0},
	{"clampGrad", 3, func(l Mode, s [][]float32) { l.clampGrad(s[0], s[1], s[2], -0.5, 0.75) }, func(v []float64) float64 {
		if v[1] >= -0.5 && v[1] <= 0.75 {
			return v[2]
		}
		return 0
	}, 0},
	{"absGrad", 3, func(l Mode, s [][]float32) { l.absGrad(s[0], s[1], s[2]) },
		func(v []float64) float64 { return v[2] * float64(sign(float32(v[1]))) }, 0},
	{"sqrtGrad", 3, func(l Mode, s [][]float32) { l.sqrtGrad(s[0], s[1], s[2]) },
		func(v []float64) float64 { return v[2] / v[1] / 2 }, 1},
	{"rsqrtGrad", 3, func(l Mode, s [][]float32) { l.rsqrtGrad(s[0], s[1], s[2]) },
		func(v []float64) float64 { return v[2] * -0.5 * v[1] * v[1] * v[1] }, 2.5},
	{"squareGrad", 3, func(l Mode, s [][]float32) { l.squareGrad(s[0], s[1], s[2]) },
		func(v []float64) float64 { return 2 * v[2] * v[1] }, 0.5},
	{"tanhGrad", 3, func(l Mode, s [][]float32) { l.tanhGrad(s[0], s[1], s[2]) },
		func(v []float64) float64 { return v[2] * float64(float32(1-v[1]*v[1])) }, 1.5},
	{"sigmoidGrad", 3, func(l Mode, s [][]float32) { l.sigmoidGrad(s[0], s[1], s[2]) },
		func(v []float64) float64 { return v[2] * float64(float32(v[1]*float64(float32(1-v[1])))) }, 2},
}

// wantRemainder is a - b·⌊a/b⌋.
func wantRemainder(v []float64) float64 {
	rest := math.Mod(v[1], v[2])
	if rest != 0 && (rest < 0) != (v[2] < 0) {
		return rest + v[2]
	}
	return rest
}

// wantFloorDivide is ⌊a/b⌋.
func wantFloorDivide(v []float64) float64 {
	if v[2] == 0 {
		return v[1] / v[2]
	}
	rest := math.Mod(v[1], v[2])
	q := math.RoundToEven((v[1] - rest) / v[2])
	if rest != 0 && (rest < 0) != (v[2] < 0) {
		q--
	}
	return q
}

// want64 are the elements at i of the slices, as float64.
func want64(s [][]float32, i int) []float64 {
	v := make([]float64, len(s))
	for j := range s {
		v[j] = float64(s[j][i])
	}
	return v
}

func TestElementwise(t *testing.T) {
	odd := []float32{0, inf, -inf, nan, 1, -1, math.MaxFloat32, 0x1p-149, float32(math.Copysign(0, -1))}
	for _, l := range modes() {
		for _, f := range elementwises {
			r := rand.New(rand.NewPCG(4, uint64(l.code())))
			for _, n := range append(lengths(), len(odd)*len(odd)) {
				before, s := make([][]float32, f.slices), make([][]float32, f.slices)
				intact := make([]func() bool, f.slices)
				for i := range s {
					s[i], intact[i] = guarded(r, n)
					if n == len(odd)*len(odd) { // every pair of odd values
						for j := range s[i] {
							s[i][j] = odd[[]int{j % len(odd), j / len(odd)}[i%2]]
						}
					}
					before[i] = append([]float32(nil), s[i]...)
				}
				f.run(l, s)
				for i, ok := range intact {
					if !ok() {
						t.Fatalf("%v %s: %d elements: wrote outside slice %d", l, f.name, n, i)
					}
				}
				for i := range s[0] {
					v := want64(before, i)
					if want := f.want(v); (f.name == "max" || f.name == "min") && !sameBits(s[0][i], float32(want)) {
						t.Fatalf("%v %s of %v is %v, want %v: zeros have signs", l, f.name, v, s[0][i], want)
					}
					if ulps(s[0][i], f.want(v)) > f.ulps {
						t.Fatalf("%v %s: element %d of %d of %v is %g, want %g", l, f.name, i, n, v, s[0][i], f.want(v))
					}
				}
			}
		}
	}
}

func integers[T Number](t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, n := range []int{0, 1, 5, 100} {
		a, b, c, d := make([]T, n), make([]T, n), make([]T, n), make([]T, n)
		for i := range n {
			a[i], b[i] = T(r.IntN(100)), T(1+r.IntN(100))
		}
		for name, f := range map[string]struct {
			run  func()
			want func(x, y T) T
		}{
			"Add":       {func() { Add(c, a, b) }, func(x, y T) T { return x + y }},
			"Add2":      {func() { Add2(d, c, a, b) }, func(x, y T) T { return x + y }},
			"Sub":       {func() { Sub(c, a, b) }, func(x, y T) T { return x - y }},
			"Mul":       {func() { Mul(c, a, b) }, func(x, y T) T { return x * y }},
			"Div":       {func() { Div(c, a, b) }, func(x, y T) T { return x / y }},
			"Max":       {func() { Max(c, a, b) }, func(x, y T) T { return max(x, y) }},
			"Min":       {func() { Min(c, a, b) }, func(x, y T) T { return min(x, y) }},
			"AddTo":     {func() { copy(c, a); AddTo(c, b) }, func(x, y T) T { return x + y }},
			"Axpy":      {func() { copy(c, a); Axpy(c, 3, b) }, func(x, y T) T { return x + 3*y }},
			"Scale":     {func() { Scale(c, a, 3) }, func(x, y T) T { return 3 * x }},
			"AddScalar": {func() { AddScalar(c, a, 3) }, func(x, y T) T { return 3 + x }},
			"Fill":      {func() { Fill(c, 3) }, func(x, y T) T { return 3 }},
			"Copy":      {func() { Copy(c, b) }, func(x, y T) T { return y }},
		} {
			f.run()
			for i := range c {
				if c[i] != f.want(a[i], b[i]) {
					t.Fatalf("%s of %v and %v, %T: %v, want %v", name, a[i], b[i], c[i], c[i], f.want(a[i], b[i]))
				}
			}
		}
	}
}

func TestEveryType(t *testing.T) {
	integers[float32](t)
	integers[float64](t)
	integers[int8](t)
	integers[int16](t)
	integers[int32](t)
	integers[int64](t)
	integers[uint8](t)
}

// Elements of every size are filled to the end, and no further.
func TestFill(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 5, 1023, 1024, 1025, 5000} {
		filledWith(t, n, uint16(0x1234))
		filledWith(t, n, uint8(7))
		filledWith(t, n, true)
		filledWith(t, n, 1.5)
		filledWith(t, n, int64(-9))
	}
}

func filledWith[T Elem](t *testing.T, n int, v T) {
	var zero T
	dst := make([]T, n+2)
	Fill(dst[1:n+1], v)
	for i, got := range dst {
		if want := i > 0 && i <= n; (got == v) != want || (got == zero) == want {
			t.Fatalf("element %d of %d is %v after Fill with %v", i-1, n, got, v)
		}
	}
}

func TestLengthsMustAgree(t *testing.T) {
	a, b := make([]float32, 3), make([]float32, 4)
	for name, f := range map[string]func(){
		"Add": func() { Add(a, a, b) }, "Axpy": func() { Axpy(a, 1, b) }, "Exp": func() { Exp(b, a) }, "Dot": func() { Dot(a, b) },
		"Normalize": func() { ordinary.Normalize(a, a, 0, 1, b, nil) }, "AdamStep": func() { AdamStep(a, a, b, a, Adam{}) }, "Copy": func() {
			Copy(a, b)
		},
	} {
		func() {
			defer func() {
				if fmt.Sprint(recover()) == "<nil>" {
					t.Errorf("%s accepts lengths 3 and 4", name)
				}
			}()
			f()
		}()
	}
}

func TestCopyAhead(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	for _, l := range modes() {
		for _, n := range append(lengths(), 5*chunk+3) {
			for _, shift := range []int{0, 1, 3} {
				src, dst := make([]byte, n), make([]byte, n+shift+1)
				for i := range src {
					src[i] = byte(r.Int())
				}
				for k, vec := range map[kernel]func(level uint8, dst, src *byte, n int){copyKernel: copyVec, copyNearKernel: copyNearVec} {
					clear(dst)
					l.copy(dst[shift:shift+n], src, k, vec)
					if string(dst[shift:shift+n]) != string(src) || dst[shift+n] != 0 {
						t.Fatalf("%v: %d bytes from %d on: not copied", l, n, shift)
					}
				}
			}
		}
	}
	for _, n := range []int{large/4 + 5, 16<<20/4 + 5} {
		src, dst := normals(r, n, 1), make([]float32, n)
		Copy(dst, src)
		for i := range dst {
			if dst[i] != src[i] {
				t.Fatalf("Copy of %d: element %d is %g, want %g", n, i, dst[i], src[i])
			}
		}
	}
}

func TestNothingAllocates(t *testing.T) {
	x, y := make([]float32, 5000), make([]float32, 5000)
	i := make([]int32, 100)
	if n := testing.AllocsPerRun(5, func() {
		Add(x, x, y)
		Axpy(x, 1, y)
		Add(i, i, i)
		Exp(x, y)
		Sum(x)
		Dot(x, y)
		ordinary.SoftmaxRow(x, y)
		ordinary.LayerNormRow(x, y, x, nil, 1e-5)
		ordinary.LayerNormGradRow(x, nil, y, x, y, x, 0, 1)
		AdamStep(x, y, x, y, Adam{})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
