package embedding

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gorun-spmd/gorun/internal/ints"
)

// Overview prints the plan in a line for each layout: which tables have it. It fits on a
// screen for any number of tables and ranks; String says more.
func (p *Plan) Overview() string {
	type line struct {
		layout             string
		names              []string
		bytes, least, most int // rows of a table: least to most
		distinct           float64
	}
	lines := map[choice]*line{}
	for u, c := range p.choices {
		for _, t := range p.units[u].tables {
			d, layout := p.demands[t], p.Layouts[t].String()
			if c.kind == TableWiseKind && p.options.Ranks > mostRanks { // too many for a line each
				c.rank, layout = 0, fmt.Sprintf("table-wise, each on a rank of %s", p.options.Axis)
			}
			l := lines[c]
			if l == nil {
				l = &line{layout: layout, least: d.Rows}
				lines[c] = l
			}
			l.names = append(l.names, d.Name)
			l.bytes, l.least, l.most = l.bytes+p.bytes(&d, d.Rows, d.Dim), min(l.least, d.Rows), max(l.most, d.Rows)
			l.distinct += p.distinct(t)
		}
	}
	var s strings.Builder
	fmt.Fprintln(&s, p.title())
	width := 0
	for _, l := range lines {
		width = max(width, len(l.layout))
	}
	for _, c := range slices.SortedFunc(maps.Keys(lines), func(a, b choice) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.rank, b.rank))
	}) {
		l := lines[c]
		rows := fmt.Sprintf("%d to %d rows", l.least, l.most)
		if l.least == l.most {
			rows = fmt.Sprintf("%d rows", l.least)
		}
		fmt.Fprintf(&s, "%-*s  %s: %s, %s, %.0f distinct ids a step\n", width, l.layout, someOf(l.names, 36), rows, sizeOf(l.bytes), l.distinct)
	}
	return s.String() + p.totals()
}

// someOf lists names, the first of them if they are longer than most characters and two are
// left: "a, b and 17 more".
func someOf(names []string, most int) string {
	n := len(names[0])
	for i, name := range names[1:] {
		if n += len(name) + 2; n > most && i+2 < len(names) {
			return fmt.Sprintf("%s and %d more", strings.Join(names[:i+1], ", "), len(names)-i-1)
		}
	}
	return strings.Join(names, ", ")
}

// String prints the plan and says why: for each table where it lies, and what the
// next best way would cost. Tables of which the same is to be said have one line.
func (p *Plan) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s\nmeasured: %v\n", p.title(), p.rates)
	why, l := make([]string, len(p.demands)), p.load(p.choices)
	for u := range p.units {
		reason := p.why(&l, u)
		for _, t := range p.units[u].tables {
			why[t] = reason
		}
	}
	var lines []string
	first, count := map[string]string{}, map[string]int{} // by line: the first of its tables, and how many there are
	for t, d := range p.demands {
		line := fmt.Sprintf("%9d rows of %d, %s, %.0f distinct ids a step: %v; %s", d.Rows, d.Dim, sizeOf(p.bytes(&d, d.Rows, d.Dim)),
			p.distinct(t), p.Layouts[t], why[t])
		if count[line]++; count[line] == 1 {
			lines, first[line] = append(lines, line), d.Name
		}
	}
	width := 5
	for line, n := range count {
		if n > 1 {
			first[line] += fmt.Sprintf(" and %d more", n-1)
		}
		width = max(width, len(first[line]))
	}
	for _, line := range lines {
		fmt.Fprintf(&s, "%-*s  %s\n", width, first[line], line)
	}
	return s.String() + p.totals()
}

// title says what the plan is for.
func (p *Plan) title() string {
	o := p.options
	s := fmt.Sprintf("plan for %d tables, batches of %d, %d ranks along %s", len(p.demands), o.Batch, o.Ranks, o.Axis)
	if o.Copies > 1 {
		s += fmt.Sprintf(", %d copies", o.Copies)
	}
	return s
}

// totals says what the plan costs.
func (p *Plan) totals() string {
	limit := "no limit"
	if o := p.options; o.MemoryBytes > 0 {
		limit = "limit " + sizeOf(o.MemoryBytes)
	}
	memory := "of each rank: "
	if n := len(p.MemoryBytes); n > mostRanks {
		memory = fmt.Sprintf("of a rank: %s to %s, %s on average", sizeOf(slices.Min(p.MemoryBytes)), sizeOf(slices.Max(p.MemoryBytes)),
			sizeOf(ints.Sum(p.MemoryBytes)/n))
	} else {
		for r, m := range p.MemoryBytes {
			if r > 0 {
				memory += ", "
			}
			memory += sizeOf(m)
		}
	}
	return fmt.Sprintf("memory %s (%s); estimated %v of a step", memory, limit, p.Time.Round(time.Microsecond))
}

// mostRanks is up to how many ranks a plan lists the memory of each.
const mostRanks = 8

// why says what the other kinds of layout would cost for a unit, cheapest first, while the
// others stay. l is the load of the plan.
func (p *Plan) why(l *load, u int) string {
	at := p.choices[u]
	l.add(p, u, at, -1)
	now := p.valueWith(l, u, at)
	list := slices.DeleteFunc(p.alternatives(l, u), func(a alternative) bool { return a.kind == at.kind })
	l.add(p, u, at, 1)
	switch {
	case p.options.Ranks == 1:
		return "there is one rank"
	case len(list) == 0:
		return "no other kind is allowed"
	}
	slices.SortStableFunc(list, func(a, b alternative) int {
		if a.value.less(b.value) {
			return -1
		}
		return 1
	})
	var reasons []string
	for _, a := range list {
		v := a.value
		switch more := v.time - now.time; {
		case v.over > 0:
			reasons = append(reasons, fmt.Sprintf("%v would not fit", a.kind))
		case more >= tick:
			reasons = append(reasons, fmt.Sprintf("%v would take %v more", a.kind, more.Round(tick)))
		case v.memory > now.memory:
			reasons = append(reasons, fmt.Sprintf("%v would take %s more memory", a.kind, sizeOf(v.memory-now.memory)))
		default:
			reasons = append(reasons, fmt.Sprintf("%v would do as well", a.kind))
		}
	}
	return strings.Join(reasons, ", ")
}

// tick is the smallest difference in time that is shown.
const tick = 100 * time.Nanosecond

// exact prints a number of bytes to the last: "40.0 kB (40004 bytes)".
func exact(bytes int) string {
	if bytes < 1e3 {
		return fmt.Sprintf("%d bytes", bytes)
	}
	return fmt.Sprintf("%s (%d bytes)", sizeOf(bytes), bytes)
}

// sizeOf prints a number of bytes: "12.3 MB".
func sizeOf(bytes int) string {
	switch b := float64(bytes); {
	case b >= 1e12:
		return fmt.Sprintf("%.1f TB", b/1e12)
	case b >= 1e9:
		return fmt.Sprintf("%.1f GB", b/1e9)
	case b >= 1e6:
		return fmt.Sprintf("%.1f MB", b/1e6)
	case b >= 1e3:
		return fmt.Sprintf("%.1f kB", b/1e3)
	}
	return fmt.Sprintf("%d B", bytes)
}
