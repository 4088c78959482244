package loss

import (
	"fmt"
	"math"
	"slices"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/dtensor/layout"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/tensor"
)

// CrossEntropy returns the cross-entropy between logits and targets.
//
//	logits [N, C], [C] or [N, C, d1, …]   targets [N], [] or [N, d1, …]   →   [], or as targets with None
//
//	logits                     targets      result                  communication
//	R                          R            R                       none
//	S(class)                   R            R                       1 over the classes, 4 numbers a position
//	S(batch)                   S(batch)     R; S(batch) with None   1 over the positions, of 2 numbers and a status
//	S(batch),S(class)          S(batch),R   R,R; S(batch),R         both
//
// Several axes may shard the classes, and any dimension of positions may be
// sharded; targets are redistributed to the layout of the table. Logits that are
// Partial are reduced first. The gradient communicates nothing and has the layout of
// the logits. Class probabilities get a gradient too, in the same layout; weights get
// none.
//
// With x the logits of a position, y its target, w the class weights (1), ε the
// label smoothing and z the z-loss,
//
//	lse = ln Σ exp(x[c])
//	loss = (1-ε)·w[y]·(lse - x[y]) + ε/C·Σ w[c]·(lse - x[c]) + z·lse²
//
// and a position whose target is IgnoreIndex has neither loss nor gradient. If
// targets are of a floating-point type they are class probabilities p in the
// shape of the logits, and
//
//	loss = Σ w[c]·((1-ε)·p[c] + ε/C)·(lse - x[c]) + z·lse²
//
// The mean over no positions is NaN, as PyTorch has it.
//
// Logits are float32, float64 or bfloat16. With bfloat16 logits, class probabilities and
// weights are bfloat16 or float32, computation, messages and, unlike in PyTorch, the loss
// float32: the loss is that of the same operands converted to float32. The gradient is
// bfloat16, each element rounded once.
//
// CrossEntropy throws an *Error for shapes, types and options that do not fit
// and a *TargetError for a target that is no class.
func CrossEntropy(logits, targets *dtensor.Tensor, o Options) *dtensor.Tensor {
	defer logits.Mesh().Span("CrossEntropy").End()
	const op = "CrossEntropy"
	o.validate(op)
	checkType(op, logits)
	soft := targets.DType().Float()
	p := shardingOf(op, logits, !soft && o.byLeaves())
	p.checkOperands(logits, targets, soft, &o)
	places := p.targets
	if soft {
		places = p.logits
	}
	j := &job{sharding: p, o: o, soft: soft, out: layoutOf(p, o.Reduction)}
	logits, targets = logits.Redistribute(p.logits...), targets.Redistribute(places...)
	if soft {
		targets = targets.Cast(p.wide)
	}
	p.bind(logits)
	if !p.mesh.Inside() {
		return p.mesh.Wrap(op, tensor.Zeros(p.mesh.Device(), p.wide), nil, false, j.out.shape, j.out.places...)
	}
	j.x, j.y = logits.Local(), targets.Local()
	j.weigh()
	local := dtype.Pick(p.dtype, forward[float32], forward[float64])(j)
	out := p.mesh.Wrap(op, local, nil, false, j.out.shape, j.out.places...)
	inputs := []*dtensor.Tensor{logits}
	if soft && dtensor.Tracked(targets) {
		inputs = append(inputs, targets)
	}
	return dtensor.RecordComposed(op, out, inputs, func(gy *dtensor.Tensor) []dtensor.Grad {
		g := gy.Redistribute(j.out.places...).Local()
		dense := func(dx *tensor.Tensor) dtensor.Grad {
			return dtensor.Dense(p.mesh.Wrap(op, dx, nil, false, logits.Shape(), p.logits...))
		}
		grads := []dtensor.Grad{dense(dtype.Pick(p.dtype, backward[float32], backward[float64])(j, g))}
		if len(inputs) > 1 {
			grads = append(grads, dense(dtype.Pick(p.dtype, softTargetGrad[float32], softTargetGrad[float64])(j, g)))
		}
		return grads
	}, func() *dtensor.Tensor { return composed(logits, targets, o, false) })
}

// A job is one cross-entropy on one rank, with all that its gradient needs.
type job struct {
	*sharding
	o    Options
	soft bool // targets are probabilities
	log  bool // x are logarithms of probabilities: NLLLoss
	out  result

	x, y    *tensor.Tensor // local logits and targets
	weight  *tensor.Tensor // [n] the weights of the local classes; nil: all 1
	weights []float64      // [C] all of them; nil: all 1
	total   float64        // their sum

	rows  []row   // one for each local position
	denom float64 // of the mean
}

// A row holds the statistics of one position, combined over all classes.
type row struct {
	max, sum   float64 // the largest logit; Σ exp(x - max)
	target     float64 // the target's logit; with smoothing or probabilities Σ q·(x - max), see softStats
	all        float64 // Σ q; 0 without smoothing or probabilities
	label      int64
	use        bool // not ignored
	a, b, loss float64
}

// A result is the layout of a loss's result.
type result struct {
	shape  []int
	places []layout.Placement
}

func layoutOf(p *sharding, r Reduction) result {
	if r == None {
		return result{p.shape, p.targets}
	}
	return result{nil, make([]layout.Placement, len(p.targets))}
}

// checkOperands throws unless targets and weights fit the logits.
func (p *sharding) checkOperands(logits, targets *dtensor.Tensor, soft bool, o *Options) {
	dt := targets.DType()
	want := p.shape
	switch {
	case soft:
		want = logits.Shape()
		if dt != p.wide && dt != logits.DType() {
			refuse(p.op, fmt.Sprintf("targets %v are probabilities, but not %v as logits %v want them; Cast them", targets, p.wide, logits))
		}
	case dt != tensor.Int64 && dt != tensor.Int32:
		refuse(p.op, fmt.Sprintf("targets %v are neither int64 or int32 nor %v probabilities; Cast them", targets, p.wide))
	}
	if !slices.Equal(targets.Shape(), want) {
		if n := logits.NDim(); n > 2 && slices.Equal(targets.Shape(), logits.Shape()[:n-1]) {
			refuse(p.op, fmt.Sprintf("targets %v for logits %v: classes are dimension 1, not the last; Flatten(0, %d) both", targets, logits, n-2))
		}
		remedy := ""
		if soft {
			remedy = ", as numbers are probabilities of classes; Cast classes to int64"
		}
		refuse(p.op, fmt.Sprintf("targets %v for logits %v; their shape must be %v%s", targets, logits, want, remedy))
	}
	if targets.Mesh() != logits.Mesh() {
		refuse(p.op, fmt.Sprintf("targets are on mesh %v and logits on another, %v; move one of them", targets.Mesh(), logits.Mesh()))
	}
	w := o.Weight
	if w == nil {
		return
	}
	switch {
	case !slices.Equal(w.Shape(), []int{p.classes}) || w.DType() != p.wide && w.DType() != logits.DType():
		refuse(p.op, fmt.Sprintf("Weight %v for logits %v; give one %v for each of the %d classes", w, logits, p.wide, p.classes))
	case w.Mesh() != logits.Mesh():
		refuse(p.op, fmt.Sprintf("Weight is on mesh %v and logits on another, %v; move one of them", w.Mesh(), logits.Mesh()))
	case dtensor.Tracked(w):
		refuse(p.op, "Weight depends on a parameter, and class weights get no gradient; pass Detach of it")
	}
}

// weigh fetches the class weights.
func (j *job) weigh() {
	if j.o.Weight != nil {
		whole := tensor.Cast(j.o.Weight.Full(), j.wide)
		j.weight = tensor.Narrow(whole, 0, j.lo, j.n)
		j.weights = tensor.ToSlice[float64](tensor.Cast(whole, tensor.Float64))
	}
	j.total = j.weightOf(0, j.classes)
}

// forward returns the local result and fills in the fields that the gradient needs.
func forward[T dtype.Float](j *job) *tensor.Tensor {
	bad := j.label()
	if j.soft {
		combine[T](j, softStats[T](j))
	} else {
		combine[T](j, hardStats[T](j))
	}
	return reduce[T](j, bad)
}

// reduce returns the local result, from the rows after combine.
func reduce[T dtype.Float](j *job, bad badTarget) *tensor.Tensor {
	sum := partial{bad: bad}
	var losses, weights []float64 // with same bits
	for i := range j.rows {
		r, weight := &j.rows[i], 0.0
		if r.use {
			j.finish(r)
			weight = j.labelWeight(r)
			sum.loss += r.loss
			sum.weight += weight
		}
		if j.mesh.SameBits() {
			losses, weights = append(losses, r.loss), append(weights, weight)
		}
	}
	if j.mesh.SameBits() {
		sum = j.ofPositions(losses, weights, bad)
	} else {
		sum = j.acrossPositions(sum)
	}
	if sum.bad.at != 0 {
		j.throw(sum.bad)
	}
	j.denom = 1
	dev := j.y.Device()
	switch j.o.Reduction {
	case None:
		losses := make([]T, len(j.rows))
		for i := range j.rows {
			losses[i] = T(j.rows[i].loss)
		}
		return tensor.FromSlice(dev, losses, j.local...)
	case Mean:
		j.denom = sum.weight
	}
	return tensor.Full(dev, j.wide, sum.loss/j.denom)
}

// labelWeight returns the position's part of the mean's denominator.
func (j *job) labelWeight(r *row) float64 {
	if j.soft || j.weights == nil {
		return 1
	}
	return j.weights[r.label]
}

// label makes the rows from the targets. It returns the first target that is no class,
// or throws the error if every rank sees the same targets.
func (j *job) label() (bad badTarget) {
	j.rows = make([]row, j.positions())
	if j.soft {
		for i := range j.rows {
			j.rows[i].use = true
		}
		return bad
	}
	ignored := j.o.ignored()
	for i, y := range integers(j.y) {
		r := &j.rows[i]
		switch {
		case y == ignored:
		case y < 0 || y >= int64(j.classes):
			if bad.at == 0 {
				bad = badTarget{at: int64(j.at(i)) + 1, target: y}
			}
		default:
			r.label, r.use = y, true
		}
	}
	if bad.at != 0 && j.batchGroup == nil {
		j.throw(bad)
	}
	return bad
}

// finish computes the loss of a position and the coefficients of its gradient,
//
//	a·exp(x - lse) - b·[c is the target] - ε/C·w[c]
func (j *job) finish(r *row) {
	if j.log { // x is ln of a probability: the sum of exponentials is not needed
		r.b = j.labelWeight(r)
		r.loss = -r.b * r.target
		return
	}
	eps, log := j.o.LabelSmoothing, math.Log(r.sum)
	lse := r.max + log
	if j.soft {
		r.a = r.all
		r.loss = r.all*log - r.target
	} else {
		r.b = (1 - eps) * j.labelWeight(r)
		r.a = r.b
		if eps > 0 {
			r.a += eps / float64(j.classes) * j.total
			r.loss = r.a*log - r.target
		} else {
			r.loss = r.b * (r.max - r.target + log) // the difference first: it is exact
		}
	}
	if z := j.o.ZLoss; z > 0 {
		r.a += 2 * z * lse
		r.loss += z * lse * lse
	}
}

// backward returns the gradient of the local logits for the gradient gy of the
// local result.
func backward[T dtype.Float](j *job, gy *tensor.Tensor) *tensor.Tensor {
	scale := scales[T](j, gy)
	shift, coef := coefficients(j, scale)
	dx := tensor.NewLike(j.x)
	if j.soft {
		softGrad(j, dx, shift, coef, tensor.FromSlice(j.x.Device(), scale, len(scale), 1))
	} else {
		hardGrad(j, dx, shift, coef)
	}
	return dx
}

// scales returns the gradient of each row's loss, 0 for ignored ones.
func scales[T dtype.Float](j *job, gy *tensor.Tensor) []T {
	g := tensor.ToSlice[T](gy)
	s := make([]T, len(j.rows))
	for i := range s {
		switch {
		case !j.rows[i].use:
		case j.o.Reduction == None:
			s[i] = g[i]
		default:
			s[i] = T(float64(g[0]) / j.denom)
		}
	}
	return s
}

// coefficients returns lse and coef of tensor.CrossEntropyGrad: coef is a, b and ε/C times
// the gradients of the rows' losses. In place of lse stands shift, the largest logit, and a
// is divided by Σ exp(x - shift), so that the gradient is exact for large logits too.
func coefficients[T dtype.Float](j *job, scale []T) (shift, coef *tensor.Tensor) {
	n := len(j.rows)
	shifts, coefs := make([]T, n), make([]T, 3*n)
	for i := range j.rows {
		r, s := &j.rows[i], float64(scale[i])
		if !r.use {
			continue
		}
		shifts[i] = T(r.max)
		coefs[3*i], coefs[3*i+1] = T(s*r.a/r.sum), T(s*r.b)
		if !j.soft {
			coefs[3*i+2] = T(s * j.o.LabelSmoothing / float64(j.classes))
		}
	}
	dev := j.y.Device()
	return tensor.FromSlice(dev, shifts, n), tensor.FromSlice(dev, coefs, n, 3)
}
