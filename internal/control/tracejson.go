package control

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
)

// The first rows of each kind for a rank. The format calls a row a thread. Spans that overlap
// take the next row.
const (
	stepRow     = 1
	callRow     = 2   // calls; those of several goroutines at once have a row each
	asyncRow    = 100 // asynchronous calls
	spanRow     = 200 // the program's spans
	operatorRow = 300 // operators
)

// A traceEvent is one event of a trace.
type traceEvent struct {
	phase    byte // of the format: X a slice, s the start of an arrow, f its end, C a number
	row      int32
	part     int32
	start    int64
	duration int64        // X
	arrow    uint64       // s, f: the arrow's number
	record   *TraceRecord // X; nil: the time between calls
	sample   *TraceSample // C
}

// WriteTrace writes the ranks' parts as one file in the Trace Event Format, which
// ui.perfetto.dev and chrome://tracing open:
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
//
// Each rank is a process of the format. It has rows for steps, for calls with the computation
// between them, for asynchronous calls, for the program's spans and for operators,
// and it has counters for metrics and memory. Arrows go from a Send to its
// Recv, and from the root of a collective to the other ranks or from them to the root. In other
// collectives they go from the rank that came last to the others, which it kept waiting.
// Time 0 is the begin of the first rank.
func WriteTrace(w io.Writer, parts []*TracePart) error {
	t := &traceWriter{out: bufio.NewWriterSize(w, 1<<16), parts: parts}
	t.collect()
	t.text(`{"displayTimeUnit":"ns","otherData":{"producer":"gorun"`)
	for _, p := range parts {
		if n := p.Dropped(); n > 0 {
			t.text(fmt.Sprintf(`,"dropped of rank %d":"the first %d of %d records"`, p.Rank, n, p.Written))
		}
	}
	t.text("},\"traceEvents\":[\n")
	t.names()
	for i := range t.events {
		t.event(&t.events[i])
	}
	t.text("\n]}\n")
	if t.err != nil {
		return t.err
	}
	return t.out.Flush()
}

// order ranks events of the same time: a slice comes before the arrows that it holds, an
// arrow's start before its end.
func (e *traceEvent) order() int {
	switch e.phase {
	case 'X':
		return 0
	case 's':
		return 1
	}
	return 2
}

type traceWriter struct {
	out    *bufio.Writer
	err    error
	comma  bool
	line   []byte
	parts  []*TracePart
	began  int64
	rows   []map[int32]string // by part
	events []traceEvent
}

// collect makes all events, in order.
func (t *traceWriter) collect() {
	for _, p := range t.parts {
		if p.Began > 0 && (t.began == 0 || p.Began < t.began) {
			t.began = p.Began
		}
	}
	t.rows = make([]map[int32]string, len(t.parts))
	rowOf := map[*TraceRecord]int32{}
	for i := range t.parts {
		t.rows[i] = map[int32]string{}
		t.rank(int32(i), rowOf)
	}
	t.arrows(rowOf)
	slices.SortStableFunc(t.events, func(a, b traceEvent) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.order(), b.order()), cmp.Compare(b.duration, a.duration))
	})
}

// rank makes the slices of one part.
func (t *traceWriter) rank(i int32, rowOf map[*TraceRecord]int32) {
	part := t.parts[i]
	records := make([]*TraceRecord, len(part.Records))
	end := part.Ended
	for n := range part.Records {
		records[n] = &part.Records[n]
		end = max(end, part.Records[n].End, part.Records[n].Start)
	}
	slices.SortStableFunc(records, func(a, b *TraceRecord) int { return cmp.Compare(a.Start, b.Start) })
	var free [2][]int64 // of calls and of asynchronous calls: when each row becomes free
	var step *TraceRecord
	idle := part.Began // no call has been seen from this time on
	if len(records) > 0 && part.Dropped() > 0 {
		idle = records[0].Start
	}
	compute := func(until int64) {
		if until > idle && idle > 0 {
			t.slice(i, callRow, idle, until, nil)
		}
		idle = max(idle, until)
	}
	var nests nesting
	for _, r := range records {
		if r.Shape > TraceStep {
			first := int32(spanRow)
			if r.Shape != TraceSpan {
				first = operatorRow
			}
			t.slice(i, nests.row(first, r.Start, r.End), r.Start, r.End, r)
			continue
		}
		if r.Shape == TraceStep {
			if step != nil {
				t.slice(i, stepRow, step.Start, r.Start, step)
			}
			step = r
			continue
		}
		which, first := 0, int32(callRow)
		if r.Async {
			which, first = 1, asyncRow
		} else {
			compute(r.Start)
			idle = max(idle, r.End)
		}
		row := slices.IndexFunc(free[which], func(at int64) bool { return at <= r.Start })
		if row < 0 {
			row = len(free[which])
			free[which] = append(free[which], 0)
		}
		free[which][row] = r.End
		rowOf[r] = first + int32(row)
		t.slice(i, first+int32(row), r.Start, r.End, r)
	}
	compute(end)
	if step != nil {
		t.slice(i, stepRow, step.Start, max(end, step.Start), step)
	}
	for n := range part.Samples {
		if s := &part.Samples[n]; s.Kind <= SampleStep {
			t.events = append(t.events, traceEvent{phase: 'C', part: i, start: s.At, sample: s})
		}
	}
}

// A nesting holds, by row, the ends of the slices that are open. The slices of a row must nest or
// follow each other.
type nesting map[int32][]int64

// row returns the first row, from first on, in which a slice has room. It is called for slices in
// the order of their starts.
func (n *nesting) row(first int32, start, end int64) int32 {
	if *n == nil {
		*n = nesting{}
	}
	for row := first; ; row++ {
		open := (*n)[row]
		for len(open) > 0 && open[len(open)-1] <= start {
			open = open[:len(open)-1]
		}
		if len(open) == 0 || open[len(open)-1] >= end {
			(*n)[row] = append(open, end)
			return row
		}
	}
}

func (t *traceWriter) slice(part, row int32, start, end int64, r *TraceRecord) {
	name := fmt.Sprintf("rank %d", t.parts[part].Rank)
	switch {
	case row == stepRow:
		name += " steps"
	case row >= operatorRow:
		name += " operators"
	case row >= spanRow:
		name += " spans"
	case row >= asyncRow:
		name += " asynchronous calls"
	}
	t.rows[part][row] = name
	t.events = append(t.events, traceEvent{phase: 'X', part: part, row: row, start: start, duration: end - start, record: r})
}

// arrows links the ranks' calls.
func (t *traceWriter) arrows(rowOf map[*TraceRecord]int32) {
	id := uint64(0)
	arrow := func(from, to TraceSide) {
		start, end := from.Start, max(to.End-1, to.Start)
		if end < start || from.Part == to.Part { // the clocks of two hosts may differ
			return
		}
		id++
		t.events = append(t.events,
			traceEvent{phase: 's', part: int32(from.Part), row: rowOf[from.TraceRecord], start: start, arrow: id},
			traceEvent{phase: 'f', part: int32(to.Part), row: rowOf[to.TraceRecord], start: end, arrow: id})
	}
	for _, sides := range MatchTrace(t.parts, 0) {
		if sides[0].Shape.Message() {
			linkMessage(sides, arrow)
		} else {
			t.linkCollective(sides, arrow)
		}
	}
}

// linkMessage draws the arrow of a message whose two sides are known.
func linkMessage(sides []TraceSide, arrow func(from, to TraceSide)) {
	if len(sides) != 2 || sides[0].Shape == sides[1].Shape {
		return
	}
	if sides[0].Shape == TraceRecv {
		slices.Reverse(sides)
	}
	arrow(sides[0], sides[1])
}

// linkCollective draws the arrows of a collective: from or to its root, or from the
// rank that came last.
func (t *traceWriter) linkCollective(sides []TraceSide, arrow func(from, to TraceSide)) {
	shape := sides[0].Shape
	hub := slices.IndexFunc(sides, func(s TraceSide) bool { return t.parts[s.Part].Rank == int(s.Peer) })
	if shape == TraceAll {
		if len(sides) != int(sides[0].Size) {
			return // the rank that came last is not known
		}
		hub = 0
		for n := range sides {
			if sides[n].Start > sides[hub].Start {
				hub = n
			}
		}
	}
	if hub < 0 {
		return
	}
	for n := range sides {
		switch {
		case n == hub:
		case shape == TraceToRoot:
			arrow(sides[n], sides[hub])
		default:
			arrow(sides[hub], sides[n])
		}
	}
}

// names writes the names and the order of the ranks and their rows.
func (t *traceWriter) names() {
	for i, p := range t.parts {
		name := fmt.Sprintf("rank %d", p.Rank)
		if p.Host != "" {
			name += " on " + p.Host
		}
		t.meta(p.Rank, 0, "process_name", `"name":`+quoted(name))
		t.meta(p.Rank, 0, "gorun_rank", fmt.Sprintf(`"host":%s,"began":%d,"ended":%d,"dropped":%d`,
			quoted(p.Host), max(0, p.Began-t.began), max(0, p.Ended-t.began), p.Dropped()))
		for _, s := range p.Samples {
			if s.Kind == SampleLayout {
				t.meta(p.Rank, 0, "gorun_layout", `"layout":`+quoted(p.Text(s.Name)))
			}
		}
		t.meta(p.Rank, 0, "process_sort_index", `"sort_index":`+strconv.Itoa(p.Rank))
		for _, row := range slices.Sorted(maps.Keys(t.rows[i])) {
			t.meta(p.Rank, row, "thread_name", `"name":`+quoted(t.rows[i][row]))
			t.meta(p.Rank, row, "thread_sort_index", `"sort_index":`+strconv.Itoa(int(row)))
		}
	}
}

func (t *traceWriter) meta(rank int, row int32, name, args string) {
	t.next()
	t.text(fmt.Sprintf(`{"ph":"M","pid":%d,"tid":%d,"name":"%s","args":{%s}}`, rank, row, name, args))
}

// event writes one event.
func (t *traceWriter) event(e *traceEvent) {
	t.next()
	part := t.parts[e.part]
	b := t.line[:0]
	if e.phase == 'C' {
		t.text(part.counter(e.sample, e.start-t.began))
		return
	}
	b = append(b, `{"ph":"`...)
	b = append(b, e.phase)
	b = append(b, `","pid":`...)
	b = strconv.AppendInt(b, int64(part.Rank), 10)
	b = append(b, `,"tid":`...)
	b = strconv.AppendInt(b, int64(e.row), 10)
	b = append(b, `,"ts":`...)
	b = micros(b, e.start-t.began)
	if e.phase != 'X' {
		b = append(b, `,"cat":"data","name":"data","id":`...)
		b = strconv.AppendUint(b, e.arrow, 10)
		if e.phase == 'f' {
			b = append(b, `,"bp":"e"`...)
		}
		t.line = append(b, '}')
		t.text(string(t.line))
		return
	}
	b = append(b, `,"dur":`...)
	b = micros(b, e.duration)
	r := e.record
	switch {
	case r == nil:
		b = append(b, `,"cat":"compute","name":"compute"}`...)
	case r.Shape == TraceStep:
		b = append(b, `,"cat":"step","name":"step `...)
		b = strconv.AppendUint(b, r.Number, 10)
		b = append(b, `"}`...)
	case r.Shape > TraceStep:
		b = append(b, `,"cat":"`+spanCategories[r.Shape-TraceOperator]+`","name":`+quoted(part.Text(r.Name))...)
		b = append(b, `,"args":{"at":`+quoted(part.Text(r.Site))+`}}`...)
	default:
		b = part.appendCall(b, r)
	}
	t.line = b
	t.text(string(b))
}

// appendCall appends the fields of a call and the end of its event.
func (p *TracePart) appendCall(b []byte, r *TraceRecord) []byte {
	name, category := p.Text(r.Name), "collective"
	switch {
	case r.Shape == TraceWait:
		name, category = "wait for "+name, "wait"
	case r.Shape == TraceSend || r.Shape == TraceRecv:
		category = "message"
	}
	b = append(b, `,"cat":"`+category+`","name":`+quoted(name)+`,"args":{"comm":`+quoted(p.Text(r.Comm))...)
	for _, it := range []struct {
		name string
		n    int64
		show bool
	}{
		{"seq", int64(r.Call), r.Call > 0}, {"bytes", r.Bytes, r.Shape != TraceWait}, {"count", r.Count, r.Shape != TraceWait},
		{"rank", int64(r.Peer), r.Peer >= 0}, {"number", int64(r.Number), r.Number > 0}, {"ranks", int64(r.Size), r.Size > 0},
		{"shape", int64(r.Shape), r.Shape == TraceFromRoot || r.Shape == TraceToRoot},
	} {
		if it.show {
			b = append(b, `,"`+it.name+`":`...)
			b = strconv.AppendInt(b, it.n, 10)
		}
	}
	for _, it := range []struct {
		name string
		text uint32
	}{{"dtype", r.DType}, {"op", r.Op}, {"cause", r.Cause}, {"at", r.Site}} {
		if text := p.Text(it.text); text != "" {
			b = append(b, `,"`+it.name+`":`+quoted(text)...)
		}
	}
	if r.Async {
		b = append(b, `,"async":true`...)
	}
	if r.Fails {
		b = append(b, `,"failed":true`...)
	}
	return append(b, '}', '}')
}

// spanCategories are the categories of the shapes from TraceOperator on.
var spanCategories = [...]string{"operator", "gradient", "span"}

// sampleNames are the names of samples that are not metrics.
var sampleNames = [...]string{SampleMemory: "memory", SampleStep: "step"}

// counter returns a sample's event. The step stays outside the arguments, because viewers draw
// each argument.
func (p *TracePart) counter(s *TraceSample, at int64) string {
	name, category := p.Text(s.Name), "metric"
	if s.Kind != SampleMetric {
		name, category = sampleNames[s.Kind], sampleNames[s.Kind]
	}
	args := "{}" // for numbers that are not finite, which JSON lacks
	if !math.IsNaN(s.Value) && !math.IsInf(s.Value, 0) {
		args = `{"value":` + strconv.FormatFloat(s.Value, 'g', -1, 64) + "}"
	}
	return fmt.Sprintf(`{"ph":"C","pid":%d,"tid":0,"ts":%s,"cat":%q,"name":%s,"step":%d,"args":%s}`,
		p.Rank, micros(nil, at), category, quoted(name), s.Step, args)
}

// micros appends nanoseconds as microseconds.
func micros(b []byte, n int64) []byte {
	n = max(n, 0)
	b = strconv.AppendInt(b, n/1000, 10)
	return append(b, '.', byte('0'+n/100%10), byte('0'+n/10%10), byte('0'+n%10))
}

// quoted returns text as a JSON string.
func quoted(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}

func (t *traceWriter) next() {
	if t.comma {
		t.text(",\n")
	}
	t.comma = true
}

func (t *traceWriter) text(s string) {
	if t.err == nil {
		_, t.err = t.out.WriteString(s)
	}
}
