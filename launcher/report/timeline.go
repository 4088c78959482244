package report

import (
	"cmp"
	"slices"

	"github.com/gorun-spmd/gorun/internal/control"
)

// A TimeLine shows when each rank did what. It is compact, because a page has tens of thousands
// of slices.
type TimeLine struct {
	Texts []string // names and lines; a slice has their indexes
	Rows  []Row    // by rank
	Kept  int      // number of slices
	Left  int      // number of slices that are left out
}

// A Row holds the slices of one rank.
type Row struct {
	Rank int
	// A slice is start and duration in 100 ns, kind, name (of a step its number), line, and how
	// long a call waited, in 100 ns.
	Slices [][6]int64
}

// The kinds of slices.
const (
	operatorSlice = iota
	gradientSlice
	spanSlice
	callSlice
	asyncSlice
	waitSlice
	stepSlice
)

const (
	maxSlices = 40000
	maxRows   = 64
	sliceUnit = 100 // nanoseconds
)

// timeLine returns the last slices of all ranks.
func (a *accounts) timeLine() TimeLine {
	t := TimeLine{Texts: []string{""}}
	type which struct{ part, record int }
	var all []which
	for i, p := range a.parts[:min(maxRows, len(a.parts))] {
		t.Rows = append(t.Rows, Row{Rank: p.Rank, Slices: [][6]int64{}})
		for k := range p.Records {
			if p.Records[k].Start >= a.from {
				all = append(all, which{i, k})
			}
		}
	}
	slices.SortFunc(all, func(x, y which) int {
		return cmp.Compare(a.parts[x.part].Records[x.record].Start, a.parts[y.part].Records[y.record].Start)
	})
	t.Left = max(0, len(all)-maxSlices)
	t.Kept = len(all) - t.Left
	numbers := map[string]int64{"": 0}
	text := func(s string) int64 {
		n, ok := numbers[s]
		if !ok {
			n = int64(len(t.Texts))
			numbers[s] = n
			t.Texts = append(t.Texts, clip(s))
		}
		return n
	}
	for _, w := range all[t.Left:] {
		p := a.parts[w.part]
		r := &p.Records[w.record]
		s := [6]int64{0: (r.Start - a.began) / sliceUnit, 1: (r.End - r.Start) / sliceUnit, 4: text(p.Text(r.Site)),
			5: a.waited[w.part][w.record] / sliceUnit}
		name := p.Text(r.Name)
		switch r.Shape {
		case control.TraceOperator:
			s[2] = operatorSlice
		case control.TraceGradient:
			s[2], name = gradientSlice, "gradient of "+name
		case control.TraceSpan:
			s[2] = spanSlice
		case control.TraceStep:
			s[1], s[2], s[3] = 0, stepSlice, int64(r.Number)
		case control.TraceWait:
			s[2], name = waitSlice, "wait for "+name
		default:
			if s[2] = callSlice; r.Async {
				s[2] = asyncSlice
			}
			if cause := p.Text(r.Cause); cause != "" {
				name += " for " + cause
			}
		}
		if r.Shape != control.TraceStep {
			s[3] = text(name)
		}
		t.Rows[w.part].Slices = append(t.Rows[w.part].Slices, s)
	}
	return t
}
