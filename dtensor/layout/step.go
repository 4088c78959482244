package layout

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Kind says how a step changes the layout of a tensor.
type Kind uint8

// The kinds of steps. The first ones are local: they move nothing between ranks.
const (
	// Relabel changes the placements alone: every rank keeps what it holds.
	Relabel Kind = iota
	// Slice keeps a part of what the rank holds.
	Slice
	// Partition makes Partial of Replicate: for Sum, Nodes and Prod the rank at coordinate
	// 0 of the step's axes keeps its values and the others hold the identity; for
	// Avg, Min and Max all keep them.
	Partition
	// Mask makes MaskPartial of replicated integer ids: the ids are shifted to the
	// rank's block of the table and those of other blocks masked. See MaskRange.
	Mask
	// AllGather brings together the blocks of the group: Shard becomes Replicate on
	// the step's axes.
	AllGather
	// AllReduce reduces what the group holds on every rank: Partial becomes Replicate.
	AllReduce
	// ReduceScatter reduces what the group holds and leaves each rank its block:
	// Partial becomes Shard.
	ReduceScatter
	// AllToAll trades blocks within the group: a Shard of one dimension becomes a
	// Shard of another.
	AllToAll
	// Exchange trades whatever intersections of blocks the group needs.
	Exchange
	// Rows brings rows from their owners: MaskPartial becomes Replicate or Shard.
	// Of the box that Sends has for a member, the rows that the sender owns travel.
	Rows
	kinds
)

var kindNames = [kinds]string{"relabel", "slice", "partition", "mask", "all-gather", "all-reduce", "reduce-scatter", "all-to-all",
	"exchange", "rows from owners"}

// String returns the name of the kind, "all-gather" for instance.
func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return "invalid"
}

// Local reports whether a step of this kind moves nothing between ranks.
func (k Kind) Local() bool { return k < AllGather }

// A Step is one part of a plan: at most one collective. It is made of global
// facts alone and is the same on every rank. It must not be modified.
type Step struct {
	Kind Kind
	// Axes are the mesh axes whose ranks take part together, ascending. The ranks
	// that differ only in their coordinates on these axes are a group; a member's
	// place in it counts those coordinates in row-major order. A local step has the
	// axes that it changes.
	Axes []int
	// From and To are the layouts before and after the step.
	From, To Layout
	// Op is the reduction of AllReduce, ReduceScatter and Partition.
	Op ReduceOp
	// MaxBytes is the most that any rank receives from other ranks; of Rows, where
	// each member of the group owns as many rows as any other.
	MaxBytes int
	// Cost is the time that the step is estimated to take.
	Cost time.Duration
}

// GroupSize returns the number of ranks in each group of the step.
func (s *Step) GroupSize() int {
	axes := s.From.Axes()
	n := 1
	for _, a := range s.Axes {
		n *= axes.Size(a)
	}
	return n
}

// Place returns which member of its group the rank at coord is.
func (s *Step) Place(coord []int) int {
	axes := s.From.Axes()
	p := 0
	for _, a := range s.Axes {
		p = p*axes.Size(a) + coord[a]
	}
	return p
}

// member sets dst to the coordinate of a member of the group of the rank at coord
// and returns it. dst must be as long as coord and may be coord itself.
func (s *Step) member(dst, coord []int, place int) []int {
	axes := s.From.Axes()
	copy(dst, coord)
	for i := len(s.Axes) - 1; i >= 0; i-- {
		size := axes.Size(s.Axes[i])
		dst[s.Axes[i]] = place % size
		place /= size
	}
	return dst
}

// changes returns the axes that the step changes or communicates over, ascending.
func (s *Step) changes() []int {
	var list []int
	for i := range s.From.Axes().Len() {
		if s.From.Placement(i) != s.To.Placement(i) || slices.Contains(s.Axes, i) {
			list = append(list, i)
		}
	}
	return list
}

// describe returns the columns of the step's line in a plan: the mesh axes, the
// placements on them before and after, and the kind.
func (s *Step) describe() (axes, from, to, what string) {
	var names []string
	var before, after []Placement
	a := s.From.Axes()
	for _, i := range s.changes() {
		names = append(names, a.Name(i))
		before = append(before, s.From.Placement(i))
		after = append(after, s.To.Placement(i))
	}
	what = s.Kind.String()
	if !s.Kind.Local() && len(names) != len(s.Axes) {
		var group []string
		for _, i := range s.Axes {
			group = append(group, a.Name(i))
		}
		what += " over " + strings.Join(group, ",")
	}
	return strings.Join(names, ","), FormatPlacements(before), FormatPlacements(after), what
}

// String prints the step as "model: S(0) → R all-gather".
func (s *Step) String() string {
	axes, from, to, what := s.describe()
	return fmt.Sprintf("%s: %s → %s %s", axes, from, to, what)
}
