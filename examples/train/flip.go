package main

import (
	"fmt"
	"os"
	"strings"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// flipProductVar is for tests of what watches over a run: "STEP:RANK:NUMBER" has the lowest bit of an element flipped, as a faulty core
// might, of the result of that one of the products, attention and its gradient among them, that a rank computes in a step; "STEP:RANK:all"
// of all elements of all of them. Both count from 1.
const flipProductVar = "GORUN_TEST_FLIP_PRODUCT"

// A faultyDevice is a CPU that does what flipProductVar asks for.
type faultyDevice struct {
	tensor.Device
	step, number int // to be wrong in; number 0: all
	now, seen    int // the step that has begun, and its products so far
}

// useFaulty has the rank that flipProductVar names compute on a faultyDevice. It comes before the first mesh.
func useFaulty(world *comm.Comm) error {
	text := os.Getenv(flipProductVar)
	if text == "" {
		return nil
	}
	d, rank := &faultyDevice{Device: tensor.NewCPU(world.Memory())}, 0
	_, err := fmt.Sscanf(text, "%d:%d:%d", &d.step, &rank, &d.number)
	if strings.HasSuffix(text, ":all") {
		_, err = fmt.Sscanf(text, "%d:%d:all", &d.step, &rank)
	}
	if err != nil {
		return fmt.Errorf("train: %s=%s: give STEP:RANK:NUMBER, or all for the NUMBER", flipProductVar, text)
	}
	if world.Rank() == rank {
		world.Internals().Attr(dtensor.DeviceKey{}, func() any { return d })
	}
	return nil
}

// begin says that a step begins.
func (d *faultyDevice) begin(step int) { d.now, d.seen = step, 0 }

// SetPairwise is what same bits ask of a device.
func (d *faultyDevice) SetPairwise(on bool) {
	d.Device.(interface{ SetPairwise(on bool) }).SetPairwise(on)
}

// flip flips of the n elements at dst, of the product that was counted last, those that it is to.
func (d *faultyDevice) flip(dst unsafe.Pointer, n, size int) {
	if d.now != d.step || d.number > 0 && d.seen != d.number {
		return
	}
	if d.number > 0 {
		n = 1
	}
	for i := range n {
		*(*byte)(unsafe.Add(dst, i*size)) ^= 1
	}
}

// MatMul multiplies, and flips.
func (d *faultyDevice) MatMul(dt tensor.DType, g kernel.Gemm, dst, a, b unsafe.Pointer, l kernel.Loop) {
	d.Device.MatMul(dt, g, dst, a, b, l)
	size := dt.Size()
	if g.Wide {
		size = 4
	}
	d.seen++
	d.flip(dst, l.Numel()*g.M*g.N, size)
}

// Attention attends, and flips.
func (d *faultyDevice) Attention(a kernel.Attention) {
	d.Device.Attention(a)
	d.seen++
	d.flip(a.Y, a.Heads*a.T*a.E, a.DType.Size())
}

// AttentionGrad computes gradients, and flips.
func (d *faultyDevice) AttentionGrad(a kernel.AttentionGrad) {
	d.Device.AttentionGrad(a)
	d.seen++
	d.flip(a.DQ, a.Heads*a.T*a.D, a.DType.Size())
	d.flip(a.DK, a.Heads*a.S*a.D, a.DType.Size())
	d.flip(a.DV, a.Heads*a.S*a.E, a.DType.Size())
}
