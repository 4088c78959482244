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

// inbox returns what comes on a way.
func (r *pipelining) inbox(key way) *inbox {
	box := r.inboxes[key]
	if box == nil {
		box = &inbox{left: r.parts}
		r.inboxes[key] = box
	}
	return box
}

// take removes the tensor that comes next.
func (b *inbox) take() arrival {
	first := b.list[0]
	b.list = b.list[1:]
	return first
}

// receive returns the next tensor on the way to a stage (from 0), or back from it (from 1), of the shape local. from is also the
// sender's number in c, which is nil if the stage before is on this mesh.
func (r *pipelining) receive(c *comm.Comm, to *stage, from int, local []int) *tensor.Tensor {
	box := r.inbox(way{to, from})
	if c == nil {
		return box.take().data
	}
	for box.left > 0 && len(box.list) < 2 {
		data := tensor.New(r.eng.dev, to.DType, local...)
		call := comm.Call{Kind: comm.RecvKind, Root: from, Dst: BufferOf(data), Cause: pipelineCauses[from], Facts: uint32(r.parts)}
		box.list = append(box.list, arrival{c.Start(r.eng.ctx, call), data})
		box.left--
	}
	first := box.take()
	wait(first.Pending)
	return first.data
}

// send sends data on the way to a stage (to 1), or back from it (to 0). to is also the receiver's number in c. With last, data
// is freed once it has been sent.
func (r *pipelining) send(c *comm.Comm, of *stage, to int, data *tensor.Tensor, last bool) {
	if c == nil {
		box := r.inbox(way{of, 1 - to})
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
	call := comm.Call{Kind: comm.SendKind, Root: to, Src: BufferOf(data), Cause: pipelineCauses[1-to], Facts: uint32(r.parts)}
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
