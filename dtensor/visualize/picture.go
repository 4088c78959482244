package visualize

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
)

// A Picture says which ranks hold which parts of a tensor.
type Picture struct {
	Title   string
	Shape   []int
	Regions []Region // disjoint; ascending by offset
	Empty   []int    // the world ranks that hold no element, ascending
}

// A Region is a box of the tensor that some ranks hold as a whole.
type Region struct {
	Offset, Size []int
	Label        string // the ranks that hold it
}

// Tensor draws the layout of t.
func Tensor(t *dtensor.Tensor) *Picture { return Layout(t.Layout(), t.Mesh().Ranks()) }

// Layout draws a layout on a mesh whose position i is held by world rank
// ranks[i]; nil stands for 0, 1, 2 and so on.
func Layout(l layout.Layout, ranks []int) *Picture {
	axes := l.Axes()
	p := &Picture{Title: fmt.Sprintf("%v on %v", l, axes), Shape: l.Shape()}
	p.Title += of(ranks)
	b := builder{picture: p}
	for position := range axes.Count() {
		rank := position
		if ranks != nil {
			rank = ranks[position]
		}
		coord := axes.Coord(position)
		group := slices.Clone(coord) // ranks of one group hold addends of the same copy
		for i := range group {
			if l.Placement(i).IsPartial() {
				group[i] = 0
			}
		}
		b.add(l.Offset(coord), l.LocalShape(coord), rank, axes.Position(group))
	}
	return b.done()
}

// Shards draws the shards of all ranks of a table.
func Shards(s *dtensor.LocalShards) *Picture {
	ranks := s.Mesh().Ranks()
	shape := s.Shape()
	p := &Picture{Title: fmt.Sprintf("[%d, %d] in %d shards on %v", shape[0], shape[1], len(s.Chunks()), s.Mesh()), Shape: shape[:]}
	p.Title += of(ranks)
	b := builder{picture: p}
	has := map[int]bool{}
	for _, c := range s.Chunks() {
		rank := ranks[c.Position]
		has[rank] = has[rank] || c.Size[0]*c.Size[1] > 0
		if c.Size[0]*c.Size[1] > 0 {
			b.add(c.Offset[:], c.Size[:], rank, c.Position)
		}
	}
	for _, r := range ranks {
		if !has[r] {
			p.Empty = append(p.Empty, r)
		}
	}
	return b.done()
}

// of names the ranks of a mesh unless they are 0, 1, 2 and so on.
func of(ranks []int) string {
	for i, r := range ranks {
		switch {
		case i == r:
		case len(ranks) == 1:
			return fmt.Sprintf(" of rank %d", r)
		default:
			return " of ranks " + join(ranks, ", ")
		}
	}
	return ""
}

// A builder collects which rank holds which box.
type builder struct {
	picture *Picture
	held    []holders // one for each region
}

// holders are the ranks of a region, by group.
type holders struct {
	groups []int
	ranks  map[int][]int
}

func (b *builder) add(offset, size []int, rank, group int) {
	if slices.Contains(size, 0) {
		b.picture.Empty = append(b.picture.Empty, rank)
		return
	}
	k := slices.IndexFunc(b.picture.Regions, func(r Region) bool { return slices.Equal(r.Offset, offset) && slices.Equal(r.Size, size) })
	if k < 0 {
		k = len(b.held)
		b.held = append(b.held, holders{ranks: map[int][]int{}})
		b.picture.Regions = append(b.picture.Regions, Region{Offset: slices.Clone(offset), Size: slices.Clone(size)})
	}
	h := &b.held[k]
	if h.ranks[group] == nil {
		h.groups = append(h.groups, group)
	}
	h.ranks[group] = append(h.ranks[group], rank)
}

func (b *builder) done() *Picture {
	for k, h := range b.held {
		var labels []string
		for _, g := range h.groups {
			labels = append(labels, join(h.ranks[g], "+"))
		}
		b.picture.Regions[k].Label = strings.Join(labels, ", ")
	}
	slices.SortFunc(b.picture.Regions, func(x, y Region) int { return slices.Compare(x.Offset, y.Offset) })
	slices.Sort(b.picture.Empty)
	return b.picture
}

func join(numbers []int, by string) string {
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, by)
}

// note returns a line about the ranks without elements, "" if there are none.
func (p *Picture) note() string {
	switch {
	case slices.Contains(p.Shape, 0):
		return "the tensor has no elements"
	case len(p.Empty) == 1:
		return fmt.Sprintf("rank %d holds no element", p.Empty[0])
	case len(p.Empty) > 1:
		return fmt.Sprintf("ranks %s hold no element", join(p.Empty, ", "))
	}
	return ""
}

// A panel is the regions of one part of the leading dimensions, as boxes of two
// dimensions.
type panel struct {
	title      string // the part, "[0:2, 1:2, …]"; "" if there is only one
	rows, cols int    // its size
	flat       bool   // the tensor has no rows
	regions    []area
	rowCuts    []int // the rows where regions begin and end, ascending, with both ends
	columnCuts []int
}

// An area is a region within a panel.
type area struct {
	row, rows, col, cols int
	label                string
}

// panels divides the picture; each has at least one region.
func (p *Picture) panels() []panel {
	nd := len(p.Shape)
	lead := max(0, nd-2)
	var list []panel
	titles := map[string]int{}
	for _, r := range p.Regions {
		title := ""
		if lead > 0 {
			var parts []string
			for d := range lead {
				parts = append(parts, span(r.Offset[d], r.Size[d]))
			}
			title = "[" + strings.Join(parts, ", ") + ", …]"
		}
		k, ok := titles[title]
		if !ok {
			k = len(list)
			titles[title] = k
			list = append(list, panel{title: title, rows: 1, cols: 1, flat: nd < 2})
			if nd > 0 {
				list[k].cols = p.Shape[nd-1]
			}
			if nd > 1 {
				list[k].rows = p.Shape[nd-2]
			}
		}
		a := area{rows: 1, cols: 1, label: r.Label}
		if nd > 0 {
			a.col, a.cols = r.Offset[nd-1], r.Size[nd-1]
		}
		if nd > 1 {
			a.row, a.rows = r.Offset[nd-2], r.Size[nd-2]
		}
		list[k].regions = append(list[k].regions, a)
	}
	for i := range list {
		list[i].cut()
	}
	return list
}

// cut sets rowCuts and columnCuts.
func (p *panel) cut() {
	p.rowCuts, p.columnCuts = []int{0, p.rows}, []int{0, p.cols}
	for _, a := range p.regions {
		p.rowCuts = append(p.rowCuts, a.row, a.row+a.rows)
		p.columnCuts = append(p.columnCuts, a.col, a.col+a.cols)
	}
	for _, cuts := range []*[]int{&p.rowCuts, &p.columnCuts} {
		slices.Sort(*cuts)
		*cuts = slices.Compact(*cuts)
	}
}

// span prints the indices from start on, as Go slices them.
func span(start, length int) string { return fmt.Sprintf("%d:%d", start, start+length) }
