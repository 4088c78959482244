// Package forecast is the contract of gorun plan: what the launcher asks of a program that runs
// without numbers, of whose ranks some run and stand in for the others, what the program reports,
// and what package dtensor tells on the way.
package forecast

import (
	"cmp"
	"fmt"
	"slices"
)

// A Request is what the launcher asks: the value of job.PlanVar, as JSON.
type Request struct {
	Size   int                `json:"size"`             // ranks of the job
	Run    []int              `json:"run"`              // those that run, in order
	Grid   []Axis             `json:"grid,omitempty"`   // the classes of ranks; none: each rank is of the class of the next below that runs
	Steps  int                `json:"steps"`            // steps to make
	Values map[string]float64 `json:"values,omitempty"` // what the program reads, by its line
	FD     int                `json:"fd"`               // where the Report goes
	// Itself asks for Report.Itself alone, which one rank finds that runs.
	Itself bool `json:"itself,omitempty"`
	// Machine is as each rank has it, see Machine.For; nil: no time is predicted, and Net is nil too.
	Machine *Machine `json:"machine,omitempty"`
	Net     Net      `json:"net,omitempty"`
	// Predicted is that of the Report before: what Predict returns again, so that a program that goes by it does the same.
	Predicted []float64 `json:"predicted,omitempty"`
}

// An Axis is one dimension of the grid of ranks, in row-major order.
type Axis struct {
	Size    int     `json:"size"`
	Classes []Class `json:"classes"`
}

// A Class is coordinates from From to the next Class, whose ranks are alike; that at Of runs.
type Class struct {
	From int `json:"from"`
	Of   int `json:"of"`
}

// For returns which rank that runs stands in for a rank.
func (r *Request) For(rank int) int {
	if len(r.Grid) == 0 {
		i, ok := slices.BinarySearch(r.Run, rank)
		if !ok {
			i = max(0, i-1)
		}
		return r.Run[i]
	}
	in, stride := 0, 1
	for _, a := range slices.Backward(r.Grid) {
		c := rank % a.Size
		rank /= a.Size
		i, ok := slices.BinarySearchFunc(a.Classes, c, func(k Class, c int) int { return cmp.Compare(k.From, c) })
		if !ok {
			i--
		}
		in += a.Classes[i].Of * stride
		stride *= a.Size
	}
	return in
}

// A Mesh is one that the program made.
type Mesh struct {
	Names []string `json:"names"`
	Sizes []int    `json:"sizes"`
	Whole bool     `json:"whole"` // it has all ranks, in order
	// Breaks has for each axis the coordinates, from 1 on, at which a shard of some tensor is of
	// another size than the one before.
	Breaks [][]int `json:"breaks"`
}

// Add notes where along an axis shards differ: same says whether those at two coordinates are alike.
func (m *Mesh) Add(axis int, same func(a, b int) bool) {
	m.Breaks[axis] = distinct(append(m.Breaks[axis], breaks(m.Sizes[axis], same)...), m.Sizes[axis])
}

// maxRun is how many ranks run at most, unless the user names them.
const maxRun = 128

// Choose returns which ranks of a job run that makes these meshes, and the classes: along each axis
// of the mesh with the most axes the first coordinate, the last, and one of each interval in which
// all shards are of one size. Ranks of extra run in any case.
func Choose(size int, meshes []*Mesh, extra []int) (run []int, grid []Axis, err error) {
	var m *Mesh
	for _, it := range meshes {
		if it.Whole && (m == nil || len(it.Names) > len(m.Names)) {
			m = it
		}
	}
	if m == nil {
		return distinct(append([]int{0, 1, size / 2, size - 2, size - 1}, extra...), size), nil, nil
	}
	cuts := make([][]int, len(m.Sizes))
	for i, n := range m.Sizes {
		cuts[i] = append([]int{0, 1, n - 1}, m.Breaks[i]...)
	}
	for _, rank := range extra {
		for i := len(m.Sizes) - 1; i >= 0; i-- {
			c := rank % m.Sizes[i]
			cuts[i] = append(cuts[i], c, c+1)
			rank /= m.Sizes[i]
		}
	}
	run = []int{0}
	for i, n := range m.Sizes {
		a := Axis{Size: n}
		from := distinct(cuts[i], n)
		for k, lo := range from {
			hi := n
			if k+1 < len(from) {
				hi = from[k+1]
			}
			a.Classes = append(a.Classes, Class{From: lo, Of: (lo + hi - 1) / 2})
		}
		var next []int
		for _, r := range run {
			for _, c := range a.Classes {
				next = append(next, r*n+c.Of)
			}
		}
		run, grid = next, append(grid, a)
	}
	if len(run) > maxRun && len(extra) == 0 {
		return nil, nil, fmt.Errorf("the shards of this mesh make %d classes of ranks, and at most %d run; name those to run with --ranks",
			len(run), maxRun)
	}
	return run, grid, nil
}

// distinct sorts numbers from 0 to size-1, and leaves out others and repeats.
func distinct(numbers []int, size int) []int {
	numbers = slices.DeleteFunc(slices.Clone(numbers), func(n int) bool { return n < 0 || n >= size })
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// breaks returns where of n places, in order, same is false for a place and the one before. It
// looks between places that differ alone: places between two that are the same count as the same.
func breaks(n int, same func(a, b int) bool) (places []int) {
	var look func(lo, hi int)
	look = func(lo, hi int) {
		switch {
		case same(lo, hi):
		case hi == lo+1:
			places = append(places, hi)
		default:
			mid := (lo + hi) / 2
			look(lo, mid)
			look(mid, hi)
		}
	}
	if n > 1 {
		look(0, n-1)
	}
	return places
}

// A Report is what a program says of its steps.
type Report struct {
	Size   int      `json:"size"`
	Meshes []*Mesh  `json:"meshes"`
	Ranks  []*Rank  `json:"ranks"` // those that ran, in order
	Notes  []string `json:"notes"` // what was assumed
	// Predicted is what Predict has returned, in order, of the rank with the most.
	Predicted []float64 `json:"predicted,omitempty"`

	Itself *Itself `json:"itself,omitempty"` // if it was asked for; nil: the program has made too few steps

	// What the launcher adds, if the time is to be predicted.
	Machine *Machine    `json:"machine,omitempty"` // as each rank has it
	Net     Net         `json:"net,omitempty"`
	Time    *Prediction `json:"time,omitempty"`
}

// A Rank is what one rank does, and all that it stands in for.
type Rank struct {
	Rank   int    `json:"rank"`
	Count  int    `json:"count"` // ranks of the class, it included
	Memory Memory `json:"memory"`
	Steps  int    `json:"steps"` // that it made
	Calls  []Call `json:"calls"` // of one step, the second if there are two
	FLOPs  int    `json:"flops"` // of that step
	Bytes  int    `json:"bytes"` // that its kernels read and wrote

	Kernels  []Kernel  `json:"kernels"`            // of that step, those that take most first
	Timeline *Timeline `json:"timeline,omitempty"` // of that step; for the launcher
}

// An Itself is what the program takes of a step of one rank beside its kernels and calls: package dtensor, and its own code.
type Itself struct {
	Seconds float64 `json:"seconds"` // of the rank's thread
	Others  float64 `json:"others"`  // of other threads, as those that load the next batch
	Kernels int     `json:"kernels"` // how many were called
}

// A Kernel is all calls of a kernel in a step, or what the program takes beside them.
type Kernel struct {
	Name    string  `json:"name"`
	Count   int     `json:"count"`
	FLOPs   int     `json:"flops"`
	Bytes   int     `json:"bytes"`
	Seconds float64 `json:"seconds"` // predicted; 0 if no time is
}

// Memory is memory in bytes at the peak of a rank's tensors.
type Memory struct {
	Parameters  int    `json:"parameters"`
	Gradients   int    `json:"gradients"`
	State       int    `json:"optimizer_state"`
	Activations int    `json:"activations"` // all other tensors
	Peak        int    `json:"peak"`
	Line        string `json:"line"` // of the program, where the peak was reached
	Host        int    `json:"host"` // that Go holds beside the tensors, a rank's share of this process
}

// A Call is all calls of a step that are alike.
type Call struct {
	Kind  string `json:"kind"`
	Group string `json:"group"` // the axes of the mesh: "tp", "dp,tp"; "world"
	Size  int    `json:"size"`  // ranks of the group
	Cause string `json:"cause"`
	Line  string `json:"line"`
	Async bool   `json:"async,omitempty"` // the program goes on meanwhile
	Count int    `json:"count"`
	Bytes int    `json:"bytes"` // that this rank hands in, of all of them
}

// A Watcher is told what a program makes. Its methods are called by one rank's goroutine.
type Watcher interface {
	// Mesh reports a mesh, and world numbers by position.
	Mesh(names []string, sizes, ranks []int) *Mesh
	// Group tells that the communicator of a name is that of some axes of a mesh, and its ranks by
	// world number, in order.
	Group(name, axes string, ranks []int)
	// Predicts reports whether Predict can.
	Predicts() bool
	// Predict makes a call and returns how many seconds it takes this rank, predicted, if all ranks come to each
	// collective at once.
	Predict(call func() error) (seconds float64, err error)
}

// Key is the attribute of the world communicator under which its rank's Watcher is kept.
type Key struct{}

// Of returns the Watcher that attr, the Attr method of a communicator's Internals, finds; nil if
// the program does not run for a forecast.
func Of(attr func(key any, make func() any) any) Watcher {
	w, _ := attr(Key{}, func() any { return nil }).(Watcher)
	return w
}
