// Package report makes one page from a job's trace. The page shows which ranks computed, which
// ranks waited for which, how many bytes were sent, the metrics, and how parameters are divided.
//
// New makes a Report, the data of the page, from the ranks' parts of a trace. Report.Write
// writes the page, one HTML file that needs no other file. Live serves the same data while a job
// runs.
package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/internal/observe"
)

// A Report is the data of the page. Times are in seconds from the start of the first rank.
type Report struct {
	Title    string  // the program's command line
	Seconds  float64 // from the start of the first rank to the end of the last
	From, To float64 // the time that calls and operators cover; the trace had no room for earlier ones
	Dropped  uint64  // number of records for which the trace had no room
	Running  bool    // some rank has not ended: the job runs, or the rank was killed
	Live     bool    // gorun serves it while the job runs

	Ranks     []Rank
	Slowest   *Slowest // nil: no rank was much slower than the others
	Causes    []Cause  // causes of communication, longest first
	Operators []Operator
	Traffic   Traffic
	Metrics   []Series
	Memory    []Series // bytes, by rank
	Layouts   []observe.Layout
	TimeLine  TimeLine
	Notes     []string // what the page leaves out, and why
}

// A Rank shows how one rank spent its time. All times are in seconds.
type Rank struct {
	Rank        int
	Host        string
	Seconds     float64 // all time: the sum of Compute, Communicate, Wait and Input
	Compute     float64 // time outside calls and outside input
	Communicate float64 // time in calls after all ranks that the call needs had come
	Wait        float64 // time in calls before that
	Input       float64 // time in spans named input, outside calls
	Blamed      float64 // time that other ranks waited for this one
	Memory      float64 // the most memory, in bytes
	Ended       bool
}

// Slowest names the rank for which the others waited longest.
type Slowest struct {
	Rank    int
	Seconds float64 // time that the others together waited for it
	Share   float64 // Seconds as a share of the time that all ranks waited
	Ratio   float64 // its compute and input time, divided by the median of the other ranks'
}

// A Cause sums up the calls of one kind that one operator made at one line.
type Cause struct {
	Call, Cause, Site string
	Calls             int
	Bytes             float64
	Communicate, Wait float64 // seconds of all ranks
}

// An Operator sums up the spans of one name at one line.
type Operator struct {
	Kind, Name, Site string // Kind is forward, backward or span
	Calls            int
	Seconds          float64 // of all ranks; time in calls counts only for the Kind span
}

// Traffic is how many bytes went from each rank to each. For a collective it is the least
// traffic, with parts of equal size; a backend may send more, and by other ways.
type Traffic struct {
	Names []string // of ranks, or of blocks of ranks
	Bytes [][]float64
}

// A Series is a curve of points: seconds, step (-1: not known), value.
type Series struct {
	Name   string
	Points [][3]float64
}

// The limits of a page.
const (
	maxCauses    = 60
	maxOperators = 60
	maxBlocks    = 32   // blocks of ranks in Traffic
	maxPoints    = 2000 // points of a Series
	maxSeries    = 48
	maxLayouts   = 400
	maxRegions   = 4096 // regions of one layout
	maxText      = 300  // bytes of a text
)

// New makes the report from the ranks' parts of a trace.
func New(title string, parts []*control.TracePart) *Report {
	a := newAccounts(parts)
	r := &Report{Title: title, Seconds: seconds(a.end - a.began), From: seconds(a.from - a.began), To: seconds(a.end - a.began)}
	a.match()
	for i, p := range parts {
		one := a.rank(i)
		r.Dropped += p.Dropped()
		r.Running = r.Running || !one.Ended
		r.Ranks = append(r.Ranks, one)
	}
	a.input(r.Ranks)
	r.Slowest = slowest(r.Ranks)
	r.Causes = longest(a.causes, maxCauses, func(c *Cause) float64 { return c.Communicate + c.Wait })
	r.Operators = longest(a.operators, maxOperators, func(o *Operator) float64 { return o.Seconds })
	r.Traffic = a.blocks()
	a.samples(r)
	r.TimeLine = a.timeLine()
	r.notes(len(a.causes), len(a.operators))
	return r
}

// notes adds notes about data that is left out.
func (r *Report) notes(causes, operators int) {
	note := func(format string, args ...any) { r.Notes = append(r.Notes, fmt.Sprintf(format, args...)) }
	if r.Dropped > 0 {
		note("A trace keeps the last records of each rank: calls, operators and times are of the last %.3g s, %d records before found no room. "+
			"Metrics and memory are of the whole run.", r.To-r.From, r.Dropped)
	}
	if n := r.TimeLine.Left; n > 0 {
		note("The time line shows the last %d of %d slices.", r.TimeLine.Kept, n+r.TimeLine.Kept)
	}
	if n := len(r.Ranks) - len(r.TimeLine.Rows); n > 0 {
		note("The time line shows the first %d of %d ranks.", len(r.TimeLine.Rows), len(r.Ranks))
	}
	if causes > maxCauses || operators > maxOperators {
		note("The tables show the longest %d of %d causes and %d of %d operators.",
			min(causes, maxCauses), causes, min(operators, maxOperators), operators)
	}
}

// longest returns the most values of a table that took longest, in descending order.
func longest[K comparable, V any](table map[K]*V, most int, took func(*V) float64) []V {
	list := make([]*V, 0, len(table))
	for _, v := range table {
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b *V) int {
		return cmp.Or(cmp.Compare(took(b), took(a)), cmp.Compare(fmt.Sprint(*a), fmt.Sprint(*b)))
	})
	values := make([]V, min(most, len(list)))
	for i := range values {
		values[i] = *list[i]
	}
	return values
}

// slowest returns the rank for which the others waited longest, nil if that was less than a
// fiftieth of their time.
func slowest(ranks []Rank) *Slowest {
	if len(ranks) < 2 {
		return nil
	}
	worst, waited, total := 0, 0.0, 0.0
	for i := range ranks {
		waited += ranks[i].Wait
		total += ranks[i].Seconds
		if ranks[i].Blamed > ranks[worst].Blamed {
			worst = i
		}
	}
	w := &ranks[worst]
	if w.Blamed <= 0 || w.Blamed < (total-w.Seconds)/50 {
		return nil
	}
	var others []float64
	for i := range ranks {
		if i != worst {
			others = append(others, ranks[i].Compute+ranks[i].Input)
		}
	}
	slices.Sort(others)
	s := &Slowest{Rank: w.Rank, Seconds: w.Blamed, Share: w.Blamed / max(waited, w.Blamed)}
	if median := others[len(others)/2]; median > 0 {
		s.Ratio = (w.Compute + w.Input) / median
	}
	return s
}

// samples adds the samples: metrics, steps per second, memory, layouts.
func (a *accounts) samples(r *Report) {
	metrics := map[string]int{}
	skipped := 0
	for i, p := range a.parts {
		memory := Series{Name: fmt.Sprintf("rank %d", p.Rank)}
		var steps Series
		for _, s := range p.Samples {
			at := seconds(s.At - a.began)
			switch {
			case s.Kind == control.SampleLayout:
				a.layout(r, p.Text(s.Name))
			case math.IsNaN(s.Value) || math.IsInf(s.Value, 0):
			case s.Kind == control.SampleMemory:
				memory.Points = append(memory.Points, [3]float64{at, float64(s.Step), s.Value})
				r.Ranks[i].Memory = max(r.Ranks[i].Memory, s.Value)
			case s.Kind == control.SampleStep:
				steps.Points = append(steps.Points, [3]float64{at, s.Value, s.Value})
			case s.Kind == control.SampleMetric:
				name := clip(p.Text(s.Name))
				n, ok := metrics[name]
				if !ok && len(r.Metrics) == maxSeries {
					skipped++
					continue
				}
				if !ok {
					n = len(r.Metrics)
					metrics[name] = n
					r.Metrics = append(r.Metrics, Series{Name: name})
				}
				r.Metrics[n].Points = append(r.Metrics[n].Points, [3]float64{at, float64(s.Step), s.Value})
			}
		}
		if len(memory.Points) > 0 && len(r.Memory) < maxSeries {
			r.Memory = append(r.Memory, memory.thinned())
		}
		if rate := rates(steps.Points); i == 0 && len(rate) > 0 {
			defer func() { r.Metrics = append(r.Metrics, Series{Name: "steps/s", Points: rate}.thinned()) }()
		}
	}
	for i := range r.Metrics {
		r.Metrics[i] = r.Metrics[i].thinned()
	}
	if skipped > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("The page shows %d metrics; %d values of others are left out.", maxSeries, skipped))
	}
	if len(a.parts) > maxSeries {
		r.Notes = append(r.Notes, fmt.Sprintf("Memory is shown of the first %d ranks.", maxSeries))
	}
}

// rates returns the steps per second between each two samples of steps.
func rates(points [][3]float64) (list [][3]float64) {
	for i := 1; i < len(points); i++ {
		dt, steps := points[i][0]-points[i-1][0], points[i][1]-points[i-1][1]
		if dt > 0 && steps > 0 {
			list = append(list, [3]float64{points[i][0], points[i][1], steps / dt})
		}
	}
	return list
}

// thinned returns s with at most maxPoints points. It keeps the last point.
func (s Series) thinned() Series {
	slices.SortStableFunc(s.Points, func(a, b [3]float64) int { return cmp.Compare(a[0], b[0]) })
	every := ints.DivUp(len(s.Points), maxPoints)
	if every <= 1 {
		return s
	}
	thin := make([][3]float64, 0, maxPoints)
	for i := len(s.Points) - 1; i >= 0; i -= every {
		thin = append(thin, s.Points[i])
	}
	slices.Reverse(thin)
	return Series{s.Name, thin}
}

// layout adds the layout that text describes. It checks it, because the program wrote the text.
func (a *accounts) layout(r *Report, text string) {
	var l observe.Layout
	if len(r.Layouts) == maxLayouts || json.Unmarshal([]byte(text), &l) != nil || len(l.Regions) > maxRegions || len(l.Shape) > 16 {
		return
	}
	for i := range l.Regions {
		if g := &l.Regions[i]; len(g.Offset) != len(l.Shape) || len(g.Size) != len(l.Shape) {
			return
		}
		l.Regions[i].Label = clip(l.Regions[i].Label)
	}
	l.Name, l.Title, l.Type = clip(l.Name), clip(l.Title), clip(l.Type)
	if !slices.ContainsFunc(r.Layouts, func(o observe.Layout) bool { return o.Name == l.Name && o.Title == l.Title }) {
		r.Layouts = append(r.Layouts, l)
	}
}

// clip returns text, shortened to maxText bytes.
func clip(text string) string {
	if len(text) <= maxText {
		return text
	}
	cut := maxText
	for cut > 0 && text[cut]&0xc0 == 0x80 { // in the middle of a letter
		cut--
	}
	return text[:cut] + "…"
}

func seconds(nanoseconds int64) float64 { return float64(nanoseconds) / 1e9 }
