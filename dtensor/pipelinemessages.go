package dtensor

import (
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// An inbox is what this rank gets from one other, part after part. One more than is needed
// has been asked for, so that it arrives while this rank computes.
type inbox struct {
	list []arrival
	left int // parts that have not been asked for
}

// An arrival is a tensor on its way.
type arrival struct {
	*comm.Pending
	data *tensor.Tensor
}

// receive returns what comes next to a stage, or with from 1 to the stage before it as
// gradient, from the rank of this number in c. Its shape is local.
func (r *pipelining) receive(c *comm.Comm, to *stage, from int, local []int) *tensor.Tensor {
	key := way{to, from}
	box := r.inboxes[key]
	if box == nil {
		box = &inbox{left: r.parts}
		r.inboxes[key] = box
	}
	if c == nil { // both stages are on this mesh
		first := box.list[0]
		box.list = box.list[1:]
		return first.data
	}
	for box.left > 0 && len(box.list) < 2 {
		data := tensor.New(r.eng.dev, to.DType, local...)
		call := comm.Call{Kind: comm.RecvKind, Root: from, Dst: BufferOf(data), Cause: pipelineCauses[from]}
		box.list = append(box.list, arrival{c.Start(r.eng.ctx, call), data})
		box.left--
	}
	first := box.list[0]
	box.list = box.list[1:]
	wait(first.Pending)
	return first.data
}

// send hands on what belongs to a stage, or with to 0 its gradient to the stage before. It
// is freed when it has been sent, if last is set.
func (r *pipelining) send(c *comm.Comm, of *stage, to int, data *tensor.Tensor, last bool) {
	if c == nil {
		key := way{of, 1 - to}
		box := r.inboxes[key]
		if box == nil {
			box = &inbox{}
			r.inboxes[key] = box
		}
		box.list = append(box.list, arrival{nil, tensor.Clone(data)})
		if last {
			data.Free()
		}
		return
	}
	r.sent = slices.DeleteFunc(r.sent, func(a arrival) bool {
		select {
		case <-a.Done():
			wait(a.Pending)
			if a.data != nil {
				a.data.Free()
			}
			return true
		default:
			return false
		}
	})
	call := comm.Call{Kind: comm.SendKind, Root: to, Src: BufferOf(data), Cause: pipelineCauses[1-to]}
	a := arrival{c.Start(r.eng.ctx, call), nil}
	if last {
		a.data = data
	}
	r.sent = append(r.sent, a)
}

// pipelineCauses are the causes of what comes from the stage before, and from the next one.
var pipelineCauses = [2]string{"Pipeline: activations", "Pipeline: gradients"}

// A way leads to a stage from the one before it (from 0), or back (from 1).
type way struct {
	*stage
	from int
}

// moved returns a copy of a tensor that it frees: one that the innermost scope owns.
func moved(t *tensor.Tensor) *tensor.Tensor {
	own := tensor.Clone(t)
	t.Free()
	return own
}

// wait throws the error of a call that was started.
func wait(p *comm.Pending) {
	if err := p.Wait(); err != nil {
		fault.Throw(err)
	}
}
