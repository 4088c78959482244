package dtensor

import (
	"runtime"
	"time"

	"github.com/gorun-spmd/gorun/internal/observe"
	"github.com/gorun-spmd/gorun/internal/stack"
)

// A Span is an operator in progress, for the job's trace (gorun --trace, --report). It is one word: more
// would cost a deferred End a tenth of the time of a small operator.
type Span struct{ open *openSpan } // nil: nobody wants to know

type openSpan struct {
	eng   *engine
	ops   *OperatorDigests // nil: operators are not listed
	shown bool             // somebody keeps a trace, and the operator is not part of another
	op    string
	start time.Time
	at    [stack.Depth]uintptr
	depth int
}

// Span begins an operator defined outside this package, whose time the job's trace then shows
// under its name; what it calls is part of it. Its gradient needs none. It costs nothing if
// nobody keeps a trace. On a GPU the time is that of asking for the kernels.
//
//	defer mesh.Span("CrossEntropy").End()
func (m *Mesh) Span(op string) Span {
	if m.eng.observer == nil && m.eng.ops == nil {
		return Span{}
	}
	return m.eng.span(op)
}

func (e *engine) span(op string) Span {
	if e.ops == nil && e.spanning {
		return Span{}
	}
	s := &openSpan{eng: e, ops: e.ops}
	if s.ops != nil {
		s.ops.begin()
	}
	if e.observer != nil && !e.spanning {
		e.spanning = true
		s.shown, s.op, s.depth, s.start = true, op, runtime.Callers(3, s.at[:]), time.Now()
	}
	return Span{s}
}

// End ends the operator.
func (s Span) End() {
	if s.open != nil {
		s.open.end()
	}
}

func (s *openSpan) end() {
	if s.shown {
		s.eng.spanning = false
		s.eng.observer.Span(observe.Operator, s.op, s.at[:s.depth], s.start)
	}
	if s.ops != nil {
		s.ops.end()
	}
}

// A passing is a node whose gradient is being handed on, for the trace.
type passing struct {
	eng   *engine
	node  *node
	start time.Time
	outer []uintptr
	was   bool
}

// differentiate begins to hand on the gradient of n. Communication is then shown at the line of
// the operator that is differentiated.
func (e *engine) differentiate(n *node) passing {
	p := passing{eng: e, node: n, start: time.Now(), outer: e.line, was: e.spanning}
	e.line, e.spanning = n.stack(), true
	return p
}

func (p passing) end() {
	p.eng.line, p.eng.spanning = p.outer, p.was
	p.eng.observer.Span(observe.Gradient, p.node.op, p.node.stack(), p.start)
}
