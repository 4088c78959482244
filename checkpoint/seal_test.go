package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/tensor"
)

// TestSealFindsAnElement changes bits of one element on one rank, of every setting and type, then of two.
func TestSealFindsAnElement(t *testing.T) {
	for _, s := range settings() {
		for _, dt := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Int8} {
			for bad := range s.ranks {
				onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
					return sealed(ctx, world, full(m, s, dt, false), bad)
				})
			}
		}
	}
}

func sealed(ctx context.Context, world *comm.Comm, all map[string]*dtensor.Tensor, bad int) error {
	state := stateOf(all)
	seal, err := NewSeal(state)
	if err != nil {
		return err
	}
	if err := seal.Check(ctx, world); err != nil {
		return fmt.Errorf("nothing has changed: %w", err)
	}
	x := all["cube"]
	pick := rand.New(rand.NewPCG(uint64(bad), uint64(x.DType())))
	n, size, has := x.Local().Numel(), x.DType().Size(), []int64{0}
	var b, old []byte
	at := 0
	if world.Rank() == bad && n > 0 {
		b, _ = hostBytes(x.Local())
		old, at, has[0] = slices.Clone(b), pick.IntN(n), 1
		b[at*size+pick.IntN(size)] ^= 1 << pick.IntN(8)
	}
	if err := comm.Broadcast(ctx, world, has, bad); err != nil {
		return err
	}
	err = seal.Check(ctx, world)
	if has[0] == 0 {
		return err
	}
	e, ok := errors.AsType[*ChangedError](err)
	if !ok || e.Name != "cube" || e.Rank != bad || e.DType != x.DType() {
		return fmt.Errorf("got %v", err)
	}
	if world.Rank() == bad {
		global := 0 // the number of the element in the tensor, whose values all differ
		for axis, k := range e.Index {
			global = global*x.Shape()[axis] + k
		}
		want := tensor.Cast(tensor.Full(x.Local().Device(), tensor.Float64, value("cube", global), 1), x.DType())
		was, _ := hostBytes(want)
		if !bytes.Equal(was, old[at*size:][:size]) || e.Bits != element(b[at*size:], e.DType) || size < 8 && e.Was != element(was, e.DType) {
			return fmt.Errorf("element %d of %d has changed from %x to %x: %w", at, n, old[at*size:][:size], b[at*size:][:size], e)
		}
	}
	if world.Rank() == bad && n > 1 {
		b[(at+1)%n*size] ^= 64
	}
	if e, ok := errors.AsType[*ChangedError](seal.Check(ctx, world)); !ok || e.Name != "cube" || e.Rank != bad {
		return fmt.Errorf("two elements: %v", e)
	}
	return nil
}

// TestSealIsLifted holds that what is lifted may change, and not before; and that the first that Lift finds is what Check returns.
func TestSealIsLifted(t *testing.T) {
	for _, s := range settings() {
		onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
			all := full(m, s, tensor.Float32, false)
			last := s.ranks - 1
			change := func(name string) {
				if world.Rank() == last {
					if x := all[name].Local(); x.Numel() > 0 {
						tensor.Edit(x, func(v []float32) { v[len(v)-1]++ })
					}
				}
			}
			seal, err := NewSeal(stateOf(all))
			if err != nil {
				return err
			}
			(*Seal)(nil).Lift(all["row"])
			change("matrix")
			for range 2 {
				seal.Lift(all["matrix"], all["row"], all["empty"])
			}
			change("row")
			change("cube")
			if e, ok := errors.AsType[*ChangedError](seal.Check(ctx, world)); !ok || e.Name != "matrix" || e.Rank != last || e.Index == nil {
				return fmt.Errorf("matrix changed before it was lifted, row and cube after: %v", e)
			}
			if seal, err = NewSeal(stateOf(all)); err != nil {
				return err
			}
			seal.Lift(all["row"])
			change("row")
			return seal.Check(ctx, world)
		})
	}
}

// TestFaultsInDigests holds that a run that a fault has ended differs there from one that went on, whether or not that wrote the step.
func TestFaultsInDigests(t *testing.T) {
	dir := t.TempDir()
	list := settings()
	write := func(name string, s setting, fault error, steps ...int) string {
		path := filepath.Join(dir, name)
		onSetting(t, s, func(ctx context.Context, world *comm.Comm, m *dtensor.Mesh) error {
			all := full(m, s, tensor.Float32, false)
			l, err := OpenDigestLog(ctx, world, path, false)
			if err != nil {
				return err
			}
			for _, step := range steps {
				if err := l.Write(ctx, step, 1, stateOf(all)); err != nil {
					return err
				}
			}
			if fault != nil {
				err = l.WriteFault(ctx, 5, fault)
			} else if x := all["matrix"].Local(); world.Rank() == 1 {
				tensor.Edit(x, func(v []float32) { v[13]++ })
			}
			if fault == nil {
				if _, ok := errors.AsType[*ReplicaError](l.Write(ctx, 5, 1, stateOf(all))); !ok {
					return errors.New("replicas that differ are no error")
				}
			}
			return errors.Join(err, l.Close())
		})
		return path
	}
	good := write("good", list[6], errors.New("another error"), 2, 4, 6)
	every := write("every", list[6], errors.New("another error"), 2, 4, 5, 6)
	found := &ChangedError{Name: "cube", Index: []int{1, 2}, Rank: 2, DType: tensor.Float32}
	changed := write("changed", list[3], fmt.Errorf("wrapped: %w", found), 2, 4)
	replica := write("replica", list[1], nil, 2, 4)
	for _, a := range []string{good, every} {
		for b, want := range map[string]string{changed: "cube [1 2] [2]", replica: "matrix [2 3] [1]"} {
			d, err := Diff(a, b)
			if err != nil || d.Step != 5 || d.Compared != 3 || d.FaultA != nil || d.FaultB == nil || len(d.Tensors) > 0 ||
				fmt.Sprint(d.FaultB.Tensor, " ", d.FaultB.Index, " ", d.FaultB.Ranks) != want {
				t.Errorf("%s and %s: %+v, %v", a, b, d, err)
			}
			if d, err := Diff(b, a); err != nil || d.FaultB != nil || d.FaultA == nil || d.Step != 5 {
				t.Errorf("%s and %s: %+v, %v", b, a, d, err)
			}
			if d, err := Diff(b, b); err != nil || !d.Equal() {
				t.Errorf("%s and itself: %+v, %v", b, d, err)
			}
		}
	}
}
