package tensor

import (
	"math"
	"testing"
)

func TestSoftmax(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	for _, shape := range append([][]int{{3, 1000}, {2, 5000}}, shapes...) {
		for dim := range shape {
			x := randomArray(rng, shape...)
			exp := build(shape, func(i []int) float64 { return math.Exp(x.at(i...)) })
			sums := reduceWant(exp, []int{dim}, true, sum)
			want := build(shape, func(i []int) float64 { return exp.at(i...) / sums.at(i...) })
			logWant := build(shape, func(i []int) float64 { return math.Log(want.at(i...)) })
			for _, dt := range floats {
				check(t, label("Softmax", dt, shape, dim), Softmax(x.tensor(cpu, dt), dim), want, tolerance(dt))
				check(t, label("LogSoftmax", dt, shape, dim), LogSoftmax(x.tensor(cpu, dt), dim), logWant, tolerance(dt))
				y, dy := Softmax(x.tensor(cpu, Float64), dim), want.tensor(cpu, dt)
				check(t, label("SoftmaxGrad", dt, shape, dim), SoftmaxGrad(dy, Cast(y, dt), dim), toArray(SoftmaxGrad(Cast(dy, Float64), y, dim)),
					tolerance(dt))
				y = LogSoftmax(x.tensor(cpu, Float64), dim)
				check(t, label("LogSoftmaxGrad", dt, shape, dim), LogSoftmaxGrad(dy, Cast(y, dt), dim),
					toArray(LogSoftmaxGrad(Cast(dy, Float64), y, dim)), tolerance(dt))
			}
		}
	}
	for dim := range 3 {
		checkGrad(t, "Softmax", func(xs []*Tensor) *Tensor { return Softmax(xs[0], dim) },
			func(dy *Tensor, xs []*Tensor) []*Tensor { return []*Tensor{SoftmaxGrad(dy, Softmax(xs[0], dim), dim)} }, randomArray(rng, 2, 3, 4))
		checkGrad(t, "LogSoftmax", func(xs []*Tensor) *Tensor { return LogSoftmax(xs[0], dim) },
			func(dy *Tensor, xs []*Tensor) []*Tensor {
				return []*Tensor{LogSoftmaxGrad(dy, LogSoftmax(xs[0], dim), dim)}
			}, randomArray(rng, 2, 3, 4))
	}
	for _, dt := range floats {
		x := FromSlice(cpu, []float64{1000, math.Inf(-1), 1000}, 3)
		check(t, "Softmax of extremes", Softmax(Cast(x, dt), 0), array{[]int{3}, []float64{0.5, 0, 0.5}}, tolerance(dt))
	}
}

func TestNorms(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	const eps = 1e-5
	for _, shape := range shapes {
		for n := 1; n <= len(shape); n++ {
			x, w, b := randomArray(rng, shape...), randomArray(rng, shape[len(shape)-n:]...), randomArray(rng, shape[len(shape)-n:]...)
			var dims []int
			for d := len(shape) - n; d < len(shape); d++ {
				dims = append(dims, d)
			}
			mean := reduceWant(x, dims, true, func(v []float64) float64 { return sum(v) / float64(len(v)) })
			variance := reduceWant(x, dims, true, func(v []float64) float64 {
				m, s := sum(v)/float64(len(v)), 0.0
				for _, e := range v {
					s += (e - m) * (e - m)
				}
				return s / float64(len(v))
			})
			square := reduceWant(x, dims, true, func(v []float64) float64 {
				s := 0.0
				for _, e := range v {
					s += e * e
				}
				return s / float64(len(v))
			})
			layer := build(shape, func(i []int) float64 {
				h := (x.at(i...) - mean.at(i...)) / math.Sqrt(variance.at(i...)+eps)
				return h*w.at(i...) + b.at(i...)
			})
			rms := build(shape, func(i []int) float64 { return x.at(i...) / math.Sqrt(square.at(i...)+eps) * w.at(i...) })
			for _, dt := range floats {
				y, _ := LayerNorm(x.tensor(cpu, dt), w.tensor(cpu, dt), b.tensor(cpu, dt), n, eps)
				check(t, label("LayerNorm", dt, shape, n), y, layer, 10*tolerance(dt))
				y, _ = RMSNorm(x.tensor(cpu, dt), w.tensor(cpu, dt), n, eps)
				check(t, label("RMSNorm", dt, shape, n), y, rms, 10*tolerance(dt))
			}
		}
	}
	x := Zeros(cpu, Float32, 2, 3)
	wantThrow[*ShapeError](t, func() { LayerNorm(x, Zeros(cpu, Float32, 2), nil, 1, eps) }, "LayerNorm", "weight", "[2]", "[3]")
	wantThrow[*ShapeError](t, func() { LayerNorm(x, nil, nil, 3, eps) }, "last 3 dimensions")
}

func TestNormGrads(t *testing.T) {
	rng := newRNG()
	cpu := NewCPU(nil)
	const eps = 1e-3
	layer := func(dy *Tensor, xs []*Tensor) []*Tensor {
		_, stats := LayerNorm(xs[0], xs[1], xs[2], 1, eps)
		dx, dw, db := LayerNormGrad(dy, xs[0], xs[1], stats, 1, true, true)
		return []*Tensor{dx, dw, db}
	}
	rms := func(dy *Tensor, xs []*Tensor) []*Tensor {
		_, stats := RMSNorm(xs[0], xs[1], 1, eps)
		dx, dw := RMSNormGrad(dy, xs[0], xs[1], stats, 1, true)
		return []*Tensor{dx, dw}
	}
	for _, shape := range [][]int{{4, 5}, {2, 3, 6}, {7}} {
		n := shape[len(shape)-1]
		checkGrad(t, "LayerNorm", func(xs []*Tensor) *Tensor { y, _ := LayerNorm(xs[0], xs[1], xs[2], 1, eps); return y },
			layer, randomArray(rng, shape...), randomArray(rng, n), randomArray(rng, n))
		checkGrad(t, "RMSNorm", func(xs []*Tensor) *Tensor { y, _ := RMSNorm(xs[0], xs[1], 1, eps); return y },
			rms, randomArray(rng, shape...), randomArray(rng, n))
	}
	checkGrad(t, "LayerNorm over two dimensions, plain", func(xs []*Tensor) *Tensor { y, _ := LayerNorm(xs[0], nil, nil, 2, eps); return y },
		func(dy *Tensor, xs []*Tensor) []*Tensor {
			_, stats := LayerNorm(xs[0], nil, nil, 2, eps)
			dx, dw, db := LayerNormGrad(dy, xs[0], nil, stats, 2, false, false)
			if dw != nil || db != nil {
				t.Error("gradients that were not asked for")
			}
			return []*Tensor{dx}
		}, randomArray(rng, 3, 2, 3))
	// float32 against float64, with enough rows for several blocks
	for _, rows := range []int{3, 150} {
		args := []array{randomArray(rng, rows, 40), randomArray(rng, 40), randomArray(rng, 40)}
		dy := randomArray(rng, rows, 40)
		grads := func(dt DType, f func(dy *Tensor, xs []*Tensor) []*Tensor) []*Tensor {
			return f(dy.tensor(cpu, dt), []*Tensor{args[0].tensor(cpu, dt), args[1].tensor(cpu, dt), args[2].tensor(cpu, dt)})
		}
		for _, f := range []func(dy *Tensor, xs []*Tensor) []*Tensor{layer, rms} {
			got, want := grads(Float32, f), grads(Float64, f)
			for i := range got {
				check(t, label("norm gradient float32 ", i), got[i], toArray(want[i]), 1e-5)
			}
		}
	}
}

// attentionWant computes one head the plain way.
func attentionWant(q, k, v array, causal bool) array {
	d := float64(max(q.shape[3], 1))
	return build([]int{q.shape[0], q.shape[1], q.shape[2], v.shape[3]}, func(i []int) float64 {
		var top, bottom float64
		for s := range k.shape[2] {
			if causal && s > i[2] {
				break
			}
			dot := 0.0
			for e := range q.shape[3] {
				dot += q.data[((i[0]*q.shape[1]+i[1])*q.shape[2]+i[2])*q.shape[3]+e] * k.data[((i[0]*k.shape[1]+i[1])*k.shape[2]+s)*k.shape[3]+e]
			}
			w := math.Exp(dot / math.Sqrt(d))
			bottom += w
			top += w * v.data[((i[0]*v.shape[1]+i[1])*v.shape[2]+s)*v.shape[3]+i[3]]
		}
		return top / bottom
	})
}

// A query whose scores are all -Inf, or that has no key, gets zeros, and gives v no gradient.
func TestAttentionToNothing(t *testing.T) {
	cpu, inf := NewCPU(nil), math.Inf(1)
	for _, dt := range floats {
		column := func(data ...float64) *Tensor { return array{[]int{1, 1, len(data), 1}, data}.tensor(cpu, dt) }
		q, k, v := column(inf, 0), column(-1, -2), column(3, 5)
		y, lse := Attention(q, k, v, false)
		_, _, dv := AttentionGrad(column(7, 1), q, k, v, y, lse, false)
		check(t, label("y", dt), y, array{[]int{1, 1, 2, 1}, []float64{0, 4}}, tolerance(dt))
		check(t, label("lse", dt), lse, array{[]int{1, 1, 2}, []float64{inf, math.Ln2}}, tolerance(dt))
		check(t, label("dv", dt), dv, array{[]int{1, 1, 2, 1}, []float64{0.5, 0.5}}, tolerance(dt))
		y, _ = Attention(q, column(), column(), false)
		check(t, label("y of no keys", dt), y, array{[]int{1, 1, 2, 1}, []float64{0, 0}}, tolerance(dt))
	}
}

func TestAttention(t *testing.T) {
	cpu := NewCPU(nil)
	rng := newRNG()
	for _, c := range [][6]int{{1, 1, 1, 1, 1, 1}, {2, 2, 4, 4, 3, 3}, {1, 2, 130, 130, 6, 2}, {1, 1, 70, 3, 2, 5}, {1, 1, 3, 90, 6, 1},
		{0, 2, 3, 3, 2, 2}, {1, 2, 0, 3, 2, 2}} {
		b, h, n, s, d, e := c[0], c[1], c[2], c[3], c[4], c[5]
		q, k, v := randomArray(rng, b, h, n, d), randomArray(rng, b, h, s, d), randomArray(rng, b, h, s, e)
		for _, causal := range []bool{false, true} {
			want := attentionWant(q, k, v, causal)
			for _, dt := range floats {
				y, _ := Attention(q.tensor(cpu, dt), k.tensor(cpu, dt), v.tensor(cpu, dt), causal)
				check(t, label("Attention", dt, c, causal), y, want, 5*tolerance(dt))
			}
			grad := func(dy *Tensor, xs []*Tensor) []*Tensor {
				y, lse := Attention(xs[0], xs[1], xs[2], causal)
				dq, dk, dv := AttentionGrad(dy, xs[0], xs[1], xs[2], y, lse, causal)
				return []*Tensor{dq, dk, dv}
			}
			if n < 10 && s < 10 {
				checkGrad(t, label("Attention", c, causal),
					func(xs []*Tensor) *Tensor { y, _ := Attention(xs[0], xs[1], xs[2], causal); return y }, grad, q, k, v)
			}
			dy := randomArray(rng, want.shape...)
			got := grad(dy.tensor(cpu, Float32), []*Tensor{q.tensor(cpu, Float32), k.tensor(cpu, Float32), v.tensor(cpu, Float32)})
			exact := grad(dy.tensor(cpu, Float64), []*Tensor{q.tensor(cpu, Float64), k.tensor(cpu, Float64), v.tensor(cpu, Float64)})
			for i := range got {
				check(t, label("AttentionGrad float32", c, causal, i), got[i], toArray(exact[i]), 1e-4)
			}
		}
	}
	for _, dt := range append(floats, BFloat16) {
		q, k := randomArray(rng, 2, 3, 2, 4).tensor(cpu, dt), randomArray(rng, 2, 3, 9, 4).tensor(cpu, dt)
		v := randomArray(rng, 2, 3, 9, 5).tensor(cpu, dt)
		for _, s := range []int{0, 1, 5, 9} {
			want, _ := Attention(q, Narrow(k, 2, 0, s), Narrow(v, 2, 0, s), false)
			check(t, label("AttentionOver", dt, s), AttentionOver(q, k, v, s), toArray(want), 0)
		}
	}
	x := Zeros(cpu, Float32, 1, 2, 3, 4)
	wantThrow[*ShapeError](t, func() { AttentionOver(x, x, x, 4) }, "AttentionOver", "4 of 3 keys")
	wantThrow[*ShapeError](t, func() { Attention(x, Zeros(cpu, Float32, 1, 2, 3, 5), x, false) }, "Attention", "[1 2 3 5]", "[B H S D]")
}
