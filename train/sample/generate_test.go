package sample

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

const vocabulary = 7

// scores are the logits of the token after ids, which depend on their last and, with whole, on
// how many there are.
func scores(ids []int64, whole bool) []float32 {
	last, n := int(ids[len(ids)-1]), 0
	if whole {
		n = len(ids)
	}
	out := make([]float32, vocabulary)
	for i := range out {
		out[i] = float32((i*3 + last*5 + n*2) % vocabulary)
	}
	return out
}

// Generate makes what a rank makes alone, with logits that are whole or divided by classes.
func TestGenerate(t *testing.T) {
	prompt := []int32{2, 4}
	for _, o := range []Options{{}, {Whole: true}, {Temperature: 1.5}, {Temperature: 0.7, TopK: 2}, {Temperature: 2, TopP: 0.7}} {
		var first []int32
		for _, ranks := range []int{1, 2, 3} {
			for _, place := range []layout.Placement{layout.Replicate(), layout.Shard(1)} {
				made := make([][]int32, ranks)
				meshtest.On(t, []int{ranks}, func(ctx context.Context, m *dtensor.Mesh) error {
					seen := 0
					got, err := Generate(ctx, m, prompt, 6, o, 9, func(ids *dtensor.Tensor) *dtensor.Tensor {
						list := tensor.ToSlice[int64](ids.Full())
						want := 1
						if o.Whole || seen == 0 {
							want = len(prompt) + seen
						}
						if seen++; len(list) != want {
							dtensor.Throw(fmt.Errorf("call %d has %d ids, want %d", seen, len(list), want))
						}
						return meshtest.Place(m, scores(list, o.Whole), []int{1, vocabulary}, place)
					})
					made[m.Comm().Rank()] = got
					return err
				})
				if first == nil {
					first = made[0]
				}
				for r, got := range made {
					if len(got) != 6 || !slices.Equal(got, first) {
						t.Errorf("%+v, %v, rank %d of %d: %v, want %v", o, place, r, ranks, got, first)
					}
				}
			}
		}
		if o.Temperature > 0 {
			continue
		}
		ids := []int64{2, 4}
		for _, id := range first {
			s := scores(ids, o.Whole)
			if want := slices.Index(s, slices.Max(s)); int(id) != want {
				t.Errorf("%+v: %v, want %d at %d", o, first, want, len(ids)-len(prompt))
			}
			ids = append(ids, int64(id))
		}
	}
}

func TestGenerateRefuses(t *testing.T) {
	for want, prompt := range map[string][]int32{
		"there is no prompt": nil, "temperature -1": {1}, "return the logits of the last position alone": {1, 2},
	} {
		meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
			var o Options
			if strings.HasPrefix(want, "temperature") {
				o.Temperature = -1
			}
			_, err := Generate(ctx, m, prompt, 1, o, 1, func(ids *dtensor.Tensor) *dtensor.Tensor {
				return meshtest.Place(m, make([]float32, 2*vocabulary), []int{2, vocabulary}, layout.Replicate())
			})
			if err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("%v, want %q", err, want)
			}
			return nil
		})
	}
}
