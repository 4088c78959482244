// Package observe is how what computes tells the keeper of a job's trace what it does:
// packages dtensor, metrics and train tell, package runtime keeps.
package observe

import "time"

// A Kind says whose time a span is.
type Kind uint8

// The kinds of spans.
const (
	Operator Kind = iota // an operator's forward pass
	Gradient             // the backward pass of an operator
	Program              // a part of the program, by its own name
)

// An Observer is told what one rank does. Its methods may be called from any goroutine.
type Observer interface {
	// Span tells of what lasted from start until now. stack says where it was begun; nil: at
	// Span's caller. It is not kept.
	Span(kind Kind, name string, stack []uintptr, start time.Time)

	// Metric tells the value of a metric at the present step, such as a loss.
	Metric(name string, value float64)

	// Layout tells how a parameter is divided.
	Layout(l *Layout)
}

// A Layout is how a tensor is divided over ranks, as dtensor/visualize.Picture has it.
type Layout struct {
	Name    string   `json:"name"`
	Title   string   `json:"title"` // "[5, 16] S(0) on (tp=2)"
	Type    string   `json:"type"`  // of its elements
	Bytes   int      `json:"bytes"` // of the whole tensor
	Shape   []int    `json:"shape"`
	Regions []Region `json:"regions"`
}

// A Region is a part of a tensor that the ranks of Label hold.
type Region struct {
	Offset []int  `json:"offset"`
	Size   []int  `json:"size"`
	Label  string `json:"label"`
}

// Key is the attribute of the world communicator under which its rank's Observer is kept;
// nil or absent: nobody wants to know. It is there before the program begins.
type Key struct{}

// Of returns the Observer that attr, the Attr method of a communicator's Internals, finds; nil
// if there is none.
func Of(attr func(key any, make func() any) any) Observer {
	o, _ := attr(Key{}, func() any { return nil }).(Observer)
	return o
}
