package tensor

import "testing"

// An operator on [8, 8] costs its overhead: allocation, checks, dispatch.
func BenchmarkAddSmall(b *testing.B) {
	cpu := NewCPU(nil)
	x := Full(cpu, Float32, 1, 8, 8)
	b.Run("scope", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; i < b.N; i += 100 {
			s := cpu.Open()
			for range 100 {
				Add(x, x)
			}
			s.Close()
		}
	})
	b.Run("cleanup", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			Add(x, x)
		}
	})
}
