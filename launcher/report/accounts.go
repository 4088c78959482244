package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/ints"
)

// accounts holds the sums from which New makes a Report.
type accounts struct {
	parts []*control.TracePart
	place map[int32]int // by rank: its index in parts

	began, end int64 // begin and end of the job
	from       int64 // the time from which all ranks have all their records

	waited    [][]int64 // by part and record: how long the call waited for others
	blamed    []int64   // by part: how long others waited for it
	width     int       // number of parts in a block of traffic
	traffic   [][]float64
	causes    map[[3]string]*Cause
	operators map[[3]string]*Operator
	calls     []intervals // by part: the union of its calls that block
}

func newAccounts(parts []*control.TracePart) *accounts {
	n := len(parts)
	a := &accounts{parts: parts, place: map[int32]int{}, waited: make([][]int64, n), blamed: make([]int64, n),
		width: max(1, ints.DivUp(n, maxBlocks)), causes: map[[3]string]*Cause{}, operators: map[[3]string]*Operator{}}
	blocks := ints.DivUp(n, a.width)
	for range blocks {
		a.traffic = append(a.traffic, make([]float64, blocks))
	}
	for i, p := range parts {
		a.place[int32(p.Rank)] = i
		a.waited[i] = make([]int64, len(p.Records))
		if a.began == 0 || p.Began < a.began {
			a.began = p.Began
		}
		a.end = max(a.end, p.Ended)
		first := int64(0)
		for k := range p.Records {
			r := &p.Records[k]
			a.end = max(a.end, r.Start, r.End)
			if first == 0 || r.Start < first {
				first = r.Start
			}
		}
		if p.Dropped() > 0 {
			a.from = max(a.from, first)
		}
	}
	a.from = min(max(a.from, a.began), a.end)
	for _, p := range parts {
		var list intervals
		for k := range p.Records {
			if r := &p.Records[k]; r.Start >= a.from && !r.Async && r.Shape <= control.TraceWait {
				list = append(list, [2]int64{r.Start, r.End})
			}
		}
		a.calls = append(a.calls, list.union())
	}
	return a
}

// A side is one rank's side of a collective or of a message.
type side = control.TraceSide

// match adds up which rank waited for which, and how many bytes were sent.
func (a *accounts) match() {
	for _, sides := range control.MatchTrace(a.parts, a.from) {
		if sides[0].Shape.Message() {
			a.message(sides)
		} else {
			a.collective(sides)
		}
	}
}

// await notes how long the side s waited for the side who.
func (a *accounts) await(s, who side) {
	late := min(who.Start, s.End) - s.Start
	if s.Part == who.Part || s.Async || late <= 0 {
		return
	}
	a.waited[s.Part][s.Record] = late
	a.blamed[who.Part] += late
}

func (a *accounts) message(sides []side) {
	if len(sides) != 2 || sides[0].Part == sides[1].Part {
		return
	}
	a.await(sides[0], sides[1])
	a.await(sides[1], sides[0])
	from, to := sides[0], sides[1]
	if from.Shape == control.TraceRecv {
		from, to = to, from
	}
	a.traffic[from.Part/a.width][to.Part/a.width] += float64(from.Bytes)
}

func (a *accounts) collective(sides []side) {
	root := -1
	if place, ok := a.place[sides[0].Peer]; ok && sides[0].Shape != control.TraceAll {
		root = slices.IndexFunc(sides, func(s side) bool { return s.Part == place })
	}
	name := a.parts[sides[0].Part].Text(sides[0].Name)
	a.send(name, sides, root)
	if len(sides) != int(sides[0].Size) {
		return // the rank that came last is not known
	}
	last := slices.MaxFunc(sides, func(x, y side) int { return cmp.Compare(x.Start, y.Start) })
	switch sides[0].Shape {
	case control.TraceFromRoot:
		if root >= 0 {
			last = sides[root]
		}
	case control.TraceToRoot:
		if root >= 0 {
			a.await(sides[root], last)
		}
		return
	}
	for _, s := range sides {
		a.await(s, last)
	}
}

// send adds the bytes that the sides of a collective have to send each other.
func (a *accounts) send(name string, sides []side, root int) {
	n := float64(len(sides))
	if n < 2 {
		return
	}
	members := make([]float64, len(a.traffic)) // by block
	for _, s := range sides {
		members[s.Part/a.width]++
	}
	for i, s := range sides {
		bytes := float64(s.Bytes)
		each := 0.0
		switch kind := strings.TrimSuffix(name, "V"); kind {
		case "AllReduce":
			each = 2 * bytes / n // each rank sends a part to the rank that adds it, and a part of the sums back
		case "ReduceScatter", "AllToAll":
			each = bytes / n
		case "Scatter":
			if i == root {
				each = bytes / n
			}
		case "Broadcast":
			if i == root {
				each = bytes
			}
		case "Barrier":
		case "Gather", "Reduce":
			if root >= 0 && i != root {
				a.traffic[s.Part/a.width][sides[root].Part/a.width] += bytes
			}
		default: // AllGather, Split, Scan, Exscan: every rank needs all of this rank's data
			each = bytes
		}
		for block, n := range members {
			if block == s.Part/a.width {
				n--
			}
			a.traffic[s.Part/a.width][block] += each * n
		}
	}
}

// rank adds up the calls and the spans of a part.
func (a *accounts) rank(i int) Rank {
	p := a.parts[i]
	end := p.Ended
	if end == 0 {
		end = a.end
	}
	took := max(0, end-max(p.Began, a.from))
	one := Rank{Rank: p.Rank, Host: clip(p.Host), Seconds: seconds(took), Ended: p.Ended > 0, Blamed: seconds(a.blamed[i])}
	var wait, communicate int64
	for k := range p.Records {
		r := &p.Records[k]
		if r.Start < a.from {
			continue
		}
		switch {
		case r.Shape <= control.TraceWait:
			took, waited := r.End-r.Start, a.waited[i][k]
			if r.Shape == control.TraceWait || r.Fails {
				waited = took
			}
			c := a.cause(p, r)
			if r.Async {
				c.add(r, 0, 0)
				break
			}
			wait, communicate = wait+waited, communicate+took-waited
			c.add(r, took, waited)
		case r.Shape != control.TraceStep:
			a.operator(i, r)
		}
	}
	busy := a.calls[i].length()
	if all := wait + communicate; all > busy { // calls of several goroutines at once
		wait, communicate = int64(float64(wait)*float64(busy)/float64(all)), int64(float64(communicate)*float64(busy)/float64(all))
	}
	one.Wait, one.Communicate = seconds(wait), seconds(communicate)
	one.Compute = max(0, one.Seconds-seconds(busy))
	return one
}

// cause returns the row of a call.
func (a *accounts) cause(p *control.TracePart, r *control.TraceRecord) *Cause {
	key := [3]string{p.Text(r.Name), p.Text(r.Cause), p.Text(r.Site)}
	c := a.causes[key]
	if c == nil {
		c = &Cause{Call: clip(key[0]), Cause: clip(key[1]), Site: clip(key[2])}
		a.causes[key] = c
	}
	return c
}

func (c *Cause) add(r *control.TraceRecord, took, waited int64) {
	if r.Shape.Call() {
		c.Calls++
		c.Bytes += float64(r.Bytes)
	}
	c.Communicate += seconds(took - waited)
	c.Wait += seconds(waited)
}

// operator adds a span to its row.
func (a *accounts) operator(i int, r *control.TraceRecord) {
	p := a.parts[i]
	kind := [...]string{"forward", "backward", "span"}[r.Shape-control.TraceOperator]
	key := [3]string{kind, p.Text(r.Name), p.Text(r.Site)}
	o := a.operators[key]
	if o == nil {
		o = &Operator{Kind: kind, Name: clip(key[1]), Site: clip(key[2])}
		a.operators[key] = o
	}
	o.Calls++
	took := r.End - r.Start
	if r.Shape != control.TraceSpan {
		took -= a.calls[i].within(r.Start, r.End)
	}
	o.Seconds += seconds(took)
}

// input moves the time in spans named input from the ranks' Compute to their Input.
func (a *accounts) input(ranks []Rank) {
	for i, p := range a.parts {
		var list intervals
		for k := range p.Records {
			if r := &p.Records[k]; r.Shape == control.TraceSpan && r.Start >= a.from && p.Text(r.Name) == "input" {
				list = append(list, [2]int64{r.Start, r.End})
			}
		}
		took := int64(0)
		for _, it := range list.union() {
			took += it[1] - it[0] - a.calls[i].within(it[0], it[1])
		}
		ranks[i].Input = min(seconds(took), ranks[i].Compute)
		ranks[i].Compute -= ranks[i].Input
	}
}

// blocks returns the traffic with the names of its blocks of ranks.
func (a *accounts) blocks() Traffic {
	t := Traffic{Bytes: a.traffic}
	for first := 0; first < len(a.parts); first += a.width {
		last := min(first+a.width, len(a.parts)) - 1
		name := fmt.Sprint(a.parts[first].Rank)
		if last > first {
			name = fmt.Sprintf("%d–%d", a.parts[first].Rank, a.parts[last].Rank)
		}
		t.Names = append(t.Names, name)
	}
	return t
}

// intervals are times, each from a start to an end.
type intervals [][2]int64

// union returns the same times without overlaps, ascending.
func (list intervals) union() (all intervals) {
	slices.SortFunc(list, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	for _, it := range list {
		if n := len(all); n > 0 && it[0] <= all[n-1][1] {
			all[n-1][1] = max(all[n-1][1], it[1])
		} else {
			all = append(all, it)
		}
	}
	return all
}

func (list intervals) length() (sum int64) {
	for _, it := range list {
		sum += it[1] - it[0]
	}
	return sum
}

// within returns how much of the time from start to end a union covers.
func (list intervals) within(start, end int64) (sum int64) {
	first, _ := slices.BinarySearchFunc(list, start, func(it [2]int64, at int64) int { return cmp.Compare(it[1], at) })
	for _, it := range list[first:] {
		if it[0] >= end {
			break
		}
		sum += min(it[1], end) - max(it[0], start)
	}
	return sum
}
