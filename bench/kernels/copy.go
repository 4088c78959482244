package main

import (
	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor"
)

// copies measures copies between two buffers.
type copies struct {
	b        *measure.Bench
	dst, src []float32
}

// newCopies makes room for kernels that read and write up to eight times n numbers.
func newCopies(b *measure.Bench, n int) *copies {
	buffer := func() []float32 {
		return tensor.Data[float32](tensor.Zeros(b.Mesh.Device(), tensor.Float32, 4*n).Persist())
	}
	return &copies{b, buffer(), buffer()}
}

// rate returns the bytes a nanosecond of a copy that reads and writes n numbers
// together, by the faster way.
func (c *copies) rate(n int) (float64, error) {
	dst, src := c.dst[:n/2], c.src[:n/2]
	var best float64
	for _, run := range []func(){
		func() { copy(dst, src) },
		func() { simd.Copy(dst, src) },
	} {
		t, err := c.b.Time(run)
		if err != nil {
			return 0, err
		}
		best = max(best, float64(4*n)/t.NS)
	}
	return best, nil
}
