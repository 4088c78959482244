package suite

import (
	"fmt"
	"math"
	"slices"

	"github.com/gorun-spmd/gorun/tensor"
)

// compare returns an error that says where got differs most from want and by
// how much. Shapes and integers must be equal; NaN and infinities must match.
func compare(what string, gotShape []int, got []float64, want *Array, tol Tol) error {
	if !slices.Equal(gotShape, want.Shape) && !(len(gotShape) == 0 && len(want.Shape) == 0) {
		return fmt.Errorf("%s: shape %v, want %v", what, gotShape, want.Shape)
	}
	if len(got) != len(want.Data) {
		return fmt.Errorf("%s: %d elements, want %d", what, len(got), len(want.Data))
	}
	worst, excess, count := -1, 0.0, 0
	for i, w := range want.Data {
		g := got[i]
		if g == w || math.IsNaN(g) && math.IsNaN(w) {
			continue
		}
		bound := 0.0
		if want.DType == "float32" || want.DType == "float64" || want.DType == "bfloat16" {
			bound = tol.Atol + tol.Rtol*math.Abs(w)
		}
		over := math.Abs(g-w) - bound
		if over <= 0 { // false for NaN
			continue
		}
		count++
		if math.IsNaN(over) {
			over = math.Inf(1)
		}
		if worst < 0 || over > excess {
			worst, excess = i, over
		}
	}
	if worst < 0 {
		return nil
	}
	return fmt.Errorf("%s: %d of %d elements differ; at %v got %.9g, want %.9g (off by %.3g)",
		what, count, len(got), tensor.UnravelIndex(worst, want.Shape), got[worst], want.Data[worst], math.Abs(got[worst]-want.Data[worst]))
}
