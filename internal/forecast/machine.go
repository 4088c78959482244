package forecast

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/internal/gemm"
)

// A Machine is how fast one host is: what gorun rates measures, and what gorun plan --machine reads.
// Times are those of one rank while Ranks of them do the same at once on Cores cores.
type Machine struct {
	Cores     int                `json:"cores"`
	Ranks     int                `json:"ranks"`
	Products  map[string][]Point `json:"products"`  // a matrix product, of many in a call, by type of the elements; work is FLOP
	Memory    []Point            `json:"memory"`    // kernels that read and write memory; work is bytes
	Functions []Point            `json:"functions"` // kernels of functions such as exp; work is FLOP as a plan counts them
	// Attention is how many times as long attention and its gradient take as a product of as many operations; 0: as long.
	Attention     float64 `json:"attention"`
	AttentionGrad float64 `json:"attention_grad"`
	// Rows is what kernels take for each row that they find by an index, beside its bytes; those that are not named, nothing.
	Rows map[string]float64 `json:"rows"`
	// Program is what the program takes beside kernels, for each call of one. In a step gorun plan puts what it has found of
	// this program itself in its place; 0 keeps it from that, as where a GPU computes meanwhile.
	Program float64 `json:"program_seconds"`
	Host    Link    `json:"host"` // between ranks of one host
}

// A Point says that one call with so much work takes so long.
type Point struct {
	Work    float64 `json:"work"`
	Seconds float64 `json:"seconds"`
}

// A Link is how fast ranks reach each other.
type Link struct {
	Latency   float64 `json:"latency_seconds"`
	Bandwidth float64 `json:"bytes_per_second"`
}

// Check returns an error for what makes no sense.
func (m *Machine) Check() error {
	check := func(name string, points []Point) error {
		if len(points) == 0 {
			return fmt.Errorf("%s has no points; give at least one, {\"work\": 1e9, \"seconds\": 0.01}", name)
		}
		last := 0.0
		for _, p := range points {
			if !(p.Work > last) || !(p.Seconds > 0) {
				return fmt.Errorf("%s has the point %+v; work must ascend, and both be above 0", name, p)
			}
			last = p.Work
		}
		return nil
	}
	if m.Cores < 1 || m.Ranks < 1 {
		return fmt.Errorf("cores is %d and ranks is %d; give at least 1 of each", m.Cores, m.Ranks)
	}
	if len(m.Products) == 0 {
		return fmt.Errorf("products is empty; give those of float32 at least")
	}
	for name, points := range m.Products {
		if err := check("products of "+name, points); err != nil {
			return err
		}
	}
	if err := check("memory", m.Memory); err != nil {
		return err
	}
	if err := check("functions", m.Functions); err != nil {
		return err
	}
	for name, seconds := range m.Rows {
		if !(seconds >= 0) {
			return fmt.Errorf("a row of %s takes %v; it must be at least 0", name, seconds)
		}
	}
	if !(m.Program >= 0) || !(m.Attention >= 0) || !(m.AttentionGrad >= 0) || !(m.Host.Latency >= 0) || !(m.Host.Bandwidth > 0) {
		return fmt.Errorf("program_seconds, attention, attention_grad and the latency of host must be at least 0, " +
			"and its bytes_per_second above 0")
	}
	return nil
}

// For returns the machine as each of a number of ranks of a host has it: together they compute as much.
// More ranks than cores also come to a rendezvous later, as they take turns.
func (m *Machine) For(ranks int) *Machine {
	slower := float64(ranks) / float64(m.Ranks)
	scale := func(points []Point) []Point {
		points = slices.Clone(points)
		for i := range points {
			points[i].Seconds *= slower
		}
		return points
	}
	n := *m
	n.Ranks, n.Memory, n.Functions, n.Products, n.Rows = ranks, scale(m.Memory), scale(m.Functions), map[string][]Point{}, map[string]float64{}
	for name, seconds := range m.Rows {
		n.Rows[name] = seconds * slower
	}
	for name, points := range m.Products {
		n.Products[name] = scale(points)
	}
	turns := n.turns() / m.turns()
	n.Program *= turns
	n.Host.Latency *= turns
	n.Host.Bandwidth /= slower
	return &n
}

// turns is how many ranks share a core.
func (m *Machine) turns() float64 { return max(1, float64(m.Ranks)/float64(m.Cores)) }

// Of returns the machine for a program of which this is known. What other threads do takes time of a rank where each core has
// a rank.
func (m *Machine) Of(p *Itself) *Machine {
	n := *m
	seconds := p.Seconds
	if m.Ranks >= m.Cores {
		seconds += p.Others
	}
	n.Program = seconds * m.turns() / float64(max(1, p.Kernels))
	return &n
}

// Kernel returns the seconds of a call of a kernel: by the roofline model (S. Williams, A. Waterman,
// D. Patterson, Roofline: an insightful visual performance model, Communications of the ACM 52(4),
// 2009), with a measured curve instead of each of its lines, as small calls and small caches count, and what rows
// take that lie here and there. Of a matrix product, rows are the matrices.
func (m *Machine) Kernel(name, dtype string, flops, bytes, rows int) float64 {
	times := 1.0
	switch name {
	case "Attention":
		times = cmp.Or(m.Attention, 1)
	case "AttentionGrad":
		times = cmp.Or(m.AttentionGrad, 1)
	}
	switch name {
	case "MatMul", "Attention", "AttentionGrad":
		points, ok := m.Products[dtype]
		if !ok {
			points = m.Products["float32"]
		}
		seconds := secondsOf(points, float64(flops))
		if rows > 1 { // small matrices take longer than one large product of as many operations
			seconds = max(seconds, float64(rows)*secondsOf(points, float64(flops)/float64(rows))/m.threads(flops))
		}
		return max(m.call()+times*seconds, secondsOf(m.Memory, float64(bytes)))
	}
	return max(secondsOf(m.Memory, float64(bytes)), secondsOf(m.Functions, float64(flops))) + float64(rows)*m.Rows[name]
}

// call returns what a call of a kernel takes that does next to nothing.
func (m *Machine) call() float64 { return m.Memory[0].Seconds }

// threads returns how many goroutines share the small matrices of a product, as in package gemm.
func (m *Machine) threads(flops int) float64 {
	const work = 2 * gemm.ThreadWork // operations
	if flops < 2*work {
		return 1
	}
	return min(float64(flops/work), max(1, float64(m.Cores)/float64(m.Ranks)))
}

// secondsOf looks a time up: between two points on a line, above the last at its rate, below the
// first the time of the first, which is that of a call. One point alone is a rate.
func secondsOf(points []Point, work float64) float64 {
	if len(points) == 0 || work <= 0 {
		return 0
	}
	last := points[len(points)-1]
	if work >= last.Work || len(points) == 1 {
		return last.Seconds * work / last.Work
	}
	i := slices.IndexFunc(points, func(p Point) bool { return work < p.Work })
	if i == 0 {
		return points[0].Seconds
	}
	a, b := points[i-1], points[i]
	return a.Seconds + (b.Seconds-a.Seconds)*(work-a.Work)/(b.Work-a.Work)
}
