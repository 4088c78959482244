package loss_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/loss"
)

// The values and gradients of CTC are compared with PyTorch's by internal/conformance.

// What does not fit is an *Error on every rank, whichever rank has it, and the ranks go on.
func TestCTCRefusals(t *testing.T) {
	meshtest.On(t, []int{3}, func(ctx context.Context, m *dtensor.Mesh) error {
		logs := meshtest.Place(m, meshtest.Numbers(4*5*6, 1, 1), []int{4, 5, 6}, shard1)
		ints := func(values ...int64) *dtensor.Tensor { return meshtest.Place(m, values, []int{len(values)}, shard0) }
		words := func(last int64) *dtensor.Tensor {
			return meshtest.Place(m, []int64{1, 2, 3, 1, 2, 1, 4, 5, 1, last}, []int{5, 2}, shard0)
		}
		for _, c := range []struct {
			want    string
			logs    *dtensor.Tensor
			targets *dtensor.Tensor
			o       loss.CTCOptions
		}{
			{"the logs are", logs.Reshape(120), words(1), loss.CTCOptions{}},
			{"give labels, [S]", logs.Reshape(20, 6), words(1), loss.CTCOptions{}},
			{"give integers, [5, S]", logs, words(1).Transpose(0, 1), loss.CTCOptions{}},
			{"give integers, [5, S]", logs, words(1).Cast(logs.DType()), loss.CTCOptions{}},
			{"give TargetLengths", logs, ints(1, 2, 3), loss.CTCOptions{}},
			{"Blank is 6", logs, words(1), loss.CTCOptions{Blank: 6}},
			{"InputLengths is", logs, words(1), loss.CTCOptions{InputLengths: ints(1, 2, 3, 4)}},
			{"InputLengths of sequence 4 is 5", logs, words(1), loss.CTCOptions{InputLengths: ints(1, 2, 3, 4, 5)}},
			{"TargetLengths of sequence 3 is -1", logs, words(1), loss.CTCOptions{TargetLengths: ints(1, 2, 2, -1, 2)}},
			{"TargetLengths of sequence 4 is 3", logs, words(1), loss.CTCOptions{TargetLengths: ints(1, 2, 2, 1, 3)}},
			{"add up to 6", logs, ints(1, 2, 3, 4, 5), loss.CTCOptions{TargetLengths: ints(1, 2, 1, 1, 1)}},
			{"label 1 of sequence 4 is 6", logs, words(6), loss.CTCOptions{}},
			{"label 1 of sequence 4 is -1", logs, words(-1), loss.CTCOptions{}},
			{"that is not the blank, 2", logs, words(1), loss.CTCOptions{Blank: 2}},
			{"Reduction is 7", logs, words(1), loss.CTCOptions{Reduction: 7}},
		} {
			err := dtensor.Try(ctx, m, func() { loss.CTC(c.logs, c.targets, c.o) })
			var refused *loss.Error
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) {
				return fmt.Errorf("got %v, want an error with %q", err, c.want)
			}
		}
		// A label beyond the length of its target is not looked at.
		return dtensor.Try(ctx, m, func() { loss.CTC(logs, words(-1), loss.CTCOptions{TargetLengths: ints(2, 2, 2, 2, 1)}) })
	})
}
