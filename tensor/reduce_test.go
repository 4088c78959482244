package tensor

import (
	"math"
	"slices"
	"testing"

	cpukernels "github.com/gorun-spmd/gorun/tensor/cpu"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// dimSets returns sets of dimensions of an n-d tensor, the empty one (all) first.
func dimSets(n int) [][]int {
	sets := [][]int{nil}
	for mask := 1; mask < 1<<n; mask++ {
		var dims []int
		for d := range n {
			if mask>>d&1 != 0 {
				dims = append(dims, d)
			}
		}
		sets = append(sets, dims)
	}
	return sets
}

// reduceWant applies f to the elements that each result is made of.
func reduceWant(x array, dims []int, keepdim bool, f func(v []float64) float64) array {
	var kept, dropped []int
	for d, n := range x.shape {
		if len(dims) == 0 || slices.Contains(dims, d) {
			kept = append(kept, 1)
		} else {
			kept, dropped = append(kept, n), append(dropped, n)
		}
	}
	groups := newArray(kept...)
	members := make([][]float64, len(groups.data))
	each(x.shape, func(i []int) {
		o := groups.offset(i)
		members[o] = append(members[o], x.at(i...))
	})
	for o, v := range members {
		groups.data[o] = f(v)
	}
	if !keepdim {
		groups.shape = dropped
	}
	return groups
}

func sum(v []float64) (s float64) {
	for _, x := range v {
		s += x
	}
	return s
}

func fold(start float64, f func(a, b float64) float64) func(v []float64) float64 {
	return func(v []float64) float64 {
		s := start
		for _, x := range v {
			s = f(s, x)
		}
		return s
	}
}

func TestReduce(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	mul := func(a, b float64) float64 { return a * b }
	for _, shape := range shapes {
		for _, dims := range dimSets(len(shape)) {
			for _, keep := range []bool{false, true} {
				x := randomArray(rng, shape...)
				ints := intArray(rng, 0, 3, shape...)
				for _, dt := range floats {
					in, tol := x.tensor(cpu, dt), 10*tolerance(dt)
					name := label(dt, shape, dims, keep)
					check(t, "Sum"+name, Sum(in, dims, keep), reduceWant(x, dims, keep, sum), tol)
					check(t, "Mean"+name, Mean(in, dims, keep), reduceWant(x, dims, keep, func(v []float64) float64 { return sum(v) / float64(len(v)) }),
						tol)
					check(t, "Prod"+name, Prod(in, dims, keep), reduceWant(x, dims, keep, fold(1, mul)), 1e-4)
					check(t, "Amax"+name, Amax(in, dims, keep), reduceWant(x, dims, keep, fold(math.Inf(-1), math.Max)), 0)
					check(t, "Amin"+name, Amin(in, dims, keep), reduceWant(x, dims, keep, fold(math.Inf(1), math.Min)), 0)
				}
				for _, dt := range numbers[2:] {
					in, name := ints.tensor(cpu, dt), label(dt, shape, dims, keep)
					s := Sum(in, dims, keep)
					if s.DType() != Int64 {
						t.Fatalf("Sum of %v is %v", dt, s.DType())
					}
					check(t, "Sum"+name, s, reduceWant(ints, dims, keep, sum), 0)
					if x := Amax(in, dims, keep); in.Numel() > 0 {
						check(t, "Amax"+name, x, reduceWant(ints, dims, keep, fold(0, math.Max)), 0)
						check(t, "Amin"+name, Amin(in, dims, keep), reduceWant(ints, dims, keep, fold(9, math.Min)), 0)
					}
				}
				b := CompareScalar(kernel.OpGt, ints.tensor(cpu, Int32), 0)
				set := toArray(b)
				check(t, label("Any", shape, dims, keep), Any(b, dims, keep), reduceWant(set, dims, keep, fold(0, math.Max)), 0)
				check(t, label("All", shape, dims, keep), All(b, dims, keep), reduceWant(set, dims, keep, fold(1, math.Min)), 0)
				check(t, label("Sum of bool", shape, dims, keep), Sum(b, dims, keep), reduceWant(set, dims, keep, sum), 0)
			}
		}
	}
	x := Zeros(cpu, Float32, 2, 3)
	wantThrow[*ShapeError](t, func() { Sum(x, []int{0, -2}, false) }, "Sum", "dimension 0 twice")
	wantThrow[*ShapeError](t, func() { Amax(x, []int{2}, false) }, "Amax", "dimension 2")
	wantThrow[*TypeError](t, func() { Mean(Zeros(cpu, Int32, 2), nil, false) }, "Mean", "int32")
	if got := Amax(FromSlice(cpu, []float32{1, float32(math.NaN()), 2}, 3), nil, false).Item(); got == got {
		t.Errorf("Amax lost a NaN: %v", got)
	}
	if got := ToSlice[int8](Amax(Zeros(cpu, Int8, 0), nil, false))[0]; got != math.MinInt8 {
		t.Errorf("Amax of nothing is %d", got)
	}
}

// Several tiles of columns and blocks of rows.
func TestReduceColumns(t *testing.T) {
	cpu := NewCPU(nil)
	x := randomArray(newRNG(), 150, 2100)
	for _, dt := range floats {
		in := x.tensor(cpu, dt)
		check(t, label("Sum", dt), Sum(in, []int{0}, false), reduceWant(x, []int{0}, false, sum), 10*tolerance(dt))
		check(t, label("Amax", dt), Amax(in, []int{0}, false), reduceWant(x, []int{0}, false, fold(math.Inf(-1), math.Max)), 0)
	}
}

func TestSumIsAccurate(t *testing.T) {
	cpu := NewCPU(nil)
	const n = 1 << 18
	// A running float32 sum of equal numbers would be off by parts in a thousand.
	for _, shape := range [][]int{{n}, {n, 3}, {1, n, 3}} {
		x := Full(cpu, Float32, 0.1, shape...)
		got := Sum(x, []int{len(shape) / 3}, false)
		want := float64(float32(0.1)) * n
		tol := 2 * math.Sqrt(n) / (1 << 24) // √n roundings twice, all of them to one side
		for _, v := range toArray(got).data {
			if math.Abs(v-want) > tol*want {
				t.Errorf("%v: sum %v, want %v", shape, v, want)
			}
		}
	}
}

func TestReduceGrad(t *testing.T) {
	rng := newRNG()
	for _, dims := range [][]int{nil, {1}, {0, 2}, {-1}} {
		for _, keep := range []bool{false, true} {
			shape := []int{2, 3, 4}
			name := label(dims, keep)
			one := func(t *Tensor) []*Tensor { return []*Tensor{t} }
			checkGrad(t, "Sum"+name, func(xs []*Tensor) *Tensor { return Sum(xs[0], dims, keep) },
				func(dy *Tensor, xs []*Tensor) []*Tensor { return one(SumGrad(dy, shape, dims, keep)) }, randomArray(rng, shape...))
			checkGrad(t, "Mean"+name, func(xs []*Tensor) *Tensor { return Mean(xs[0], dims, keep) },
				func(dy *Tensor, xs []*Tensor) []*Tensor { return one(MeanGrad(dy, shape, dims, keep)) }, randomArray(rng, shape...))
			checkGrad(t, "Amax"+name, func(xs []*Tensor) *Tensor { return Amax(xs[0], dims, keep) },
				func(dy *Tensor, xs []*Tensor) []*Tensor {
					return one(AmaxGrad(dy, xs[0], Amax(xs[0], dims, keep), dims, keep))
				}, randomArray(rng, shape...))
			for zeros := range 3 {
				x := randomArray(rng, shape...)
				for i := range zeros {
					x.data[i] = 0
				}
				checkGrad(t, "Prod"+name, func(xs []*Tensor) *Tensor { return Prod(xs[0], dims, keep) },
					func(dy *Tensor, xs []*Tensor) []*Tensor { return one(ProdGrad(dy, xs[0], dims, keep)) }, x)
			}
			checkGrad(t, "Var"+name, func(xs []*Tensor) *Tensor { return Var(xs[0], dims, 1, keep) },
				func(dy *Tensor, xs []*Tensor) []*Tensor { return one(VarGrad(dy, xs[0], dims, 1, keep)) }, randomArray(rng, shape...))
			checkGrad(t, "LogSumExp"+name, func(xs []*Tensor) *Tensor { return LogSumExp(xs[0], dims, keep) },
				func(dy *Tensor, xs []*Tensor) []*Tensor {
					return one(LogSumExpGrad(dy, xs[0], LogSumExp(xs[0], dims, keep), dims, keep))
				}, randomArray(rng, shape...))
			for _, p := range []float64{1, 2, 3, 1.5, math.Inf(1)} {
				x := randomArray(rng, shape...)
				for i, v := range x.data {
					x.data[i] = v + math.Copysign(0.1, v) // off the kink
				}
				checkGrad(t, label("Norm", p, name), func(xs []*Tensor) *Tensor { return Norm(xs[0], p, dims, keep) },
					func(dy *Tensor, xs []*Tensor) []*Tensor {
						return one(NormGrad(dy, xs[0], Norm(xs[0], p, dims, keep), p, dims, keep))
					}, x)
			}
		}
	}
	cpu := NewCPU(nil)
	zero := Zeros(cpu, Float64, 3)
	for _, p := range []float64{1, 2, 0.5, math.Inf(1)} {
		check(t, "Norm of zeros", NormGrad(Full(cpu, Float64, 1), zero, Norm(zero, p, nil, false), p, nil, false), newArray(3), 0)
	}
	tie := FromSlice(cpu, []float64{2, 2, 1, 2}, 4)
	check(t, "Amax of equals", AmaxGrad(Full(cpu, Float64, 3), tie, Amax(tie, nil, false), nil, false),
		array{[]int{4}, []float64{1, 1, 0, 1}}, 1e-15)
}

func TestStatistics(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	variance := func(correction float64) func(v []float64) float64 {
		return func(v []float64) float64 {
			mean, s := sum(v)/float64(len(v)), 0.0
			for _, x := range v {
				s += (x - mean) * (x - mean)
			}
			return s / max(float64(len(v))-correction, 0)
		}
	}
	norm := func(p float64) func(v []float64) float64 {
		return func(v []float64) float64 {
			s := 0.0
			for _, x := range v {
				if math.IsInf(p, 1) {
					s = max(s, math.Abs(x))
				} else {
					s += math.Pow(math.Abs(x), p)
				}
			}
			if math.IsInf(p, 1) {
				return s
			}
			return math.Pow(s, 1/p)
		}
	}
	lse := func(v []float64) float64 {
		s := 0.0
		for _, x := range v {
			s += math.Exp(x)
		}
		return math.Log(s)
	}
	for _, shape := range shapes {
		for _, dims := range dimSets(len(shape)) {
			for _, keep := range []bool{false, true} {
				x := randomArray(rng, shape...)
				for _, dt := range floats {
					in, tol, name := x.tensor(cpu, dt), 5*tolerance(dt), label(dt, shape, dims, keep)
					for _, c := range []float64{0, 1} {
						check(t, label("Var", c, name), Var(in, dims, c, keep), reduceWant(x, dims, keep, variance(c)), tol)
					}
					check(t, "LogSumExp"+name, LogSumExp(in, dims, keep), reduceWant(x, dims, keep, lse), tol)
					for _, p := range []float64{1, 2, 3.5, math.Inf(1)} {
						check(t, label("Norm", p, name), Norm(in, p, dims, keep), reduceWant(x, dims, keep, norm(p)), tol)
					}
					pow := func(v []float64) float64 { return math.Pow(norm(3)(v), 3) }
					check(t, "PowSum"+name, PowSum(in, 3, dims, keep), reduceWant(x, dims, keep, pow), 3*tol)
				}
			}
		}
	}
	big := FromSlice(cpu, []float32{1000, 1000}, 2)
	if got := LogSumExp(big, nil, false).Item(); !near(got, 1000+math.Ln2, 1e-6) {
		t.Errorf("LogSumExp overflows: %v", got)
	}
	if got := LogSumExp(Full(cpu, Float64, math.Inf(-1), 2), nil, false).Item(); !math.IsInf(got, -1) {
		t.Errorf("LogSumExp of -Inf is %v", got)
	}
	inf := math.Inf(1)
	for _, c := range []struct {
		x    []float64
		want float64
	}{{[]float64{1, inf, -inf}, inf}, {[]float64{inf, math.NaN(), 2}, math.NaN()}, {[]float64{1, -inf, math.NaN()},
		math.NaN()}, {[]float64{-inf, 3, -inf}, 3}} {
		for _, dt := range floats {
			if got := LogSumExp(Cast(FromSlice(cpu, c.x, 3), dt), nil, false).Item(); !near(got, c.want, 0) {
				t.Errorf("%v: LogSumExp of %v is %v", dt, c.x, got)
			}
		}
	}
	wantThrow[*ShapeError](t, func() { Norm(big, 0, nil, false) }, "Norm", "p = 0")
}

func TestTopKArgmax(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	for _, shape := range shapes {
		for dim, n := range shape {
			for _, dt := range numbers {
				x := intArray(rng, 0, 5, shape...) // many ties
				for _, k := range []int{0, 1, n / 2, n} {
					if k > n {
						continue
					}
					outShape := slices.Clone(shape)
					outShape[dim] = k
					values, at := newArray(outShape...), newArray(outShape...)
					lines := slices.Clone(shape)
					lines[dim] = 1
					each(lines, func(i []int) {
						line := make([]int, n)
						j := slices.Clone(i)
						value := func(p int) float64 { j[dim] = p; return x.data[x.offset(j)] }
						for p := range line {
							line[p] = p
						}
						slices.SortStableFunc(line, func(a, b int) int { return int(value(b) - value(a)) })
						for r, p := range line[:k] {
							v := value(p)
							j[dim] = r
							o := values.offset(j)
							values.data[o], at.data[o] = v, float64(p)
						}
					})
					v, p := TopK(x.tensor(cpu, dt), k, dim)
					check(t, label("TopK values", dt, shape, dim, k), v, values, 0)
					check(t, label("TopK positions", dt, shape, dim, k), p, at, 0)
					if k == 1 {
						check(t, label("Argmax", dt, shape, dim), Argmax(x.tensor(cpu, dt), dim, true), at, 0)
						at.shape = slices.Delete(outShape, dim, dim+1)
						check(t, label("Argmax", dt, shape, dim), Argmax(x.tensor(cpu, dt), dim, false), at, 0)
					}
				}
			}
		}
	}
	nan := float32(math.NaN())
	v, p := TopK(FromSlice(cpu, []float32{1, nan, 3, nan}, 4), 3, 0)
	if got := ToSlice[int64](p); !slices.Equal(got, []int64{1, 3, 2}) || Data[float32](v)[2] != 3 {
		t.Errorf("TopK with NaN: %v %v", v, got)
	}
	wantThrow[*ShapeError](t, func() { TopK(v, 4, 0) }, "TopK", "3", "4")
	wantThrow[*ShapeError](t, func() { Argmax(Zeros(cpu, Float32, 2, 0), 1, false) }, "TopK")
	checkGrad(t, "TopK", func(xs []*Tensor) *Tensor { v, _ := TopK(xs[0], 2, 1); return v },
		func(dy *Tensor, xs []*Tensor) []*Tensor {
			_, at := TopK(xs[0], 2, 1)
			return []*Tensor{GatherGrad(dy, 1, at, 3, 5, 2)}
		}, randomArray(rng, 3, 5, 2))
}

func TestCumsum(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	for _, shape := range shapes {
		for dim := range shape {
			x := intArray(rng, 0, 4, shape...)
			want := build(shape, func(i []int) float64 {
				j, s := slices.Clone(i), 0.0
				for j[dim] = 0; j[dim] <= i[dim]; j[dim]++ {
					s += x.at(j...)
				}
				return s
			})
			for _, dt := range numbers {
				check(t, label("Cumsum", dt, shape, dim), Cumsum(x.tensor(cpu, dt), dim), want, 0)
			}
		}
	}
	for _, shape := range [][]int{{100000}, {40000, 3}, {3, cpukernels.ColumnTile + 5}} { // in float32 the first would be off by 1e-4
		x, want := newArray(shape...), newArray(shape...)
		inner := x.shape[len(shape)-1]
		if len(shape) == 1 {
			inner = 1
		}
		for i := range x.data {
			x.data[i] = float64(float32(0.1) + float32(i%inner)/1024)
			if want.data[i] = x.data[i]; i >= inner {
				want.data[i] += want.data[i-inner]
			}
		}
		check(t, label("Cumsum", shape), Cumsum(x.tensor(cpu, Float32), 0), want, 1e-7)
		total := Narrow(Cumsum(x.tensor(cpu, Float64), 0), 0, shape[0]-1, 1)
		check(t, label("CumsumGrad", shape), Narrow(CumsumGrad(x.tensor(cpu, Float32), 0), 0, 0, 1), toArray(total), 1e-7)
	}
	for dim := range 3 {
		checkGrad(t, "Cumsum", func(xs []*Tensor) *Tensor { return Cumsum(xs[0], dim) },
			func(dy *Tensor, xs []*Tensor) []*Tensor { return []*Tensor{CumsumGrad(dy, dim)} }, randomArray(rng, 2, 4, 3))
	}
}
