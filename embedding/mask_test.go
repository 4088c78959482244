package embedding_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/embedding"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/tensor"
)

// A several is some row-wise tables that are looked up with the same ids.
type several struct {
	mesh    *dtensor.Mesh
	shapes  [][2]int
	values  [][]float64
	weights []*dtensor.Tensor
	ids     []int64
	at      *dtensor.Tensor
}

func makeSeveral(m *dtensor.Mesh, shapes ...[2]int) *several {
	s := &several{mesh: m, shapes: shapes, ids: []int64{6, 0, 3, 6, 1, 4}}
	for i, shape := range shapes {
		s.values = append(s.values, meshtest.Numbers(shape[0]*shape[1], float64(i+1), 1))
		s.weights = append(s.weights, meshtest.Place(m, s.values[i], shape[:], shard0))
	}
	s.at = meshtest.Place(m, s.ids, []int{len(s.ids)}, replicate)
	return s
}

// orders are the orders in which two results are reduced; a third entry reduces
// one of them again.
var orders = [][]int{{0, 1}, {1, 0}, {0, 1, 0}, {1, 0, 1, 0}}

// check looks up in all tables first, reduces in the given order, to Replicate
// or to Shard, and compares every reduction and the gradients with the loops.
func (s *several) check(ctx context.Context, at *dtensor.Tensor, order []int, to layout.Placement) error {
	var failed error
	_, grads, err := dtensor.ValueAndGrad(ctx, func() *dtensor.Tensor {
		var out []*dtensor.Tensor
		for _, w := range s.weights {
			out = append(out, embedding.Lookup(w, at, embedding.Options{}))
		}
		var total *dtensor.Tensor
		for _, i := range order {
			y := out[i].Redistribute(to)
			if err := near(fmt.Sprintf("table %d", i), y.Full(), lookUp(s.values[i], s.shapes[i][1], s.ids)); failed == nil {
				failed = err
			}
			part := y.Mul(y).Sum(nil, false)
			if total == nil {
				total = part
			} else {
				total = total.Add(part)
			}
		}
		return total
	}, s.weights...)
	if err != nil || failed != nil {
		return fmt.Errorf("order %v to %v: %v %v", order, to, err, failed)
	}
	for i := range s.weights {
		width := s.shapes[i][1]
		gy := lookUp(s.values[i], width, s.ids)
		times := 0.0
		for _, k := range order {
			if k == i {
				times += 2
			}
		}
		for j := range gy {
			gy[j] *= times
		}
		if err := near(fmt.Sprintf("order %v to %v: gradient %d", order, to, i), grads[i].Dense().Full(),
			gradOf(s.shapes[i][0], width, s.ids, gy, -1, false)); err != nil {
			return err
		}
	}
	return nil
}

func (s *several) checkAll(ctx context.Context, at *dtensor.Tensor) error {
	for _, order := range orders {
		for _, to := range []layout.Placement{replicate, shard0} {
			if err := s.check(ctx, at, order, to); err != nil {
				return err
			}
		}
	}
	return nil
}

func onRanks(t *testing.T, f func(ctx context.Context, m *dtensor.Mesh) error) {
	t.Helper()
	for _, n := range []int{1, 2, 3, 4} {
		meshtest.On(t, []int{n}, f)
	}
}

func TestTwoTablesSameIDsSameShape(t *testing.T) {
	onRanks(t, func(ctx context.Context, m *dtensor.Mesh) error {
		s := makeSeveral(m, [2]int{7, 3}, [2]int{7, 3})
		return s.checkAll(ctx, s.at)
	})
}

func TestTwoTablesSameIDsDifferentShapes(t *testing.T) {
	onRanks(t, func(ctx context.Context, m *dtensor.Mesh) error {
		s := makeSeveral(m, [2]int{7, 3}, [2]int{9, 2})
		return s.checkAll(ctx, s.at)
	})
}

// TestTablesShareTheMaskOfTheirIDs: the ids are masked once, both results hold
// that mask, and it goes with the last holder.
func TestTablesShareTheMaskOfTheirIDs(t *testing.T) {
	onRanks(t, func(ctx context.Context, m *dtensor.Mesh) error {
		s := makeSeveral(m, [2]int{7, 3}, [2]int{7, 2})
		masked := s.at.Redistribute(layout.MaskPartial([]int{7, 3}, 0))
		if err := s.checkAll(ctx, masked); err != nil {
			return err
		}
		mask := masked.Mask()
		before := mask.Holders()
		a := embedding.Lookup(s.weights[0], masked, embedding.Options{})
		b := embedding.Lookup(s.weights[1], masked, embedding.Options{})
		if a.Mask() != mask || b.Mask() != mask || mask.Holders() != before+2 {
			return fmt.Errorf("masks %p %p of %p, %d holders, want two more than %d", a.Mask(), b.Mask(), mask, mask.Holders(), before)
		}
		for range mask.Holders() {
			mask.Release()
		}
		err := dtensor.Try(ctx, m, func() { mask.Release() })
		if err == nil || !strings.Contains(err.Error(), "released") {
			return fmt.Errorf("one release too many gives %v", err)
		}
		return nil
	})
}

// TestMaskIsTheResultsOwn: each lookup of unmasked ids makes a mask, and the
// result is its only holder.
func TestMaskIsTheResultsOwn(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		s := makeSeveral(m, [2]int{7, 3}, [2]int{7, 3})
		a := embedding.Lookup(s.weights[0], s.at, embedding.Options{})
		b := embedding.Lookup(s.weights[1], s.at, embedding.Options{})
		if a.Mask() == b.Mask() || a.Mask().Holders() != 1 || b.Mask().Holders() != 1 {
			return fmt.Errorf("masks %p and %p with %d and %d holders", a.Mask(), b.Mask(), a.Mask().Holders(), b.Mask().Holders())
		}
		a.Mask().Release()
		err := dtensor.Try(ctx, m, func() { a.Mask().Release() })
		if err == nil {
			return errors.New("a double release passes")
		}
		return near("the other table", b.Full(), lookUp(s.values[1], 3, s.ids))
	})
}

func TestConflictingMask(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		s := makeSeveral(m, [2]int{9, 3})
		masked := s.at.Redistribute(layout.MaskPartial([]int{7, 3}, 0))
		err := dtensor.Try(ctx, m, func() { embedding.Lookup(s.weights[0], masked, embedding.Options{}) })
		if err == nil || !strings.Contains(err.Error(), "conflicts") || !strings.Contains(err.Error(), "9") {
			return fmt.Errorf("got %v", err)
		}
		return near("unmasked", embedding.Lookup(s.weights[0], s.at, embedding.Options{}).Full(), lookUp(s.values[0], 3, s.ids))
	})
}

// TestUnownedRowsStayInside: what leaves the layouts has zeros for them.
func TestUnownedRowsStayInside(t *testing.T) {
	meshtest.On(t, []int{3}, func(ctx context.Context, m *dtensor.Mesh) error {
		s := makeSeveral(m, [2]int{7, 3})
		masked := s.at.Redistribute(layout.MaskPartial([]int{7, 3}, 0))
		offset, _ := s.weights[0].Offset()
		rows := s.weights[0].Local().Dim(0)
		for _, at := range []*dtensor.Tensor{s.at, masked} {
			want := lookUp(s.values[0], 3, s.ids)
			for i, id := range s.ids {
				if int(id) < offset[0] || int(id) >= offset[0]+rows {
					clear(want[3*i : 3*i+3])
				}
			}
			if err := near("ToLocal", embedding.Lookup(s.weights[0], at, embedding.Options{}).ToLocal(), want); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestNeverReducedLeaksNothing: what a step looked up and did not reduce goes
// with the step.
func TestNeverReducedLeaksNothing(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		s := makeSeveral(m, [2]int{7, 3})
		step := func() error {
			return dtensor.Try(ctx, m, func() { embedding.Lookup(s.weights[0], s.at, embedding.Options{}) })
		}
		if err := step(); err != nil {
			return err
		}
		before := m.Device().Stats()
		for range 10 {
			if err := step(); err != nil {
				return err
			}
		}
		if after := m.Device().Stats(); after != before {
			return fmt.Errorf("memory %+v became %+v", before, after)
		}
		return nil
	})
}

// TestPlacementPrints the mask as the tensor carries it.
func TestPlacementPrints(t *testing.T) {
	meshtest.On(t, []int{2}, func(ctx context.Context, m *dtensor.Mesh) error {
		w := dtensor.Zeros(m, tensor.Float32, []int{10, 29}, shard0)
		y := embedding.Lookup(w, meshtest.Place(m, []int64{1}, []int{1}, replicate), embedding.Options{})
		if got := fmt.Sprintf("%v %#v", y.Placements()[0], y.Placements()[0]); got != "MaskP MaskPartial(offset_shape=[10 29], offset_dim=0)" {
			return fmt.Errorf("it prints %s", got)
		}
		return nil
	})
}
