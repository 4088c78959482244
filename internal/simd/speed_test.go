package simd

import (
	"fmt"
	"testing"
)

// BenchmarkKernels runs each kernel from the first cache and from memory. b.SetBytes
// counts one float32 an element: MB/s divided by 4 is million elements a second.
func BenchmarkKernels(b *testing.B) {
	for _, n := range []int{1 << 12, 1 << 22} {
		x, y, z, w := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
		for i := range x {
			x[i], y[i], z[i] = float32(i%97)/97, float32(i%31)/31, 1
		}
		for _, k := range []struct {
			name string
			run  func()
		}{
			{"copy", func() { Copy(w, x) }},
			{"fill", func() { Fill(w, 1) }},
			{"add", func() { Add(w, x, y) }},
			{"addTo", func() { AddTo(w, x) }},
			{"max", func() { Max(w, x, y) }},
			{"scale", func() { Scale(w, x, 2) }},
			{"axpy", func() { Axpy(w, 1e-9, x) }},
			{"exp", func() { Exp(w, x) }},
			{"log", func() { Log(w, x) }},
			{"tanh", func() { Tanh(w, x) }},
			{"sigmoid", func() { Sigmoid(w, x) }},
			{"gelu", func() { Gelu(w, x) }},
			{"geluGrad", func() { GeluGrad(w, x, y) }},
			{"geluTanh", func() { GeluTanh(w, x) }},
			{"geluTanhGrad", func() { GeluTanhGrad(w, x, y) }},
			{"silu", func() { Silu(w, x) }},
			{"sum", func() { Sum(x) }},
			{"dot", func() { Dot(x, y) }},
			{"max value", func() { MaxValue(x) }},
			{"softmax stats", func() { SoftmaxStats(x) }},
			{"softmax row", func() { ordinary.SoftmaxRow(w, x) }},
			{"log-softmax row", func() { ordinary.LogSoftmaxRow(w, x) }},
			{"scaled exp", func() { ordinary.ScaledExp(w, x, 1, 1) }},
			{"layer norm row", func() { ordinary.LayerNormRow(w, x, y, z, 1e-5) }},
			{"layer norm grad row", func() { ordinary.LayerNormGradRow(w, z, z, x, y, x, 0, 1) }},
			{"adam", func() { AdamStep(w, y, z, x, Adam{0.9, 0.99, 1e-9, 1, 1e-8, 1, 0}) }},
		} {
			b.Run(fmt.Sprintf("%s/%d", k.name, n), func(b *testing.B) {
				b.SetBytes(int64(4 * n))
				for b.Loop() {
					k.run()
				}
			})
		}
	}
}
