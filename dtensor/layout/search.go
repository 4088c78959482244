package layout

import (
	"math"
	"slices"
	"time"
)

// A hop is an edge of a path and where it leads.
type hop struct {
	to *node
	edge
}

// path returns the cheapest hops from p.from to p.to, none if they are the same.
func (p *planner) path() []hop {
	if slices.Equal(p.from.places, p.to.places) {
		return nil
	}
	if e, ok := p.direct(); ok {
		return []hop{{p.to, e}}
	}
	return p.search()
}

// steps returns the steps of a path.
func (p *planner) steps(path []hop) []Step {
	steps := make([]Step, len(path))
	at := p.from
	for i, h := range path {
		steps[i] = p.step(at, h.to, h.edge)
		at = h.to
	}
	return steps
}

// direct returns the single step between from and to, if there is one and no list
// of more steps can be cheaper. Those need two collectives at least and move no
// fewer bytes: each rank must receive what it lacks, or, of what a group reduces,
// its share of the addends of all others, and must write its result.
func (p *planner) direct() (edge, bool) {
	c, changed, ok := p.outline(p.from, p.to)
	if !ok {
		return edge{}, false
	}
	e := p.edge(p.from, p.to, c, changed)
	if e.kind.Local() {
		return e, true
	}
	least := e.bytes
	if e.kind == ReduceScatter {
		g := p.groupSize(changed)
		least = p.largest(p.from) * (g - 1) / g * p.elemBytes
		if e.bytes > 2*least {
			return e, false // shards so uneven that an all-reduce may be cheaper
		}
	}
	bound := 2*p.costs.collective(2, 0) + seconds(least, p.costs.Bandwidth) + p.costs.local(p.largest(p.to)*p.elemBytes)
	return e, e.cost <= bound
}

// search is Dijkstra's algorithm over the candidate nodes. Of paths of the same cost
// it prefers the one of fewer steps, then the one found first, so that the plan
// does not depend on anything but its arguments.
func (p *planner) search() []hop {
	nodes := p.nodes()
	const far = time.Duration(math.MaxInt64)
	n := len(nodes)
	dist := make([]time.Duration, n)
	hops := make([]int, n)
	prev := make([]int, n)
	edges := make([]edge, n)
	done := make([]bool, n)
	for i := range dist {
		dist[i] = far
	}
	const start, goal = 0, 1 // the order of p.nodes
	dist[start] = 0
	for {
		u := -1
		for i := range nodes {
			if !done[i] && dist[i] < far && (u < 0 || dist[i] < dist[u] || dist[i] == dist[u] && hops[i] < hops[u]) {
				u = i
			}
		}
		// Every layout can be reached through R, so the goal is met before u is -1.
		if u == goal {
			break
		}
		done[u] = true
		for v := 1; v < n; v++ {
			if done[v] {
				continue
			}
			c, changed, ok := p.outline(nodes[u], nodes[v])
			if !ok {
				continue
			}
			if least := dist[u] + p.least(c); least > dist[v] || least > dist[goal] {
				continue
			}
			e := p.edge(nodes[u], nodes[v], c, changed)
			if d := dist[u] + e.cost; d < dist[v] || d == dist[v] && hops[u]+1 < hops[v] {
				dist[v], hops[v], prev[v], edges[v] = d, hops[u]+1, u, e
			}
		}
	}
	var path []hop
	for v := goal; v != start; v = prev[v] {
		path = append(path, hop{nodes[v], edges[v]})
	}
	slices.Reverse(path)
	return path
}

// least returns a lower bound of the cost of an edge of a class.
func (p *planner) least(c class) time.Duration {
	if c == reduces || c == scatters {
		return p.costs.Latency
	}
	return 0
}

// nodes returns the layouts that a plan may pass through: from, to, then all others
// that have a candidate placement on every axis.
func (p *planner) nodes() []*node {
	nodes := []*node{p.from, p.to}
	extra := p.largestDims(2)
	candidates := make([][]Placement, len(p.sizes))
	total := 1
	for i := range candidates {
		add := func(q Placement) {
			if !slices.Contains(candidates[i], q) {
				candidates[i] = append(candidates[i], q)
			}
		}
		add(p.from.places[i])
		add(p.to.places[i])
		if p.sizes[i] > 1 {
			add(Replicate())
			if p.from.places[i].IsPartial() {
				for _, d := range extra {
					add(Shard(d))
				}
			}
		}
		total *= len(candidates[i])
	}
	for k := range total {
		places := make([]Placement, len(p.sizes))
		for i, c := range candidates {
			places[i] = c[k%len(c)]
			k /= len(c)
		}
		if slices.Equal(places, p.from.places) || slices.Equal(places, p.to.places) {
			continue
		}
		if validate(p.axes, p.dims, places) == nil {
			nodes = append(nodes, &node{places: places})
		}
	}
	return nodes
}

// largestDims returns the n largest dimensions of more than one element, largest first.
func (p *planner) largestDims(n int) []int {
	var dims []int
	for d, size := range p.dims {
		if size > 1 {
			dims = append(dims, d)
		}
	}
	slices.SortStableFunc(dims, func(a, b int) int { return p.dims[b] - p.dims[a] })
	return dims[:min(n, len(dims))]
}
