package embedding

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/internal/ints"
)

// refusal says that nothing fits.
func (p *Plan) refusal(v value) error {
	o, total, largest := p.options, 0, 0
	for t, d := range p.demands {
		bytes := p.bytes(&d, d.Rows, d.Dim)
		total += bytes
		if bytes > p.bytes(&p.demands[largest], p.demands[largest].Rows, p.demands[largest].Dim) {
			largest = t
		}
	}
	d, copies := p.demands[largest], ""
	if all := p.leastOfAll(); all > total {
		copies = fmt.Sprintf(", %s with the copies that Kinds ask for,", exact(all))
	}
	return planError("%d tables of %s together%s do not fit %d ranks of %s each: the best plan found is %s over; "+
		"the largest table is %q with %s (%d rows of %d); give more ranks or memory, or fewer rows",
		len(p.demands), exact(total), copies, o.Ranks, exact(o.MemoryBytes), exact(v.over), d.Name, exact(p.bytes(&d, d.Rows, d.Dim)),
		d.Rows, d.Dim)
}

// leastOfAll returns how much all ranks have together at least.
func (p *Plan) leastOfAll() (bytes int) {
	for i := range p.units {
		u := &p.units[i]
		least := math.MaxInt
		for _, k := range u.kinds {
			if k == TableWiseKind {
				least = min(least, u.bytes)
			} else {
				least = min(least, ints.Sum(u.memory[k]))
			}
		}
		bytes += least
	}
	return bytes
}

// impossible returns an error if what tables may have does not fit any plan, whatever the
// others do: a unit that fits nowhere, or a rank with more than it can hold of those that
// have to lie there.
func (p *Plan) impossible() error {
	limit := p.options.MemoryBytes
	if limit == 0 || p.options.Ranks == 1 {
		return nil
	}
	for i := range p.units {
		u := &p.units[i]
		if !p.constrained(u) || slices.ContainsFunc(u.kinds, func(k Kind) bool { return p.least(u, k) <= limit }) {
			continue
		}
		best := slices.MinFunc(u.kinds, func(a, b Kind) int { return cmp.Compare(p.least(u, a), p.least(u, b)) })
		return planError("%s of %s may only be %s: of that a rank has %s at least, but may have %s; "+
			"allow another kind, or give a rank more memory", p.called(u), exact(u.bytes), oneOf(u.kinds), exact(p.least(u, best)), exact(limit))
	}
	for r := range p.options.Ranks {
		bytes, here := make([]int, len(p.units)), []int{} // of each unit at least, and the units that have some
		for i := range p.units {
			if bytes[i] = p.leastOn(&p.units[i], r); bytes[i] > 0 {
				here = append(here, i)
			}
		}
		if ints.Sum(bytes) <= limit {
			continue
		}
		slices.SortStableFunc(here, func(a, b int) int { return cmp.Compare(bytes[b], bytes[a]) })
		var names []string
		for _, i := range here {
			names = append(names, fmt.Sprintf("%s (%s)", p.called(&p.units[i]), sizeOf(bytes[i])))
		}
		return planError("rank %d of axis %q may have %s, but by Kinds and Ranks %s have to lie there: %s; allow other kinds or ranks, "+
			"or give a rank more memory", r, p.options.Axis, exact(limit), exact(ints.Sum(bytes)), someOf(names, 200))
	}
	return nil
}

// constrained reports whether the program has said something about the layout of a unit.
func (p *Plan) constrained(u *unit) bool {
	return len(u.tables) > 1 || len(p.demands[u.tables[0]].Kinds) > 0 || len(p.demands[u.tables[0]].Ranks) > 0
}

// least returns how much of a unit the rank with the most has, if it is of a kind.
func (p *Plan) least(u *unit, k Kind) int {
	if k == TableWiseKind {
		return u.bytes
	}
	return slices.Max(u.memory[k])
}

// leastOn returns how much of a unit rank r has at least.
func (p *Plan) leastOn(u *unit, r int) int {
	least := u.bytes
	for _, k := range u.kinds {
		switch {
		case k != TableWiseKind:
			least = min(least, u.memory[k][r])
		case len(u.ranks) > 1 || u.ranks[0] != r:
			return 0
		}
	}
	return least
}

// called names a unit in errors.
func (p *Plan) called(u *unit) string {
	if first := &p.demands[u.tables[0]]; len(u.tables) == 1 {
		return fmt.Sprintf("table %q", first.Name)
	} else {
		return fmt.Sprintf("group %q", first.Group)
	}
}

// noLayout says that the tables of a unit have no layout that all of them may have.
func (p *Plan) noLayout(u *unit) error {
	first := &p.demands[u.tables[0]]
	if len(u.tables) == 1 {
		return planError("table %q of %d features has no layout: Kinds %v, Ranks %v; allow another kind", first.Name, first.Dim, first.Kinds,
			first.Ranks)
	}
	var most []string // of the tables one by one: what each may have, as far as the one that leaves none
	for i, t := range u.tables {
		one, upTo := &unit{tables: u.tables[i : i+1]}, &unit{tables: u.tables[:i+1]}
		p.restrict(one)
		p.restrict(upTo)
		may := fmt.Sprintf("%q may be %s", p.demands[t].Name, oneOf(one.kinds))
		if slices.Contains(one.kinds, TableWiseKind) && len(p.demands[t].Ranks) > 0 {
			may += fmt.Sprintf(" on ranks %v", one.ranks)
		}
		if !slices.Contains(most, may) {
			most = append(most, may)
		}
		if len(upTo.kinds) == 0 {
			break
		}
	}
	if n := len(most); n > 3 {
		most = append(append(most[:2:2], fmt.Sprintf("%d more differ", n-3)), most[n-1])
	}
	return planError("the %d tables of group %q have no layout that all of them may have: %s; allow another kind, or rank",
		len(u.tables), first.Group, strings.Join(most, ", "))
}

// oneOf lists kinds: "row-wise or table-wise".
func oneOf(kinds []Kind) string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.String()
	}
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, " or ")
}
