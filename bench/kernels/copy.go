package main

import (
	"runtime"

	"github.com/gorun-spmd/gorun/bench/internal/measure"
	"github.com/gorun-spmd/gorun/internal/simd"
	"github.com/gorun-spmd/gorun/tensor"
)

// copies measures copies between two buffers.
type copies struct {
	b        *measure.Bench
	dst, src *tensor.Tensor
}

// newCopies makes room for kernels that read and write up to eight times n numbers.
func newCopies(b *measure.Bench, n int) *copies {
	buffer := func() *tensor.Tensor { return tensor.Zeros(b.Mesh.Device(), tensor.Float32, 4*n).Persist() }
	return &copies{b, buffer(), buffer()}
}

// rate returns the bytes per nanosecond of the faster copy, which reads and writes n bytes in
// all.
func (c *copies) rate(n int) (float64, error) {
	dst, src := tensor.Data[float32](c.dst)[:n/8], tensor.Data[float32](c.src)[:n/8]
	var best float64
	for _, run := range []func(){
		func() { copy(dst, src) },
		func() { simd.Copy(dst, src) },
	} {
		t, err := c.b.Time(run)
		if err != nil {
			return 0, err
		}
		best = max(best, float64(n)/t.NS)
	}
	runtime.KeepAlive(c)
	return best, nil
}
