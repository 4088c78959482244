package main

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// flipVar is for tests of what watches over a run: "STEP:RANK:PARAMETER:ELEMENT" has a bit of an element flipped, as faulty memory might,
// of what one rank holds of a parameter, before the step's first forward pass. Steps count from 1.
const flipVar = "GORUN_TEST_FLIP"

// flips returns what flipVar asks for, to be called as a step begins; nil: nothing.
func (t *trainer) flips() (func(step int), error) {
	text := os.Getenv(flipVar)
	if text == "" {
		if d, ok := t.mesh.Device().(*faultyDevice); ok {
			return d.begin, nil
		}
		return nil, nil
	}
	words := strings.Split(text, ":")
	var numbers [3]int
	for i, at := range []int{0, 1, 3} {
		var err error
		if len(words) == 4 {
			numbers[i], err = strconv.Atoi(words[at])
		}
		if len(words) != 4 || err != nil {
			return nil, fmt.Errorf("train: %s=%s: give STEP:RANK:PARAMETER:ELEMENT", flipVar, text)
		}
	}
	var param *dtensor.Tensor
	for name, p := range t.model.named() {
		if name == words[2] {
			param = p
		}
	}
	step, rank, element := numbers[0], numbers[1], numbers[2]
	switch {
	case param == nil || param.DType() != tensor.Float32:
		return nil, fmt.Errorf("train: %s=%s: there is no parameter %q of float32", flipVar, text, words[2])
	case t.mesh.Comm().Rank() != rank:
		return nil, nil
	case element < 0 || element >= param.Local().Numel():
		return nil, fmt.Errorf("train: %s=%s: rank %d has %d elements of %v", flipVar, text, rank, param.Local().Numel(), param)
	}
	return func(now int) {
		if now == step {
			tensor.Edit(param.Local(), func(x []float32) { x[element] = math.Float32frombits(math.Float32bits(x[element]) ^ 1<<20) })
		}
	}, nil
}

// flipProductVar is for tests too: "STEP:RANK:NUMBER" has the lowest bit of an element flipped, as a faulty core might, of the result of
// that one of the products that a rank computes in a step; "STEP:RANK:all" of all elements of all of them. Both count from 1.
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
