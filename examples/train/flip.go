package main

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
)

// flipVar is for tests of what watches over a run: "STEP:RANK:PARAMETER:ELEMENT" has a bit of an element flipped, as faulty memory might,
// of what one rank holds of a parameter, before the step's first forward pass. Steps count from 1.
const flipVar = "GORUN_TEST_FLIP"

// flips returns what flipVar asks for, to be called as a step begins; nil: nothing.
func (t *trainer) flips() (func(step int), error) {
	text := os.Getenv(flipVar)
	if text == "" {
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
