package dtensor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/forecast"
	"github.com/gorun-spmd/gorun/tensor"
)

// An Axis is one dimension of a mesh: a name and how many ranks lie along it.
type Axis = layout.Axis

// maxAxes is the largest number of axes of a mesh.
const maxAxes = 8

// A Mesh arranges ranks in an n-d grid with named axes. Position i of the grid,
// counted in row-major order, is held by one rank; a tensor's shards follow the
// positions. A rank of the parent communicator that is in no position is
// outside: it may hold the mesh and its tensors, which are empty there, but
// takes part in no communication.
//
// A Mesh belongs to one rank. One goroutine at a time makes and uses tensors of all
// meshes of a rank, which share memory and scopes; others may use communicators of
// their own meanwhile.
// Meshes are compared by pointer: two tensors can meet in an operator if they
// are on the same *Mesh.
type Mesh struct {
	eng    *engine
	parent *comm.Comm // what the mesh was made from
	axes   []Axis
	pure   layout.Axes // axes as package layout has them
	ranks  []int       // ranks[i] is the world rank at position i
	all    *comm.Comm  // the ranks of the mesh in position order; nil outside
	coord  []int       // of this rank; nil outside
	groups map[axisSet]*comm.Comm
	subs   map[axisSet]*Mesh
	specs  map[layout.Layout]*spec
	recent recent // some of specs
	rules  memo[ruleKey, rule]
	plans  memo[planKey, plan]
	orders []order // of parameters, which the ranks have compared

	forecast *forecast.Mesh // nil: the program does not run for a forecast
}

// axisSet is a set of mesh axes: bit i stands for axis i.
type axisSet uint16

func (s axisSet) has(axis int) bool { return s&(1<<axis) != 0 }

// NewMesh makes a mesh of all ranks of world, in order: with axes (dp=2, tp=2)
// rank 3 has the coordinate [1 1]. The product of the sizes must be
// world.Size(). NewMesh is collective over world.
func NewMesh(world *comm.Comm, axes ...Axis) (*Mesh, error) {
	if world == nil {
		return nil, fault.Located(errors.New("dtensor: NewMesh: the communicator is nil; give the world, or a group that this rank is in"))
	}
	return newMesh("NewMesh", world, nil, axes)
}

// NewMeshOf makes a mesh whose position i, in row-major order, is held by rank
// ranks[i] of world. Ranks may be in any order and need not be all of world's;
// each may appear once. NewMeshOf is collective over world, with the same
// arguments on every rank, those outside the mesh too.
func NewMeshOf(world *comm.Comm, ranks []int, axes ...Axis) (*Mesh, error) {
	own := append(make([]int, 0, len(ranks)), ranks...) // of no ranks, too, it is not nil
	return newMesh("NewMeshOf", world, own, axes)
}

// newMesh makes a mesh of the given ranks of world; nil: of all, in order.
func newMesh(op string, world *comm.Comm, ranks []int, axes []Axis) (*Mesh, error) {
	n := len(ranks)
	if ranks == nil {
		n = world.Size()
	}
	err := checkAxes(op, axes, n)
	if err == nil {
		err = checkRanks(op, ranks, world.Size())
	}
	if err != nil {
		return nil, fault.Located(err)
	}
	eng := engineOf(world)
	if err := eng.wantHost(n); err != nil {
		return nil, fmt.Errorf("dtensor: %s: %w", op, err)
	}
	if ranks == nil || isAll(ranks, world.Size()) { // goroutine ranks have one list of all
		return assemble(eng, op, world, world, slices.Clone(axes), world.Internals().World())
	}
	all, err := world.Group(eng.ctx, ranks)
	if err != nil {
		return nil, fmt.Errorf("dtensor: %s: %w", op, err)
	}
	for i, r := range ranks {
		ranks[i] = world.WorldRank(r)
	}
	return assemble(eng, op, world, all, slices.Clone(axes), ranks)
}

// assemble makes the mesh over all, whose ranks are in position order, and the
// communicators of its single axes.
func assemble(eng *engine, op string, parent, all *comm.Comm, axes []Axis, ranks []int) (*Mesh, error) {
	pure, err := layout.NewAxes(axes...)
	if err != nil {
		return nil, fmt.Errorf("dtensor: %s: %w", op, err)
	}
	m := &Mesh{eng: eng, parent: parent, axes: axes, pure: pure, ranks: ranks, all: all,
		groups: map[axisSet]*comm.Comm{}, subs: map[axisSet]*Mesh{}, specs: map[layout.Layout]*spec{}}
	if all == nil {
		return m, nil
	}
	m.coord = pure.Coord(all.Rank())
	m.tell()
	for i := range axes {
		if _, err = m.group(1 << i); err != nil {
			return nil, fmt.Errorf("dtensor: %s: axis %s: %w", op, axes[i].Name, err)
		}
	}
	return m, nil
}

func checkAxes(op string, axes []Axis, n int) error {
	pure, err := layout.NewAxes(axes...)
	switch {
	case err != nil:
		return fmt.Errorf("dtensor: %s: %w", op, err)
	case len(axes) == 0 || len(axes) > maxAxes:
		return fmt.Errorf("dtensor: %s: %d axes; a mesh has 1 to %d", op, len(axes), maxAxes)
	case pure.Count() != n:
		return fmt.Errorf("dtensor: %s: mesh %v has %d positions for %d ranks; make the product of the sizes %d", op, pure, pure.Count(), n, n)
	}
	return nil
}

func checkRanks(op string, ranks []int, size int) error {
	seen := make([]bool, size)
	for i, r := range ranks {
		if r < 0 || r >= size {
			return fmt.Errorf("dtensor: %s: ranks[%d] is %d; the communicator has ranks 0 to %d", op, i, r, size-1)
		}
		if seen[r] {
			return fmt.Errorf("dtensor: %s: rank %d appears twice in %v", op, r, ranks)
		}
		seen[r] = true
	}
	return nil
}

// isAll reports whether ranks is 0, 1, … size-1.
func isAll(ranks []int, size int) bool {
	if len(ranks) != size {
		return false
	}
	for i, r := range ranks {
		if i != r {
			return false
		}
	}
	return true
}

// String returns the axes: "(dp=2,tp=2)".
func (m *Mesh) String() string { return m.pure.String() }

// Axes returns the axes in order; do not modify it.
func (m *Mesh) Axes() []Axis { return m.there("Axes").axes }

// LayoutAxes returns the axes as the functions of package layout take them.
func (m *Mesh) LayoutAxes() layout.Axes { return m.there("LayoutAxes").pure }

// Ranks returns the world rank of each position in row-major order; do not
// modify it.
func (m *Mesh) Ranks() []int { return m.ranks }

// Size returns the number of positions of the mesh.
func (m *Mesh) Size() int { return len(m.ranks) }

// Axis returns the index of the axis of that name, and whether there is one.
func (m *Mesh) Axis(name string) (index int, ok bool) {
	return m.there("Axis").pure.Index(name)
}

// there returns m. It throws if m is nil or the zero Mesh.
func (m *Mesh) there(op string) *Mesh {
	if m == nil || m.eng == nil {
		refuse(op, "the mesh is nil", "make one with NewMesh")
	}
	return m
}

// Every returns the placement once for each axis: what divides a tensor over all
// ranks, or replicates it, on a mesh of any number of axes.
//
//	x.Redistribute(mesh.Every(layout.Replicate())...)
func (m *Mesh) Every(p layout.Placement) []layout.Placement {
	return slices.Repeat([]layout.Placement{p}, len(m.axes))
}

// Inside reports whether this rank holds a position of the mesh.
func (m *Mesh) Inside() bool { return m.all != nil }

// Coord returns this rank's coordinate, one number an axis; nil if the rank is
// outside. Do not modify it.
func (m *Mesh) Coord() []int { return m.coord }

// Comm returns the communicator of all ranks of the mesh in position order;
// nil if this rank is outside.
func (m *Mesh) Comm() *comm.Comm { return m.all }

// Parent returns the communicator that the mesh was made from, whose ranks may be
// outside the mesh.
func (m *Mesh) Parent() *comm.Comm { return m.parent }

// Device returns where this rank's tensors live.
func (m *Mesh) Device() tensor.Device { return m.eng.dev }

// Context returns the context that operators of this rank run under now: that
// of the innermost ValueAndGrad or Try, else one that is never done.
func (m *Mesh) Context() context.Context { return m.eng.ctx }

// Do carries out call on c, a communicator of the mesh, for an operator: under
// Context, and it throws the *comm.Error of a call that fails.
func (m *Mesh) Do(c *comm.Comm, call comm.Call) {
	if m.eng.same {
		wantExact(c, &call)
	}
	if m.eng.line != nil {
		call = call.At(m.eng.line)
	}
	if err := c.Do(m.eng.ctx, call); err != nil {
		fault.Throw(err)
	}
}

// mustAxis is Axis for operators: it throws if there is no such axis.
func (m *Mesh) mustAxis(op, name string) int {
	i, ok := m.Axis(name)
	if !ok {
		refuse(op, fmt.Sprintf("mesh %s has no axis %q", m, name), "use one of its names")
	}
	return i
}
