package embedding

import (
	"runtime"
	"slices"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/tensor"
)

// asks are the requests that the last Prefetches have exchanged, the newest first, so that the lookup of the same batch need not.
type asks struct {
	count int64 // of Prefetches, the same on all ranks
	last  [len(aheads{})]ask
}

// An ask is the requests of a Prefetch.
type ask struct {
	number  int64 // of the Prefetch, from 1 on; 0: none
	group   *comm.Comm
	send    []int
	message []int64 // what this rank requests of its peers
	wanted  []int64 // what they request of it
}

// note remembers the requests of a Prefetch, and what the peers have sent, in place of the oldest.
func (a *asks) note(group *comm.Comm, message *tensor.Tensor, send []int, wanted *tensor.Tensor) {
	slices.Reverse(a.last[:])
	a.count++
	to := &a.last[0]
	*to = ask{a.count, group, append(to.send[:0], send...), append(to.message[:0], tensor.Read[int64](message)...),
		append(to.wanted[:0], tensor.Read[int64](wanted)...)}
	runtime.KeepAlive(message)
	runtime.KeepAlive(wanted)
}

// sameAsk returns the number of the Prefetch by which this rank has requested what it requests now, 0 if there is none.
func (x *exchange) sameAsk() int64 {
	if x.asks.count == 0 {
		return 0
	}
	x.packRequests()
	message := tensor.Read[int64](x.message)
	defer runtime.KeepAlive(x.message)
	for i := range x.asks.last {
		a := &x.asks.last[i]
		if a.number > 0 && a.group == x.requestGroup && slices.Equal(a.send, x.send) && slices.Equal(a.message, message) {
			return a.number
		}
	}
	return 0
}

// setAsked sets asked if all ranks have found the same Prefetch, which number at of the n numbers of each says: then the peers
// request what they requested then.
func (x *exchange) setAsked(all []int64, n, at int) {
	number := all[at]
	for its := range slices.Chunk(all, n) {
		if its[at] != number {
			return
		}
	}
	for i := range x.asks.last {
		if a := &x.asks.last[i]; number > 0 && a.number == number {
			x.asked = a
		}
	}
}
