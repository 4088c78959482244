package tensor

import (
	"testing"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

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

// Large operators, in bytes read and written.
func BenchmarkKernels(b *testing.B) {
	cpu := NewCPU(nil)
	const n, d = 2048, 1024
	x, y := New(cpu, Float32, n, d), New(cpu, Float32, n, d)
	FillNormal(x, Key{Seed: 1}, 0, 1, nil, nil)
	FillNormal(y, Key{Seed: 2}, 0, 1, nil, nil)
	row := New(cpu, Float32, d)
	FillNormal(row, Key{Seed: 3}, 0, 1, nil, nil)
	column := New(cpu, Float32, n, 1)
	FillNormal(column, Key{Seed: 4}, 0, 1, nil, nil)
	ids := New(cpu, Int64, n)
	for i := range Data[int64](ids) {
		Data[int64](ids)[i] = int64(i * 7919 % n)
	}
	half := Cast(x, BFloat16)
	q := x.Reshape(1, 16, 2048, 64)
	yq, lse := Attention(q, q, q, true)
	_, stats := LayerNorm(x, row, row, 1, 1e-5)
	mask, coef, m, v := Compare(kernel.OpLt, x, y), Full(cpu, Float32, 0.5, n, 3), ZerosLike(x), ZerosLike(x)
	big := x.Bytes()
	for _, k := range []struct {
		name  string
		bytes int
		f     func()
	}{
		{"Add", 3 * big, func() { Add(x, y) }},
		{"AddRow", 2 * big, func() { Add(x, row) }},
		{"MulColumn", 2 * big, func() { Mul(x, column) }},
		{"Gelu", 2 * big, func() { Gelu(x) }},
		{"GeluGrad", 3 * big, func() { UnaryGrad(kernel.OpGelu, y, x, nil) }},
		{"Transpose", 2 * big, func() { Transpose(x, 0, 1) }},
		{"PermuteHeads", 2 * big, func() { Permute(x.Reshape(2, 1024, 16, 64), 0, 2, 1, 3) }},
		{"Cat", 2 * big, func() { Cat(1, x, y) }},
		{"SumAll", big, func() { Sum(x, nil, false) }},
		{"SumRows", big, func() { Sum(x, []int{0}, false) }},
		{"SumColumns", big, func() { Sum(x, []int{1}, false) }},
		{"Softmax", 2 * big, func() { Softmax(x, 1) }},
		{"LayerNorm", 2 * big, func() { LayerNorm(x, row, row, 1, 1e-5) }},
		{"LayerNormGrad", 3 * big, func() { LayerNormGrad(y, x, row, stats, 1, true, true) }},
		{"Argmax", big, func() { Argmax(x, 1, false) }},
		{"TopK8", big, func() { TopK(x, 8, 1) }},
		{"ToBF16", big + big/2, func() { Cast(x, BFloat16) }},
		{"FromBF16", big + big/2, func() { Cast(half, Float32) }},
		{"ToFloat64", 3 * big, func() { Cast(x, Float64) }},
		{"FillNormal", big, func() { FillNormal(x, Key{Seed: 1}, 0, 1, nil, nil) }},
		{"TakeRows", 2 * big, func() { TakeRows(x, ids, 0) }},
		{"TakeRowsGrad", 2 * big, func() { Coalesce(ids, y, 0, n) }},
		{"Compare", 2*big + big/4, func() { Compare(kernel.OpLt, x, y) }},
		{"Where", 3*big + big/4, func() { Where(mask, x, y) }},
		{"CrossEntropyStats", big, func() { CrossEntropyStats(x, ids, 0, nil, false) }},
		{"CrossEntropyGrad", 2 * big, func() { CrossEntropyGrad(nil, x, ids, 0, column, coef, nil) }},
		{"AdamW", 7 * big, func() { DefaultAdamW().Step(y, x, m, v, 1) }},
		{"Attention", 4 * big, func() { Attention(q, q, q, true) }},
		{"AttentionGrad", 8 * big, func() { AttentionGrad(q, q, q, q, yq, lse, true) }},
		{"MatMul", 3 * big, func() { MatMul(x, y, true, false) }},
	} {
		b.Run(k.name, func(b *testing.B) {
			b.SetBytes(int64(k.bytes))
			for range b.N {
				s := cpu.Open()
				k.f()
				s.Close()
			}
		})
	}
}

// The ids of a large batch, sorted and counted.
func BenchmarkUnique(b *testing.B) {
	cpu := NewCPU(nil)
	const n = 65536
	ids := New(cpu, Int64, n)
	for i := range Data[int64](ids) {
		Data[int64](ids)[i] = int64(i) * 2654435761 % (1 << 20)
	}
	for range b.N {
		s := cpu.Open()
		Unique(ids, 0, 1<<20)
		s.Close()
	}
}
