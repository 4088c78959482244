package dtensor

import (
	"fmt"
	"math"
	"runtime"
	"strings"

	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/stack"
	"github.com/gorun-spmd/gorun/tensor"
)

// AnomalyVar is the environment variable that has every rank detect anomalies from the
// start if it is 1; see DetectAnomaly.
const AnomalyVar = "GORUN_DETECT_ANOMALY"

// DetectAnomaly has this rank's operators, on all its meshes, throw an *AnomalyError
// where the first NaN or infinity comes up: in the result of an operator, in the
// gradient that an operator hands on, or in a sum over ranks. An infinity that an
// operand had before, such as that of a mask of scores, is none.
//
// A rank that finds one ends the mesh's communicator, so the other ranks get an error
// too, which names it. Every result is read once more, which costs about the time
// of an addition; off, which is the start, it costs nothing. The environment variable
// GORUN_DETECT_ANOMALY=1 turns it on for a whole job.
func (m *Mesh) DetectAnomaly(on bool) { m.eng.detect = on }

// An AnomalyError names the operator that made a NaN or an infinity.
type AnomalyError struct {
	Op       string  // "Log"
	Backward bool    // the gradient of Op made it
	Line     string  // that called Op, "train/main.go:31"
	Rank     int     // of the world
	Value    float64 // NaN, +Inf or -Inf
	Index    []int   // where in the global tensor, or in what the rank adds to it
	Result   string  // "float32 [8, 4] S(0)"
	Operand  string  // the operand that has NaN already, which no operator made; "" if none has
}

// Error implements error.
func (e *AnomalyError) Error() string {
	op, what, remedy := e.Op, "the result", "no operand has a NaN or an infinity; look at the operands there"
	switch {
	case e.Operand != "":
		remedy = e.Operand + " has a NaN already, which no operator made; look at the data, the checkpoint or the step that it comes from"
	case e.Backward:
		op, what, remedy = "gradient of "+op, "what it hands on", "what it got is finite; keep the operand away from where the slope is not"
	}
	at := ""
	if e.Line != "" {
		at = " at " + e.Line
	}
	return fmt.Sprintf("dtensor: %s%s: rank %d: element %v of %s, %s, is %v: %s", op, at, e.Rank, e.Index, what, e.Result, e.Value, remedy)
}

// made is called with the result of each operator. It throws an *AnomalyError, if anomalies are detected, unless the result
// of op on the operands is right: it has no NaN, and an infinity only where an operand has one.
func (out *Tensor) made(op string, operands ...*Tensor) {
	if eng := out.spec.mesh.eng; eng.detect || eng.ops != nil { // this much is inlined
		eng.look(op, out, operands)
	}
}

// look is what made does if anomalies are detected or operators digested.
func (eng *engine) look(op string, out *Tensor, operands []*Tensor) {
	if eng.detect {
		out.examine(op, operands)
	}
	if eng.ops != nil {
		eng.ops.forward(op, out, operands)
	}
}

// detect is made for a tensor that no operator of the program has computed, such as a sum over ranks.
func (out *Tensor) detect(op string, operands ...*Tensor) {
	if out.spec.mesh.eng.detect {
		out.examine(op, operands)
	}
}

// examine throws an *AnomalyError unless out is right, as made says.
func (out *Tensor) examine(op string, operands []*Tensor) {
	m := out.spec.mesh
	if m.outside() || m.eng.detecting != nil {
		return
	}
	at, v := out.anomaly()
	if at < 0 || math.IsInf(v, 0) && out.spec.extreme() {
		return
	}
	e := out.anomalyError(op, at, v)
	for i, t := range operands {
		if t == nil {
			continue
		}
		if at, w := t.anomaly(); at >= 0 && math.IsNaN(v) && math.IsNaN(w) {
			e.Operand = fmt.Sprintf("operand %d, %v,", i, t)
		} else if at >= 0 && math.IsInf(v, 0) {
			return
		}
	}
	var pcs [stack.Depth]uintptr
	e.Line = stack.Line(pcs[:runtime.Callers(2, pcs[:])], "")
	m.abort(e)
}

// detectGrad throws an *AnomalyError if the gradient g has a NaN or an infinity: the
// operator that is being differentiated hands it on.
func (g *Tensor) detectGrad() {
	m := g.spec.mesh
	if m.outside() || m.eng.detecting == nil {
		return
	}
	if at, v := g.anomaly(); at >= 0 {
		g.anomalyError("", at, v).inGradient(m)
	}
}

// detectGrad is the same for a row-sparse gradient.
func (r *Rows) detectGrad() {
	m := r.spec.mesh
	if m.outside() || m.eng.detecting == nil {
		return
	}
	if at, v := nonFinite(r.Values); at >= 0 {
		width := r.Values.Numel() / r.Values.Dim(0)
		row := int(tensor.ToSlice[int64](r.Index)[at/width])
		(&AnomalyError{Rank: m.worldRank(), Value: v, Index: []int{row, at % width}, Result: r.String()}).inGradient(m)
	}
}

// inGradient throws e as one of the gradient that is being computed.
func (e *AnomalyError) inGradient(m *Mesh) {
	e.Op, e.Backward, e.Line = m.eng.detecting.op, true, stack.Line(m.eng.detecting.stack(), "")
	m.abort(e)
}

func (t *Tensor) anomalyError(op string, at int, v float64) *AnomalyError {
	index := globalIndex(at, t.spec.local, t.spec.offset)
	if axis := t.spec.cyclic; axis >= 0 {
		index[0] = (index[0]-t.spec.offset[0])*t.spec.mesh.axes[axis].Size + t.spec.mesh.coord[axis]
	}
	return &AnomalyError{Op: op, Rank: t.spec.mesh.worldRank(), Value: v, Index: index, Result: t.String()}
}

// globalIndex returns the index, in the global tensor, of element at of a part that has the shape local and begins at offset.
func globalIndex(at int, local, offset []int) []int {
	index := tensor.UnravelIndex(at, local)
	for d := range index {
		index[d] += offset[d]
	}
	return index
}

// worldRank returns the number of this rank, which is in the mesh, in the world.
func (m *Mesh) worldRank() int { return m.ranks[m.all.Rank()] }

// anomaly is nonFinite of this rank's part.
func (t *Tensor) anomaly() (at int, v float64) {
	if !t.DType().Float() {
		return -1, 0
	}
	return nonFinite(t.ToLocal())
}

// nonFinite returns where x, of a floating-point type, has its first NaN, else its first
// infinity, and which it is; -1 if all is finite.
func nonFinite(x *tensor.Tensor) (at int, v float64) {
	if x.Numel() == 0 {
		return -1, 0
	}
	if sum := tensor.SumSquares(x)[0]; !math.IsNaN(sum) && !math.IsInf(sum, 0) {
		return -1, 0
	}
	at = -1
	for i, x := range tensor.ToSlice[float64](tensor.Cast(x, tensor.Float64)) {
		if math.IsNaN(x) {
			return i, x
		}
		if math.IsInf(x, 0) && at < 0 {
			at, v = i, x
		}
	}
	return at, v
}

// extreme reports whether the ranks' parts are combined by min or max: that of a rank
// without elements is infinite.
func (s *spec) extreme() bool {
	for _, p := range s.placements {
		if p == layout.Partial(layout.Min) || p == layout.Partial(layout.Max) {
			return true
		}
	}
	return false
}

// stack returns where the operator of n was called, if it is known.
func (n *node) stack() []uintptr { return n.tape.stacks[n] }

// callers returns the stack, to be resolved only to print.
func callers() []uintptr {
	pcs := make([]uintptr, stack.Depth)
	return pcs[:runtime.Callers(3, pcs)]
}

// sumOf is the operator that an anomaly of a reduction is told under.
func sumOf(cause string) string {
	cause, _, _ = strings.Cut(cause, ":")
	return "reduction for " + cause
}
