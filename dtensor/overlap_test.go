package dtensor_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/tensor"
)

// Gradients that are summed while the backward pass runs have the bits of those that are summed in the end, of every
// operator.
func TestOverlapOfOperators(t *testing.T) {
	most := 8
	if testing.Short() {
		most = 2
	}
	onMesh(t, []int{2, 2}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, c := range opCases {
			for _, shapes := range c.shapes {
				whole := make([]T, len(shapes))
				for i, s := range shapes {
					whole[i] = c.input(m, i, s, make([]layout.Placement, len(m.Axes())))
				}
				for k, p := range c.trials(m, shapes, rand.New(rand.NewPCG(1, 1))) {
					if k == most {
						break
					}
					in := make([]T, len(whole))
					for i := range in {
						in[i] = place(m, whole[i], p[i], k)
					}
					if err := c.overlaps(ctx, m, in); err != nil {
						return fmt.Errorf("%s of %v: %w", c.name, in, err)
					}
				}
			}
		}
		return nil
	})
}

// overlaps compares the gradients of an operator with and without overlap.
func (c *opCase) overlaps(ctx context.Context, m *dtensor.Mesh, in []T) error {
	want, err := c.run(ctx, in)
	if err != nil {
		return err
	}
	m.SetOverlap(1)
	defer m.SetOverlap(0)
	got, err := c.run(ctx, in)
	if err != nil {
		return err
	}
	for i, g := range got.grads {
		if g.Dense() == nil {
			continue
		}
		if err := sameBits(ctx, g.Dense(), want.grads[i].Dense()); err != nil {
			return fmt.Errorf("gradient %d: %w", i, err)
		}
	}
	return nil
}

// layersOf is a loss of some layers with weights of one size, on this rank's part of a batch.
func layersOf(m *dtensor.Mesh, layers, width int, way func(func(T) T, T) T) (f func() T, weights []T) {
	rng := rand.New(rand.NewPCG(1, 2))
	whole := func(rows int) T {
		x := make([]float32, rows*width)
		for i := range x {
			x[i] = rng.Float32() - 0.5
		}
		return dtensor.Distribute(m, tensor.FromSlice(m.Device(), x, rows, width), m.Every(layout.Replicate())...)
	}
	x := whole(8).Redistribute(layout.Shard(0))
	for range layers {
		weights = append(weights, whole(width))
	}
	return func() T {
		h := x
		for _, w := range weights {
			h = way(func(h T) T { return h.MatMul(w).Tanh() }, h)
		}
		return h.Mul(weights[0].Sum([]int{0}, false)).Sum(nil, false) // the first weight is used at both ends
	}, weights
}

// sumsOfGradients returns how many collectives have summed gradients.
func sumsOfGradients(m *dtensor.Mesh) (n int) {
	for cause, count := range m.Group("a").Stats().Causes {
		if cause.Cause == "ValueAndGrad: parameter gradients" {
			n += count.Calls
		}
	}
	return n
}

// With overlap there is a collective each time that so many bytes are there, and those that are left in the end; the first
// is made before the backward pass ends.
func TestOverlapCounts(t *testing.T) {
	const layers, width = 6, 4
	for name, way := range map[string]func(func(T) T, T) T{
		"plain": func(f func(T) T, h T) T { return f(h) }, "recompute": dtensor.Recompute, "scatter": dtensor.ScatterGradients,
	} {
		t.Run(name, func(t *testing.T) {
			onMesh(t, []int{3}, func(ctx context.Context, m *dtensor.Mesh) error {
				f, weights := layersOf(m, layers, width, way)
				_, want, err := dtensor.ValueAndGrad(ctx, f, weights...)
				if err != nil {
					return err
				}
				for _, c := range []struct{ bytes, calls int }{
					{0, 1}, {1 << 20, 1}, {1, layers}, {2 * width * width * 4, layers / 2}, {4 * width * width * 4, 2},
				} {
					m.SetOverlap(c.bytes)
					before := sumsOfGradients(m)
					_, got, err := dtensor.ValueAndGrad(ctx, f, weights...)
					if err != nil {
						return err
					}
					n := sumsOfGradients(m) - before
					if n != c.calls {
						return fmt.Errorf("with %d bytes: %d sums of gradients, want %d", c.bytes, n, c.calls)
					}
					for i := range got {
						if err := sameBits(ctx, got[i].Dense(), want[i].Dense()); err != nil {
							return fmt.Errorf("with %d bytes: gradient %d: %w", c.bytes, i, err)
						}
					}
				}
				return nil
			})
		})
	}
}

// Micro-batches sum their gradients once, also with overlap.
func TestOverlapOfMicroBatches(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		f, weights := layersOf(m, 3, 4, func(f func(T) T, h T) T { return f(h) })
		run := func() (grads []dtensor.Grad, calls int, err error) {
			before := sumsOfGradients(m)
			_, grads, err = dtensor.Accumulate(ctx, 3, func(int) T { return f() }, weights...)
			return grads, sumsOfGradients(m) - before, err
		}
		want, calls, err := run()
		if err != nil {
			return err
		}
		m.SetOverlap(1)
		got, more, err := run()
		if err != nil {
			return err
		}
		if more != calls+len(weights)-1 {
			return fmt.Errorf("%d calls with overlap and %d without, want %d more", more, calls, len(weights)-1)
		}
		for i := range got {
			if err := sameBits(ctx, got[i].Dense(), want[i].Dense()); err != nil {
				return fmt.Errorf("gradient %d: %w", i, err)
			}
		}
		return nil
	})
}

// An error of a gradient after the first sums have begun is returned, and leaves the mesh usable.
func TestOverlapAndErrors(t *testing.T) {
	onMesh(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		m.SetOverlap(1)
		f, weights := layersOf(m, 3, 4, func(f func(T) T, h T) T { return f(h) })
		first, wrong, before := weights[0], errors.New("a wrong gradient"), sumsOfGradients(m)
		_, _, err := dtensor.ValueAndGrad(ctx, func() T {
			defer func() { weights[0] = first }()
			weights[0] = dtensor.Record("wrong", dtensor.Full(m, tensor.Float32, 1, first.Shape(), m.Every(layout.Replicate())...), []T{first},
				func(T) []dtensor.Grad {
					dtensor.Throw(wrong)
					return nil
				})
			return f()
		}, weights...)
		if !errors.Is(err, wrong) {
			return fmt.Errorf("the error is %v, want %v", err, wrong)
		}
		if n := sumsOfGradients(m) - before; n != 2 {
			return fmt.Errorf("%d sums had begun before the error, want 2", n)
		}
		if _, _, err := dtensor.ValueAndGrad(ctx, f, weights...); err != nil {
			return fmt.Errorf("the next pass: %w", err)
		}
		return nil
	})
}

func TestSetOverlapRefuses(t *testing.T) {
	onMesh(t, []int{1}, func(ctx context.Context, m *dtensor.Mesh) error {
		var wrong *dtensor.LayoutError
		if err := dtensor.Try(ctx, m, func() { m.SetOverlap(-1) }); !errors.As(err, &wrong) {
			return fmt.Errorf("-1 bytes: %v", err)
		}
		return nil
	})
}
