package blocking

import (
	"encoding/binary"
	"slices"

	"github.com/gorun-spmd/gorun/comm/backend"
	"github.com/gorun-spmd/gorun/comm/mpi/exchange"
)

// tags is how many tags a group has: of its messages, and of its notes.
const tags = 2

// ended is the fingerprint of a rank that makes no more calls.
var ended = backend.Fingerprint{What: ^uint64(0)}

// A note is the fingerprint of a collective, as neighbours exchange it before the call.
type note struct{ out, in [16]byte }

// agree compares a call with those of the ranks before and after this one. A nil call is the end
// of the program. If all neighbours agree, all ranks do.
func (r *Rank) agree(call *backend.Call) error {
	if !r.job.checks || len(r.world) == 1 {
		return nil
	}
	mine := ended
	if call != nil {
		mine = call.Fingerprint()
	}
	var its [2]backend.Fingerprint
	if r.notes == nil {
		r.notes = new([2]note)
	}
	peers := r.neighbours()
	for i, q := range peers {
		n := &r.notes[i]
		binary.LittleEndian.PutUint64(n.out[:], mine.What)
		binary.LittleEndian.PutUint64(n.out[8:], mine.Count)
		if err := r.swap(n.out[:], n.in[:], q); err != nil {
			return err
		}
		its[i] = backend.Fingerprint{What: binary.LittleEndian.Uint64(n.in[:]), Count: binary.LittleEndian.Uint64(n.in[8:])}
	}
	for i, q := range peers {
		switch {
		case its[i] == mine:
		case its[i] == ended:
			return &backend.EndedError{Rank: r.world[q]}
		case call == nil:
			return &backend.EndedError{Rank: r.world[r.me]}
		default:
			return r.disagree(call, q)
		}
	}
	return nil
}

// neighbours returns the ranks before and after this one, in the order in which exchange would
// meet them. So all ranks can meet theirs one after the other.
func (r *Rank) neighbours() []int {
	n := len(r.world)
	peers := []int{(r.me + 1) % n, (r.me + n - 1) % n}
	slices.SortFunc(peers, func(p, q int) int { return (r.me+p)%n - (r.me+q)%n })
	return slices.Compact(peers)
}

// swap sends out to rank q and receives in from it.
func (r *Rank) swap(out, in []byte, q int) error {
	send := func() error { return r.job.binding.Send(out, r.world[q], tags*r.tag+1) }
	if r.me < q {
		if err := send(); err != nil {
			return err
		}
	}
	if err := r.job.binding.Recv(in, r.world[q], tags*r.tag+1); err != nil || r.me < q {
		return err
	}
	return send()
}

// disagree exchanges descriptions of the calls with rank q, and returns the error. Rank q has
// seen too that the calls differ.
func (r *Rank) disagree(call *backend.Call, q int) error {
	mine := call.Party(r.world[r.me])
	out, in := exchange.TextOf(mine), exchange.Text{}
	if err := r.swap(out[:], in[:], q); err != nil {
		return err
	}
	return backend.Mismatch(mine, in.Party(r.world[q]))
}
