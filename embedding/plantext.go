package embedding

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// String prints the plan and says why: for each table where it lies, and what the
// next best way would cost.
func (p *Plan) String() string {
	var s strings.Builder
	o := p.options
	fmt.Fprintf(&s, "plan for %d tables, batches of %d, %d ranks along %s", len(p.demands), o.Batch, o.Ranks, o.Axis)
	if o.Copies > 1 {
		fmt.Fprintf(&s, ", %d copies", o.Copies)
	}
	fmt.Fprintf(&s, "\nmeasured: %v\n", p.rates)
	width := 5
	for _, d := range p.demands {
		width = max(width, len(d.Name))
	}
	for t, d := range p.demands {
		fmt.Fprintf(&s, "%-*s  %9d rows of %d, %s, %.0f distinct ids a step: %v; %s\n", width, d.Name, d.Rows, d.Dim,
			sizeOf(p.bytes(d.Rows, d.Dim)), p.distinct(t), p.Layouts[t], p.why(t))
	}
	limit := "no limit"
	if o.MemoryBytes > 0 {
		limit = "limit " + sizeOf(o.MemoryBytes)
	}
	var memory []string
	for _, m := range p.MemoryBytes {
		memory = append(memory, sizeOf(m))
	}
	fmt.Fprintf(&s, "memory of each rank: %s (%s); estimated %v a step", strings.Join(memory, ", "), limit, p.Time.Round(time.Microsecond))
	return s.String()
}

// why says what the other kinds of layout would cost for a table, cheapest first,
// while the others stay.
func (p *Plan) why(t int) string {
	plan := slices.Clone(p.choices)
	now := p.value(plan)
	best := map[kind]value{} // of each other kind
	var kinds []kind
	for _, c := range p.choicesOf(t) {
		if c.kind == p.choices[t].kind {
			continue
		}
		plan[t] = c
		v := p.value(plan)
		if was, ok := best[c.kind]; !ok {
			kinds = append(kinds, c.kind)
			best[c.kind] = v
		} else if v.less(was) {
			best[c.kind] = v
		}
	}
	if kinds == nil {
		return "there is one rank"
	}
	slices.SortStableFunc(kinds, func(a, b kind) int {
		if best[a].less(best[b]) {
			return -1
		}
		return 1
	})
	var reasons []string
	for _, k := range kinds {
		v := best[k]
		switch more := v.time - now.time; {
		case v.over > 0:
			reasons = append(reasons, kindNames[k]+" would not fit")
		case more >= tick:
			reasons = append(reasons, fmt.Sprintf("%s would take %v more", kindNames[k], more.Round(tick)))
		case v.memory > now.memory:
			reasons = append(reasons, fmt.Sprintf("%s would take %s more memory", kindNames[k], sizeOf(v.memory-now.memory)))
		default:
			reasons = append(reasons, kindNames[k]+" would do as well")
		}
	}
	return strings.Join(reasons, ", ")
}

// tick is the smallest difference in time that is told.
const tick = 100 * time.Nanosecond

// refusal says that nothing fits.
func (p *Plan) refusal(v value) error {
	o, total, largest := p.options, 0, 0
	for t, d := range p.demands {
		bytes := p.bytes(d.Rows, d.Dim)
		total += bytes
		if bytes > p.bytes(p.demands[largest].Rows, p.demands[largest].Dim) {
			largest = t
		}
	}
	d := p.demands[largest]
	return &Error{Op: "NewPlan", Detail: fmt.Sprintf(
		"%d tables of %s together do not fit %d ranks of %s each: the best plan found is %s over; the largest table is %q with %s (%d rows of %d); give more ranks or memory, or fewer rows",
		len(p.demands), sizeOf(total), o.Ranks, sizeOf(o.MemoryBytes), sizeOf(v.over), d.Name, sizeOf(p.bytes(d.Rows, d.Dim)), d.Rows, d.Dim)}
}

// sizeOf prints a number of bytes: "12.3 MB".
func sizeOf(bytes int) string {
	switch b := float64(bytes); {
	case b >= 1e9:
		return fmt.Sprintf("%.1f GB", b/1e9)
	case b >= 1e6:
		return fmt.Sprintf("%.1f MB", b/1e6)
	case b >= 1e3:
		return fmt.Sprintf("%.1f kB", b/1e3)
	}
	return fmt.Sprintf("%d B", bytes)
}
