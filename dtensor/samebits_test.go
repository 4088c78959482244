package dtensor_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// With SameBits every operator gives for every shard of its inputs, forward and backward,
// the bits that it gives for the whole ones.
func TestOperatorsHaveTheSameBits(t *testing.T) {
	grids := [][]int{{3}, {2, 2}}
	switch {
	case testing.Short():
		grids = grids[:1]
	case *fullTime > 0:
		grids = append(grids, []int{1}, []int{2}, []int{4}, []int{5}, []int{3, 2})
	}
	for _, c := range opCases {
		t.Run(c.name, func(t *testing.T) {
			for _, shape := range grids {
				onMesh(t, shape, func(ctx context.Context, m *dtensor.Mesh) error {
					m.SetSameBits(true)
					for _, shapes := range c.shapes {
						if err := c.checkBits(ctx, m, shapes); err != nil {
							return fmt.Errorf("%s, shapes %v, mesh %v: %w", c.name, shapes, m, err)
						}
					}
					return nil
				})
			}
		})
	}
}

// Operators on bfloat16, whose products some CPUs make by other instructions, have them too.
func TestOperatorsOfBFloat16HaveTheSameBits(t *testing.T) {
	if testing.Short() {
		t.Skip("float32 goes the same ways")
	}
	for _, c := range casesOf(t, tensor.BFloat16) {
		onMesh(t, []int{3}, func(ctx context.Context, m *dtensor.Mesh) error {
			m.SetSameBits(true)
			for _, shapes := range c.shapes {
				if err := c.checkBits(ctx, m, shapes); err != nil {
					return fmt.Errorf("%s, shapes %v: %w", c.name, shapes, err)
				}
			}
			return nil
		})
	}
}

// checkBits compares the operator on shards with itself on replicated inputs, which is
// what one rank computes.
func (c *opCase) checkBits(ctx context.Context, m *dtensor.Mesh, shapes [][]int) error {
	whole := make([]T, len(shapes))
	for i, s := range shapes {
		whole[i] = c.input(m, i, s, make([]layout.Placement, len(m.Axes())))
	}
	want, err := c.run(ctx, whole)
	if err != nil {
		return err
	}
	tried := 0
	for _, p := range c.trials(m, shapes, rand.New(rand.NewPCG(1, 1))) {
		if slices.ContainsFunc(slices.Concat(p...), layout.Placement.IsPartial) {
			continue
		}
		if tried++; tried > 24 && *fullTime == 0 {
			break
		}
		in := make([]T, len(whole))
		for i := range in {
			in[i] = whole[i].Redistribute(p[i]...)
		}
		got, err := c.run(ctx, in)
		if err != nil {
			return fmt.Errorf("%v: %w", in, err)
		}
		if err := sameBits(ctx, got.out, want.out); err != nil {
			return fmt.Errorf("%v: %w", in, err)
		}
		for i, g := range got.grads {
			if g.Dense() == nil {
				continue
			}
			if err := sameBits(ctx, g.Dense(), want.grads[i].Dense()); err != nil {
				return fmt.Errorf("%v: gradient %d: %w", in, i, err)
			}
		}
	}
	return nil
}

// sameBits returns an error unless two tensors have the same bits; a NaN is a NaN.
func sameBits(ctx context.Context, got, want T) (err error) {
	thrown := dtensor.Try(ctx, got.Mesh(), func() {
		a := tensor.ToSlice[float64](tensor.Cast(got.Full(), tensor.Float64))
		b := tensor.ToSlice[float64](tensor.Cast(want.Full(), tensor.Float64))
		for i := range a {
			if math.Float64bits(a[i]) != math.Float64bits(b[i]) && !(math.IsNaN(a[i]) && math.IsNaN(b[i])) {
				err = fmt.Errorf("element %d is %v, want %v", i, a[i], b[i])
				return
			}
		}
	})
	return errors.Join(thrown, err)
}

// What would depend on the number of ranks is refused, on all of them, and the mesh stays usable.
func TestSameBitsRefusesSumsOverRanks(t *testing.T) {
	onMesh(t, []int{3}, func(ctx context.Context, m *dtensor.Mesh) error {
		m.SetSameBits(true)
		x := dtensor.Full(m, tensor.Float32, 1, []int{3}, layout.Replicate())
		part := m.Wrap("test", x.Local(), nil, false, []int{3}, layout.Partial(layout.Sum))
		var wrong *dtensor.LayoutError
		if err := dtensor.Try(ctx, m, func() { part.Reduced() }); !errors.As(err, &wrong) {
			return fmt.Errorf("a sum over ranks: %v", err)
		}
		ints := m.Wrap("test", tensor.Cast(x.Local(), tensor.Int64), nil, false, []int{3}, layout.Partial(layout.Sum))
		return dtensor.Try(ctx, m, func() {
			if got := ints.Reduced().Sum(nil, false).Item(); got != 9 {
				failf("a sum of integers is %v, want 9", got)
			}
		})
	})
}
