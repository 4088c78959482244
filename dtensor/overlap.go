package dtensor

import (
	"fmt"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/tensor"
)

// OverlapVar is the environment variable that calls SetOverlap(OverlapBytes) from the start if it is 1.
const OverlapVar = "GORUN_OVERLAP"

// OverlapBytes is how many bytes of gradients are summed at a time if OverlapVar is set: so many that what a
// collective costs beside its bytes is little, and so few that the first begins early.
const OverlapBytes = 2 << 20

// SetOverlap has ValueAndGrad, Accumulate and what is made of them sum gradients over the ranks while the backward
// pass still runs, as soon as that many bytes of them are there: PyTorch's DistributedDataParallel. 0, which is the
// default, sums them all in the end. The sums have the same bits; only the collectives are more. It pays where ranks
// wait for a network; ranks that share memory are faster without. Turn it on, on all ranks, between two passes.
//
// With SameBits it has no effect. On a GPU it is refused.
func (m *Mesh) SetOverlap(bytes int) {
	switch {
	case bytes < 0:
		refuse("SetOverlap", fmt.Sprintf("%d bytes", bytes), "give how many bytes of gradients are summed at a time, or 0")
	case bytes > 0 && !tensor.OnHost(m.eng.dev):
		refuse("SetOverlap", "gradients on a GPU are summed in the end", "leave it off")
	}
	m.eng.overlap = bytes
}

// An early sums gradients of parameters while the backward pass goes on.
type early struct {
	params  []*Tensor
	grads   []Grad // of params; those that are begun are set by finish
	order   []int  // parameters, the one whose gradient is complete first at the front
	bytes   int    // from which a pack begins
	bucket  bucket
	started []*started
}

// newEarly prepares a backward pass, all of whose operators are recorded.
func newEarly(params []*Tensor, grads []Grad, bytes int) *early {
	e := &early{params: params, grads: grads, bytes: bytes, bucket: bucket{order: orderOf(params)}}
	for i, p := range params {
		if p.node.used > 0 {
			e.order = append(e.order, i)
		}
	}
	slices.SortStableFunc(e.order, func(a, b int) int { return params[b].node.used - params[a].node.used })
	return e
}

// passed begins the sums of the gradients that are complete once node i has handed its gradient on.
func (e *early) passed(i int) {
	for len(e.order) > 0 && e.params[e.order[0]].node.used >= i {
		k := e.order[0]
		e.order = e.order[1:]
		n := e.params[k].node
		n.joinPieces()
		if n.grad == nil {
			continue
		}
		p := e.bucket.pack(&e.grads[k].dense, n.arrived(), e.params[k].spec.gradient())
		if p == nil { // collect brings it to its layout
			continue
		}
		n.grad, n.sent = nil, true
		if p.bytes() >= e.bytes {
			e.free()
			e.started = append(e.started, p.start())
			p.list = nil
		}
	}
}

// free frees the buffers in which packs were put together, of those packs whose sums are there.
func (e *early) free() {
	for _, s := range e.started {
		select {
		case <-s.pending.Done():
			if s.scatter && s.src != nil {
				s.src.Free()
				s.src = nil
			}
		default:
			return // they end in their order, except for those of other groups
		}
	}
}

// finish sets the gradients that were begun, and sums those that are left.
func (e *early) finish() {
	for i := range e.bucket.packs {
		if p := &e.bucket.packs[i]; len(p.list) > 0 {
			p.reduce()
		}
	}
	for _, s := range e.started {
		if err := s.pending.Wait(); err != nil {
			fault.Throw(err)
		}
		s.handOut(s.flat)
	}
	e.started = nil
}

// drain waits for what was started, whose memory is about to go.
func (e *early) drain() {
	for _, s := range e.started {
		_ = s.pending.Wait() // another error is on its way
	}
}

// A started pack is one whose sums are on their way.
type started struct {
	pack
	src, flat *tensor.Tensor
	pending   *comm.Pending
}

// start begins the sums of a pack.
func (p *pack) start() *started {
	total := p.total()
	src, counts := p.joined(total)
	flat, call := p.call(src, counts, total)
	return &started{pack: *p, src: src, flat: flat, pending: p.mesh.eng.start(p.mesh.groupOf(p.axes), call)}
}

// start begins a call that Do would make.
func (e *engine) start(c *comm.Comm, call comm.Call) *comm.Pending {
	if e.line != nil {
		call = call.At(e.line)
	}
	return c.Start(e.ctx, call)
}
