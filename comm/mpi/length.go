//go:build linux && !nolibs

package mpi

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/gorun-spmd/gorun/comm/backend"
)

// Open MPI's own transport (ob1, over shared memory and TCP) writes a long message beyond a
// buffer that is too short for it, and only then says that it was truncated: neither
// mca_pml_ob1_recv_request_progress_rget nor mca_pml_ob1_recv_request_ack of
// ompi/mca/pml/ob1/pml_ob1_recvreq.c (v4.1.4, v5.0.7) looks at the length of the buffer. So
// no message may meet a buffer of another length:
//
//   - The tag of a message holds its length. One of another length is not received; a rank
//     that waits in vain looks for it, see uneven.
//   - The library's own collectives have their own tags. All ranks agree before a long one
//     begins, see unanimous.

// tagBits is how many bits of a tag say what a message is for. Its length is above them.
const tagBits = 3

// unevenAfter is how long a rank waits before it looks for messages of other lengths.
const unevenAfter = 20 * time.Millisecond

// status is Open MPI's MPI_Status.
type status struct {
	_         int32 // the source
	tag       int32
	_         int32 // the error
	cancelled int32
	_         uintptr // bytes
}

// receive is a message that a rank waits for.
type receive struct {
	at      int // its request
	peer    int
	tag     int32
	matched bool // it is on its way
}

// askTags sets j.lengths, with Open MPI's ob1 alone: its largest tag is the largest int32.
// UCX and libfabric, which have fewer bits for a tag, compare lengths before they write, as
// MPICH does. The job's lock is held.
func (j *job) askTags() error {
	if j.lib.abi != &openMPI {
		return nil
	}
	const largestTag = 0 // MPI_TAG_UB
	j.cells[0] = 0
	if err := j.lib.call(commGetAttr, j.lib.handles[commWorld], largestTag, pointer(&j.attribute), pointer(&j.cells[0])); err != nil {
		return err
	}
	j.lengths = j.cells[0] != 0 && *j.attribute == math.MaxInt32
	return nil
}

// tag is the tag of a message of n bytes to or from peer. It notes what is to be received,
// by the request that is begun next.
func (r *Rank) tag(receives bool, what uintptr, n, peer int) uintptr {
	if !r.job.lengths {
		return what
	}
	what |= uintptr(n) << tagBits
	if receives {
		r.receives = append(r.receives, receive{at: len(r.requests), peer: peer, tag: int32(what)})
	}
	return what
}

// uneven is the error of a rank that waits for a message instead of which one of another
// length has come.
func (r *Rank) uneven(call *backend.Call) error {
	j := r.job
	j.mu.Lock()
	defer j.mu.Unlock()
	const what, anyTag = 1<<tagBits - 1, ^uintptr(0) // MPI_ANY_TAG
	for i := range r.receives {
		v := &r.receives[i]
		q := &r.requests[v.at]
		if q.done || v.matched {
			continue
		}
		s := &j.status
		j.cells[0] = 0
		if err := j.lib.call(iprobe, uintptr(v.peer), anyTag, r.comm, pointer(&j.cells[0]), pointer(s)); err != nil {
			return err
		}
		if j.cells[0] == 0 || s.tag&what != v.tag&what || s.tag == v.tag {
			continue
		}
		// What has come may belong to a later call, if v's message is on its way. Then v cannot
		// be taken back.
		sent := s.tag >> tagBits
		if v.matched = !j.takeBack(q, pointer(s)); v.matched || s.cancelled == 0 {
			continue
		}
		return fmt.Errorf("%w: in %v rank %d sends %d bytes to rank %d, which expects %d; make the two counts equal",
			backend.ErrMismatch, call.Kind, r.world[v.peer], sent, r.world[r.me], v.tag>>tagBits)
	}
	return nil
}

// takeBack cancels a receive and reports whether it has ended. Its status is written to
// an address.
func (j *job) takeBack(q *request, at uintptr) bool {
	if j.lib.call(cancel, pointer(&q.handle)) != nil {
		return false
	}
	for try := 0; try < 100 && !q.done; try++ {
		err := j.lib.call(test, pointer(&q.handle), pointer(&q.flag), at)
		if err != nil {
			return false
		}
		q.done = q.flag != 0
	}
	return q.done
}

// neighbourhood is up to how many ranks no two make different calls if each agrees with the
// ranks before and after it.
const neighbourhood = 5

// unanimous returns when all ranks have made the same call, if it is a long one of the
// library's own. If ranks differ, some have a neighbour that does. Those do not come to the
// barrier, so no rank leaves it.
func (r *Rank) unanimous(ctx context.Context, call *backend.Call) error {
	n := len(r.world)
	bytes := max(call.Src.Bytes(), call.Dst.Bytes()) // the same on all ranks, except for those below
	switch call.Kind {
	case backend.GatherVKind, backend.ScatterVKind, backend.AllToAllVKind:
		return nil // they are messages, see pairs
	case backend.GatherKind:
		bytes = call.Src.Bytes() * n
	case backend.ScatterKind:
		bytes = call.Dst.Bytes() * n
	}
	if !r.job.lengths || bytes <= r.job.lib.eager {
		return nil
	}
	if r.checks == checkNone {
		if err := r.agree(ctx, call); err != nil {
			return err
		}
	}
	if r.checks == checkAll || n <= neighbourhood {
		return nil
	}
	return r.one(ctx, call, ibarrier, r.comm)
}
