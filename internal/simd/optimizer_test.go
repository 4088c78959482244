package simd

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/internal/dtype"
)

func TestSGDMomentum(t *testing.T) {
	for _, l := range modes() {
		r := rand.New(rand.NewPCG(13, uint64(l.code())))
		for _, n := range lengths() {
			for _, o := range []SGD{{LR: 0.1, Momentum: 0.9}, {LR: 0.1, Momentum: 0.9, Dampening: 0.3, WeightDecay: 0.01},
				{LR: 0.1, Momentum: 0.9, WeightDecay: 0.1, Nesterov: true}} {
				p, b, g := normals(r, n, 1), normals(r, n, 1), normals(r, n, 1)
				p0, b0 := append([]float32(nil), p...), append([]float32(nil), b...)
				l.sgd(p, b, g, o)
				for i := range p {
					d := float64(g[i]) + float64(o.WeightDecay)*float64(p0[i])
					buf := float64(o.Momentum)*float64(b0[i]) + (1-float64(o.Dampening))*d
					step := buf
					if o.Nesterov {
						step = d + float64(o.Momentum)*buf
					}
					if want := float64(p0[i]) - float64(o.LR)*step; !near(float64(p[i]), want, 3e-6) || !near(float64(b[i]), buf, 3e-6) {
						t.Fatalf("%v %+v: element %d of %d: %v, %v, want %v, %v", l, o, i, n, p[i], b[i], want, buf)
					}
				}
			}
		}
	}
}

func TestAdamStep(t *testing.T) {
	for _, l := range modes() {
		r := rand.New(rand.NewPCG(14, uint64(l.code())))
		for _, n := range lengths() {
			for _, o := range []Adam{{0.9, 0.999, 1e-3, 0.5, 1e-8, 1 - 1e-3*0.01, 0}, {0.9, 0.99, 1e-2, 0.9, 1e-3, 1, 0.1}} {
				p, m, v, g := normals(r, n, 1), normals(r, n, 0.1), normals(r, n, 0.1), normals(r, n, 1)
				for i := range v {
					v[i] *= v[i]
				}
				p0, m0, v0 := append([]float32(nil), p...), append([]float32(nil), m...), append([]float32(nil), v...)
				l.adam(p, m, v, g, o)
				for i := range p {
					d := float64(g[i]) + float64(o.L2)*float64(p0[i])
					wantM, wantV := o.Beta1*float64(m0[i])+(1-o.Beta1)*d, o.Beta2*float64(v0[i])+(1-o.Beta2)*d*d
					most := math.Abs(float64(g[i])) + float64(o.L2)*math.Abs(float64(p0[i])) // before terms cancel
					tolV := 5e-7 * (o.Beta2*float64(v0[i]) + (1-o.Beta2)*most*most)
					want := float64(o.Decay)*float64(p0[i]) - float64(o.StepSize)*wantM/(math.Sqrt(wantV)/float64(o.RootBias2)+float64(o.Eps))
					if !near(float64(p[i]), want, 2e-6*(1+math.Abs(want))) || !near(float64(m[i]), wantM, 1e-6) || !near(float64(v[i]), wantV, tolV) {
						t.Fatalf("%v %+v: element %d of %d: %v %v %v, want %v %v %v", l, o, i, n, p[i], m[i], v[i], want, wantM, wantV)
					}
				}
			}
		}
	}
}

// TestAdagradRow: the bits are those of the operators that it stands for.
func TestAdagradRow(t *testing.T) {
	for _, m := range modes() {
		r := rand.New(rand.NewPCG(15, uint64(m.code())))
		for _, n := range lengths() {
			p, s, g := normals(r, n, 1), normals(r, n, 1), normals(r, n, 1)
			m.abs(s, s)
			const step, eps = -0.1, 1e-3
			wantP, wantS, square, root := slices.Clone(p), slices.Clone(s), make([]float32, n), make([]float32, n)
			m.Mul(square, g, g)
			m.addTo(wantS, square)
			m.sqrt(root, wantS)
			m.AddScalar(root, root, eps)
			m.Div(root, g, root)
			m.axpy(wantP, root, step)
			m.AdagradRow(p, s, g, Adagrad{step, eps})
			for i := range p {
				if !sameBits(p[i], wantP[i]) || !sameBits(s[i], wantS[i]) {
					t.Fatalf("%v: element %d of %d: %v, %v, want %v, %v", m, i, n, p[i], s[i], wantP[i], wantS[i])
				}
			}
		}
	}
}

// Every half there is, and float32 on both sides of each.
func TestConversions(t *testing.T) {
	halves := make([]dtype.F16, 1<<16)
	brains := make([]dtype.BF16, 1<<16)
	for i := range halves {
		halves[i], brains[i] = dtype.F16(i), dtype.BF16(i)
	}
	for _, l := range modes() {
		for _, n := range []int{0, 1, 15, 16, 17, 100, 1 << 16} {
			f := make([]float32, n)
			l.fromF16(f, halves[:n])
			for i := range f {
				if !sameBits(f[i], halves[i].Float32()) {
					t.Fatalf("%v: F16 %#x is %v, want %v", l, i, f[i], halves[i].Float32())
				}
			}
			l.fromBF16(f, brains[:n])
			for i := range f {
				if !sameBits(f[i], brains[i].Float32()) {
					t.Fatalf("%v: BF16 %#x is %v, want %v", l, i, f[i], brains[i].Float32())
				}
			}
		}
		var f []float32
		for i := range halves {
			for _, base := range []uint32{math.Float32bits(halves[i].Float32()), uint32(i) << 16} {
				for _, near := range []uint32{0, 1, 0xfff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0x1fff, 0xffff} {
					f = append(f, math.Float32frombits(base+near))
				}
			}
		}
		f = f[:len(f)-3]
		h, b := make([]dtype.F16, len(f)), make([]dtype.BF16, len(f))
		l.toF16(h, f)
		l.toBF16(b, f)
		for i, v := range f {
			if want := dtype.ToF16(v); h[i] != want && (v == v || h[i].Float32() == h[i].Float32()) {
				t.Fatalf("%v: F16 of %v (%#x) is %#x, want %#x", l, v, math.Float32bits(v), h[i], want)
			}
			if want := dtype.ToBF16(v); b[i] != want && (v == v || b[i].Float32() == b[i].Float32()) {
				t.Fatalf("%v: BF16 of %v (%#x) is %#x, want %#x", l, v, math.Float32bits(v), b[i], want)
			}
		}
	}
}
