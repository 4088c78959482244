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
// might, of the result of that one of the products that a rank computes in a step; "STEP:RANK:all" of all elements of all of them. Both
// count from 1.
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

// MatMul multiplies, and flips.
func (d *faultyDevice) MatMul(dt tensor.DType, g kernel.Gemm, dst, a, b unsafe.Pointer, l kernel.Loop) {
	d.Device.MatMul(dt, g, dst, a, b, l)
	size, n := dt.Size(), l.Numel()*g.M*g.N
	if g.Wide {
		size = 4
	}
	if d.seen++; d.now != d.step || d.number > 0 && d.seen != d.number {
		return
	}
	if d.number > 0 {
		n = 1
	}
	for i := range n {
		*(*byte)(unsafe.Add(dst, i*size)) ^= 1
	}
}
