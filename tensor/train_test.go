package tensor

import (
	"math"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// xentWant is the loss of each row, all classes on one rank, from the formula.
func xentWant(x array, target []int64, w []float64, eps float64) []float64 {
	n, classes := x.shape[0], x.shape[1]
	loss := make([]float64, n)
	for r := range n {
		if target[r] < 0 {
			continue
		}
		row := x.data[r*classes : (r+1)*classes]
		lse := 0.0
		for _, v := range row {
			lse += math.Exp(v)
		}
		lse = math.Log(lse)
		loss[r] = (1 - eps) * w[target[r]] * (lse - row[target[r]])
		for c, v := range row {
			loss[r] += eps / float64(classes) * w[c] * (lse - v)
		}
	}
	return loss
}

// crossEntropy is what a caller does with parts of the classes: statistics of each
// part, combined, then the loss of each row and the gradient of each part, for a
// gradient of each row's loss dloss.
func crossEntropy(cpu Device, dt DType, x array, target []int64, w []float64, eps float64, cuts []int, dloss []float64,
	inPlace bool) (loss []float64, grad array) {
	n, classes := x.shape[0], x.shape[1]
	t := FromSlice(cpu, target, n)
	weight := Cast(FromSlice(cpu, w, classes), dt)
	stat := make([][kernel.Stats]float64, n)
	for r := range stat {
		stat[r][kernel.StatMax] = math.Inf(-1)
	}
	parts := Split(x.tensor(cpu, dt), 1, cuts...)
	lo := 0
	for k, p := range parts {
		s := toArray(CrossEntropyStats(p, t, lo, Narrow(weight, 0, lo, cuts[k]), eps != 0))
		for r := range n {
			a, b := &stat[r], s.data[r*kernel.Stats:(r+1)*kernel.Stats]
			top := max(a[kernel.StatMax], b[kernel.StatMax])
			for _, part := range []struct {
				stat    []float64
				weights []float64
			}{{a[:], w[:lo]}, {b, w[lo : lo+cuts[k]]}} {
				if total := sum(part.weights); eps != 0 && total != 0 {
					part.stat[kernel.StatSum] += total * (part.stat[kernel.StatMax] - top)
				}
			}
			if b[kernel.StatSumExp] > 0 {
				a[kernel.StatSumExp] = a[kernel.StatSumExp]*math.Exp(a[kernel.StatMax]-top) + b[kernel.StatSumExp]*math.Exp(b[kernel.StatMax]-top)
				a[kernel.StatMax] = top
			}
			a[kernel.StatTarget] += b[kernel.StatTarget]
			a[kernel.StatSum] += b[kernel.StatSum]
		}
		lo += cuts[k]
	}
	total := sum(w)
	loss = make([]float64, n)
	lse, coef := newArray(n), newArray(n, 3)
	for r, s := range stat {
		lse.data[r] = s[kernel.StatMax] + math.Log(s[kernel.StatSumExp])
		if target[r] < 0 {
			continue
		}
		wt, k := w[target[r]], eps/float64(classes)
		loss[r] = (1-eps)*wt*(lse.data[r]-s[kernel.StatTarget]) + k*(total*math.Log(s[kernel.StatSumExp])-s[kernel.StatSum])
		copy(coef.data[3*r:], []float64{dloss[r] * ((1-eps)*wt + k*total), dloss[r] * (1 - eps) * wt, dloss[r] * k})
	}
	lo = 0
	for k, p := range parts {
		var dst *Tensor
		if inPlace {
			dst = p
		}
		parts[k] = CrossEntropyGrad(dst, p, t, lo, lse.tensor(cpu, dt), coef.tensor(cpu, dt), Narrow(weight, 0, lo, cuts[k]))
		lo += cuts[k]
	}
	return loss, toArray(Cat(1, parts...))
}

func TestCrossEntropyInParts(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	for _, c := range []struct{ n, classes int }{{4, 6}, {1, 1}, {0, 3}, {3, 9001}} {
		x := randomArray(rng, c.n, c.classes)
		target, dloss := make([]int64, c.n), make([]float64, c.n)
		for r := range target {
			target[r], dloss[r] = int64(rng.IntN(c.classes)), rng.Float64()+0.5
			if r == 1 {
				target[r] = -100 // ignored
			}
		}
		w := make([]float64, c.classes)
		for i := range w {
			w[i] = float64(rng.IntN(4)+1) / 4
		}
		third := c.classes / 3
		for _, cuts := range [][]int{{c.classes}, {third, 0, c.classes - third}} {
			for _, eps := range []float64{0, 0.25} {
				want := xentWant(x, target, w, eps)
				for _, dt := range floats {
					for _, inPlace := range []bool{false, true} {
						loss, grad := crossEntropy(cpu, dt, x, target, w, eps, cuts, dloss, inPlace)
						name := label("cross-entropy", dt, c, cuts, eps, inPlace)
						check(t, name, FromSlice(cpu, loss, c.n), array{[]int{c.n}, want}, 1e-5)
						if dt == Float32 || c.classes > 100 {
							_, exact := crossEntropy(cpu, Float64, x, target, w, eps, []int{c.classes}, dloss, false)
							check(t, name, grad.tensor(cpu, Float64), exact, 1e-5)
							continue
						}
						const h = 1e-6
						for i := range x.data {
							r := i / c.classes
							at := x.data[i]
							x.data[i] = at + h
							up := xentWant(x, target, w, eps)[r]
							x.data[i] = at - h
							down := xentWant(x, target, w, eps)[r]
							x.data[i] = at
							if want := dloss[r] * (up - down) / (2 * h); !near(grad.data[i], want, 1e-7) {
								t.Fatalf("%s: gradient of logit %d is %v, by differences %v", name, i, grad.data[i], want)
							}
						}
					}
				}
			}
		}
	}
	x := Zeros(cpu, Float32, 2, 3)
	wantThrow[*ShapeError](t, func() { CrossEntropyStats(x, Zeros(cpu, Int64, 3), 0, nil, false) }, "CrossEntropyStats", "[2 3]", "[3]")
	wantThrow[*ShapeError](t, func() { CrossEntropyStats(x, Zeros(cpu, Int64, 2), 0, Zeros(cpu, Float32, 2), false) }, "weight", "3 classes")
}

func TestIgnoredRowsHaveNoGradient(t *testing.T) {
	cpu := NewCPU(nil)
	x := Full(cpu, Float32, math.NaN(), 1, 5000)
	g := CrossEntropyGrad(nil, x, Zeros(cpu, Int64, 1), 0, Zeros(cpu, Float32, 1), Zeros(cpu, Float32, 1, 3), nil)
	check(t, "ignored row", g, newArray(1, 5000), 0)
}

func TestSGD(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	for _, o := range []SGD{{LR: 0.1}, {LR: 0.1, WeightDecay: 0.5}, {LR: 0.1, Momentum: 0.9},
		{LR: 0.2, Momentum: 0.5, Nesterov: true, WeightDecay: 0.1}, {LR: 0.1, Momentum: 0.9, Dampening: 0.5}} {
		for _, n := range []int{0, 1, 37} {
			p := randomArray(rng, n)
			want, buf := slices.Clone(p.data), make([]float64, n)
			var params, bufs [2]*Tensor
			for k, dt := range floats {
				params[k], bufs[k] = p.tensor(cpu, dt), Zeros(cpu, dt, n)
			}
			for step := range 3 {
				g := randomArray(rng, n)
				for i := range want { // torch.optim.SGD
					d := g.data[i] + o.WeightDecay*want[i]
					if o.Momentum != 0 {
						if step == 0 {
							buf[i] = d
						} else {
							buf[i] = o.Momentum*buf[i] + (1-o.Dampening)*d
						}
						if o.Nesterov {
							d += o.Momentum * buf[i]
						} else {
							d = buf[i]
						}
					}
					want[i] -= o.LR * d
				}
				for k, dt := range floats {
					o.Step(params[k], g.tensor(cpu, dt), bufs[k], step == 0)
					check(t, label("SGD", o, dt, n, step), params[k], array{[]int{n}, want}, tolerance(dt))
				}
			}
		}
	}
	x := Zeros(cpu, Float32, 2, 2)
	wantThrow[*ShapeError](t, func() { SGD{LR: 1, Momentum: 0.9}.Step(x, x, nil, true) }, "SGD", "needs a buffer")
	wantThrow[*ShapeError](t, func() { SGD{LR: 1, WeightDecay: 0.9}.StepRows(x, Rows{}) }, "every row")
}

func TestAdam(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	for _, coupled := range []bool{false, true} {
		o := DefaultAdamW()
		o.LR, o.WeightDecay, o.Coupled = 0.01, 0.1, coupled
		p := randomArray(rng, 37)
		want, m, v := slices.Clone(p.data), make([]float64, 37), make([]float64, 37)
		var params, ms, vs [2]*Tensor
		for k, dt := range floats {
			params[k], ms[k], vs[k] = p.tensor(cpu, dt), Zeros(cpu, dt, 37), Zeros(cpu, dt, 37)
		}
		for step := 1; step <= 4; step++ {
			g := randomArray(rng, 37)
			for i := range want { // torch.optim.Adam, AdamW
				d := g.data[i]
				if coupled {
					d += o.WeightDecay * want[i]
				} else {
					want[i] *= 1 - o.LR*o.WeightDecay
				}
				m[i] = o.Beta1*m[i] + (1-o.Beta1)*d
				v[i] = o.Beta2*v[i] + (1-o.Beta2)*d*d
				mHat, vHat := m[i]/(1-math.Pow(o.Beta1, float64(step))), v[i]/(1-math.Pow(o.Beta2, float64(step)))
				want[i] -= o.LR * mHat / (math.Sqrt(vHat) + o.Eps)
			}
			for k, dt := range floats {
				o.Step(params[k], g.tensor(cpu, dt), ms[k], vs[k], step)
				check(t, label("Adam", coupled, dt, step), params[k], array{[]int{37}, want}, 5*tolerance(dt))
			}
		}
	}
	wantThrow[*ShapeError](t, func() { x := Zeros(cpu, Float32, 1); DefaultAdamW().Step(x, x, x, x, 0) }, "step number 0")
}

func TestRowOptimizers(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	for _, dt := range floats {
		table := randomArray(rng, 6, 3)
		grad := newArray(6, 3)
		index := []int64{1, 4}
		for _, r := range index {
			copy(grad.data[r*3:(r+1)*3], randomArray(rng, 3).data)
		}
		rows := Rows{FromSlice(cpu, index, 2), IndexSelect(grad.tensor(cpu, dt), 0, FromSlice(cpu, index, 2))}

		a, b, sa, sb := table.tensor(cpu, dt), table.tensor(cpu, dt), Zeros(cpu, dt, 6), Zeros(cpu, dt, 6)
		o := Adagrad{LR: 0.1, Eps: 1e-8}
		want, state := slices.Clone(table.data), make([]float64, 6)
		for range 2 {
			o.StepRows(a, rows, sa, nil)
			o.Step(b, grad.tensor(cpu, dt), sb)
			for r := range 6 {
				g := grad.data[r*3 : (r+1)*3]
				state[r] += (g[0]*g[0] + g[1]*g[1] + g[2]*g[2]) / 3
				for d := range 3 {
					want[r*3+d] -= o.LR * g[d] / (math.Sqrt(state[r]) + o.Eps)
				}
			}
		}
		check(t, label("Adagrad", dt), a, array{[]int{6, 3}, want}, tolerance(dt))
		check(t, label("Adagrad dense", dt), b, toArray(a), 0)
		check(t, label("Adagrad state", dt), sa, array{[]int{6}, state}, tolerance(dt))

		a, b = table.tensor(cpu, dt), table.tensor(cpu, dt)
		SGD{LR: 0.5}.StepRows(a, rows)
		SGD{LR: 0.5}.Step(b, grad.tensor(cpu, dt), nil, true)
		check(t, label("SGD rows", dt), a, toArray(b), 0)

		// The lazy Adam: touched rows as Adam without decay has them, others unchanged.
		adam := DefaultAdamW()
		a, b = table.tensor(cpu, dt), table.tensor(cpu, dt)
		m1, v1, m2, v2 := ZerosLike(a), ZerosLike(a), ZerosLike(a), ZerosLike(a)
		adam.StepRows(a, rows, m1, v1, 1)
		adam.WeightDecay = 0
		adam.Step(b, grad.tensor(cpu, dt), m2, v2, 1)
		check(t, label("Adam rows", dt), a, toArray(b), 0)
		check(t, label("Adam rows m", dt), m1, toArray(m2), 0)
	}
}

func TestSumSquares(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	for _, n := range []int{0, 1, 1000, 10007} {
		x := randomArray(rng, n)
		want := 0.0
		for _, v := range x.data {
			want += v * v
		}
		for _, dt := range floats {
			if got := SumSquares(x.tensor(cpu, dt))[0]; !near(got, want, tolerance(dt)) {
				t.Errorf("%v, %d elements: %v, want %v", dt, n, got, want)
			}
		}
	}
}

// A column has the same sum whatever is beside it.
func TestColumnSquares(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	for _, shape := range [][]int{{0, 3}, {3, 0}, {1, 1}, {100, 1}, {37, 5}, {23, 1027}} {
		x := randomArray(rng, shape...)
		for _, dt := range floats {
			x := x.tensor(cpu, dt)
			wide := ToSlice[float64](Cast(x, Float64))
			for c, got := range ColumnSquares(x) {
				want := 0.0
				for r := range shape[0] {
					v := wide[r*shape[1]+c]
					want += v * v
				}
				if !near(got, want, 1e-6) || c < 9 && ColumnSquares(Narrow(x, 1, c, 1))[0] != got {
					t.Fatalf("%v, %v, column %d: %v, want %v", dt, shape, c, got, want)
				}
			}
		}
	}
}

func TestRandomIsByGlobalIndex(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	key := Key{Seed: 3, Stream: 9}
	global := []int{5, 7, 6}
	fills := map[kernel.RandomOp]func(t *Tensor, globalShape, offset []int){
		kernel.OpNormal:    func(t *Tensor, s, o []int) { FillNormal(t, key, 1, 2, s, o) },
		kernel.OpUniform:   func(t *Tensor, s, o []int) { FillUniform(t, key, -1, 3, s, o) },
		kernel.OpBernoulli: func(t *Tensor, s, o []int) { FillBernoulli(t, key, 0.3, s, o) },
	}
	for op, f := range fills {
		for _, dt := range []DType{Float32, Float64, Float16, BFloat16, Int8, Int64, Bool} {
			if op != kernel.OpBernoulli && !dt.Float() {
				continue
			}
			whole := New(cpu, dt, global...)
			f(whole, nil, nil)
			for range 20 {
				off, size := make([]int, 3), make([]int, 3)
				for d, n := range global {
					off[d] = rng.IntN(n + 1)
					size[d] = rng.IntN(n - off[d] + 1)
				}
				part, want := New(cpu, dt, size...), New(cpu, dt, size...)
				f(part, global, off)
				CopyBox(want, make([]int, 3), whole, off, size)
				check(t, label(op, dt, off, size), part, toArray(want), 0)
			}
		}
	}
	wantThrow[*ShapeError](t, func() { FillNormal(Zeros(cpu, Float32, 3), key, 0, 1, []int{5}, []int{3}) }, "FillNormal", "[3]", "[5]")
	wantThrow[*TypeError](t, func() { FillNormal(Zeros(cpu, Int32, 3), key, 0, 1, nil, nil) }, "floating-point")
}

// Rounding to the type does not take a number out of [lo, hi).
func TestUniformStaysWithinItsBounds(t *testing.T) {
	cpu := NewCPU(nil)
	for _, dt := range []DType{Float32, Float64, Float16, BFloat16} {
		for _, c := range [][2]float64{{0, 1}, {1, 2}, {-1, 0}, {-2, -1}, {-0.1, 0.1}, {0.3, 0.7}, {1000, 1001}, {-1e6, 1e6}, {0, 1e-7}} {
			x := New(cpu, dt, 1<<14)
			FillUniform(x, Key{Seed: 4}, c[0], c[1], nil, nil)
			least, most := Amin(Cast(x, Float64), nil, false).Item(), Amax(Cast(x, Float64), nil, false).Item()
			if dt == BFloat16 && c[0] == 1000 { // it has 1000 and then 1004
				c[1] = 1000.5
			}
			if least < c[0] || most >= c[1] {
				t.Errorf("%v: [%v, %v] is not within [%v, %v)", dt, least, most, c[0], c[1])
			}
		}
		x := New(cpu, dt, 100)
		if FillUniform(x, Key{}, 3, 3, nil, nil); Amin(Cast(x, Float64), nil, false).Item() != 3 ||
			Amax(Cast(x, Float64), nil, false).Item() != 3 {
			t.Errorf("%v: nothing is within [3, 3), and all are %v", dt, x)
		}
	}
}

func TestRandomDistributions(t *testing.T) {
	cpu := NewCPU(nil)
	const n = 1 << 16
	x := New(cpu, Float64, n)
	moments := func() (mean, variance float64) {
		return Mean(x, nil, false).Item(), Var(x, nil, 0, false).Item()
	}
	FillNormal(x, Key{Seed: 1}, 3, 2, nil, nil)
	if m, v := moments(); math.Abs(m-3) > 4*2/math.Sqrt(n) || math.Abs(v-4) > 4*4*math.Sqrt(2.0/n) {
		t.Errorf("normal: mean %v, variance %v", m, v)
	}
	FillUniform(x, Key{Seed: 2}, -1, 3, nil, nil)
	if m, v := moments(); math.Abs(m-1) > 4*math.Sqrt(16.0/12/n) || math.Abs(v-16.0/12) > 0.05 {
		t.Errorf("uniform: mean %v, variance %v", m, v)
	}
	if lo, hi := Amin(x, nil, false).Item(), Amax(x, nil, false).Item(); lo < -1 || hi >= 3 {
		t.Errorf("uniform: %v to %v", lo, hi)
	}
	FillBernoulli(x, Key{Seed: 3}, 0.3, nil, nil)
	if m, _ := moments(); math.Abs(m-0.3) > 4*math.Sqrt(0.21/n) {
		t.Errorf("bernoulli: mean %v", m)
	}
}
