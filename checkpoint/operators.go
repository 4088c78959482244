package checkpoint

import (
	"context"
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/fault"
)

// An operatorEntry is an operator in a line of a file of digests. Operators are in the order in which they ran.
type operatorEntry struct {
	Op       string   `json:"op"`
	Line     string   `json:"line"` // of the program
	Backward bool     `json:"backward,omitempty"`
	Inputs   []string `json:"in"`  // 16 hex digits each
	Output   string   `json:"out"` // in the same way
}

// Operators begins to list the operators on the mesh m, see dtensor.Mesh.DigestOperators. The next Write ends it, and writes
// the list in the line of its step. m has all ranks of the log's world.
func (l *DigestLog) Operators(m *dtensor.Mesh) error {
	if m.Size() != l.world.Size() {
		return fmt.Errorf("checkpoint: DigestLog.Operators: mesh %v has not all of the %d ranks; leave operators out", m, l.world.Size())
	}
	l.operators = m.DigestOperators(func(t *dtensor.Tensor) uint64 {
		named := namedTensor{tensor: t}
		if _, stored := named.stored(); stored || t.Numel() == 0 || !named.first() {
			return 0
		}
		sums, err := named.hash(window{0, t.Numel(), t.Numel()})
		if err != nil {
			fault.Throw(err)
		}
		return sums[0]
	})
	return nil
}

// operatorEntries ends the list of operators, if there is one, and completes the digests over the ranks.
func (l *DigestLog) operatorEntries(ctx context.Context) ([]operatorEntry, error) {
	if l.operators == nil {
		return nil, nil
	}
	list := l.operators.Take()
	l.operators = nil
	var sums []uint64
	for _, o := range list {
		sums = append(append(sums, o.Inputs...), o.Output)
	}
	if err := comm.AllReduce(ctx, l.world, sums, comm.Sum); err != nil {
		return nil, err
	}
	entries := make([]operatorEntry, len(list))
	for i, o := range list {
		e := operatorEntry{Op: o.Op, Line: o.Line, Backward: o.Backward, Inputs: make([]string, len(o.Inputs))}
		for k := range e.Inputs {
			e.Inputs[k] = fmt.Sprintf("%016x", sums[k])
		}
		e.Output = fmt.Sprintf("%016x", sums[len(o.Inputs)])
		entries[i], sums = e, sums[len(o.Inputs)+1:]
	}
	return entries, nil
}

// An OperatorDifference is the first operator of a step whose inputs are the same in two runs and whose output is not; or the first one
// that is another.
type OperatorDifference struct {
	Number   int    `json:"number"` // in the step, from 1 on
	Of       int    `json:"of"`     // how many operators A lists
	Op       string `json:"op"`
	Line     string `json:"line"`               // of the program that called it
	Backward bool   `json:"backward,omitempty"` // a gradient that Op hands on
	Other    string `json:"other,omitempty"`    // what B has in its place, if that is another operator, or none
}

// name is that of an operator and its line, "gradient of Linear at train/model.go:31".
func (e *operatorEntry) name() string {
	text := e.Op
	if e.Backward {
		text = "gradient of " + text
	}
	if e.Line != "" {
		text += " at " + e.Line
	}
	return text
}

// String says what differs.
func (d *OperatorDifference) String() string {
	text := (&operatorEntry{Op: d.Op, Line: d.Line, Backward: d.Backward}).name()
	if d.Other != "" {
		return fmt.Sprintf("operator %d is %s in A, %s in B: the programs differ", d.Number, text, d.Other)
	}
	return fmt.Sprintf("operator %d of %d, %s: its inputs are equal, its output is not", d.Number, d.Of, text)
}

// operators compares the operators of a step, if both runs list them.
func (d *Difference) operators(x, y *digestLine) {
	if len(x.Operators) == 0 || len(y.Operators) == 0 {
		return
	}
	none := operatorEntry{Op: "none"}
	for i := range max(len(x.Operators), len(y.Operators)) {
		a, b := &none, &none
		if i < len(x.Operators) {
			a = &x.Operators[i]
		}
		if i < len(y.Operators) {
			b = &y.Operators[i]
		}
		found := &OperatorDifference{Number: i + 1, Of: len(x.Operators), Op: a.Op, Line: a.Line, Backward: a.Backward}
		switch {
		case a.Op != b.Op || a.Backward != b.Backward || len(a.Inputs) != len(b.Inputs):
			found.Other = b.name()
			d.Operator = found
			return
		case slices.Equal(a.Inputs, b.Inputs) && a.Output != b.Output:
			d.Operator = found
			return
		}
	}
}
