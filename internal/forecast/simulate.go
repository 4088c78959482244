package forecast

import (
	"cmp"
	"slices"
)

// A Timeline is what one rank does in a step, in order.
type Timeline struct {
	Groups []Group `json:"groups"`
	Calls  []Call  `json:"calls"` // those of the events that are alike except for their bytes
	Events []Event `json:"events"`
	Tail   float64 `json:"tail"` // seconds of computing after the last event
}

// An Event is a call, and the computing before it.
type Event struct {
	Compute float64 `json:"compute"` // seconds
	Call    int     `json:"call"`    // index in Calls
	Group   int     `json:"group"`   // index in Groups
	Bytes   int     `json:"bytes"`
	Peer    int     `json:"peer"` // world number of a message's other side, -1
}

// A Group is the ranks of a communicator.
type Group struct {
	Key      string `json:"key"` // the same on all its ranks, another than that of other groups
	Size     int    `json:"size"`
	Here     []int  `json:"here"`     // those that run, by world number, in order
	Together []int  `json:"together"` // see Together
}

// A Prediction is how long a step takes.
type Prediction struct {
	Seconds float64    `json:"seconds"`
	Ranks   []RankTime `json:"ranks"`
	Path    []Share    `json:"path"` // what the step's time consists of, the largest first
	Last    int        `json:"last"` // the rank that ends last
}

// A RankTime is what one rank does in the time of a step, in seconds.
type RankTime struct {
	Rank          int     `json:"rank"`
	Count         int     `json:"count"` // ranks of its class
	Compute       float64 `json:"compute"`
	Communication float64 `json:"communication"`
	Waits         float64 `json:"waits"` // for others to come to calls, and for the end of the step
}

// A Share is part of the critical path.
type Share struct {
	What    string  `json:"what"` // "compute", or a kind of call
	Cause   string  `json:"cause,omitempty"`
	Group   string  `json:"group,omitempty"`
	Seconds float64 `json:"seconds"`
}

// A place is an event of a rank that runs.
type place struct{ rank, event int }

// A Moment is when an event was.
type Moment struct {
	Come, Start, End float64 // the rank comes to the call, all have come, and it ends
	last             place   // who came last
}

// A Simulation carries out the timelines of the ranks of a report.
type Simulation struct {
	net     Net
	ranks   []*Rank
	at      map[int]int // index by world number
	next    []int       // by rank, the event that it comes to
	now     []float64   // by rank
	Moments [][]Moment  // by rank and event
	calls   map[meetingKey]*meeting
	sent    map[messageKey][]place // messages on their way
	made    []map[string]int       // by rank, calls so far of each group
}

type meetingKey struct {
	group  string
	number int
}

type meeting struct {
	come []place
	need int
}

type messageKey struct {
	group    string
	from, to int
}

// Simulate finds when each call of a step begins and ends. Ranks that do not run come to calls when
// those do that stand in for them. A call that was started asynchronously counts as if it were
// waited for at once. The Prediction is nil if a rank waits for what does not come in this step.
func Simulate(r *Report, net Net) (*Simulation, *Prediction) {
	s := &Simulation{net: net, ranks: r.Ranks, at: map[int]int{}, next: make([]int, len(r.Ranks)), now: make([]float64, len(r.Ranks)),
		Moments: make([][]Moment, len(r.Ranks)), calls: map[meetingKey]*meeting{}, sent: map[messageKey][]place{}}
	for i, k := range r.Ranks {
		s.at[k.Rank] = i
		s.Moments[i] = make([]Moment, len(k.Timeline.Events))
		s.made = append(s.made, map[string]int{})
	}
	for going := true; going; {
		going = false
		for i := range s.ranks {
			for s.advance(i) {
				going = true
			}
		}
	}
	for i, k := range s.ranks {
		if s.next[i] < len(k.Timeline.Events) {
			return s, nil
		}
	}
	return s, s.prediction()
}

// advance carries rank i to its next event and beyond if it can. It reports whether anything
// happened.
func (s *Simulation) advance(i int) bool {
	t, e := s.ranks[i].Timeline, s.next[i]
	if e >= len(t.Events) {
		return false
	}
	ev := &t.Events[e]
	g := &t.Groups[ev.Group]
	m := &s.Moments[i][e]
	kind := t.Calls[ev.Call].Kind
	rank := s.ranks[i].Rank
	m.Come = s.now[i] + ev.Compute
	switch {
	case kind == "Send":
		m.last, m.Start, m.End = place{i, e}, m.Come, m.Come+s.net.message(float64(ev.Bytes), rank, ev.Peer)
		key := messageKey{g.Key, rank, ev.Peer}
		s.sent[key] = append(s.sent[key], m.last)
	case kind == "Recv":
		m.last, m.Start, m.End = place{i, e}, m.Come, m.Come+s.net.message(float64(ev.Bytes), rank, ev.Peer)
		if peer, runs := s.at[ev.Peer]; runs {
			key := messageKey{g.Key, ev.Peer, rank}
			if len(s.sent[key]) == 0 {
				if s.next[peer] < len(s.ranks[peer].Timeline.Events) {
					return false // its Send comes
				}
				break // it was in the step before
			}
			from := s.sent[key][0]
			s.sent[key] = s.sent[key][1:]
			if sent := s.Moments[from.rank][from.event]; sent.End > m.Come {
				m.last, m.Start, m.End = from, sent.Start, sent.End
			} else {
				m.Start, m.End = m.Come, m.Come
			}
		}
	default:
		return s.meet(i, e, g, kind)
	}
	s.now[i] = m.End
	s.next[i]++
	return true
}

// meet has rank i come to a collective. The last that comes carries it out for all.
func (s *Simulation) meet(i, e int, g *Group, kind string) bool {
	key := meetingKey{g.Key, s.made[i][g.Key]}
	c := s.calls[key]
	if c == nil {
		c = &meeting{need: max(1, len(g.Here))}
		s.calls[key] = c
	}
	if slices.Contains(c.come, place{i, e}) {
		return false
	}
	c.come = append(c.come, place{i, e})
	if len(c.come) < c.need {
		return true
	}
	delete(s.calls, key)
	last, bytes := c.come[0], 0
	for _, p := range c.come {
		if s.Moments[p.rank][p.event].Come > s.Moments[last.rank][last.event].Come {
			last = p
		}
		bytes = max(bytes, s.ranks[p.rank].Timeline.Events[p.event].Bytes)
	}
	start := s.Moments[last.rank][last.event].Come
	end := start + s.net.Collective(kind, float64(bytes), g.Size, g.Together)
	for _, p := range c.come {
		m := &s.Moments[p.rank][p.event]
		m.Start, m.End, m.last = start, end, last
		s.now[p.rank] = end
		s.next[p.rank]++
		s.made[p.rank][g.Key]++
	}
	return true
}

// prediction adds the times up, and walks the critical path back from the rank that ends last.
func (s *Simulation) prediction() *Prediction {
	p := &Prediction{}
	last := 0
	for i, k := range s.ranks {
		s.now[i] += k.Timeline.Tail
		if s.now[i] > s.now[last] {
			last = i
		}
	}
	p.Seconds, p.Last = s.now[last], s.ranks[last].Rank
	for i, k := range s.ranks {
		t := RankTime{Rank: k.Rank, Count: k.Count, Compute: k.Timeline.Tail, Waits: p.Seconds - s.now[i]}
		for e, ev := range k.Timeline.Events {
			m := &s.Moments[i][e]
			t.Compute += ev.Compute
			t.Communication += m.End - m.Start
			t.Waits += m.Start - m.Come
		}
		p.Ranks = append(p.Ranks, t)
	}
	shares := map[Share]float64{{What: "compute"}: s.ranks[last].Timeline.Tail}
	for at := (place{last, len(s.Moments[last]) - 1}); at.event >= 0; at.event-- {
		m := &s.Moments[at.rank][at.event]
		begun := m.Start
		at = m.last
		t := s.ranks[at.rank].Timeline
		ev := &t.Events[at.event]
		c := &t.Calls[ev.Call]
		shares[Share{What: c.Kind, Cause: c.Cause, Group: c.Group}] += m.End - begun
		shares[Share{What: "compute"}] += ev.Compute
	}
	for share, seconds := range shares {
		share.Seconds = seconds
		p.Path = append(p.Path, share)
	}
	slices.SortFunc(p.Path, func(a, b Share) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.What+a.Cause+a.Group, b.What+b.Cause+b.Group))
	})
	return p
}
