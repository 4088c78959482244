package simd

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gorun-spmd/gorun/internal/activation"
)

// logSumExp is the definition in float64, with the largest element.
func logSumExp(x []float32) (m, lse float64) {
	m = math.Inf(-1)
	for _, v := range x {
		m = max(m, float64(v))
	}
	var s float64
	for _, v := range x {
		s += math.Exp(float64(v) - m)
	}
	return m, m + math.Log(s)
}

func TestSoftmaxStats(t *testing.T) {
	for _, l := range modes() {
		r := rand.New(rand.NewPCG(9, uint64(l.code())))
		for _, n := range append(lengths(), 50_000) {
			for _, scale := range []float64{1, 30} {
				x := normals(r, n, scale)
				if n > 10 { // masked logits
					x[3], x[n-1] = -inf, -inf
				}
				m, lse := logSumExp(x)
				max, sum := l.softmaxStats(x)
				if n == 0 {
					if max != -inf || sum != 0 {
						t.Errorf("%v: of nothing: %v, %v", l, max, sum)
					}
					continue
				}
				// each term is off by 1 ulp and x-m by another half of |x-m| ≤ 10·scale
				want := math.Exp(lse - m)
				if float64(max) != m || !near(float64(sum), want, (sumError+2*0x1p-24*(1+10*scale))*want) {
					t.Errorf("%v: statistics of %d are %v, %v, want %v, %v", l, n, max, sum, m, want)
				}
			}
		}
		masked := make([]float32, 100)
		for i := range masked {
			masked[i] = -inf
		}
		if m, s := l.softmaxStats(masked); m != -inf || s != 0 {
			t.Errorf("%v: of -Inf only: %v, %v", l, m, s)
		}
		for _, odd := range []float32{nan, inf} {
			for _, at := range []int{0, 5000, 9999} {
				x := normals(r, 10000, 1)
				x[at] = odd
				if _, s := l.softmaxStats(x); s == s {
					t.Errorf("%v: the sum with a %v is %v", l, odd, s)
				}
				for i := range x {
					x[i] = -inf
				}
				x[at] = odd
				if _, s := l.softmaxStats(x); s == s {
					t.Errorf("%v: the sum with a %v beside -Inf is %v", l, odd, s)
				}
			}
		}
	}
}

// The statistics are those of one pass in pieces, however large the maxima of
// the later pieces.
func TestSoftmaxStatsWithRisingMaxima(t *testing.T) {
	x := make([]float32, 5*piece)
	for i := range x {
		x[i] = float32(i / piece * 10)
	}
	_, lse := logSumExp(x)
	for _, l := range modes() {
		if m, s := l.softmaxStats(x); m != 40 || !near(float64(m)+math.Log(float64(s)), lse, 1e-5) {
			t.Errorf("%v: %v, %v; want a log-sum-exp of %v", l, m, s, lse)
		}
	}
}

func TestSoftmaxRows(t *testing.T) {
	for _, l := range modes() {
		defer func(was Mode) { ordinary = was }(ordinary)
		ordinary = l
		r := rand.New(rand.NewPCG(10, uint64(l.code())))
		for _, n := range lengths() {
			x, dy := normals(r, n, 3), normals(r, n, 1)
			y, logY, dx, dLog, shifted := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
			ordinary.SoftmaxRow(y, x)
			ordinary.LogSoftmaxRow(logY, x)
			ordinary.SoftmaxGradRow(dx, y, dy)
			ordinary.LogSoftmaxGradRow(dLog, logY, dy)
			ordinary.ScaledExp(shifted, x, 1.5, 0.25)
			_, lse := logSumExp(x)
			var dot, sum, abs float64
			for i := range x {
				p := math.Exp(float64(x[i]) - lse)
				dot, sum, abs = dot+p*float64(dy[i]), sum+float64(dy[i]), abs+math.Abs(float64(dy[i]))
			}
			for i := range x {
				p, d := math.Exp(float64(x[i])-lse), float64(dy[i])
				for _, c := range []struct {
					name            string
					got             float32
					want, tolerance float64
				}{
					{"SoftmaxRow", y[i], p, 3e-6 * p},
					{"LogSoftmaxRow", logY[i], float64(x[i]) - lse, 3e-6},
					{"SoftmaxGradRow", dx[i], p * (d - dot), 1e-5 * p * (1 + math.Abs(d))},
					{"LogSoftmaxGradRow", dLog[i], d - p*sum, 1e-5 * (p*abs + math.Abs(d))},
					{"ScaledExp", shifted[i], 0.25 * math.Exp(float64(x[i])-1.5), 2e-6 * math.Exp(float64(x[i])-1.5)},
				} {
					if !near(float64(c.got), c.want, c.tolerance) {
						t.Fatalf("%v %s: element %d of %d is %v, want %v ± %v", l, c.name, i, n, c.got, c.want, c.tolerance)
					}
				}
			}
			if got := LogSumExp(x); n > 0 && !near(float64(got), lse, 1e-6*(1+math.Abs(lse))) || n == 0 && got != -inf {
				t.Errorf("%v: LogSumExp of %d is %v, want %v", l, n, got, lse)
			}
			copy(shifted, x)
			ordinary.SoftmaxRow(shifted, shifted)
			for i := range y {
				if shifted[i] != y[i] {
					t.Fatalf("%v: SoftmaxRow in place differs at %d of %d", l, i, n)
				}
			}
		}
	}
}

func TestActivationGradients(t *testing.T) {
	for _, l := range modes() {
		r := rand.New(rand.NewPCG(11, uint64(l.code())))
		for _, n := range lengths() {
			x, dy := normals(r, n, 3), normals(r, n, 1)
			gelu, tanh, silu := make([]float32, n), make([]float32, n), make([]float32, n)
			l.geluGrad(gelu, x, dy)
			l.geluTanhGrad(tanh, x, dy)
			l.siluGrad(silu, x, dy)
			for i := range x {
				v, d := float64(x[i]), float64(dy[i])
				if want := d * (phi(v) + v*density(v)); !near(float64(gelu[i]), want, 5e-7*math.Abs(d)) {
					t.Fatalf("%v: geluGrad(%v, %v) = %v, want %v", l, v, d, gelu[i], want)
				}
				if want := d * tanhSlope(v); !near(float64(tanh[i]), want, 5e-7*math.Abs(d)) {
					t.Fatalf("%v: geluTanhGrad(%v, %v) = %v, want %v", l, v, d, tanh[i], want)
				}
				s := activation.Sigmoid(v)
				if want := d * s * (1 + v*(1-s)); !near(float64(silu[i]), want, 5e-7*math.Abs(d)*(1+math.Abs(v))) {
					t.Fatalf("%v: siluGrad(%v, %v) = %v, want %v", l, v, d, silu[i], want)
				}
			}
		}
	}
}

// tanhSlope is the derivative of x·½(1 + tanh(u)) with u = √(2/π)·(x + 0.044715·x³).
func tanhSlope(x float64) float64 {
	root := math.Sqrt(2 / math.Pi)
	t := math.Tanh(root * (x + 0.044715*x*x*x))
	return 0.5*(1+t) + 0.5*x*(1-t*t)*root*(1+3*0.044715*x*x)
}

// Far out and at the infinities every level has the same values, and tanh keeps the
// sign of 0.
func TestActivationsAtTheEnds(t *testing.T) {
	const huge = math.MaxFloat32
	x := []float32{inf, -inf, nan, huge, -huge, 120, -120, 15, -15}
	zero := float32(math.Copysign(0, -1))
	for _, l := range modes() {
		for _, f := range []struct {
			name string
			run  func(l Mode, dst, x []float32)
			want []float32
		}{
			{"gelu", Mode.gelu, []float32{inf, 0, nan, huge, 0, 120, 0, 15, 0}},
			{"geluGrad", ofOnes(Mode.geluGrad), []float32{1, 0, nan, 1, 0, 1, 0, 1, 0}},
			{"geluTanh", Mode.geluTanh, []float32{inf, 0, nan, huge, 0, 120, 0, 15, 0}},
			{"geluTanhGrad", ofOnes(Mode.geluTanhGrad), []float32{1, 0, nan, 1, 0, 1, 0, 1, 0}},
			{"silu", Mode.silu, []float32{inf, nan, nan, huge, 0, 120, 0, 15, -4.588533e-6}},
			{"siluGrad", ofOnes(Mode.siluGrad), []float32{nan, nan, nan, 1, 0, 1, 0, 1.0000043, -4.282629e-6}},
			{"tanh", Mode.tanh, []float32{1, -1, nan, 1, -1, 1, -1, 1, -1}},
		} {
			dst := make([]float32, len(x))
			f.run(l, dst, x)
			for i, want := range f.want {
				if !near(float64(dst[i]), float64(want), 1e-6*math.Abs(float64(want))) {
					t.Errorf("%v: %s(%v) = %v, want %v", l, f.name, x[i], dst[i], want)
				}
			}
		}
		small := []float32{zero}
		if l.tanh(small, small); !sameBits(small[0], zero) {
			t.Errorf("%v: tanh(-0) = %v", l, small[0])
		}
	}
}

// ofOnes is a gradient where that of the result is 1.
func ofOnes(grad func(l Mode, dst, x, dy []float32)) func(l Mode, dst, x []float32) {
	return func(l Mode, dst, x []float32) {
		dy := make([]float32, len(x))
		l.fill(dy, 1)
		grad(l, dst, x, dy)
	}
}
