package loss

import (
	"fmt"
	"math"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/internal/ints"
	"github.com/gorun-spmd/gorun/tensor"
)

// CTCOptions are the settings of CTC.
type CTCOptions struct {
	Reduction Reduction // Mean divides each loss by the length of its target first, as torch does
	Blank     int       // the class that stands for no label

	// How many frames of each sequence count, and how many labels each target has: integers, [N], without a batch [] or [1].
	// Nil: all T frames, all S labels.
	InputLengths, TargetLengths *dtensor.Tensor

	ZeroInfinity bool // a target that no path of so few frames has gets the loss 0 and no gradient, in place of +Inf and NaN
}

// CTC returns for each sequence, as torch's ctc_loss, the negative logarithm of the probability of its target: that of all
// paths of classes, one a frame, which become the target when equal neighbours are made one and then blanks left out
// (Graves et al., Connectionist Temporal Classification, ICML 2006). logs are logarithms of probabilities, as LogSoftmax
// makes them.
//
//	logs [T, N, C]   targets [N, S] or [ΣTargetLengths]   →   [] R for Mean and Sum, [N] for None
//	logs [T, C]      targets [S]                          →   []
//
// Labels beyond a target's length are not looked at. Sequences that are sharded, S(1), stay so, and their losses are S(0);
// every rank gets all targets and lengths. Frames and classes that are sharded are gathered. It throws an *Error on every
// rank for a label that is no class or the blank, and for a length that is too long; the group stays usable.
//
// The gradient is torch's: e^logs less the probability of the class at the frame, given the target. Through LogSoftmax it is
// the derivative; for logs that LogSoftmax did not make it is not.
func CTC(logs, targets *dtensor.Tensor, o CTCOptions) *dtensor.Tensor {
	const op = "CTC"
	defer logs.Mesh().Span(op).End()
	if logs.NDim() == 2 {
		if targets.NDim() != 1 {
			refuse(op, fmt.Sprintf("targets %v for logs %v; give labels, [S]", targets, logs))
		}
		single := o
		single.InputLengths, single.TargetLengths = listOf(o.InputLengths), listOf(o.TargetLengths)
		losses := CTC(logs.Unsqueeze(1), targets.Unsqueeze(0), single)
		if o.Reduction == None {
			losses = losses.Squeeze(0)
		}
		return losses
	}
	logs, _ = operands(op, o.Reduction, logs, logs)
	c := newCTC(op, logs, targets, &o)
	losses := c.losses(logs)
	if o.Reduction == Mean {
		if c.long != nil {
			losses = losses.Div(c.long.Cast(losses.DType()).Clamp(1, math.Inf(1)))
		} else {
			losses = losses.Scale(1 / float64(max(1, targets.Dim(1))))
		}
	}
	return reduced(losses, o.Reduction)
}

// listOf returns a length of one sequence as a list; nil stays nil.
func listOf(length *dtensor.Tensor) *dtensor.Tensor {
	if length == nil || length.NDim() != 0 {
		return length
	}
	return length.Unsqueeze(0)
}

// A ctc is a call of CTC: what every rank knows of all sequences.
type ctc struct {
	op        string
	sequences int // N
	classes   int
	blank     int
	zero      bool               // ZeroInfinity
	long      *dtensor.Tensor    // TargetLengths
	logs      []layout.Placement // what logs are brought to
	batch     []layout.Placement // of [N]
	frames    []int64            // of each sequence
	labels    [][]int64          // of each sequence
	numbers   []int64            // the sequences that this rank has
}

// newCTC checks the operands.
func newCTC(op string, logs, targets *dtensor.Tensor, o *CTCOptions) *ctc {
	if logs.NDim() != 3 {
		refuse(op, fmt.Sprintf("the logs are %v; give [T, N, C], or [T, C] of one sequence", logs))
	}
	mesh, n := logs.Mesh(), logs.Dim(1)
	c := &ctc{op: op, blank: o.Blank, zero: o.ZeroInfinity, long: o.TargetLengths, classes: logs.Dim(2), sequences: n}
	list := targets.NDim() == 1
	switch {
	case targets.DType().Float() || !list && (targets.NDim() != 2 || targets.Dim(0) != n):
		refuse(op, fmt.Sprintf("targets %v for logs %v; give integers, [%d, S], or all labels in one list", targets, logs, n))
	case list && o.TargetLengths == nil:
		refuse(op, fmt.Sprintf("targets %v are one list; give TargetLengths", targets))
	case o.Blank < 0 || o.Blank >= c.classes:
		refuse(op, fmt.Sprintf("Blank is %d; give one of the %d classes of %v", o.Blank, c.classes, logs))
	}
	for _, x := range []*dtensor.Tensor{targets, o.InputLengths, o.TargetLengths} {
		if x != nil && x.Mesh() != mesh {
			refuse(op, fmt.Sprintf("%v is on mesh %v and logs on another, %v; move one of them", x, x.Mesh(), mesh))
		}
	}
	c.logs, c.batch = mesh.Every(layout.Replicate()), mesh.Every(layout.Replicate())
	for axis, p := range logs.Placements() {
		if p.Shards(1) {
			c.logs[axis], c.batch[axis] = p, p.WithDim(0)
		}
	}
	widest := 0
	if !list {
		widest = targets.Dim(1)
	}
	labels := whole(targets)
	c.frames = c.lengths("InputLengths", o.InputLengths, logs.Dim(0), logs)
	lengths := c.lengths("TargetLengths", o.TargetLengths, widest, logs)
	own := dtensor.Arange(mesh, tensor.Int64, 0, n, mesh.Every(layout.Replicate())...).Redistribute(c.batch...)
	if !mesh.Inside() {
		return c
	}
	c.numbers = tensor.ToSlice[int64](own.Local())
	c.check("InputLengths", c.frames, logs.Dim(0))
	if list {
		c.check("TargetLengths", lengths, len(labels))
		if total := ints.Sum(lengths); total != int64(len(labels)) {
			refuse(op, fmt.Sprintf("TargetLengths add up to %d; targets %v have %d labels", total, targets, len(labels)))
		}
	} else {
		c.check("TargetLengths", lengths, widest)
	}
	at := 0
	for i, length := range lengths {
		if !list {
			at = i * widest
		}
		its := labels[at : at+int(length)]
		for s, label := range its {
			if label < 0 || label >= int64(c.classes) || label == int64(c.blank) {
				refuse(op, fmt.Sprintf("label %d of sequence %d is %d; give one of the %d classes that is not the blank, %d",
					s, i, label, c.classes, c.blank))
			}
		}
		c.labels = append(c.labels, its)
		at += int(length)
	}
	return c
}

// whole returns all elements of integers.
func whole(x *dtensor.Tensor) []int64 { return integers(x.Full()) }

// lengths returns a length for each sequence: those of x, or most if that is nil.
func (c *ctc) lengths(name string, x *dtensor.Tensor, most int, logs *dtensor.Tensor) []int64 {
	if x == nil {
		return slices.Repeat([]int64{int64(most)}, c.sequences)
	}
	if x.DType().Float() || !slices.Equal(x.Shape(), []int{c.sequences}) {
		refuse(c.op, fmt.Sprintf("%s is %v for logs %v; give integers, [%d]", name, x, logs, c.sequences))
	}
	return whole(x)
}

// check throws unless each length is from 0 to most.
func (c *ctc) check(name string, lengths []int64, most int) {
	for i, length := range lengths {
		if length < 0 || length > int64(most) {
			refuse(c.op, fmt.Sprintf("%s of sequence %d is %d; give at least 0 and at most %d", name, i, length, most))
		}
	}
}

// losses returns the loss of each sequence, [N].
func (c *ctc) losses(logs *dtensor.Tensor) *dtensor.Tensor {
	logs = logs.Redistribute(c.logs...)
	mesh, x := logs.Mesh(), logs.Local()
	run := dtype.Pick(x.DType(), ctcRun[float32], ctcRun[float64])
	out := mesh.Wrap(c.op, run(c, x, nil, nil), nil, false, []int{c.sequences}, c.batch...)
	return dtensor.Record(c.op, out, []*dtensor.Tensor{logs}, func(gy *dtensor.Tensor) []dtensor.Grad {
		dx := tensor.ZerosLike(x)
		run(c, x, gy.Redistribute(c.batch...).Local(), dx)
		return []dtensor.Grad{dtensor.Dense(mesh.Wrap(c.op, dx, nil, false, logs.Shape(), c.logs...))}
	})
}

// ctcRun returns the losses of this rank's sequences. If dx is not nil it writes their gradients there, times gy.
func ctcRun[T dtype.Float](c *ctc, x, gy, dx *tensor.Tensor) *tensor.Tensor {
	n := len(c.numbers)
	losses, logs := make([]T, n), tensor.Read[T](x)
	one := func(scale, grad []T) {
		for i, number := range c.numbers {
			p := ctcPaths[T]{logs: logs, first: i * c.classes, frame: n * c.classes, blank: c.blank,
				frames: int(c.frames[number]), labels: c.labels[number]}
			loss := p.forward()
			if c.zero && math.IsInf(loss, 1) {
				continue
			}
			if losses[i] = T(loss); grad != nil {
				p.backward(loss, c.classes, float64(scale[i]), grad)
			}
		}
	}
	if dx == nil {
		one(nil, nil)
	} else {
		tensor.Edit(dx, func(grad []T) { one(tensor.Read[T](gy), grad) })
	}
	return tensor.FromSlice(x.Device(), losses, n)
}

// ctcPaths are the paths of one sequence. Their states are the labels and the blanks before, between and after them:
// state s is label s/2 if s is odd and else a blank.
type ctcPaths[T dtype.Float] struct {
	logs         []T // element k of frame t is logs[first + t·frame + k]
	first, frame int
	blank        int
	frames       int
	labels       []int64
	alpha        []float64 // [frames, states], the logarithm of the probability of all beginnings that end in a state
}

func (p *ctcPaths[T]) states() int { return 2*len(p.labels) + 1 }

// class returns the class of a state.
func (p *ctcPaths[T]) class(s int) int {
	if s%2 == 1 {
		return int(p.labels[s/2])
	}
	return p.blank
}

// log returns the logarithm of the probability of a state's class at a frame.
func (p *ctcPaths[T]) log(t, s int) float64 { return float64(p.logs[p.first+t*p.frame+p.class(s)]) }

// skips reports whether a path may go from state s-2 to s: the blank between labels that differ is not needed.
func (p *ctcPaths[T]) skips(s int) bool { return s >= 2 && s%2 == 1 && p.class(s) != p.class(s-2) }

// forward fills in alpha and returns the loss.
func (p *ctcPaths[T]) forward() float64 {
	states := p.states()
	if p.frames == 0 {
		if states > 1 {
			return math.Inf(1)
		}
		return 0
	}
	p.alpha = slices.Repeat([]float64{math.Inf(-1)}, p.frames*states)
	for s := range min(2, states) {
		p.alpha[s] = p.log(0, s)
	}
	for t := 1; t < p.frames; t++ {
		before, now := p.alpha[(t-1)*states:t*states], p.alpha[t*states:]
		for s := range states {
			sum := before[s]
			if s >= 1 {
				sum = logAdd(sum, before[s-1])
			}
			if p.skips(s) {
				sum = logAdd(sum, before[s-2])
			}
			now[s] = sum + p.log(t, s)
		}
	}
	last := p.alpha[(p.frames-1)*states:]
	sum := last[states-1]
	if states > 1 {
		sum = logAdd(sum, last[states-2])
	}
	return -sum
}

// backward writes the gradient of the loss, times scale. It keeps the logarithm of the probability of all ends that follow a
// state, for the frame that it is at.
func (p *ctcPaths[T]) backward(loss float64, classes int, scale float64, grad []T) {
	if math.IsInf(loss, 1) { // no path has a probability, given the target
		scale = math.NaN()
	}
	states := p.states()
	after, next := make([]float64, states), make([]float64, states)
	chosen := make([]float64, classes) // the probability of each class at a frame, given the target
	for t := p.frames - 1; t >= 0; t-- {
		for s := range states {
			switch {
			case t == p.frames-1 && s >= states-2:
				after[s] = 0
			case t == p.frames-1:
				after[s] = math.Inf(-1)
			default:
				sum := next[s] + p.log(t+1, s)
				if s+1 < states {
					sum = logAdd(sum, next[s+1]+p.log(t+1, s+1))
				}
				if s+2 < states && p.skips(s+2) {
					sum = logAdd(sum, next[s+2]+p.log(t+1, s+2))
				}
				after[s] = sum
			}
		}
		clear(chosen)
		for s := range states {
			chosen[p.class(s)] += math.Exp(p.alpha[t*states+s] + after[s] + loss)
		}
		at := p.first + t*p.frame
		for k := range classes {
			grad[at+k] = T(scale * (math.Exp(float64(p.logs[at+k])) - chosen[k]))
		}
		after, next = next, after
	}
}

// logAdd returns ln(eᵃ + eᵇ).
func logAdd(a, b float64) float64 {
	top := max(a, b)
	if math.IsInf(top, -1) {
		return top
	}
	return top + math.Log1p(math.Exp(min(a, b)-top))
}
