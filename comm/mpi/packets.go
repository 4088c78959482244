//go:build linux && !nolibs

package mpi

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/gorun-spmd/gorun/comm/backend"
)

// packets are messages on a communicator of their own, of at most so many bytes. Receives of that
// length are always posted, so none is longer than its buffer.
type packets struct {
	r    *Rank
	comm uintptr
	ins  []*packetReceive // in the order in which they were posted, which is that in which they get messages
	outs []*outbound      // on their way
	over bool             // this rank has called Close, of these or of the world
}

// A packetReceive is a receive of a packet: the rank of the sender and the length, 4 bytes each, and the packet.
type packetReceive struct {
	request request
	buffer  []byte
}

const packetHead = 8

// How many packets are received and sent at once.
const (
	packetsIn  = 8
	packetsOut = 64
)

// OpenPackets makes a communicator like r's, which waits for the other ranks in the library.
func (r *Rank) OpenPackets(_ context.Context, most int) (backend.Packets, error) {
	if err := r.news(); err != nil {
		return nil, err
	}
	j := r.job
	j.mu.Lock()
	defer j.mu.Unlock()
	j.made = 0 // a handle may be shorter
	if err := j.lib.call(commDup, r.comm, pointer(&j.made)); err != nil {
		r.abort(err)
		return nil, err
	}
	p := &packets{r: r, comm: j.made}
	for range packetsIn {
		in := &packetReceive{buffer: make([]byte, packetHead+most)}
		if err := p.listen(in); err != nil {
			r.abort(err)
			return nil, err
		}
	}
	j.packets = append(j.packets, p)
	return p, nil
}

// listen posts a receive. The job's lock is held.
func (p *packets) listen(in *packetReceive) error {
	l := p.r.job.lib
	in.request = request{receive: true}
	p.ins = append(p.ins, in)
	return l.call(irecv, pointer(&in.buffer[0]), uintptr(len(in.buffer)), l.handles[typeByte], uintptr(l.anySource), 0, p.comm,
		pointer(&in.request.handle))
}

var errPacketsEnded = errors.New("the library has ended; make the call before the program ends")

// Send copies a packet and begins to send it.
func (p *packets) Send(to int, head, data []byte) (ok bool, err error) {
	j := p.r.job
	j.mu.Lock()
	defer j.mu.Unlock()
	if p.over {
		return false, errPacketsEnded
	}
	if len(p.outs) == packetsOut {
		if err := p.sweep(); err != nil || len(p.outs) == packetsOut {
			return false, err
		}
	}
	out := &outbound{data: make([]byte, packetHead, packetHead+len(head)+len(data))}
	binary.LittleEndian.PutUint32(out.data, uint32(p.r.me))
	binary.LittleEndian.PutUint32(out.data[4:], uint32(len(head)+len(data)))
	out.data = append(append(out.data, head...), data...)
	if err := j.lib.call(isend, pointer(&out.data[0]), uintptr(len(out.data)), j.lib.handles[typeByte], uintptr(to), 0, p.comm,
		pointer(&out.request.handle)); err != nil {
		return false, err
	}
	if err := j.test(&out.request); err != nil {
		return false, err
	}
	if !out.request.done {
		p.outs = append(p.outs, out)
	}
	return true, nil
}

// sweep forgets the packets that have left. The job's lock is held.
func (p *packets) sweep() error {
	var failed error
	p.outs = slices.DeleteFunc(p.outs, func(out *outbound) bool {
		if err := p.r.job.test(&out.request); err != nil {
			failed = err
		}
		return out.request.done
	})
	return failed
}

// Recv reads packets while there are some.
func (p *packets) Recv(read func(from int, packet []byte)) error {
	j := p.r.job
	for i := range packetsOut {
		j.mu.Lock()
		if p.over {
			j.mu.Unlock()
			return errPacketsEnded
		}
		in := p.ins[0]
		err := j.test(&in.request)
		came := in.request.done
		if i == 0 && err == nil && len(p.outs) > 0 {
			err = p.sweep()
		}
		j.mu.Unlock()
		if err != nil || !came {
			return err
		}
		n := int(binary.LittleEndian.Uint32(in.buffer[4:]))
		read(int(binary.LittleEndian.Uint32(in.buffer)), in.buffer[packetHead:packetHead+n])
		j.mu.Lock()
		if !p.over { // else it has been taken back, or kept
			p.ins = slices.Delete(p.ins, 0, 1)
			err = p.listen(in)
		}
		j.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// Close frees the communicator, which waits for the other ranks.
func (p *packets) Close() error {
	j := p.r.job
	j.mu.Lock()
	defer j.mu.Unlock()
	for len(p.outs) > 0 { // they were received
		if err := p.sweep(); err != nil {
			return err
		}
	}
	j.giveUp(p)
	j.packets = slices.DeleteFunc(j.packets, func(o *packets) bool { return o == p })
	j.made = p.comm
	return j.lib.call(commFree, pointer(&j.made))
}

// giveUp takes receives back, and notes sends that have not ended. The job's lock is held.
func (j *job) giveUp(p *packets) {
	for _, in := range p.ins {
		if !in.request.done && !j.takeBack(&in.request, j.lib.statusIgnore) {
			j.kept = append(j.kept, in)
		}
	}
	for _, out := range p.outs {
		j.kept = append(j.kept, out)
	}
	p.ins, p.outs, p.over = nil, nil, true
}

// giveUpPackets is giveUp of what the program has left open.
func (j *job) giveUpPackets() {
	for _, p := range j.packets {
		_ = p.sweep() // what fails is given up
		j.giveUp(p)
	}
	j.packets = nil
}

// Moved notes that something of a message has come.
func (r *Rank) Moved() {
	if s := r.job.segment; s != nil {
		s.Move(r.job.rank)
	}
}

// Broken returns what has ended the communicator.
func (r *Rank) Broken() error {
	if e := r.dead(); e != nil {
		return e
	}
	return r.news()
}

// Ended reports whether a rank has ended, and what it sent before has come.
func (r *Rank) Ended(rank int) (cause string, ended bool) {
	j := r.job
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.ended[r.world[rank]]
	if e == nil || !e.over || time.Since(e.seen) < endedGrace {
		return "", false
	}
	return e.cause, true
}
