package dtensor

import (
	"context"
	endian "encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/stack"
	"github.com/gorun-spmd/gorun/tensor"
)

// CheckReplicas turns on or off, for all meshes of this rank, the checks that what is
// said to be the same on several ranks is the same to the bit:
//
//	FromLocal       the shards of ranks that hold the same part
//	Distribute      the whole tensor, of all ranks
//	ValueAndGrad    the gradients, dense and row-sparse, at the end, and so of Accumulate
//	optim           the parameters, at the start of each step
//
// Each is one small collective on each mesh, and reads all the bytes once. All ranks of
// a mesh get the same error, which names the tensor and two ranks that differ. All ranks
// make the call. The checks are on from the start if the environment has GORUN_CHECK=1,
// and in commtest.Run.
func (m *Mesh) CheckReplicas(on bool) { m.eng.check = on }

// CheckLocals compares the shards of t across the ranks of its mesh: those of
// ranks that should hold the same must be the same to the bit, and all must be
// of one type. It returns the same error on every rank, which names two that
// differ. It is one small collective.
func (t *Tensor) CheckLocals(ctx context.Context) error {
	if err := compare(ctx, t.spec.mesh, []shard{shardOf(t)}, func(int) string { return t.spec.String() }); err != nil {
		return fmt.Errorf("dtensor: CheckLocals: %w", err)
	}
	return nil
}

// CheckSame throws, if CheckReplicas is on, unless the tensors that replicate on some axis
// are the same on the ranks of that axis. name says what tensor i is. It is for
// operators and optimizers outside this package; all ranks of the tensors' meshes call
// it with the same tensors.
func CheckSame(op string, ts []*Tensor, name func(i int) string) {
	shards := make([]shard, len(ts))
	for i, t := range ts {
		shards[i] = shardOf(t)
	}
	checkSame(op, shards, name)
}

// A shard is what this rank holds of a tensor, or of a row-sparse gradient in two parts:
// its row numbers and its values.
type shard struct {
	spec  *spec
	dtype tensor.DType
	parts []*tensor.Tensor
}

func shardOf(t *Tensor) shard { return shard{t.spec, t.DType(), []*tensor.Tensor{t.local}} }

// checkSame is CheckSame of shards.
func checkSame(op string, shards []shard, name func(i int) string) {
	if len(shards) == 0 || !shards[0].spec.mesh.eng.check {
		return
	}
	var meshes []*Mesh
	for _, t := range shards {
		if !slices.Contains(meshes, t.spec.mesh) {
			meshes = append(meshes, t.spec.mesh)
		}
	}
	for _, m := range meshes {
		var its []shard
		var at []int
		for i, t := range shards {
			if t.spec.mesh == m && t.spec.repeats() {
				its, at = append(its, t), append(at, i)
			}
		}
		if len(its) == 0 {
			continue
		}
		if err := compare(m.eng.ctx, m, its, func(i int) string { return name(at[i]) }); err != nil {
			fault.Throw(fmt.Errorf("%s: %w", op, err))
		}
	}
}

// checkGrads is CheckSame of gradients. Ranks whose row-sparse gradient is not the same
// may have other numbers of rows, so errors do not tell them.
func checkGrads(grads []Grad) {
	if len(grads) == 0 || !grads[0].spec().mesh.eng.check { // no allocation for what is not asked for
		return
	}
	shards := make([]shard, len(grads))
	for i, g := range grads {
		if g.dense != nil {
			shards[i] = shardOf(g.dense)
		} else {
			shards[i] = shard{g.rows.spec, g.rows.Values.DType(), []*tensor.Tensor{g.rows.Index, g.rows.Values}}
		}
	}
	checkSame("dtensor: ValueAndGrad", shards, func(i int) string {
		if grads[i].dense != nil {
			return fmt.Sprintf("the gradient of parameter %d, %v", i, grads[i].dense)
		}
		return fmt.Sprintf("the row-sparse gradient of parameter %d, %v", i, grads[i].rows.spec)
	})
}

// repeats reports whether several ranks hold the same part.
func (s *spec) repeats() bool {
	for axis, p := range s.placements {
		if p.IsReplicate() && s.mesh.axes[axis].Size > 1 {
			return true
		}
	}
	return false
}

// compare returns an error for the first of some shards on the mesh m that differs on
// ranks that should hold the same, or is of different types. It is the same on all ranks.
func compare(ctx context.Context, m *Mesh, shards []shard, name func(i int) string) error {
	if m.outside() {
		return nil
	}
	mine := make([]int64, 0, 2*len(shards))
	for _, t := range shards {
		mine = append(mine, int64(t.dtype), int64(digest(t.parts)))
	}
	all := make([]int64, len(mine)*m.Size())
	if err := m.all.Do(ctx, comm.Call{Kind: comm.AllGatherKind, Dst: comm.Of(all), Src: comm.Of(mine), Cause: "check",
		Check: true}); err != nil {
		return err
	}
	for i, t := range shards {
		of := func(p int) (dt tensor.DType, sum int64) {
			return tensor.DType(all[p*len(mine)+2*i]), all[p*len(mine)+2*i+1]
		}
		dt0, _ := of(0)
		first := map[string]int{} // the first position that holds a part
		for p := range m.Size() {
			dt, sum := of(p)
			if dt != dt0 {
				return fmt.Errorf("%s: rank %d holds %v, rank %d %v; cast one of them", name(i), m.ranks[0], dt0, m.ranks[p], dt)
			}
			coord := m.pure.Coord(p)
			for axis, its := range t.spec.placements {
				if its.IsReplicate() {
					coord[axis] = 0
				}
			}
			key := fmt.Sprint(coord)
			q, seen := first[key]
			if !seen {
				first[key] = p
			} else if _, other := of(q); sum != other {
				return fmt.Errorf("%s on mesh %v: ranks %d and %d should hold the same and do not; give the same data on both, "+
					"take that of one with DistributeFrom, or shard it",
					name(i), m, m.ranks[q], m.ranks[p])
			}
		}
	}
	return nil
}

// here is the line of the program that called a function of this package, as " at
// train/main.go:31".
func here() string {
	var pcs [stack.Depth]uintptr
	if line := stack.Line(pcs[:runtime.Callers(2, pcs[:])], ""); line != "" {
		return " at " + line
	}
	return ""
}

// digest is a hash of the bytes of tensors that is the same in every process.
func digest(parts []*tensor.Tensor) uint64 {
	var h uint64
	mix := func(word uint64) { // one to one in each argument
		h = (h ^ word) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	for _, t := range parts {
		host := make([]byte, t.Bytes())
		if len(host) > 0 {
			t.Device().ToHost(unsafe.Pointer(&host[0]), t.Ptr(), len(host))
		}
		mix(uint64(len(host)))
		for ; len(host) >= 8; host = host[8:] {
			mix(endian.LittleEndian.Uint64(host))
		}
		for _, b := range host {
			mix(uint64(b))
		}
	}
	return h
}
