package train

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
)

// flipVar is for tests of what watches over a run: "STEP:RANK:TENSOR:ELEMENT" has a bit of an element flipped, as faulty memory might,
// of what one rank holds of a tensor of the run's state, before the step. Steps count from 1.
const flipVar = "GORUN_TEST_FLIP"

// flips returns what does so as a step begins.
func (w *watcher) flips() (func(step int), error) {
	text := os.Getenv(flipVar)
	if text == "" {
		return func(int) {}, nil
	}
	words := strings.Split(text, ":")
	var numbers [3]int
	for i, at := range []int{0, 1, 3} {
		var err error
		if len(words) == 4 {
			numbers[i], err = strconv.Atoi(words[at])
		}
		if len(words) != 4 || err != nil {
			return nil, fmt.Errorf("train: %s=%s: give STEP:RANK:TENSOR:ELEMENT", flipVar, text)
		}
	}
	var x *dtensor.Tensor
	for name, t := range w.state.Tensors() {
		if name == words[2] {
			x = t
		}
	}
	step, rank, element := numbers[0], numbers[1], numbers[2]
	switch {
	case x == nil || x.DType() != tensor.Float32:
		return nil, fmt.Errorf("train: %s=%s: the run's state has no tensor %q of float32", flipVar, text, words[2])
	case w.world.Rank() != rank:
		return func(int) {}, nil
	case element < 0 || element >= x.Local().Numel():
		return nil, fmt.Errorf("train: %s=%s: rank %d has %d elements of %v", flipVar, text, rank, x.Local().Numel(), x)
	}
	return func(now int) {
		if now == step {
			tensor.Edit(x.Local(), func(v []float32) { v[element] = math.Float32frombits(math.Float32bits(v[element]) ^ 1<<20) })
		}
	}, nil
}
