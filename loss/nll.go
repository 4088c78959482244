package loss

import (
	"runtime"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/dtype"
	"github.com/gorun-spmd/gorun/tensor"
)

// NLLLoss returns the negative log-likelihood loss of logarithms of
// probabilities, such as LogSoftmax gives: for each position
//
//	loss = -w[y]·logs[y]
//
// Shapes, layouts and communication are those of CrossEntropy with targets that
// are classes, except that one number a position is sent; LabelSmoothing and
// ZLoss must be 0. So are the types: for bfloat16 the loss is float32. It throws as
// CrossEntropy does.
func NLLLoss(logs, targets *dtensor.Tensor, o Options) *dtensor.Tensor {
	defer logs.Mesh().Span("NLLLoss").End()
	const op = "NLLLoss"
	o.validate(op)
	if o.LabelSmoothing != 0 || o.ZLoss != 0 {
		refuse(op, "LabelSmoothing and ZLoss need the logits; use CrossEntropy")
	}
	if targets.DType().Float() {
		refuse(op, "targets are not classes; use CrossEntropy for probabilities")
	}
	checkType(op, logs)
	p := shardingOf(op, logs, false)
	p.checkOperands(logs, targets, false, &o)
	j := &job{sharding: p, o: o, log: true, out: layoutOf(p, o.Reduction)}
	logs, targets = logs.Redistribute(p.logits...), targets.Redistribute(p.targets...)
	p.bind(logs)
	if !p.mesh.Inside() {
		return p.mesh.Wrap(op, tensor.Zeros(p.mesh.Device(), p.wide), nil, false, j.out.shape, j.out.places...)
	}
	j.x, j.y = logs.Local(), targets.Local()
	j.weigh()
	bad := j.label()
	dtype.Pick(p.dtype, pickTargets[float32], pickTargets[float64])(j)
	local := dtype.Pick(p.dtype, reduce[float32], reduce[float64])(j, bad)
	out := p.mesh.Wrap(op, local, nil, false, j.out.shape, j.out.places...)
	return dtensor.RecordComposed(op, out, []*dtensor.Tensor{logs}, func(gy *dtensor.Tensor) []dtensor.Grad {
		gy = gy.Redistribute(j.out.places...)
		dx := dtype.Pick(p.dtype, nllGrad[float32], nllGrad[float64])(j, gy.Local())
		return []dtensor.Grad{dtensor.Dense(logs.Mesh().Wrap(op, dx, nil, false, logs.Shape(), p.logits...))}
	}, func() *dtensor.Tensor { return composed(logs, targets, o, true) })
}

// owned returns the local positions whose target is one of this rank's classes, and the
// flat indices of these targets in local x.
func (j *job) owned() (rows []int, at []int64) {
	for i := range j.rows {
		r := &j.rows[i]
		if k := int(r.label) - j.lo; r.use && k >= 0 && k < j.n {
			rows = append(rows, i)
			at = append(at, int64(((i/j.inner)*j.n+k)*j.inner+i%j.inner))
		}
	}
	return rows, at
}

// pickTargets fills in the rows' targets: the one collective over the classes.
func pickTargets[T dtype.Float](j *job) {
	rows, at := j.owned()
	values := make([]T, j.positions())
	dev := j.x.Device()
	if len(rows) > 0 {
		got := tensor.IndexSelect(j.x.Reshape(j.x.Numel()), 0, tensor.FromSlice(dev, at, len(at)))
		for i, v := range tensor.ToSlice[T](tensor.Cast(got, j.wide)) {
			values[rows[i]] = v
		}
	}
	if j.classGroup != nil && len(values) > 0 {
		all := tensor.FromSlice(dev, values, len(values))
		buf := dtensor.BufferOf(all)
		j.do(j.classGroup, comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum, Dst: buf, Src: buf, Cause: j.cause.classes})
		values = tensor.ToSlice[T](all)
		runtime.KeepAlive(all)
	}
	for i, v := range values {
		j.rows[i].target = float64(v)
	}
}

// nllGrad returns the gradient of the local logarithms: -w[y] times the
// gradient of the row's loss at the target, zeros elsewhere.
func nllGrad[T dtype.Float](j *job, gy *tensor.Tensor) *tensor.Tensor {
	scale := scales[T](j, gy)
	dx := tensor.ZerosLike(j.x)
	rows, at := j.owned()
	if len(rows) == 0 {
		return dx
	}
	values := make([]T, len(rows))
	for i, r := range rows {
		values[i] = T(-j.rows[r].b * float64(scale[r]))
	}
	dev := j.x.Device()
	losses := tensor.Cast(tensor.FromSlice(dev, values, len(values)), j.dtype)
	tensor.ScatterTo(dx.Reshape(dx.Numel()), 0, tensor.FromSlice(dev, at, len(at)), losses)
	return dx
}
