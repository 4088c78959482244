package dtensor_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/tensor"
)

var allTypes = []tensor.DType{tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16,
	tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64, tensor.Uint8, tensor.Bool}

// Every operator takes the types that testdata/types.txt lists: of each it gives the
// same for every layout of its inputs, values and gradients. Any other type it refuses
// for every layout, on every rank, by an error that says so, and the ranks go on.
func TestOperatorsOfTypes(t *testing.T) {
	var table strings.Builder
	for i, c := range opCases {
		fmt.Fprintf(&table, "%s:", c.name)
		for k, dt := range allTypes {
			typed := c.of(dt)
			takes := true
			onMesh(t, []int{1}, func(ctx context.Context, m *dtensor.Mesh) error {
				_, err := typed.run(ctx, typed.inputs(m, typed.shapes[0]))
				takes = err == nil
				return mustBeRefusal(err)
			})
			check := typed.check
			if takes {
				fmt.Fprintf(&table, " %v", dt)
			} else {
				check = typed.refused
			}
			if takes && (dt == tensor.Float32 || dt == tensor.BFloat16) { // tried by tests of their own
				continue
			}
			if (i+k)%typesEvery > 0 {
				continue
			}
			t.Run(typed.name, func(t *testing.T) {
				onMesh(t, []int{3}, check)
				if *fullTime > 0 {
					onMesh(t, []int{2, 2}, check)
				}
			})
		}
		table.WriteByte('\n')
	}
	testenv.Golden(t, filepath.Join("testdata", "types.txt"), table.String())
}

// typesOf returns the types that testdata/types.txt lists for an operator.
func typesOf(t *testing.T, name string) (list []tensor.DType) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "types.txt"))
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut("\n"+string(text), "\n"+name+":")
	line, _, _ = strings.Cut(line, "\n")
	for _, dt := range allTypes {
		if slices.Contains(strings.Fields(line), dt.String()) {
			list = append(list, dt)
		}
	}
	return list
}

// casesOf returns the cases of the operators that take a type, with inputs of it.
func casesOf(t *testing.T, dt tensor.DType) (list []opCase) {
	for _, c := range opCases {
		if slices.Contains(typesOf(t, c.name), dt) {
			list = append(list, c.of(dt))
		}
	}
	return list
}

// inputs returns the case's inputs, replicated.
func (c *opCase) inputs(m *dtensor.Mesh, shapes [][]int) []T {
	in := make([]T, len(shapes))
	for i, s := range shapes {
		in[i] = c.input(m, i, s, make([]layout.Placement, len(m.Axes())))
	}
	return in
}

// mustBeRefusal returns err unless it is nil or says what an operator does not take.
func mustBeRefusal(err error) error {
	var kind *tensor.TypeError
	var misfit *dtensor.LayoutError
	if errors.As(err, &kind) || errors.As(err, &misfit) {
		return nil
	}
	return err
}

// refused returns an error unless the operator refuses every layout of its inputs on all
// ranks, which can go on after that.
func (c *opCase) refused(ctx context.Context, m *dtensor.Mesh) error {
	for _, shapes := range c.shapes {
		whole := c.inputs(m, shapes)
		trials := c.trials(m, shapes, rand.New(rand.NewPCG(1, 2)))
		if *fullTime == 0 {
			trials = trials[:min(len(trials), 4)]
		}
		for trial, p := range trials {
			in := make([]T, len(whole))
			label := c.name
			for i := range in {
				in[i] = place(m, whole[i], p[i], trial)
				label += " " + in[i].String()
			}
			err := dtensor.Try(ctx, m, func() { c.f(in) })
			taken := []int64{0}
			if err == nil {
				taken[0] = 1
			}
			if wrong := comm.AllReduce(ctx, m.Comm(), taken, comm.Sum); wrong != nil {
				return fmt.Errorf("%s: %v, and then %w", label, err, wrong)
			}
			if taken[0] > 0 {
				return fmt.Errorf("%s: %d ranks of %d take it", label, taken[0], m.Size())
			}
			if err := mustBeRefusal(err); err != nil {
				return fmt.Errorf("%s: %w", label, err)
			}
		}
	}
	return nil
}

// Bool has no sum, average or product and integers no average: a tensor that were Partial
// so is refused wherever one could be made, on every rank, and the ranks go on.
func TestPartialsOfTypes(t *testing.T) {
	onMesh(t, []int{3}, func(ctx context.Context, m *dtensor.Mesh) error {
		for _, dt := range allTypes {
			for _, op := range []layout.ReduceOp{layout.Sum, layout.Avg, layout.Prod, layout.Min, layout.Max} {
				has := dt.Float() || op == layout.Min || op == layout.Max || dt != tensor.Bool && op != layout.Avg
				p := layout.Partial(op)
				local := tensor.Full(m.Device(), dt, 1, 2, 3)
				for i, f := range []func() T{
					func() T { return dtensor.Full(m, dt, 1, []int{2, 3}, layout.Shard(0)).Redistribute(p) },
					func() T { return dtensor.Full(m, dt, 1, []int{2, 3}, p) },
					func() T { return dtensor.Arange(m, dt, 1, 1, p) },
					func() T { return dtensor.Distribute(m, local, p) },
					func() T { return m.Wrap("test", local, nil, false, []int{2, 3}, p) },
				} {
					var misfit *dtensor.LayoutError
					err := dtensor.Try(ctx, m, func() { f().Full() })
					if has && err != nil || !has && !errors.As(err, &misfit) {
						return fmt.Errorf("function %d of %v as %v: %v", i, dt, p, err)
					}
				}
				if _, err := dtensor.FromLocal(m, local, []int{2, 3}, p); has != (err == nil) {
					return fmt.Errorf("FromLocal of %v as %v: %v", dt, p, err)
				}
			}
		}
		return nil
	})
}
