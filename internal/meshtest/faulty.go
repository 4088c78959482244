package meshtest

import (
	"context"
	"testing"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// A Faulty is a CPU that, while it is On, flips the lowest bit of elements of what products and attention compute; or, with Inputs, of
// their first operand while they compute.
type Faulty struct {
	tensor.Device
	On     bool
	Inputs bool
	Only   int // the one element of each matrix, of attention of each result, of which it does; negative: all
}

// OnFaulty calls f on each rank of a mesh with same bits, with the device, and returns the errors of the ranks.
func OnFaulty(t *testing.T, shape []int, f func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh, d *Faulty) error) []error {
	t.Helper()
	var axes []dtensor.Axis
	n := 1
	for i, size := range shape {
		axes, n = append(axes, dtensor.Axis{Name: string(rune('a' + i)), Size: size}), n*size
	}
	return commtest.Ranks(t.Context(), n, func(ctx context.Context, world *comm.Comm) error {
		d := &Faulty{Device: tensor.NewCPU(world.Memory()), Only: -1}
		world.Internals().Attr(dtensor.DeviceKey{}, func() any { return d })
		m, err := dtensor.NewMesh(world, axes...)
		if err != nil {
			return err
		}
		m.SetSameBits(true)
		m.CheckReplicas(false) // which would find it first
		return f(ctx, world, m, d)
	})
}

// SetPairwise is what same bits ask of a device.
func (d *Faulty) SetPairwise(on bool) {
	d.Device.(interface{ SetPairwise(bool) }).SetPairwise(on)
}

// flip flips the lowest bits of n elements at p that are in matrices of a size.
func (d *Faulty) flip(p unsafe.Pointer, n, matrix, size int) {
	for i := range n {
		if d.On && (d.Only < 0 || i%matrix == d.Only) {
			*(*byte)(unsafe.Add(p, i*size)) ^= 1
		}
	}
}

// around calls compute, with its input flipped meanwhile or its result after.
func (d *Faulty) around(compute, input, result func()) {
	if d.Inputs {
		input()
	}
	compute()
	if d.Inputs {
		input() // back
	} else {
		result()
	}
}

// MatMul multiplies.
func (d *Faulty) MatMul(dt tensor.DType, g kernel.Gemm, dst, a, b unsafe.Pointer, l kernel.Loop) {
	size := dt.Size()
	if g.Wide {
		size = 4
	}
	d.around(func() { d.Device.MatMul(dt, g, dst, a, b, l) },
		func() { d.flip(a, g.M*g.K, g.M*g.K, dt.Size()) },
		func() { d.flip(dst, l.Numel()*g.M*g.N, g.M*g.N, size) })
}

// Attention attends.
func (d *Faulty) Attention(a kernel.Attention) {
	n, of := a.Heads*a.T*a.D, a.Heads*a.T*a.E
	d.around(func() { d.Device.Attention(a) },
		func() { d.flip(a.Q, n, n, a.DType.Size()) },
		func() { d.flip(a.Y, of, of, a.DType.Size()) })
}

// AttentionGrad computes the gradients.
func (d *Faulty) AttentionGrad(a kernel.AttentionGrad) {
	n, keys, of := a.Heads*a.T*a.D, a.Heads*a.S, a.Heads*a.T*a.E
	d.around(func() { d.Device.AttentionGrad(a) },
		func() { d.flip(a.DY, of, of, a.DType.Size()) },
		func() {
			d.flip(a.DQ, n, n, a.DType.Size())
			d.flip(a.DK, keys*a.D, keys*a.D, a.DType.Size())
			d.flip(a.DV, keys*a.E, keys*a.E, a.DType.Size())
		})
}
