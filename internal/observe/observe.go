// Package observe carries events from the packages that compute (dtensor, metrics, train) to
// package runtime, which writes the job's trace.
package observe

import "time"

// A Kind says what a span measures.
type Kind uint8

// The kinds of spans.
const (
	Operator Kind = iota // an operator's forward pass
	Gradient             // the backward pass of an operator
	Program              // a part of the program, by its own name
)

// An Observer is told what one rank does. Its methods may be called from any goroutine.
type Observer interface {
	// Span reports a span from start until now. stack is the call stack at its beginning, which
	// Span does not keep; nil: that of the caller.
	Span(kind Kind, name string, stack []uintptr, start time.Time)

	// Metric reports the value of a metric at the present step, such as a loss.
	Metric(name string, value float64)

	// Layout reports how a parameter is divided.
	Layout(l *Layout)
}

// A Layout says how a tensor is divided over ranks, as dtensor/visualize.Picture does.
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

// Key is the attribute of the world communicator that holds its rank's Observer; nil or
// absent: nobody observes. It is set before the program begins.
type Key struct{}

// Of returns the Observer that attr, the Attr method of a communicator's Internals, finds; nil
// if there is none.
func Of(attr func(key any, make func() any) any) Observer {
	o, _ := attr(Key{}, func() any { return nil }).(Observer)
	return o
}
