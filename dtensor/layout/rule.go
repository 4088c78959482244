package layout

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gorun-spmd/gorun/internal/ints"
)

// A letter names one index of an operator, as in an einsum. Dimensions with the
// same letter are the same index. Letter 0 is a dimension that no rank can have a part
// of only and that is nobody else's: one of size 1 that is broadcast, for instance.
type letter uint8

// maxLetters is the largest number of letters of a rule.
const maxLetters = 63

// A Rule says which placements of its inputs an operator takes on one mesh axis,
// and which placements its results then have. It is declared once, by one of the
// constructors (Contraction, Pointwise, Reduction, Rowwise, Lookup), for inputs of given
// global shapes; what it allows, its table and its tests all come from it.
//
// Every mesh axis follows a row of its own, and the rows are:
//
//	all inputs R                       results R
//	S on an index, where it occurs     S on that index; a result without it: Partial
//	Partial, as the operator allows    Partial
//
// An input without the index is R. Two inputs that shard an index agree, since
// chunks depend on the size alone; explicit sizes are kept for all inputs alike. A
// rank whose part of a contracted index is empty contributes the identity of the
// reduction. A Rule must not be modified and can be shared.
type Rule struct {
	name     string
	in, out  [][]letter // for each operand, the letter of each dimension
	inShape  [][]int
	outShape [][]int
	size     [maxLetters + 1]int // of each letter
	whole    uint64              // letters, a bit each, that must not be sharded
	contract Placement           // of a result that lacks a sharded letter
	partials []Row               // the rows without a shard, except for the one that is all R
	addends  uint64              // inputs, a bit each, that are added once to a contracted result
	mask     bool                // input 0 may be MaskPartial if the others are R; result 0 then is, too
	spine    letter              // of a sum, the outermost letter that it runs over; 0: the terms do not lie side by side
	terms    int                 // of a sum
	least    int                 // that a rank has at least where it has a node
	tail     int                 // of a reduction of one input, the dimensions after the last reduced one
	nodes    bool                // see Nodes
}

// A Row is one line of a rule: a placement for each input, and for each result.
type Row struct {
	In, Out []Placement
}

// Name returns the name of the operator.
func (r *Rule) Name() string { return r.name }

// OutShape returns the global shape of result i. It must not be modified.
func (r *Rule) OutShape(i int) []int { return r.outShape[i] }

// Outputs returns the number of results.
func (r *Rule) Outputs() int { return len(r.out) }

// Inputs returns the number of inputs.
func (r *Rule) Inputs() int { return len(r.in) }

// Rows returns the rows of the rule with torch.chunk shards: first all R, then one
// for each index that can be sharded, then those of partial inputs.
func (r *Rule) Rows() []Row {
	rows := []Row{r.replicated()}
	for _, l := range r.letters() {
		rows = append(rows, r.sharded(l, Shard(0)))
	}
	return append(rows, r.partials...)
}

// unsplit returns the rule without the rows by which ranks have addends or factors of a
// result: what is left gives each element of a result, on every mesh, from the same
// numbers in the same order. Rows that take a maximum or a minimum over ranks stay. A
// reduction, whose order depends on how many elements lie side by side, has all dimensions
// from the first reduced one on whole; what is looked up in the first input has all dimensions
// of the ids alone whole, as their gradients are added up where two ids are one.
func (r *Rule) unsplit() *Rule {
	u := *r
	u.partials = nil
	for _, row := range r.partials {
		if !slices.ContainsFunc(slices.Concat(row.In, row.Out), Placement.splits) {
			u.partials = append(u.partials, row)
		}
	}
	if !r.contract.splits() {
		return &u
	}
	contracted := false
	for _, l := range r.letters() {
		for _, out := range r.out {
			contracted = contracted && len(r.in) == 1 || !slices.Contains(out, l) || r.contract.IsMask() && !slices.Contains(r.in[0], l)
		}
		if contracted {
			u.whole |= 1 << l
		}
	}
	return &u
}

// Nodes returns the rule without the rows by which ranks have any addends or factors of a result, and with
// those by which each rank has a node of a sum, at least least of its terms. The result then is
// Partial(Nodes): the outermost index of the sum is divided equally among a power of two of ranks. Each of any
// number of ranks along one axis may also have a node or two, cut at leaves: see Choice.Nodes. Results of a
// reduction may then be sharded behind the last reduced dimension where each rank has several side by side, as
// one rank has.
func (r *Rule) Nodes(least int) *Rule {
	u := r.unsplit()
	if r.contract != Partial(Sum) || r.addends != 0 {
		return u
	}
	u.nodes, u.least = true, least
	if len(r.in) == 1 {
		for _, l := range r.in[0][len(r.in[0])-r.tail:] {
			u.whole &^= 1 << l
		}
	}
	if u.contract = Partial(Nodes); r.spine != 0 {
		u.whole &^= 1 << r.spine
	}
	return u
}

// keepsTail reports whether either all ranks have one result of a reduction side by side or none
// has: other kernels compute these.
func (r *Rule) keepsTail(in Layout) bool {
	first := len(r.inShape[0]) - r.tail
	if ints.Product(r.inShape[0][first:]) == 1 {
		return true
	}
	for position := range in.Axes().Count() {
		if ints.Product(in.LocalShape(in.Axes().Coord(position))[first:]) == 1 {
			return false
		}
	}
	return true
}

// splits reports whether ranks have parts of an element, of which the sum or the product is
// it.
func (p Placement) splits() bool {
	return p.IsPartial() && p != Partial(Max) && p != Partial(Min)
}

// letters returns the letters that can be sharded, in the order in which they occur.
func (r *Rule) letters() []letter {
	var list []letter
	seen := r.whole | 1
	for _, in := range r.in {
		for _, l := range in {
			if seen&(1<<l) == 0 {
				seen |= 1 << l
				list = append(list, l)
			}
		}
	}
	return list
}

// replicated returns the row in which everything is R.
func (r *Rule) replicated() Row {
	return Row{make([]Placement, len(r.in)), make([]Placement, len(r.out))}
}

// sharded returns the row in which a letter is sharded in the way of a shard.
func (r *Rule) sharded(l letter, as Placement) Row {
	row := r.replicated()
	contracted := false
	for i, out := range r.out {
		if d := slices.Index(out, l); d >= 0 {
			row.Out[i] = as.WithDim(d)
		} else {
			row.Out[i], contracted = r.contract, true
		}
	}
	for i, in := range r.in {
		if d := slices.Index(in, l); d >= 0 {
			row.In[i] = as.WithDim(d)
		} else if contracted && r.addends&(1<<i) != 0 {
			row.In[i] = r.contract
		}
	}
	return row
}

// String prints the rule on one line:
//
//	matmul: R R → R; S(0) R → S(0); S(1) S(0) → P(sum); R S(1) → S(1)
func (r *Rule) String() string {
	var b strings.Builder
	b.WriteString(r.name)
	b.WriteByte(':')
	for i, row := range r.Rows() {
		if i > 0 {
			b.WriteByte(';')
		}
		for _, p := range row.In {
			fmt.Fprintf(&b, " %v", p)
		}
		b.WriteString(" →")
		for _, p := range row.Out {
			fmt.Fprintf(&b, " %v", p)
		}
	}
	return b.String()
}

// Table prints the rule as the table of a doc comment, with a name for each input
// and each result:
//
//	a     b     result
//	R     R     R
//	S(0)  R     S(0)
func (r *Rule) Table(names ...string) string {
	lines := [][]string{names}
	for _, row := range r.Rows() {
		var cells []string
		for _, p := range slices.Concat(row.In, row.Out) {
			cells = append(cells, p.String())
		}
		lines = append(lines, cells)
	}
	width := make([]int, len(r.in)+len(r.out))
	for _, cells := range lines {
		for i, c := range cells {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for _, cells := range lines {
		var line strings.Builder
		for i, c := range cells {
			fmt.Fprintf(&line, "%-*s", width[i]+2, c)
		}
		b.WriteString(strings.TrimRight(line.String(), " "))
		b.WriteByte('\n')
	}
	return b.String()
}
